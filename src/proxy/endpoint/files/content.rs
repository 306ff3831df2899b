//! `GET /v1/files/{id}/content`: all bytes or a range, each block verified against its checksum first.

use super::conditions::{ConditionOutcome, evaluate_conditions};
use super::range::{RangeRequest, parse_range};
use crate::proxy::endpoint::openapi::{EndpointWorkKind, FILE_CONTENT_TYPES, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture, decode_segment};
use crate::proxy::exchange::{Exchange, WriteOutcome, write_outcome};
use crate::proxy::response::head::ResponseHead;
use crate::storage::files::{FileContents, FileError};
use crate::telemetry::throttle::ThrottledLog;
use bytes::Bytes;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_core::{ApiError, ErrorCode, percent};
use penstock_object_storage::BucketError;
use penstock_storage::files::FileRecord;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Maximum number of bytes per read of a file.
const READ_SIZE: usize = 256 << 10;

/// Endpoint of file contents.
pub struct DownloadFileEndpoint;

type OpenedFile = Arc<(FileRecord, FileContents)>;

impl Endpoint for DownloadFileEndpoint {
    fn name(&self) -> &'static str {
        "file_content"
    }

    fn method(&self) -> Method {
        Method::GET
    }

    fn path(&self) -> &'static str {
        "/v1/files/*/content"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Files",
            EndpointWorkKind::Store,
            "The contents of a file, or a range of them",
            &[(200, FILE_CONTENT_TYPES), (206, FILE_CONTENT_TYPES), (304, &[])],
        )
        .with_request_headers(&["Range", "If-Match", "If-None-Match"])
        .with_error_codes(&[ErrorCode::RangeNotSatisfiable, ErrorCode::PreconditionFailed])
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            let file = x
                .app
                .files
                .get(&x.principal.public_id, &decode_segment(tail), x.app.file_expiry_context())
                .await?;
            let etag = etag(&file);
            if is_not_modified(x, &etag)? {
                return Ok(send_not_modified(x, &file, &etag).await);
            }
            let wanted = requested_range(x, &etag, file.bytes);
            let (status, range) = match wanted {
                RangeRequest::Full => (200, 0..file.bytes),
                RangeRequest::Part(range) => (206, range),
                RangeRequest::Unsatisfiable => {
                    let message = format!("range: expected bytes within the file's {} bytes.", file.bytes);
                    let refusal =
                        ApiError::with_message(ErrorCode::RangeNotSatisfiable, message).with_param("range");
                    return Err(refusal.with_details_member("bytes", file.bytes));
                }
            };
            let id = file.id.clone();
            let opened = open_file(x, file).await;
            let opened = opened.map_err(|failed| log_file_failure(&id, failed))?;
            x.reserve_memory(READ_SIZE.min(usize::try_from(range.end - range.start).unwrap_or(READ_SIZE)))?;
            // The first bytes are read before the response head is sent, so that damage leads to an error and not to a
            // truncated file.
            let first =
                read_slice(x, &opened, &range).await.map_err(|failed| log_file_failure(&id, failed))?;
            x.record.status = status;
            let head = download_head(x, status, &opened.0, &etag, &range);
            let length = range.end - range.start;
            let sent = head.send_head(&mut x.caller, "application/jsonl", length).await.is_ok();
            if !sent || length == 0 || *x.caller.method() == Method::HEAD {
                return Ok(if sent { WriteOutcome::Complete } else { WriteOutcome::Disconnected });
            }
            Ok(send_contents(x, &opened, range, first).await)
        })
    }
}

/// Evaluates `If-Match` and `If-None-Match`; returns true if the client has the contents already.
///
/// # Errors
/// Returns a refusal if the contents are not those that the client expects.
fn is_not_modified(x: &Exchange<'_>, etag: &str) -> Result<bool, ApiError> {
    let field = |name| x.caller.header_field(name).unwrap_or_default();
    match evaluate_conditions(field(header::IF_MATCH), field(header::IF_NONE_MATCH), etag) {
        ConditionOutcome::Met => Ok(false),
        ConditionOutcome::NotModified => Ok(true),
        ConditionOutcome::Failed => Err(ApiError::new(ErrorCode::PreconditionFailed).with_param("if-match")),
    }
}

/// Sends the head with the same fields as for the contents, but no body.
async fn send_not_modified(x: &mut Exchange<'_>, file: &FileRecord, etag: &str) -> WriteOutcome {
    x.record.status = 304;
    let head = download_head(x, 304, file, etag, &(0..0));
    write_outcome(head.send_head(&mut x.caller, "application/jsonl", 0).await)
}

/// Evaluates the `Range` header. It is ignored if `If-Range` names other contents.
fn requested_range(x: &Exchange<'_>, etag: &str, bytes: u64) -> RangeRequest {
    let only = x.caller.header_field(header::IF_RANGE).unwrap_or_default();
    if !only.is_empty() && only != etag.as_bytes() {
        return RangeRequest::Full;
    }
    parse_range(x.caller.header_field(header::RANGE).unwrap_or_default(), bytes)
}

/// Returns the ETag of a file: its SHA-256 if it is complete, or its ID and size while it grows.
fn etag(file: &FileRecord) -> String {
    match &file.sha256 {
        Some(sum) => format!("\"{sum}\""),
        None => format!("\"{}-{}\"", file.id, file.bytes),
    }
}

async fn open_file(x: &Exchange<'_>, file: FileRecord) -> Result<OpenedFile, FileError> {
    let files = x.app.files.clone();
    let opened = tokio::task::spawn_blocking(move || {
        let contents = files.open_contents(&file).map_err(FileError::Io)?;
        Ok(Arc::new((file, contents)))
    });
    opened.await.unwrap_or(Err(FileError::ThreadEnded))
}

/// Reads the first bytes of a range.
async fn read_slice(x: &Exchange<'_>, opened: &OpenedFile, range: &Range<u64>) -> Result<Bytes, FileError> {
    let left = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
    x.app.files.read(opened, range.start, left.min(READ_SIZE)).await
}

/// Logs the failure of a read of file contents for the operator, with the file's ID only, and returns the refusal for
/// the client. While the bucket is unreachable, no file can be read: that is logged as such, at most once a minute.
pub fn log_file_failure(id: &str, failed: FileError) -> ApiError {
    static OUTAGES: ThrottledLog = ThrottledLog::with_interval(Duration::from_secs(60));
    if let FileError::Io(error) = &failed {
        match BucketError::from_io_error(error) {
            Some(BucketError::Unreachable(why)) => {
                OUTAGES.log(Instant::now(), |times| tracing::warn!(name: "bucket_unreachable", why, times));
            }
            _ => tracing::error!(name: "file_unreadable", file = id, why = %error.kind()),
        }
    }
    failed.to_api_error()
}

fn download_head(
    x: &Exchange<'_>,
    status: u16,
    file: &FileRecord,
    etag: &str,
    range: &Range<u64>,
) -> ResponseHead {
    let head = x
        .new_response_head(status)
        .with_field(header::ACCEPT_RANGES, "bytes")
        .with_field(header::ETAG, etag)
        .with_field(header::CACHE_CONTROL, "private, no-cache")
        .with_field(header::X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_field(header::CONTENT_DISPOSITION, content_disposition(&file.filename));
    if status != 206 {
        return head;
    }
    let part = format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), file.bytes);
    head.with_field(header::CONTENT_RANGE, part)
}

/// Returns `Content-Disposition` with the file name in two forms: ASCII for old clients, UTF-8 for all others.
#[must_use]
pub fn content_disposition(name: &str) -> String {
    let plain = |letter: char| (letter.is_ascii_graphic() || letter == ' ') && !"\"\\%".contains(letter);
    let ascii: String = name.chars().map(|letter| if plain(letter) { letter } else { '_' }).collect();
    let encoded = percent::encode(name, percent::HEADER_PARAMETER);
    format!("attachment; filename=\"{ascii}\"; filename*=UTF-8''{encoded}")
}

async fn send_contents(
    x: &mut Exchange<'_>,
    opened: &OpenedFile,
    mut range: Range<u64>,
    mut piece: Bytes,
) -> WriteOutcome {
    loop {
        range.start += piece.len() as u64;
        let last = range.is_empty();
        // The rest is not sent to a client whose key was revoked during the download.
        if x.principal.is_revoked_or_suspended() {
            return WriteOutcome::Disconnected;
        }
        if x.caller.write_response_body(piece, last).await.is_err() {
            return WriteOutcome::Disconnected;
        }
        if last {
            return WriteOutcome::Complete;
        }
        piece = match read_slice(x, opened, &range).await {
            Ok(next) if !next.is_empty() => next,
            Ok(_) => return WriteOutcome::Disconnected,
            Err(failed) => {
                log_file_failure(&opened.0.id, failed);
                return WriteOutcome::Disconnected;
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_are_sent_in_ascii_and_in_utf_8() {
        assert_eq!(
            content_disposition("a b.jsonl"),
            "attachment; filename=\"a b.jsonl\"; filename*=UTF-8''a%20b.jsonl"
        );
        assert_eq!(
            content_disposition("na\u{ef}ve\"\r\n.jsonl"),
            "attachment; filename=\"na_ve___.jsonl\"; filename*=UTF-8''na%C3%AFve%22%0D%0A.jsonl"
        );
    }
}
