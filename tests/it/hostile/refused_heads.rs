//! Refusals of heads by the guard of HTTP/1.1: they have the same form as other refusals, in the dialect of the client,
//! and web pages can read them.

use super::{say, statuses};
use crate::harness::{Bench, Provider};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_head_gets_the_fields_and_the_dialect_of_other_refusals() {
    let provider = Provider::start().await;
    let settings =
        "[limits]\nhead = \"2KiB\"\ntarget = \"256B\"\nrequest_head = \"1s\"\nkeep_alive = \"300ms\"";
    let bench = Bench::new().settings(settings).listen("cors = [\"https://page.example\"]");
    let running = bench.provider("a", &provider).start().await;
    let long = "y".repeat(2048);
    let page = "Origin: https://page.example\r\n";
    let version = "anthropic-version: 2023-06-01\r\n";
    let (chat, messages) = ("\"code\":\"", "\"type\":\"error\"");
    for (target, fields, status) in [
        ("/v1/models", format!("x: {long}\r\n\r\n"), 431),
        ("/v1/models/m", "no colon\r\n\r\n".to_owned(), 400),
        ("/v1/models", "x: y\r\n".to_owned(), 408),
        (&*format!("/v1/models?{}", &long[..250]), "\r\n".to_owned(), 414),
        // Only Pingora's parser refuses this head.
        ("/v1/models?a=<b>", "\r\n".to_owned(), 400),
    ] {
        for (origin, hint, envelope) in [(page, version, messages), (page, "", chat), ("", version, messages)]
        {
            let head = format!("GET {target} HTTP/1.1\r\nHost: a\r\n{origin}{hint}{fields}");
            let heard = say(running.client.address, head.as_bytes()).await;
            let text = String::from_utf8_lossy(&heard).to_ascii_lowercase();
            assert_eq!(statuses(&heard), [status], "{target}: {text}");
            assert!(text.contains(envelope), "{target}: {text}");
            for line in ["\r\ndate: ", "\r\nx-request-id: req_", "\r\nconnection: close", "\r\nvary: origin"]
            {
                assert!(text.contains(line), "{target} {line}: {text}");
            }
            let allowed = text.contains("\r\naccess-control-allow-origin: https://page.example\r\n");
            assert_eq!(allowed, !origin.is_empty(), "{target}: {text}");
            assert_eq!(text.contains("\r\naccess-control-expose-headers: "), allowed, "{target}: {text}");
        }
    }
    assert_eq!(provider.calls(), 0);
}
