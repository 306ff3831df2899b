//! Small HTTP server whose answers a test chooses.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Behaviour of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Ignores the conditions of a request: answers each one with status 200 and an entity tag.
    IgnoresConditions,
    /// Reads the request and never answers.
    Stalls,
    /// Sends the start of a body and then stops.
    StallsInBody,
    /// Sends a body without an end.
    Endless,
    /// Closes the connection in the middle of the body.
    EndsEarly,
    /// Answers the first request with the end of an object of 100,000 bytes, and later ones with fewer bytes than the
    /// head of the response states. The answers have an entity tag only if `has_tag`.
    ShortRanges { has_tag: bool },
    /// Sends bytes that are not HTTP.
    Garbage,
    /// Answers with this status, and an error text that the messages of the client must not repeat.
    Fails(u16),
    /// Answers that the bucket does not exist.
    LacksBucket,
    /// Lists an object that was created ten minutes before the date of the answer, and objects with invalid names.
    /// The answer has the date only if `has_date`.
    Lists { has_date: bool },
    /// Deletes objects, but refuses to delete several with one request.
    LacksBulkDeletion,
    /// Deletes several objects with one request.
    DeletesInBulk,
    /// Has one empty object, and refuses ranges of it.
    HasEmptyObject,
    /// Lists 12,000 objects with invalid names, and then one with a valid name.
    ListsOthers,
    /// Refuses to create an object because of another request for it, which leaves an object if `exists`.
    Conflicts { exists: bool },
    /// Accepts uploads in parts. The object is missing when the upload begins; if `is_overtaken`, another upload
    /// creates the object meanwhile. Without `knows_condition` the server refuses a last request that has the
    /// condition.
    TakesParts { is_overtaken: bool, knows_condition: bool },
}

/// Running server.
pub struct BadServer {
    pub port: u16,
    pub requests: Arc<AtomicUsize>,
    /// First lines of the requests.
    pub lines: Arc<Mutex<Vec<String>>>,
}

impl BadServer {
    /// Starts a server, which ends with the test process.
    pub fn start(behaviour: Behaviour) -> BadServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let lines = Arc::new(Mutex::new(Vec::new()));
        let server = BadServer { port, requests: requests.clone(), lines: lines.clone() };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (requests, lines) = (requests.clone(), lines.clone());
                std::thread::spawn(move || serve(&stream, behaviour, &requests, &lines));
            }
        });
        server
    }
}

fn serve(stream: &TcpStream, behaviour: Behaviour, requests: &AtomicUsize, lines: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    while let Some(first) = read_request(&mut reader) {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        lines.lock().unwrap().push(first.clone());
        if answer(stream, behaviour, &first, number).is_none() {
            return;
        }
    }
}

/// Reads a request and returns its first line, with [`CONDITION`] if it has one; `None` at the end of the connection.
pub fn read_request(reader: &mut impl BufRead) -> Option<String> {
    let (mut first, mut line, mut length) = (None::<String>, String::new(), 0);
    loop {
        line.clear();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return None;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if let (Some(first), true) = (&mut first, line.to_ascii_lowercase().starts_with("if-none-match:")) {
            first.push_str(CONDITION);
        }
        if line.trim().is_empty() {
            std::io::copy(&mut reader.take(length), &mut std::io::sink()).ok()?;
            return first;
        }
        first.get_or_insert_with(|| line.trim().to_owned());
    }
}

/// End of the first line of a request with the header `If-None-Match`.
pub const CONDITION: &str = " if-none-match";

/// Answer of a server that ignores conditions.
pub const ACCEPTED: &[u8] = b"HTTP/1.1 200 OK\r\netag: \"1\"\r\ncontent-length: 0\r\n\r\n";

/// Answers a request, of which `number` were received before; returns `None` if the connection ends.
fn answer(mut stream: &TcpStream, behaviour: Behaviour, request: &str, number: usize) -> Option<()> {
    let head = |length: usize| {
        format!(
            "HTTP/1.1 206 Partial Content\r\netag: \"1\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-range: \
             bytes 0-{}/{length}\r\ncontent-length: {length}\r\n\r\n",
            length - 1
        )
    };
    match behaviour {
        Behaviour::IgnoresConditions => stream.write_all(ACCEPTED).ok(),
        Behaviour::Stalls => wait_for_end(stream),
        Behaviour::StallsInBody => {
            stream.write_all(head(1_000).as_bytes()).ok()?;
            stream.write_all(&[b'x'; 100]).ok()?;
            wait_for_end(stream)
        }
        Behaviour::Endless => {
            stream.write_all(b"HTTP/1.1 206 Partial Content\r\netag: \"1\"\r\n\r\n").ok()?;
            loop {
                stream.write_all(&[b'x'; 64 << 10]).ok()?;
            }
        }
        Behaviour::EndsEarly => {
            stream.write_all(head(1_000).as_bytes()).ok()?;
            stream.write_all(&[b'x'; 100]).ok()?;
            stream.shutdown(std::net::Shutdown::Both).ok()?;
            None
        }
        Behaviour::ShortRanges { has_tag } => {
            let (from, length) = if number == 0 { (100_000 - (64 << 10), 64 << 10) } else { (0, 100) };
            let range =
                format!("content-range: bytes {from}-99999/100000\r\ncontent-length: {length}\r\n\r\n");
            let head = "HTTP/1.1 206 Partial Content\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT";
            let tag = if has_tag { "etag: \"1\"\r\n" } else { "" };
            stream.write_all(format!("{head}\r\n{tag}{range}").as_bytes()).ok()?;
            stream.write_all(&vec![b'x'; length]).ok()
        }
        Behaviour::Garbage => {
            stream.write_all(b"\x15\x03\x01 not http\r\n\r\n").ok()?;
            None
        }
        Behaviour::Fails(status) => refuse(stream, status, "SomeCode"),
        Behaviour::LacksBucket => refuse(stream, 404, "NoSuchBucket"),
        Behaviour::Lists { has_date } => list(stream, has_date),
        Behaviour::LacksBulkDeletion if request.starts_with("DELETE ") => {
            stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok()
        }
        Behaviour::LacksBulkDeletion => refuse(stream, 501, "NotImplemented"),
        Behaviour::DeletesInBulk => {
            send_xml(stream, "<DeleteResult><Deleted><Key>files/0</Key></Deleted></DeleteResult>")
        }
        Behaviour::HasEmptyObject if request.starts_with("HEAD ") => stream.write_all(FOUND).ok(),
        Behaviour::HasEmptyObject => refuse(stream, 416, "InvalidRange"),
        Behaviour::ListsOthers => list_others(stream, request),
        // The first `HEAD` request comes before the upload in parts begins, so only later ones find the object.
        Behaviour::Conflicts { exists: true } | Behaviour::TakesParts { is_overtaken: true, .. }
            if request.starts_with("HEAD ") && number > 0 =>
        {
            stream.write_all(FOUND).ok()
        }
        Behaviour::Conflicts { .. } if is_creation(request) => refuse(stream, 409, "OperationAborted"),
        Behaviour::Conflicts { .. } => take_parts(stream, request, false, true),
        Behaviour::TakesParts { is_overtaken, knows_condition } => {
            take_parts(stream, request, is_overtaken, knows_condition)
        }
    }
}

/// Answer to `HEAD` for an empty object.
const FOUND: &[u8] =
    b"HTTP/1.1 200 OK\r\netag: \"1\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\ncontent-length: 0\r\n\r\n";

/// Returns true for a request that creates an object, either from its bytes or from the parts of an upload.
fn is_creation(request: &str) -> bool {
    match request.contains("uploadId=") {
        true => request.starts_with("POST "),
        false => request.starts_with("PUT "),
    }
}

fn take_parts(
    mut stream: &TcpStream,
    request: &str,
    is_overtaken: bool,
    knows_condition: bool,
) -> Option<()> {
    let is_conditional = request.ends_with(CONDITION);
    if request.starts_with("HEAD ") {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").ok();
    }
    if request.starts_with("PUT ") {
        return stream.write_all(ACCEPTED).ok();
    }
    if request.starts_with("DELETE ") {
        return stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").ok();
    }
    if !request.contains("uploadId=") {
        return send_xml(
            stream,
            "<InitiateMultipartUploadResult><UploadId>u1</UploadId></InitiateMultipartUploadResult>",
        );
    }
    match (is_conditional, knows_condition) {
        (true, false) => refuse(stream, 501, "NotImplemented"),
        (true, true) if is_overtaken => refuse(stream, 412, "PreconditionFailed"),
        _ => {
            send_xml(stream, "<CompleteMultipartUploadResult><ETag>1</ETag></CompleteMultipartUploadResult>")
        }
    }
}

fn send_xml(mut stream: &TcpStream, body: &str) -> Option<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).ok()
}

fn list(mut stream: &TcpStream, has_date: bool) -> Option<()> {
    let date = if has_date { "date: Thu, 01 Jan 2026 00:10:00 GMT\r\n" } else { "" };
    let object = |key: &str| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>\"1\"</ETag>\
             <Size>7</Size></Contents>"
        )
    };
    let objects = ["files/a", "files/of another program", "files/~"].map(object).concat();
    let body = format!(
        "<ListBucketResult><Name>penstock</Name><KeyCount>3</KeyCount><IsTruncated>false</IsTruncated>{objects}\
         </ListBucketResult>"
    );
    let head = format!("HTTP/1.1 200 OK\r\n{date}content-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).ok()
}

/// Lists the next thousand of 12,000 objects with invalid names. The number of an object also is the continuation
/// token after it.
fn list_others(stream: &TcpStream, request: &str) -> Option<()> {
    const COUNT: usize = 12_000;
    let query = request.split(['?', '&', ' ']);
    let position =
        |name| query.clone().find_map(|pair| pair.strip_prefix(name)).map(|value| &value[value.len() - 5..]);
    let after = position("continuation-token=").or(position("start-after="));
    let first = after.map_or(0, |after| after.parse::<usize>().unwrap() + 1);
    let last = (first + 1_000).min(COUNT);
    let mut keys: Vec<String> =
        (first..last).map(|number| format!("files/of another program {number:05}")).collect();
    let end = match last == COUNT {
        true => "<IsTruncated>false</IsTruncated>".to_owned(),
        false => {
            let token = last - 1;
            format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{token:05}</NextContinuationToken>"
            )
        }
    };
    keys.extend((last == COUNT).then(|| "files/z".to_owned()));
    let object = |key: String| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><Size>7</Size></Contents>"
        )
    };
    let objects: String = keys.into_iter().map(object).collect();
    send_xml(stream, &format!("<ListBucketResult>{end}{objects}</ListBucketResult>"))
}

fn refuse(mut stream: &TcpStream, status: u16, code: &str) -> Option<()> {
    let body = format!("<Error><Code>{code}</Code><Message>secret text</Message></Error>");
    let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).ok()
}

/// Waits until the client closes the connection.
fn wait_for_end(mut stream: &TcpStream) -> Option<()> {
    stream.read_exact(&mut [0; 1]).ok();
    None
}
