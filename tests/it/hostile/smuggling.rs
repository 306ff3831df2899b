//! Ambiguous requests, generated from combinations: an ambiguous body length gets 400 and ends the connection; an
//! accepted request becomes exactly one request to a provider, with the declared body and framing by the gateway.

use crate::harness::{Bench, Client, Provider};
use crate::hostile::{CHAT, ask, full, say, statuses};
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Framing that a header line declares: none, a length, chunks, or something ambiguous. `{n}` in a line stands for
/// the length of the body.
#[derive(Clone, Copy, PartialEq)]
enum LengthClaim {
    Nothing,
    Length,
    Chunked,
    Two,
}
use LengthClaim::{Chunked, Length, Nothing, Two};

/// Header lines to combine in pairs, with the claim of each; some have an invalid line end.
const LINES: &[(&str, LengthClaim)] = &[
    ("", Nothing),
    ("X-Pad: y\r\n", Nothing),
    ("Content-Length: {n}\r\n", Length),
    ("content-length:{n}\r\n", Length),
    ("CONTENT-LENGTH:\t {n} \t\r\n", Length),
    ("Content-Length: 00{n}\r\n", Length),
    ("Transfer-Encoding: chunked\r\n", Chunked),
    ("transfer-encoding:chunked\r\n", Chunked),
    ("TRANSFER-ENCODING: \tCHUNKED \r\n", Chunked),
    ("Content-Length: +{n}\r\n", Two),
    ("Content-Length: -{n}\r\n", Two),
    ("Content-Length: 0x{n}\r\n", Two),
    ("Content-Length: {n}, {n}\r\n", Two),
    ("Content-Length: {n},5\r\n", Two),
    ("Content-Length: {n} 5\r\n", Two),
    ("Content-Length: {n}.0\r\n", Two),
    ("Content-Length: {n}e0\r\n", Two),
    ("Content-Length: {n};\r\n", Two),
    ("Content-Length: \"{n}\"\r\n", Two),
    ("Content-Length:\r\n", Two),
    ("Content-Length: \u{0660}\r\n", Two),
    ("Content-Length: 18446744073709551616\r\n", Two),
    ("Content-Length: 9223372036854775808\r\n", Two),
    ("Content-Length : {n}\r\n", Two),
    ("Content-Length\t: {n}\r\n", Two),
    ("Content-Length\u{b}: {n}\r\n", Two),
    ("Content-Length\r\n", Two),
    ("Content Length: {n}\r\n", Two),
    (" Content-Length: {n}\r\n", Two),
    ("\tContent-Length: {n}\r\n", Two),
    ("Content-Length:\r\n {n}\r\n", Two),
    ("Content-Length: {n}\n", Two),
    ("Content-Length: {n}\r", Two),
    ("Content-Length: {n}\r\r\n", Two),
    ("Content-Length: {n}\0\r\n", Two),
    ("X: y\rContent-Length: {n}\r\n", Two),
    ("X: y\nContent-Length: {n}\r\n", Two),
    ("X: y\r\n Content-Length: {n}\r\n", Two),
    ("Transfer-Encoding: chunked, chunked\r\n", Two),
    ("Transfer-Encoding: identity\r\n", Two),
    ("Transfer-Encoding: identity, chunked\r\n", Two),
    ("Transfer-Encoding: chunked, identity\r\n", Two),
    ("Transfer-Encoding: gzip, chunked\r\n", Two),
    ("Transfer-Encoding: chunked;q=0.5\r\n", Two),
    ("Transfer-Encoding: xchunked\r\n", Two),
    ("Transfer-Encoding: chunkedx\r\n", Two),
    ("Transfer-Encoding: chunk\r\n", Two),
    ("Transfer-Encoding: \"chunked\"\r\n", Two),
    ("Transfer-Encoding: 'chunked'\r\n", Two),
    ("Transfer-Encoding: ,chunked\r\n", Two),
    ("Transfer-Encoding: chunked,\r\n", Two),
    ("Transfer-Encoding:\u{b}chunked\r\n", Two),
    ("Transfer-Encoding:\u{c}chunked\r\n", Two),
    ("Transfer-Encoding: chunked\u{b}\r\n", Two),
    ("Transfer-Encoding:\u{a0}chunked\r\n", Two),
    ("Transfer-Encoding: \0chunked\r\n", Two),
    ("Transfer-Encoding: ch\u{212a}unked\r\n", Two),
    ("Transfer-Encoding:\r\n", Two),
    ("Transfer-Encoding:\r\n chunked\r\n", Two),
    ("Transfer-Encoding : chunked\r\n", Two),
    ("Transfer-Encoding\t: chunked\r\n", Two),
    (" Transfer-Encoding: chunked\r\n", Two),
    ("Transfer-Encoding: chunked\n", Two),
    ("Transfer-Encoding: chunked\r", Two),
    ("X: y\nTransfer-Encoding: chunked\r\n", Two),
    ("X: y\r\n\tTransfer-Encoding: chunked\r\n", Two),
    ("X: y\rTransfer-Encoding: chunked\r\n", Two),
];

/// Request lines; true if the line is valid.
const FIRST: &[(&str, bool)] = &[
    ("POST /v1/chat/completions HTTP/1.1\r\n", true),
    ("POST http://test/v1/chat/completions HTTP/1.1\r\n", true),
    ("\r\nPOST /v1/chat/completions HTTP/1.1\r\n", true),
    ("POST /v1/chat/completions HTTP/1.1\n", false),
    ("POST /v1/chat/completions HTTP/1.1\r", false),
    ("POST /v1/chat/completions HTTP/1.2\r\n", false),
    ("POST /v1/chat/completions HTTP/2.0\r\n", false),
    ("POST /v1/chat/completions HTTP/0.9\r\n", false),
    ("POST /v1/chat/completions\r\n", false),
    ("POST  /v1/chat/completions HTTP/1.1\r\n", false),
    ("POST\t/v1/chat/completions\tHTTP/1.1\r\n", false),
    ("POST /v1/chat/completions HTTP/1.1 \r\n", false),
    ("POST /v1/chat/completions HTTP/1.1\0\r\n", false),
    ("POST /v1/chat\r/completions HTTP/1.1\r\n", false),
    ("PO ST /v1/chat/completions HTTP/1.1\r\n", false),
    (" POST /v1/chat/completions HTTP/1.1\r\n", false),
    ("\n\nPOST /v1/chat/completions HTTP/1.1\r\n", false),
    ("POST http://other/v1/chat/completions HTTP/1.1\r\n", false),
    ("POST http://test@other/v1/chat/completions HTTP/1.1\r\n", false),
];

/// One request; `one` is true if its framing is unambiguous.
struct SmugglingCase {
    name: String,
    bytes: Vec<u8>,
    one: bool,
    /// True if the request is answered successfully, and not refused for its content.
    good: bool,
}

fn case(
    key: &str,
    number: usize,
    first: (&str, bool),
    lines: [(&str, LengthClaim); 2],
    chunked: bool,
) -> SmugglingCase {
    let body = ask(&format!("case-{number}"));
    let framed = match chunked {
        true => format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()),
        false => body.clone(),
    };
    // A declared length always equals the number of bytes that are sent as the body.
    let fields = lines.map(|(line, _)| line.replace("{n}", &framed.len().to_string()));
    let (length, coded) = (
        lines.iter().filter(|(_, says)| *says == Length).count(),
        lines.iter().filter(|(_, says)| *says == Chunked).count(),
    );
    let one = first.1 && length + coded <= 1 && lines.iter().all(|(_, says)| *says != Two);
    // Content-Length with a chunked body gives a body that is not JSON; Transfer-Encoding: chunked with a plain body
    // cannot be decoded.
    let good = one && ((length == 1 && !chunked) || (coded == 1 && chunked));
    let smuggled = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\n\r\n{}",
        ask("smuggled").len(),
        ask("smuggled")
    );
    // With `Connection: close`, no request may follow, so the gateway must not treat the bytes after the body as a
    // request.
    let head = format!(
        "{}Host: test\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n{}{}\r\n",
        first.0, fields[0], fields[1]
    );
    let name = format!("{number}: {:?} chunked={chunked}", head.replace(key, "KEY"));
    SmugglingCase {
        name,
        bytes: [head.as_bytes(), framed.as_bytes(), smuggled.as_bytes()].concat(),
        one,
        good,
    }
}

/// All pairs of lines with both kinds of body, and all request lines with each line.
fn corpus(key: &str) -> Vec<SmugglingCase> {
    let mut cases = Vec::new();
    let step = if full() { 1 } else { 3 };
    for (at, before) in LINES.iter().enumerate() {
        for (next, after) in LINES.iter().enumerate() {
            for chunked in [false, true] {
                // The short form has a third of the pairs, and all pairs without an ambiguous line.
                let plain = before.1 != Two && after.1 != Two;
                if plain || (at + next) % step == 0 {
                    cases.push(case(key, cases.len(), FIRST[0], [*before, *after], chunked));
                }
            }
        }
    }
    for first in &FIRST[1..] {
        for line in LINES {
            for chunked in [false, true] {
                cases.push(case(key, cases.len(), *first, [*line, LINES[1]], chunked));
            }
        }
    }
    cases
}

/// Sends the cases over many connections at a time; returns each case with the response bytes.
async fn play(client: &Client, cases: Vec<SmugglingCase>) -> Vec<(SmugglingCase, Vec<u8>)> {
    let (cases, mut work) = (Arc::new(parking_lot::Mutex::new(cases)), JoinSet::new());
    for _ in 0..64 {
        let (cases, address) = (cases.clone(), client.address);
        work.spawn(async move {
            let mut heard = Vec::new();
            loop {
                let Some(case) = cases.lock().pop() else { return heard };
                let response = say(address, &case.bytes).await;
                heard.push((case, response));
            }
        });
    }
    work.join_all().await.into_iter().flatten().collect()
}

/// Asserts that the provider received only complete requests written by the gateway; returns the numbers of their
/// cases.
fn sound(provider: &Provider) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    for seen in provider.seen() {
        assert_eq!((seen.method.as_str(), seen.path.as_str()), ("POST", CHAT));
        let count = |name: &str| seen.headers.iter().filter(|(known, _)| known == name).count();
        assert_eq!((count("content-length"), count("transfer-encoding"), count("host")), (1, 0, 1));
        assert!(
            seen.headers.iter().all(|(name, value)| !name.contains(' ') && !value.contains(['\r', '\n']))
        );
        let json = seen.json();
        let text = json["messages"][0]["content"].as_str().unwrap();
        let number = text.strip_prefix("case-").unwrap_or_else(|| panic!("a provider was sent {text:?}"));
        assert!(numbers.insert(number.parse().unwrap()), "{number} was asked twice");
    }
    numbers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ambiguous_request_is_rejected_and_a_clear_one_is_sent_once() {
    let provider = Provider::start().await;
    let bench =
        Bench::new().settings("[limits]\nkeep_alive = \"300ms\"\nbody_idle = \"1s\"\nrequest_head = \"1s\"");
    let running = bench.provider("a", &provider).start().await;
    let cases = corpus(&running.client.key);
    let all = cases.len();
    let (mut refused, mut answered) = (0, BTreeSet::new());
    for (case, heard) in play(&running.client, cases).await {
        let text = String::from_utf8_lossy(&heard).into_owned();
        let codes = statuses(&heard);
        assert_eq!(codes.len(), 1, "one answer and the end: {} {text}", case.name);
        if !case.one {
            assert_eq!(codes, [400], "{} {text}", case.name);
            assert!(text.to_ascii_lowercase().contains("connection: close"), "{} {text}", case.name);
            assert!(text.contains("INFERENCE_3201"), "{} {text}", case.name);
            refused += 1;
        } else if case.good {
            assert_eq!(codes, [200], "{} {text}", case.name);
            answered.insert(case.name.split(':').next().unwrap().parse::<usize>().unwrap());
        } else {
            assert!(matches!(codes[..], [400 | 408]), "{} {text}", case.name);
        }
    }
    assert_eq!(sound(&provider), answered);
    eprintln!(
        "{all} cases: {refused} of two meanings refused, {} answered, the rest had no body of use",
        answered.len()
    );
    assert!(answered.len() > 30 && refused > 5000);
}

/// Expected result of reading a body.
#[derive(Clone, Copy, PartialEq)]
enum Readable {
    Yes,
    No,
}

/// Returns chunked bodies, each with a different anomaly.
fn chunked(body: &str) -> Vec<(String, Readable)> {
    use Readable::{No, Yes};
    let n = format!("{:x}", body.len());
    let (front, back) = body.split_at(7);
    let whole = |head: &str| format!("{head}\r\n{body}\r\n0\r\n\r\n");
    vec![
        (whole(&n), Yes),
        (whole(&n.to_uppercase()), Yes),
        (whole(&format!("000{n}")), Yes),
        (whole(&format!("{n};a=b")), Yes),
        // Blanks after the chunk size; some clients pad the size with them.
        (whole(&format!("{n} ")), Yes),
        (whole(&format!("{n}\t")), Yes),
        (whole(&format!("{n} \t  ")), Yes),
        (whole(&format!("{n} ;a=b")), Yes),
        (whole(&format!("{n}\t; a = b ")), Yes),
        (format!("{n}\r\n{body}\r\n0  \r\n\r\n"), Yes),
        (whole(&format!(" {n}")), No),
        (whole(&format!("\t{n}")), No),
        (whole(&format!("{n} 0")), No),
        (whole(&format!("{n} x")), No),
        (whole(" "), No),
        (whole(&format!("{n}\u{b}")), No),
        (whole(&format!("{n}\u{c}")), No),
        (whole(&format!("{n}\u{a0}")), No),
        (whole(&format!("{n}\0")), No),
        (format!("{n} \n{body}\r\n0\r\n\r\n"), No),
        (format!("{n} \r{body}\r\n0\r\n\r\n"), No),
        (format!("7\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n", back.len()), Yes),
        (format!("{n}\r\n{body}\r\n0\r\nTrailer: x\r\n\r\n"), Yes),
        (format!("{n}\r\n{body}\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"), Yes),
        (whole(&format!("0x{n}")), No),
        (whole(&format!("+{n}")), No),
        (whole(&format!("-{n}")), No),
        (whole(&format!("{n}g")), No),
        (whole(""), No),
        (whole(";a=b"), No),
        (whole(&format!("\"{n}\"")), No),
        (whole(&format!("1{n:0>16}")), No),
        (whole("ffffffffffffffff"), No),
        (whole("fffffffffffffffe"), No),
        (whole("7fffffffffffffff"), No),
        (whole(&format!("{n};{}", "a".repeat(64 << 10))), No),
        (format!("{n}\n{body}\r\n0\r\n\r\n"), No),
        (format!("{n}\r{body}\r\n0\r\n\r\n"), No),
        (format!("{n}\r\n{body}0\r\n\r\n"), No),
        (format!("{n}\r\n{body}XX0\r\n\r\n"), No),
        (format!("{n}\r\n{body}\n0\r\n\r\n"), No),
        (format!("{n};a\nb\r\n{body}\r\n0\r\n\r\n"), No),
        (format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len() - 1), No),
        (format!("{n}\r\n{body}\r\n0\r\n{}\r\n\r\n", "X: y\r\n".repeat(20_000)), No),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_chunks_are_read_as_they_are_meant_or_not_at_all() {
    let provider = Provider::start().await;
    let bench = Bench::new().settings("[limits]\nkeep_alive = \"300ms\"\nbody_idle = \"300ms\"");
    let running = bench.provider("a", &provider).start().await;
    let (key, forms) = (&running.client.key, chunked(&ask("case-0")).len());
    let mut expected = BTreeSet::new();
    for number in 0..forms {
        let (body, readable) = chunked(&ask(&format!("case-{number}"))).swap_remove(number);
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\nTransfer-Encoding: chunked\r\n\r\n"
        );
        let after = format!("GET /smuggled HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {key}\r\n\r\n");
        let heard = say(running.client.address, format!("{head}{body}{after}").as_bytes()).await;
        let (codes, shown) = (statuses(&heard), body.chars().take(40).collect::<String>());
        if readable == Readable::Yes {
            assert_eq!(codes, [200, 404], "{number} {shown:?} {}", String::from_utf8_lossy(&heard));
            expected.insert(number);
        } else {
            assert!(
                matches!(codes[..], [400 | 408 | 413]),
                "{number} {shown:?} {}",
                String::from_utf8_lossy(&heard)
            );
        }
    }
    assert_eq!(sound(&provider), expected);
}
