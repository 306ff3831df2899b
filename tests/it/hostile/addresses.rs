//! Hostile addresses from clients and providers: connections go to configured addresses only.

use crate::harness::gateway::PATIENT;
use crate::harness::script::{ScriptStep, json_answer};
use crate::harness::{Bench, Provider};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

/// Starts a listener on every address of this machine that counts its connections.
async fn forbidden() -> (u16, Arc<AtomicUsize>) {
    let listener = match TcpListener::bind("[::]:0").await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("0.0.0.0:0").await.unwrap(),
    };
    let (port, came) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = came.clone();
    tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    (port, came)
}

/// URLs that lead to the forbidden port, in all spellings of the host that some parser might accept. `good` is the
/// provider's own host and port.
fn hostile(bad: u16, good: &str) -> Vec<String> {
    let mut table = Vec::new();
    let hosts = [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "0",
        "0.0.0.0",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "127.0.0.1.",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[fe80::1%25lo]",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "127.0.0.1%00",
        "127.0.0.1%20",
        "１２７.0.0.1",
        "127。0。0。1",
        "ⓛocalhost",
        "xn--localhost",
        "127.0.0.1.nip.test",
        "user@127.0.0.1",
        "user:pass@127.0.0.1",
        "@127.0.0.1",
        ":@127.0.0.1",
        "127.0.0.1@",
        "127.0.0.1,127.0.0.2",
    ];
    for host in hosts {
        for scheme in
            ["http://", "https://", "HTTP://", "hTTp://", "//", "http:", "http:/", "http:\\\\", "ftp://"]
        {
            table.push(format!("{scheme}{host}:{bad}/x.png"));
        }
    }
    let colon = good.replace(':', "%3a");
    for odd in [
        "http://GOOD@127.0.0.1:BAD/x",
        "http://GOOD#@127.0.0.1:BAD/x",
        "http://GOOD?@127.0.0.1:BAD/x",
        "http://127.0.0.1:BAD\\@GOOD/x",
        "http://127.0.0.1:BAD#@GOOD/x",
        "http://127.0.0.1:BAD?@GOOD/x",
        "http://127.0.0.1:BAD/@GOOD/x",
        "http://GOOD\\@127.0.0.1:BAD/x",
        "http://GOOD\\.127.0.0.1:BAD/x",
        "http://GOOD%2f@127.0.0.1:BAD/x",
        "http://GOOD:BAD/x",
        "http://COLON@127.0.0.1:BAD/x",
        "http://GOOD%00.127.0.0.1:BAD/x",
        "http://GOOD .127.0.0.1:BAD/x",
        "http://GOOD\t@127.0.0.1:BAD/x",
        "http://GOOD\r\n127.0.0.1:BAD/x",
        "http://127.0.0.1:BAD\r\nHost: GOOD\r\n/x",
        " http://127.0.0.1:BAD/x",
        "\thttp://127.0.0.1:BAD/x",
        "http://\u{200b}127.0.0.1:BAD/x",
        "ht\ntp://127.0.0.1:BAD/x",
        "http://127.0.0.1:00BAD/x",
        "http://127.0.0.1:+BAD/x",
        "http://127.0.0.1: BAD/x",
        "http://127.0.0.1:BAD:80/x",
        "http:///127.0.0.1:BAD/x",
        "http:////127.0.0.1:BAD/x",
        "///127.0.0.1:BAD/x",
        "/\\127.0.0.1:BAD/x",
        "\\\\127.0.0.1:BAD\\x",
        "\\/127.0.0.1:BAD/x",
        "//GOOD@127.0.0.1:BAD/x",
        "/..//127.0.0.1:BAD/x",
        "/x\r\nHost: 127.0.0.1:BAD\r\n",
        "/x HTTP/1.1\r\nHost: 127.0.0.1:BAD\r\n\r\nGET /y",
        "file:///etc/passwd",
        "file://127.0.0.1:BAD/x",
        "gopher://127.0.0.1:BAD/x",
        "dict://127.0.0.1:BAD/x",
        "ws://127.0.0.1:BAD/x",
        "unix:/tmp/x",
        "data:image/png;base64,AAAA",
        "javascript:x",
        "127.0.0.1:BAD/x",
        "127.0.0.1:BAD",
        "",
        "http://",
        "http://:BAD/",
        "?http://127.0.0.1:BAD/",
        "#",
        "http://GOOD.:BAD/x",
        "http://[GOOD]@127.0.0.1:BAD/",
    ] {
        table.push(odd.replace("COLON", &colon).replace("GOOD", good).replace("BAD", &bad.to_string()));
    }
    table
}

fn draws(provider: &Provider, url: &str) {
    provider.then(json_answer(200, &json!({"created": 1, "data": [{"url": url}]})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_providers_address_leads_nowhere_but_where_it_may() {
    let (provider, allowed) = (Provider::start().await, Provider::start().await);
    let (bad, came) = forbidden().await;
    let toml = format!(
        "[[models]]\nid = \"d\"\nkind = \"image\"\ncontext_length = 512\nprice = {{ image = 0.02 }}\n\
         [[providers]]\nid = \"a\"\noperator = \"Test\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.16\nwue = 0.2\n\
         base_url = \"http://{}/v1\"\nimage_hosts = [\"http://{}\"]\napi_key = {{ env = \"KEY\" }}\n{PATIENT}\n\
         [[providers.offers]]\nmodel = \"d\"\n",
        provider.address, allowed.address
    );
    let settings = "[routing]\nattempts = 1\nquick_retry = \"0\"";
    let running = Bench::new().settings(settings).more(&toml).start().await;
    let draw = json!({"model": "d", "prompt": "a cat", "response_format": "b64_json"});
    let path = "/v1/images/generations";
    let head = ScriptStep::Head(200, vec![("content-type", "image/png".into())]);
    let picture = vec![head, ScriptStep::Body(b"\x89PNG\r\n\x1a\n".to_vec())];
    provider.gets(picture.clone());
    allowed.gets(picture);
    // An allowed redirect is followed, which shows that the other cases test something.
    draws(&provider, &format!("http://{}/fine.png", allowed.address));
    assert_eq!(running.client.post(path, &draw).await.status, 200);
    assert_eq!(allowed.last().path, "/fine.png");
    assert_eq!(allowed.last().header("authorization"), None, "the provider's key is for its own host alone");

    let table = hostile(bad, &provider.address.to_string());
    let (mut refused, before) = (0, allowed.seen().len());
    for url in &table {
        provider.clear();
        draws(&provider, url);
        let answer = running.client.post(path, &draw).await;
        refused += usize::from(answer.status == 503);
        assert!(matches!(answer.status, 200 | 503), "{url:?}: {}", answer.text());
        assert_eq!(came.load(Ordering::SeqCst), 0, "{url:?} was followed");
        assert!(!answer.text().contains(&bad.to_string()), "{url:?} was told: {}", answer.text());
    }
    assert_eq!(allowed.seen().len(), before);
    // The gateway has sent requests only to addresses of the provider itself, and no URL has injected a header line.
    for seen in provider.seen() {
        assert!(seen.header("host") == Some(provider.address.to_string().as_str()), "{seen:?}");
        assert!(matches!(seen.method.as_str(), "GET" | "POST"));
    }
    for status in [301, 302, 303, 307, 308] {
        for from in ["own", "allowed"] {
            let (host, server) =
                if from == "own" { (provider.address, &provider) } else { (allowed.address, &allowed) };
            provider.clear();
            draws(&provider, &format!("http://{host}/moved.png"));
            let to = format!("http://127.0.0.1:{bad}/x.png");
            server.get_then(vec![
                ScriptStep::Head(status, vec![("location", to)]),
                ScriptStep::Body(Vec::new()),
            ]);
            assert_eq!(running.client.post(path, &draw).await.status, 503, "{status} from {from}");
        }
    }
    assert_eq!(came.load(Ordering::SeqCst), 0);
    eprintln!(
        "{} hostile addresses: {refused} refused, the others stayed with their provider; 0 connections",
        table.len()
    );
    assert!(table.len() >= 300 && refused > 300);
}

/// Addresses from clients are forwarded or rejected, and never fetched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clients_address_is_never_followed() {
    let provider = Provider::start().await;
    let (bad, came) = forbidden().await;
    let bench = Bench::new().model("input_modalities = [\"text\", \"image\"]");
    let running = bench.provider("a", &provider).start().await;
    for url in hostile(bad, &provider.address.to_string()) {
        let part = json!({"type": "image_url", "image_url": {"url": url}});
        let ask = json!({"model": "m", "messages": [{"role": "user", "content": [part]}]});
        let answer = running.client.post("/v1/chat/completions", &ask).await;
        assert!(matches!(answer.status, 200 | 400), "{url:?}: {}", answer.text());
    }
    let host = format!("127.0.0.1:{bad}");
    for head in
        [("host", host.as_str()), ("x-forwarded-host", &host), ("forwarded", &host), ("referer", &host)]
    {
        let answer = running.client.send("GET", "/v1/models", &[head], b"").await;
        assert!(matches!(answer.status, 200 | 400), "{head:?}: {}", answer.text());
    }
    assert_eq!(came.load(Ordering::SeqCst), 0);
}
