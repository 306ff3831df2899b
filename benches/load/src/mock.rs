//! Mock provider that answers from prebuilt bytes, with one thread per connection, so that only the proxy before it is
//! measured. A plain request gets an answer of a few hundred bytes; a streamed one gets its head and first token in one
//! write, then one token at a time.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Number of content tokens of a stream.
pub const TOKENS: usize = 64;
/// Interval between tokens.
const PACE: Duration = Duration::from_millis(2);

pub struct Answers {
    pub plain: Vec<u8>,
    pub models: Vec<u8>,
    /// Head of a streamed response, with the first content token.
    pub first: Vec<u8>,
    token: Vec<u8>,
    /// Finish reason, usage, `[DONE]`, the last chunk.
    last: Vec<u8>,
}

/// Serves until it is killed.
pub fn serve(listen: SocketAddr) -> Result<(), String> {
    let listener = TcpListener::bind(listen).map_err(|why| format!("{listen}: {why}"))?;
    let answers = Arc::new(answers());
    for stream in listener.incoming().flatten() {
        let answers = answers.clone();
        // If the client disconnects, this thread ends with an error, which is ignored.
        thread::spawn(move || drop(connection(stream, &answers)));
    }
    Ok(())
}

fn connection(mut stream: TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut read = Vec::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        read.clear();
        let Some(head) = head(&mut stream, &mut read, &mut buffer)? else { return Ok(()) };
        let text = String::from_utf8_lossy(read.get(..head).unwrap_or_default()).to_ascii_lowercase();
        let length = content_length(&text).unwrap_or(0);
        while read.len() < head + length {
            let count = stream.read(&mut buffer)?;
            if count == 0 {
                return Ok(());
            }
            read.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
        if text.starts_with("get ") {
            stream.write_all(&answers.models)?;
        } else if streamed(read.get(head..).unwrap_or_default()) {
            tell(&mut stream, answers)?;
        } else {
            stream.write_all(&answers.plain)?;
        }
    }
}

/// Reads until the head is complete. Returns its length, or `None` if the connection ends.
pub fn head(stream: &mut TcpStream, read: &mut Vec<u8>, buffer: &mut [u8]) -> std::io::Result<Option<usize>> {
    loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        let count = stream.read(buffer)?;
        if count == 0 {
            return Ok(None);
        }
        read.extend_from_slice(buffer.get(..count).unwrap_or_default());
    }
}

/// Returns the value of `content-length` of a head in lower case.
pub fn content_length(head: &str) -> Option<usize> {
    head.lines().find_map(|line| line.strip_prefix("content-length:"))?.trim().parse().ok()
}

/// Returns true for a streamed request: `"stream":true` is within 512 bytes of either end of this program's bodies.
pub fn streamed(body: &[u8]) -> bool {
    let edge = body.len().min(512);
    let ends = [body.get(..edge), body.get(body.len() - edge..)];
    ends.iter().flatten().any(|end| end.windows(13).any(|part| part == b"\"stream\":true"))
}

fn tell(stream: &mut TcpStream, answers: &Answers) -> std::io::Result<()> {
    stream.write_all(&answers.first)?;
    let begun = Instant::now();
    for number in 1..TOKENS {
        let due = PACE * u32::try_from(number).unwrap_or(u32::MAX);
        thread::sleep(due.saturating_sub(begun.elapsed()));
        stream.write_all(&answers.token)?;
    }
    stream.write_all(&answers.last)
}

/// Builds the prebuilt answers.
pub fn answers() -> Answers {
    let usage =
        format!("{{\"prompt_tokens\":40,\"completion_tokens\":{TOKENS},\"total_tokens\":{}}}", 40 + TOKENS);
    let answer = format!(
        "{{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1763650000,\"model\":\"theirs\",\
         \"choices\":[{{\"index\":0,\"message\":{{\"role\":\"assistant\",\"content\":\"Rivers bend because one \
         bank wears away and the other one grows.\"}},\"logprobs\":null,\"finish_reason\":\"stop\"}}],\"usage\":{usage}}}"
    );
    let ok = |body: &str| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
        format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
    };
    let event = |delta: &str, finish: &str| {
        chunk(&format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1763650000,\
             \"model\":\"theirs\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\
             \"finish_reason\":{finish}}}]}}\n\n"
        ))
    };
    let token = event("{\"content\":\" word\"}", "null");
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let start = event("{\"role\":\"assistant\",\"content\":\"\"}", "null");
    let counted = chunk(&format!(
        "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1763650000,\
         \"model\":\"theirs\",\"choices\":[],\"usage\":{usage}}}\n\n"
    ));
    let finish = event("{}", "\"stop\"");
    Answers {
        plain: ok(&answer),
        models: ok("{\"object\":\"list\",\"data\":[]}"),
        first: format!("{head}{start}{token}").into_bytes(),
        last: format!("{finish}{counted}{}0\r\n\r\n", chunk("data: [DONE]\n\n")).into_bytes(),
        token: token.into_bytes(),
    }
}

/// Encodes a chunk of a chunked body.
pub fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
