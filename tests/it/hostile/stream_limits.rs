//! Limits on open and reset streams of an HTTP/2 connection: just below, at and just above.

use super::raw_h2::{
    DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST, Raw, SETTINGS, field, frame, get, pseudo,
};
use crate::harness::certificates::TestCertificate;
use crate::harness::gateway::Running;
use crate::harness::script::silent;
use crate::harness::{Bench, Provider, until};
use crate::hostile::{CHAT, ask};

const REFUSED_STREAM: u32 = 7;
const CANCEL: [u8; 4] = [0, 0, 0, 8];
const ENHANCE_YOUR_CALM: u32 = 11;

async fn start(provider: &Provider, certified: &TestCertificate, settings: &str) -> Running {
    let bench = Bench::new().settings(settings).listen(&certified.https());
    bench.provider("a", provider).start().await
}

/// Returns the head of a request whose body follows later.
pub fn begun(stream: u32, key: &str) -> Vec<u8> {
    let block = [pseudo("POST", CHAT), field("authorization", &format!("Bearer {key}"))].concat();
    frame(HEADERS, END_HEADERS, stream, &block)
}

/// A whole request.
pub fn whole(stream: u32, key: &str) -> Vec<u8> {
    [begun(stream, key), frame(DATA, END_STREAM, stream, ask("Hi").as_bytes())].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_has_so_many_streams_at_a_time() {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    provider.always(silent());
    let running = start(&provider, &certified, "[limits]\nh2_streams = 3").await;
    let key = running.client.key.clone();
    let mut raw = Raw::begun(running.gateway.https_address.unwrap(), &certified.root).await;
    let settings = loop {
        let frame = raw.hear().await.expect("settings");
        if frame.kind == SETTINGS && frame.flags == 0 {
            break frame.payload;
        }
    };
    assert!(settings.chunks(6).any(|one| one == [0, 3, 0, 0, 0, 3]), "clients are told: {settings:?}");
    for (stream, calls) in [(1, 1), (3, 2), (5, 3)] {
        raw.send(&whole(stream, &key)).await;
        provider.until_calls(calls).await;
    }
    raw.send(&whole(7, &key)).await;
    let reset = loop {
        let frame = raw.hear().await.expect("the connection goes on");
        assert_ne!(frame.kind, GOAWAY);
        if frame.kind == RST {
            break frame;
        }
    };
    assert_eq!((reset.stream, reset.code()), (7, REFUSED_STREAM), "it may be asked again elsewhere");
    // Once one stream ends, another may start.
    raw.send(&frame(RST, 0, 1, &CANCEL)).await;
    provider.until_left(1).await;
    raw.send(&whole(9, &key)).await;
    provider.until_calls(4).await;
    assert_eq!(provider.max_in_flight(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_may_give_up_so_many_streams() {
    const OWN: u32 = 0x7fff_fff1;
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    let running = start(&provider, &certified, "[limits]\nh2_resets = 5").await;
    for (resets, goes_on) in [(4, true), (5, true), (6, false)] {
        let mut raw = Raw::begun(running.gateway.https_address.unwrap(), &certified.root).await;
        for stream in (1..).step_by(2).take(resets) {
            raw.send(&[begun(stream, &running.client.key), frame(RST, 0, stream, &CANCEL)].concat()).await;
        }
        until("the streams to be over", || running.gateway.app.in_flight_exchanges() == 0).await;
        if goes_on {
            raw.send(&get(OWN)).await;
        }
        let mut answered = false;
        while let Some(frame) = raw.hear().await {
            answered |= frame.kind == HEADERS && frame.stream == OWN;
            if frame.kind == GOAWAY {
                assert_eq!(frame.code(), ENHANCE_YOUR_CALM);
                break;
            }
            if answered {
                break;
            }
        }
        assert_eq!(answered, goes_on, "{resets} streams were given up");
    }
    assert_eq!(provider.calls(), 0);
}
