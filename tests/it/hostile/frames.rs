//! HTTP/2 frame by frame: what breaks a rule ends its stream or its connection,
//! what breaks none is answered, and no provider is asked either way.

use super::raw2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Heard, PADDED, PING, PRIORITISED,
    PRIORITY, PUSH, RST, Raw, SETTINGS, WINDOW, field, frame, get, kept, pseudo, setting,
};
use crate::harness::h2::H2;
use crate::harness::secure::{Certified, connect};
use crate::harness::{Bench, Provider};
use crate::hostile::{CHAT, ask};

/// What has to become of the frames.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    /// The connection ends.
    Connection,
    /// The stream ends with an error, or the connection does, which is always allowed.
    Stream,
    /// The stream is refused: with a status of 4xx, or as above.
    Refused,
    /// Nothing does.
    Nothing,
}
use Ends::{Connection, Nothing, Refused, Stream};

/// A head without an end: its stream stays open for a body.
fn open(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &pseudo("POST", "/v1/nothing-here"))
}

/// A request that a provider would answer, but for these fields after the four.
fn with(key: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    only(key, &[&[pseudo("POST", CHAT)], fields].concat())
}

/// A request of these fields, a key and a body.
fn only(key: &str, fields: &[Vec<u8>]) -> Vec<u8> {
    let block = [fields.concat(), field("authorization", &format!("Bearer {key}"))].concat();
    [frame(HEADERS, END_HEADERS, 1, &block), frame(DATA, END_STREAM, 1, ask("Hi").as_bytes())].concat()
}

fn wrong_places() -> Table {
    let mut table = Vec::new();
    let payload = |kind: u8| -> Vec<u8> {
        match kind {
            PRIORITY => vec![0; 5],
            RST => vec![0, 0, 0, 8],
            PING => vec![0; 8],
            WINDOW => vec![0, 0, 0, 1],
            GOAWAY => vec![0; 8],
            HEADERS => pseudo("GET", "/"),
            PUSH => [&[0, 0, 0, 2][..], &pseudo("GET", "/")].concat(),
            _ => Vec::new(),
        }
    };
    // Frames on a stream that belong to the connection, and the other way round.
    for (kind, stream) in [
        (DATA, 0),
        (HEADERS, 0),
        (PRIORITY, 0),
        (RST, 0),
        (PUSH, 0),
        (CONTINUATION, 0),
        (SETTINGS, 1),
        (PING, 1),
        (GOAWAY, 1),
    ] {
        table.push((
            format!("kind {kind} on stream {stream}"),
            frame(kind, END_HEADERS, stream, &payload(kind)),
            Connection,
        ));
    }
    // Frames on a stream that was never opened.
    for kind in [DATA, RST, WINDOW, CONTINUATION] {
        table.push((
            format!("kind {kind} on an idle stream"),
            frame(kind, END_HEADERS, 1, &payload(kind)),
            Connection,
        ));
    }
    // Sizes that cannot be.
    for (kind, stream, sizes) in [
        (PRIORITY, 1, vec![0, 4, 6]),
        (RST, 1, vec![0, 3, 5]),
        (SETTINGS, 0, vec![1, 5, 7, 11]),
        (PING, 0, vec![0, 7, 9]),
        (GOAWAY, 0, vec![0, 7]),
        (WINDOW, 0, vec![0, 3, 5]),
        (WINDOW, 1, vec![0, 3, 5]),
    ] {
        for size in sizes {
            let ends = if kind == PRIORITY { Stream } else { Connection };
            let bytes = [open(1), frame(kind, 0, stream, &vec![0; size])].concat();
            table.push((format!("kind {kind} of {size} bytes on {stream}"), bytes, ends));
        }
    }
    for kind in [DATA, HEADERS, SETTINGS, PING, WINDOW, 0x42] {
        let stream = if matches!(kind, SETTINGS | PING) { 0 } else { 1 };
        let bytes = [open(1), frame(kind, END_HEADERS, stream, &vec![0; (64 << 10) + 1])].concat();
        table.push((format!("kind {kind}, larger than allowed"), bytes, Connection));
    }
    // From the server alone, or never.
    table.push((
        "a push".into(),
        [open(1), frame(PUSH, END_HEADERS, 1, &payload(PUSH))].concat(),
        Connection,
    ));
    for stream in [2, 4, 0x7fff_fffe] {
        table.push((format!("a stream with the even number {stream}"), get(stream), Connection));
    }
    table
}

fn wrong_order() -> Table {
    let half = |stream| frame(HEADERS, END_STREAM, stream, &pseudo("GET", "/v1/nothing"));
    let mut table = vec![
        ("no preface".into(), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(), Connection),
        ("a stream below an earlier one".into(), [get(5), get(3)].concat(), Connection),
        ("a stream again after its end".into(), [get(1), get(1)].concat(), Connection),
        ("data after the end of a stream".into(), [get(1), frame(DATA, 0, 1, b"x")].concat(), Stream),
        (
            "data after a reset".into(),
            [open(1), frame(RST, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x")].concat(),
            Stream,
        ),
        ("headers within headers".into(), [half(1), get(3)].concat(), Connection),
        ("data within headers".into(), [half(1), frame(DATA, 0, 1, b"x")].concat(), Connection),
        ("a ping within headers".into(), [half(1), frame(PING, 0, 0, &[0; 8])].concat(), Connection),
        ("settings within headers".into(), [half(1), frame(SETTINGS, 0, 0, b"")].concat(), Connection),
        ("an unknown frame within headers".into(), [half(1), frame(0x42, 0, 1, b"x")].concat(), Connection),
        ("a reset within headers".into(), [half(1), frame(RST, 0, 1, &[0; 4])].concat(), Connection),
        (
            "more of another stream's headers".into(),
            [half(1), frame(CONTINUATION, END_HEADERS, 3, b"")].concat(),
            Connection,
        ),
        (
            "more headers after their end".into(),
            [get(1), frame(CONTINUATION, END_HEADERS, 1, b"")].concat(),
            Connection,
        ),
        (
            "headers that go on".into(),
            [half(1), frame(CONTINUATION, END_HEADERS, 1, &field("x", "y"))].concat(),
            Nothing,
        ),
        (
            "a stream that depends on itself".into(),
            [open(1), frame(PRIORITY, 0, 1, &[0, 0, 0, 1, 0])].concat(),
            Nothing,
        ),
        (
            "headers that depend on themselves".into(),
            frame(
                HEADERS,
                END_HEADERS | END_STREAM | PRIORITISED,
                1,
                &[&[0, 0, 0, 1, 0][..], &pseudo("GET", "/v1/nothing")].concat(),
            ),
            Stream,
        ),
        ("more padding than data".into(), [open(1), frame(DATA, PADDED, 1, &[9, 0])].concat(), Connection),
        (
            "more padding than headers".into(),
            frame(HEADERS, PADDED | END_HEADERS | END_STREAM, 1, &[255, 0x82]),
            Connection,
        ),
        ("no length of padding".into(), [open(1), frame(DATA, PADDED, 1, b"")].concat(), Connection),
        ("a window of nothing, of a stream".into(), [open(1), frame(WINDOW, 0, 1, &[0; 4])].concat(), Stream),
        ("a window of nothing".into(), frame(WINDOW, 0, 0, &[0; 4]), Connection),
        (
            "a window too wide".into(),
            frame(WINDOW, 0, 0, &0x7fff_ffff_u32.to_be_bytes()).repeat(2),
            Connection,
        ),
        (
            "a window too wide, of a stream".into(),
            [open(1), frame(WINDOW, 0, 1, &0x7fff_ffff_u32.to_be_bytes()).repeat(2)].concat(),
            Stream,
        ),
        ("an acknowledgement with settings".into(), frame(SETTINGS, ACK, 0, &setting(3, 1)), Connection),
        ("a push that is neither on nor off".into(), frame(SETTINGS, 0, 0, &setting(2, 2)), Connection),
        ("a first window too wide".into(), frame(SETTINGS, 0, 0, &setting(4, 0x8000_0000)), Connection),
        ("frames too small".into(), frame(SETTINGS, 0, 0, &setting(5, 16_383)), Connection),
        ("frames too large".into(), frame(SETTINGS, 0, 0, &setting(5, 1 << 24)), Connection),
        ("a setting nobody knows".into(), frame(SETTINGS, 0, 0, &setting(0x4242, 7)), Nothing),
        ("a frame nobody knows".into(), frame(0x42, 0xff, 0, b"what"), Nothing),
        ("an answer to no ping".into(), frame(PING, ACK, 0, b"12345678"), Nothing),
        ("a good request".into(), get(1), Nothing),
    ];
    // Blocks that are no HPACK.
    for (what, block) in [
        ("an index beyond the tables", vec![0xff, 0x20]),
        ("the index of nothing", vec![0x80]),
        ("a number without an end", vec![0xff; 40]),
        ("a string that is cut", vec![0x40, 0x05, b'a']),
        ("Huffman code with a wrong end", vec![0x40, 0x81, 0xff, 0x81, 0x00]),
        ("a table larger than allowed", vec![0x3f, 0xff, 0xff, 0x03]),
        ("a table that changes late", vec![0x82, 0x20]),
    ] {
        table.push((what.into(), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block), Connection));
    }
    table
}

fn wrong_heads(key: &str) -> Table {
    let mut table = Vec::new();
    // Fields that are not to be, above all those that mean something to HTTP/1.1.
    for (name, value) in [
        ("connection", "close"),
        ("connection", "authorization"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("Authorization", "upper case"),
        ("TRANSFER-ENCODING", "chunked"),
        ("x y", "a space"),
        ("x:y", "a colon"),
        ("", "no name"),
        ("x\r\ny", "a line"),
        ("x", "a\r\nSmuggled: yes"),
        ("x", "a\nb"),
        ("x", "a\rb"),
        ("x", "a\0b"),
        (":status", "200"),
        (":unknown", "x"),
        (":path", "/again"),
        (":method", "GET"),
        ("content-length", "-1"),
        ("content-length", "x"),
        ("content-length", "5, 6"),
        ("content-length", "99999999999999999999999"),
        ("host", "other"),
        ("host", "user@localhost"),
    ] {
        table.push((format!("the field {name:?}: {value:?}"), with(key, &[field(name, value)]), Refused));
    }
    let [method, scheme, path, authority] =
        [(":method", "POST"), (":scheme", "https"), (":path", CHAT), (":authority", "localhost")]
            .map(|(n, v)| field(n, v));
    for (what, fields) in [
        ("no method", vec![&scheme, &path, &authority]),
        ("no scheme", vec![&method, &path, &authority]),
        ("no path", vec![&method, &scheme, &authority]),
        ("no authority", vec![&method, &scheme, &path]),
        ("a method twice", vec![&method, &method, &scheme, &path, &authority]),
        ("a path twice", vec![&method, &scheme, &path, &path, &authority]),
        ("nothing", vec![]),
    ] {
        let fields: Vec<Vec<u8>> = fields.into_iter().cloned().collect();
        table.push((what.into(), only(key, &fields), Refused));
    }
    let late = [method.clone(), field("x", "y"), scheme.clone(), path.clone(), authority.clone()];
    table.push(("a field before the path".into(), only(key, &late), Refused));
    for bad in ["", "nothing", "/a b", "/a\r\nHost: b", "/a\0b", "http://other/v1", "//other@host/v1", "*"] {
        let fields = [method.clone(), scheme.clone(), field(":path", bad), authority.clone()];
        table.push((format!("the path {bad:?}"), only(key, &fields), Refused));
    }
    for bad in ["user@localhost", "a b", "a\r\nb", "local host:1"] {
        let fields = [method.clone(), scheme.clone(), path.clone(), field(":authority", bad)];
        table.push((format!("the authority {bad:?}"), only(key, &fields), Refused));
    }
    let connect = [field(":method", "CONNECT"), field(":authority", "example.org:443")];
    table.push(("a tunnel".into(), only(key, &connect), Refused));
    let extended = [field(":method", "CONNECT"), field(":protocol", "websocket"), scheme, path, authority];
    table.push(("a tunnel with a protocol".into(), only(key, &extended), Refused));
    // A body that is not as long as its head said.
    for (said, body) in [("5", &b"123"[..]), ("2", b"123"), ("0", b"1")] {
        let block =
            [pseudo("POST", CHAT), field("authorization", key), field("content-length", said)].concat();
        let head = frame(HEADERS, END_HEADERS, 1, &block);
        let bytes = [head, frame(DATA, END_STREAM, 1, body)].concat();
        table.push((format!("{} bytes where {said} were announced", body.len()), bytes, Refused));
    }
    let trailers = |block: &[u8], flags| [open(1), frame(HEADERS, flags, 1, block)].concat();
    table.push(("trailers that end nothing".into(), trailers(&field("x", "y"), END_HEADERS), Refused));
    table.push((
        "trailers with a path".into(),
        trailers(&field(":path", "/"), END_HEADERS | END_STREAM),
        Refused,
    ));
    table
}

/// What became of it: frames until the stream is told of and another answered, or the connection ends.
async fn heard(raw: &mut Raw, bytes: &[u8], ends: Ends) -> (Vec<Heard>, bool) {
    // A request of its own shows that the connection goes on.
    const OWN: u32 = 0x7fff_fff1;
    raw.send(&[bytes, &frame(PING, 0, 0, b"are you?"), &get(OWN)].concat()).await;
    let (mut frames, mut own, mut told) = (Vec::new(), false, !matches!(ends, Refused | Stream));
    while let Some(frame) = raw.hear().await {
        own |= frame.kind == HEADERS && frame.stream == OWN;
        told |= matches!(frame.kind, RST | HEADERS) && frame.stream > 0 && frame.stream != OWN;
        let over = frame.kind == GOAWAY;
        frames.push(frame);
        if over || (own && told) {
            return (frames, !over);
        }
    }
    (frames, false)
}

/// The index of a static table's field for a 4xx, or a literal after `:status`.
fn status_4xx(head: &Heard) -> bool {
    match head.payload[0] {
        0x80.. => matches!(head.payload[0] & 0x7f, 12 | 13),
        _ => {
            // A literal, in digits or in their Huffman code, where a 4 is 0b011010.
            let value = &head.payload[2..];
            value.first() == Some(&b'4') || value.first().is_some_and(|byte| byte >> 2 == 0b01_1010)
        }
    }
}

type Table = Vec<(String, Vec<u8>, Ends)>;

async fn play(table: impl FnOnce(&str) -> Table) -> usize {
    let (provider, certified) = (Provider::start().await, Certified::make());
    let bench = Bench::new().settings("[limits]\nbody_idle = \"500ms\"").listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let address = running.gateway.https.unwrap();
    let table = table(&running.client.key);
    let count = table.len();
    for (what, bytes, ends) in table {
        let mut raw = match what.as_str() {
            "no preface" => Raw::connect(address, &certified.root).await,
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
    assert_eq!(H2::over(secure, &running.client.key).await.post(CHAT, &running.ask()).await.status, 200);
    eprintln!("{count} cases of HTTP/2 frames");
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_in_the_wrong_place_or_of_the_wrong_size_end_what_they_are_on() {
    assert!(play(|_| wrong_places()).await > 40);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_out_of_order_end_what_they_are_on() {
    assert!(play(|_| wrong_order()).await > 35);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_that_break_a_rule_are_refused() {
    assert!(play(wrong_heads).await > 45);
}

/// Heads at their limits, told by HTTP/2 in its own way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_over_its_limits_is_told_by_its_status() {
    let (provider, certified) = (Provider::start().await, Certified::make());
    let settings = "[limits]\nhead = \"4KiB\"\nhead_fields = 20\ntarget = \"256B\"";
    let bench = Bench::new().settings(settings).listen(&certified.https());
    let running = bench.provider("a", &provider).start().await;
    let socket = connect(running.gateway.https.unwrap(), &certified.root, &["h2"]).await;
    let (send, connection) = h2::client::handshake(socket).await.unwrap();
    let driver = tokio::spawn(async move { drop(connection.await) });
    let long = |length: usize| format!("/v1/models?{}", "q".repeat(length - 11));
    let cases = [
        (long(256), 1, 1, 200),
        (long(257), 1, 1, 414),
        (long(20), 19, 1, 200),
        (long(20), 20, 1, 431),
        (long(20), 1, 5000, 431),
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
    }
    driver.abort();
    // One entry of the table, named over and over: the bomb is over its size long before it is unpacked.
    let mut raw = Raw::begun(running.gateway.https.unwrap(), &certified.root).await;
    let bomb = [pseudo("GET", "/"), kept("x", &"y".repeat(2000)), vec![0xbe; 12_000]].concat();
    let (frames, alive) = heard(&mut raw, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &bomb), Refused).await;
    let refused = frames.iter().any(|frame| frame.kind == HEADERS && status_4xx(frame));
    assert!(!alive || refused || frames.iter().any(|frame| frame.kind == RST), "{frames:?}");
}
