//! `GET /v1/files/{id}/content`: all bytes or a range, each block verified against its checksum first.

use super::range::{Wanted, wanted};
use crate::proxy::endpoint::{Endpoint, decoded};
use crate::proxy::exchange::{Ended, Exchange};
use crate::proxy::response::head::Head;
use crate::storage::files::{Contents, Failed};
use crate::telemetry::log;
use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_contract::{Code, Refusal, percent};
use penstock_storage::files::FileRecord;
use std::ops::Range;
use std::sync::Arc;

/// Bytes per read.
const SLICE: usize = 256 << 10;

/// Endpoint of file contents.
pub struct Content;

type Opened = Arc<(FileRecord, Contents)>;

#[async_trait]
impl Endpoint for Content {
    fn name(&self) -> &'static str {
        "file_content"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files/*/content"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, tail: &str) -> Result<Ended, Refusal> {
        let file = x.house.files.get(&x.grant.public_id, &decoded(tail), x.house.when()).await?;
        let etag = etag(&file);
        let wanted = wanted_of(x, &etag, file.bytes);
        let (status, range) = match wanted {
            Wanted::Whole => (200, 0..file.bytes),
            Wanted::Part(range) => (206, range),
            Wanted::Nothing => {
                let message = format!("range: expected bytes within the file's {} bytes.", file.bytes);
                let refusal = Refusal::because(Code::RangeNotSatisfiable, message).at("range");
                return Err(refusal.with("bytes", file.bytes));
            }
        };
        let id = file.id.clone();
        let opened = open(x, file).await;
        let opened = opened.map_err(|failed| told(&id, failed))?;
        x.hold(SLICE.min(usize::try_from(range.end - range.start).unwrap_or(SLICE)))?;
        // Read before the response head is sent, so that damage is an error and not a truncated file.
        let first = read(x, &opened, &range).await.map_err(|failed| told(&id, failed))?;
        x.record.status = status;
        let head = head(x, status, &opened.0, &etag, &range);
        let length = range.end - range.start;
        let sent = head.piecewise(&mut x.caller, "application/jsonl", length).await.is_ok();
        if !sent || length == 0 || *x.caller.method() == Method::HEAD {
            return Ok(if sent { Ended::Written } else { Ended::Left });
        }
        Ok(send(x, &opened, range, first).await)
    }
}

/// Evaluates `Range`; it is ignored if `If-Range` names other contents.
fn wanted_of(x: &Exchange<'_>, etag: &str, bytes: u64) -> Wanted {
    let only = x.caller.field(header::IF_RANGE).unwrap_or_default();
    if !only.is_empty() && only != etag.as_bytes() {
        return Wanted::Whole;
    }
    wanted(x.caller.field(header::RANGE).unwrap_or_default(), bytes)
}

/// A complete file is identified by its SHA-256, a growing one by its ID and size.
fn etag(file: &FileRecord) -> String {
    match &file.sha256 {
        Some(sum) => format!("\"{sum}\""),
        None => format!("\"{}-{}\"", file.id, file.bytes),
    }
}

async fn open(x: &Exchange<'_>, file: FileRecord) -> Result<Opened, Failed> {
    let files = x.house.files.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let contents = files.contents(&file).map_err(Failed::Disk)?;
        Ok(Arc::new((file, contents)))
    });
    opened.await.unwrap_or(Err(Failed::Gone))
}

/// Reads the first bytes of a range.
async fn read(x: &Exchange<'_>, opened: &Opened, range: &Range<u64>) -> Result<Bytes, Failed> {
    let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    x.house.files.read(opened, range.start, left.min(SLICE)).await
}

/// Logs damage for the operator, with the file's ID only.
fn told(id: &str, failed: Failed) -> Refusal {
    if let Failed::Disk(error) = &failed {
        log::event(log::error(), "file_unreadable", &[("file", id), ("why", &error.kind().to_string())]);
    }
    failed.refusal()
}

fn head(x: &Exchange<'_>, status: u16, file: &FileRecord, etag: &str, range: &Range<u64>) -> Head {
    let head = x
        .head(status)
        .with(header::ACCEPT_RANGES, "bytes")
        .with(header::ETAG, etag)
        .with(header::CACHE_CONTROL, "private, no-cache")
        .with(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with(header::CONTENT_DISPOSITION, disposition(&file.filename));
    if status != 206 {
        return head;
    }
    let part = format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), file.bytes);
    head.with(header::CONTENT_RANGE, part)
}

/// `Content-Disposition` with the name twice: ASCII for old clients, UTF-8 for the others.
fn disposition(name: &str) -> String {
    let plain = |letter: char| (letter.is_ascii_graphic() || letter == ' ') && !"\"\\%".contains(letter);
    let ascii: String = name.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    let whole = percent::encoded(name, b"!#$&+-.^_`|~");
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{whole}")
}

async fn send(x: &mut Exchange<'_>, opened: &Opened, mut range: Range<u64>, mut piece: Bytes) -> Ended {
    loop {
        range.start += piece.len() as u64;
        let last = range.is_empty();
        if x.caller.write_response_body(piece, last).await.is_err() {
            return Ended::Left;
        }
        if last {
            return Ended::Written;
        }
        piece = match read(x, opened, &range).await {
            Ok(next) if !next.is_empty() => next,
            Ok(_) => return Ended::Left,
            Err(failed) => {
                told(&opened.0.id, failed);
                return Ended::Left;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_out_plain_and_whole() {
        assert_eq!(
            disposition("a b.jsonl"),
            "attachment; filename=\"a b.jsonl\"; filename*=UTF-8''a%20b.jsonl"
        );
        assert_eq!(
            disposition("na\u{ef}ve\"\r\n.jsonl"),
            "attachment; filename=\"na_ve___.jsonl\"; filename*=UTF-8''na%C3%AFve%22%0D%0A.jsonl"
        );
    }
}
