//! HTTP/2 frame by frame: a violation ends its stream or its connection, valid frames are answered, and no test frame
//! causes a provider call.

mod frame_order;
mod frame_types;
mod header_blocks;

use super::raw_h2::{
    END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST, Raw, ReceivedFrame, frame, get, indexed_field,
    pseudo,
};
use crate::harness::certificates::{TestCertificate, connect};
use crate::harness::h2_client::H2Client;
use crate::harness::{Bench, Provider};
use crate::hostile::CHAT;

/// Expected result of the frames.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ExpectedEnd {
    /// The connection ends.
    Connection,
    /// The stream ends with an error. Ending the connection is allowed too.
    Stream,
    /// The stream is refused with a 4xx status, or ends as for `Stream`.
    Refused,
    /// Neither the stream nor the connection ends.
    Nothing,
}
use ExpectedEnd::{Connection, Nothing, Refused, Stream};
use frame_order::invalid_frame_order;
use frame_types::invalid_frame_types;
use header_blocks::invalid_header_blocks;

/// Returns a head without the end of the stream, which stays open for a body.
fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &pseudo("POST", "/v1/nothing-here"))
}

/// Sends these bytes and a separate request. Returns the received frames, and true if the separate request was
/// answered, or false if the connection ended.
async fn heard(raw: &mut Raw, bytes: &[u8], ends: ExpectedEnd) -> (Vec<ReceivedFrame>, bool) {
    // A separate request shows that the connection still works.
    const OWN: u32 = 0x7fff_fff1;
    raw.send(&[bytes, &frame(PING, 0, 0, b"are you?"), &get(OWN)].concat()).await;
    let (mut frames, mut own, mut answered) = (Vec::new(), false, !matches!(ends, Refused | Stream));
    while let Some(frame) = raw.hear().await {
        own |= frame.kind == HEADERS && frame.stream == OWN;
        answered |= matches!(frame.kind, RST | HEADERS) && frame.stream > 0 && frame.stream != OWN;
        let over = frame.kind == GOAWAY;
        frames.push(frame);
        if over || (own && answered) {
            return (frames, !over);
        }
    }
    (frames, false)
}

/// Returns true for a 4xx status: an index of the static table, or a literal after `:status`.
fn status_4xx(head: &ReceivedFrame) -> bool {
    match head.payload[0] {
        0x80.. => matches!(head.payload[0] & 0x7f, 12 | 13),
        _ => {
            // The literal is in digits or Huffman-coded; the Huffman code of the digit 4 is 0b011010.
            let value = &head.payload[2..];
            value.first() == Some(&b'4') || value.first().is_some_and(|byte| byte >> 2 == 0b01_1010)
        }
    }
}

type Table = Vec<(String, Vec<u8>, ExpectedEnd)>;

async fn play(table: impl FnOnce(&str) -> Table) -> usize {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    let bench = Bench::new().settings("[limits]\nbody_idle = \"500ms\"").listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let address = running.gateway.https_address.unwrap();
    let table = table(&running.client.key);
    let count = table.len();
    for (what, bytes, ends) in table {
        let mut raw = match what.as_str() {
            what if what.starts_with("no preface") => Raw::connect(address, &certified.root).await,
            _ => Raw::begun(address, &certified.root).await,
        };
        let (frames, alive) = heard(&mut raw, &bytes, ends).await;
        let shown = || {
            format!(
                "{what}: {:?}",
                frames.iter().map(|f| (f.kind, f.stream, f.payload.len())).collect::<Vec<_>>()
            )
        };
        let reset = frames.iter().any(|frame| frame.kind == RST && frame.stream > 0 && frame.code() != 0);
        let refused =
            frames.iter().any(|frame| frame.kind == HEADERS && frame.stream == 1 && status_4xx(frame));
        match ends {
            Connection => {
                assert!(!alive, "{}", shown());
                if let Some(last) = frames.iter().find(|frame| frame.kind == GOAWAY) {
                    assert_ne!(last.code(), 0, "{}", shown());
                }
            }
            Stream => assert!(!alive || reset, "{}", shown()),
            Refused => assert!(!alive || reset || refused, "{}", shown()),
            Nothing => assert!(alive, "{}", shown()),
        }
    }
    assert_eq!(provider.calls(), 0, "none of it was asked of a provider");
    let secure = connect(address, &certified.root, &["h2"]).await;
    assert_eq!(
        H2Client::over(secure, &running.client.key).await.post(CHAT, &running.ask()).await.status,
        200
    );
    eprintln!("{count} cases of HTTP/2 frames");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn misplaced_or_missized_frames_end_their_stream_or_connection() {
    assert_eq!(play(|_| invalid_frame_types()).await, 54);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_out_of_order_end_their_stream_or_connection() {
    assert_eq!(play(|_| invalid_frame_order()).await, 73);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_break_a_rule_are_refused() {
    assert_eq!(play(invalid_header_blocks).await, 87);
}

/// Tests heads at and above their limits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_block_over_its_limits_gets_the_status_of_the_limit() {
    let (provider, certified) = (Provider::start().await, TestCertificate::make());
    let settings = "[limits]\nhead = \"4KiB\"\nhead_fields = 20\ntarget = \"256B\"";
    let bench = Bench::new().settings(settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let socket = connect(running.gateway.https_address.unwrap(), &certified.root, &["h2"]).await;
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let long = |length: usize| format!("/v1/models?{}", "q".repeat(length - 11));
    let cases = [
        (long(256), 1, 1, 200),
        (long(257), 1, 1, 414),
        (long(20), 19, 1, 200),
        (long(20), 20, 1, 431),
        (long(20), 1, 5000, 431),
        (long(20), 1, 9000, 431),
    ];
    for (path, fields, size, status) in cases {
        let mut request = http::Request::get(format!("https://localhost{path}"))
            .header("authorization", format!("Bearer {}", running.client.key));
        for number in 1..fields {
            request = request.header(format!("x-{number}"), "y");
        }
        let request = request.header("x-size", "y".repeat(size)).body(()).unwrap();
        let fields = request.headers().len();
        let mut send = send.clone().ready().await.unwrap();
        let (answer, _) = send.send_request(request, true).unwrap();
        let answer = crate::harness::within("an answer", answer).await.unwrap();
        assert_eq!(answer.status(), status, "{} bytes, {fields} fields, {size}", path.len());
        // The HTTP/2 library itself refuses a head of twice the limit, without the gateway's error body.
        let worded = answer.headers().contains_key("x-request-id");
        assert_eq!(worded, size < 2 * 4096, "{status} {size}");
    }
    driver.abort();
    // HPACK bomb: one long table entry is referenced repeatedly. The gateway refuses it by its decoded size before it
    // has decoded all of it.
    let mut raw = Raw::begun(running.gateway.https_address.unwrap(), &certified.root).await;
    let bomb = [pseudo("GET", "/"), indexed_field("x", &"y".repeat(2000)), vec![0xbe; 12_000]].concat();
    let (frames, alive) = heard(&mut raw, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb), Refused).await;
    let refused = frames.iter().any(|frame| frame.kind == HEADERS && status_4xx(frame));
    assert!(!alive || refused || frames.iter().any(|frame| frame.kind == RST), "{frames:?}");
}
