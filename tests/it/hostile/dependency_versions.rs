//! Locked versions of dependencies exclude known vulnerabilities.

use crate::harness::{Bench, Provider};
use crate::hostile::{CHAT, ask, say, statuses};

/// The versions of a crate in the lock file.
fn versions(name: &str) -> Vec<(u32, u32, u32)> {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.lock")).unwrap();
    let lock: toml::Table = lock.parse().unwrap();
    let number = |text: &str| text.split('-').next().unwrap().parse::<u32>().unwrap();
    let found =
        lock["package"].as_array().unwrap().iter().filter(|package| package["name"].as_str() == Some(name));
    let versions: Vec<_> = found
        .map(|package| {
            let mut parts = package["version"].as_str().unwrap().splitn(3, '.').map(number);
            (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap())
        })
        .collect();
    assert!(!versions.is_empty(), "{name} is locked");
    versions
}

#[test]
fn no_version_with_a_known_hole_is_locked() {
    for (name, floor) in [
        ("pingora-proxy", (0, 9, 1)),
        ("pingora-cache", (0, 9, 1)),
        ("pingora-core", (0, 9, 1)),
        ("pingora-http", (0, 9, 1)),
        ("h2", (0, 4, 16)),
        ("httparse", (1, 10, 1)),
    ] {
        for version in versions(name) {
            assert!(version >= floor, "{name} {version:?} is below {floor:?}");
        }
    }
}

/// Headers that a client nominates in `Connection`, or that request another protocol, do not change the provider's
/// request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cannot_take_a_header_from_the_providers_request() {
    let provider = Provider::start().await;
    let lines = "api_key = { env = \"KEY\" }\nheaders = { \"x-tenant\" = \"ours\" }";
    let patient = crate::harness::gateway::PATIENT;
    let bench = Bench::new().settings("[limits]\nkeep_alive = \"300ms\"");
    let running = bench.provider_with("a", &provider, &format!("{patient}\n{lines}"), "").start().await;
    let body = ask("Hi");
    let (key, length) = (&running.client.key, body.len());
    for extra in [
        "Connection: authorization, x-tenant, content-length, host\r\n",
        "Connection: close, Authorization\r\n",
        "Connection: keep-alive\r\nConnection: authorization\r\n",
        "Proxy-Connection: authorization\r\nKeep-Alive: timeout=9\r\n",
        "Connection: Upgrade\r\nUpgrade: websocket\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Upgrade: h2c\r\n",
        "TE: trailers\r\nTrailer: authorization\r\n",
        "X-Tenant: theirs\r\n",
    ] {
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n{extra}Content-Length: {length}\r\n\r\n"
        );
        // The bytes after the body must be handled as a separate request, neither as a part of the body nor as a
        // tunnel.
        let bytes = format!("{head}{body}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        let before = provider.seen().len();
        let heard = say(running.client.address, bytes.as_bytes()).await;
        let heard_text = String::from_utf8_lossy(&heard).into_owned();
        let last = extra.to_ascii_lowercase().contains("close");
        let expected = if last { &[200][..] } else { &[200, 404] };
        assert_eq!(statuses(&heard), expected, "{extra}: {heard_text}");
        let seen = provider.last();
        assert_eq!(provider.seen().len(), before + 1, "{extra}");
        assert_eq!(seen.header("authorization"), Some("Bearer value of KEY"), "{extra}");
        assert_eq!(seen.header("x-tenant"), Some("ours"), "{extra}");
        for gone in ["upgrade", "http2-settings", "te", "trailer", "proxy-connection", "keep-alive"] {
            assert_eq!(seen.header(gone), None, "{extra}: {gone} came through");
        }
        assert_eq!(seen.json()["messages"][0]["content"], "Hi");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_no_tunnels() {
    let provider = Provider::start().await;
    let bench = Bench::new().settings("[limits]\nkeep_alive = \"300ms\"");
    let running = bench.provider("a", &provider).start().await;
    let key = &running.client.key;
    for target in ["example.org:443", "127.0.0.1:9090", CHAT, "*"] {
        let head = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nAuthorization: Bearer {key}\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n"
        );
        let heard = statuses(&say(running.client.address, head.as_bytes()).await);
        assert!(matches!(heard[..], [400 | 404 | 405]), "{target}: {heard:?}");
    }
    assert_eq!(provider.seen().len(), 0);
}
