//! Download of a file by its account holder: the contents are read in pieces while they are sent, so that a large file
//! needs little memory.

use super::download_permits::DownloadPermit;
use super::pages::PageContext;
use crate::console::RESPONSE_HEADERS;
use crate::proxy::downstream::Downstream;
use crate::proxy::endpoint::{content_disposition, log_file_failure};
use crate::proxy::response::head::ResponseHead;
use crate::storage::files::{FileContents, FileError, FileManager};
use crate::telemetry::request_id::RequestId;
use bytes::Bytes;
use penstock_console::pages::percent_encode;
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::files::FileRecord;
use pingora_core::protocols::http::ServerSession;
use serde_json::Value;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum number of bytes per read of a file.
const READ_BYTES: usize = 256 << 10;
/// Timeout of sending one piece.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that a client has for a response of any size, in addition to the time for its bytes.
const MIN_SEND_TIME: Duration = Duration::from_secs(60);
/// Minimum average rate at which a client has to read a response, in bytes per second.
const MIN_BYTES_PER_SECOND: u64 = 128 << 10;

/// Opened file, whose contents are sent as a response.
pub struct FileDownload {
    files: Arc<FileManager>,
    opened: Arc<(FileRecord, FileContents)>,
    /// First piece. It is read before the response head is sent, so that a damaged file leads to an error response
    /// and not to a truncated download.
    first: Bytes,
    _permit: DownloadPermit,
}

impl fmt::Debug for FileDownload {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "FileDownload({})", self.opened.0.id)
    }
}

impl FileDownload {
    /// Opens the file of the page. The admin API checks that it belongs to the account of the person.
    ///
    /// # Errors
    /// Returns 404 for a file that does not exist, expired or belongs to another account, 503 if there are too many
    /// downloads, and an error if its contents cannot be read.
    pub async fn open(page: &PageContext<'_>) -> Result<Self, ApiError> {
        let found =
            page.get_from_admin_api(&format!("/admin/files/{}", percent_encode(&page.id)), &[]).await?;
        let key = found.get("key").and_then(Value::as_str).unwrap_or_default();
        let account = page.active.user.account.as_deref().unwrap_or_default();
        let permit = page.console.downloads.acquire(account)?;
        let app = &page.console.app;
        let record = app.files.get(key, &page.id, app.file_expiry_context()).await?;
        let files = app.files.clone();
        let reader = files.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let contents = reader.open_contents(&record).map_err(FileError::Io)?;
            Ok(Arc::new((record, contents)))
        });
        let opened = opened.await.unwrap_or(Err(FileError::ThreadEnded));
        let opened = opened.map_err(|failed| log_file_failure(&page.id, failed))?;
        let first = files.read(&opened, 0, READ_BYTES).await;
        let first = first.map_err(|failed| log_file_failure(&page.id, failed))?;
        if first.is_empty() && opened.0.bytes > 0 {
            return Err(ApiError::new(ErrorCode::Internal));
        }
        Ok(Self { files, opened, first, _permit: permit })
    }

    /// Sends the file. If its contents can no longer be read, or if the client reads too slowly, the connection ends
    /// early. The caller must hold no other permit and no guard during this call, because a download can take long.
    pub async fn send(self, session: &mut ServerSession, id: &RequestId) {
        timeout(max_send_time(self.opened.0.bytes), self.send_contents(session, id)).await.ok();
    }

    async fn send_contents(self, session: &mut ServerSession, id: &RequestId) {
        let Self { files, opened, first, _permit } = self;
        let length = opened.0.bytes;
        let mut head = ResponseHead::new(200, id)
            .with_field("cache-control", "private, no-store")
            .with_field("content-disposition", content_disposition(&opened.0.filename));
        for (name, value) in RESPONSE_HEADERS {
            head = head.with_field(name, value);
        }
        let caller = &mut Downstream::new(session, None);
        let is_head = *caller.method() == http::Method::HEAD;
        let is_sent = head.send_head(caller, "application/jsonl", length).await.is_ok();
        if !is_sent || is_head || length == 0 {
            return;
        }
        let (mut piece, mut sent) = (first, 0);
        loop {
            sent += piece.len() as u64;
            let written = timeout(WRITE_TIMEOUT, caller.write_response_body(piece, sent >= length)).await;
            if sent >= length || !matches!(written, Ok(Ok(()))) {
                return;
            }
            let left = usize::try_from(length - sent).unwrap_or(READ_BYTES);
            piece = match files.read(&opened, sent, left.min(READ_BYTES)).await {
                Ok(next) if !next.is_empty() => next,
                Ok(_) => return,
                Err(failed) => {
                    log_file_failure(&opened.0.id, failed);
                    return;
                }
            };
        }
    }
}

/// Returns the time within which a client has to receive a response of this size, in bytes.
#[must_use]
pub const fn max_send_time(bytes: u64) -> Duration {
    MIN_SEND_TIME.saturating_add(Duration::from_secs(bytes / MIN_BYTES_PER_SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_download_follows_from_its_size() {
        assert_eq!(max_send_time(0), MIN_SEND_TIME);
        assert_eq!(max_send_time(128 << 20), MIN_SEND_TIME + Duration::from_secs(1024));
        assert!(max_send_time(u64::MAX) > MIN_SEND_TIME);
    }
}
