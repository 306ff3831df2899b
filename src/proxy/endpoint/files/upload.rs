//! `POST /v1/files`: a multipart form with a file, which is validated and written to the disk while it arrives. A file
//! with invalid lines is read to its end, so that all errors in it are reported. After any other error, or after a line
//! that is too long, at most `DRAIN_BYTES` more are read.

use super::object::file_object;
use crate::auth::key_cache::Principal;
use crate::http::H2_STREAM_WINDOW_BYTES;
use crate::proxy::endpoint::openapi::{EndpointWorkKind, FORM_CONTENT_TYPE, JSON_CONTENT_TYPE, Operation};
use crate::proxy::endpoint::{Endpoint, EndpointFuture};
use crate::proxy::exchange::Exchange;
use crate::storage::files::quota::UploadLimits;
use crate::storage::files::{FileError, FileManager, FileOwner, FileUpload};
use crate::telemetry::throttle::ThrottledLog;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_batch::upload_form::{UploadFields, UploadParser};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::files::FileRecord;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Maximum total size in bytes of a form without the contents of its file.
const FORM_OVERHEAD: u64 = 1 << 20;
/// Bytes per write to the disk.
const WRITE_SIZE: usize = 256 << 10;
/// Memory per upload, in bytes: a slice that is being filled, a slice that is being written, the start of a line, and
/// the receive window. The memory of a longer line is counted as the line arrives.
const UPLOAD_MEMORY: usize = 3 * WRITE_SIZE + H2_STREAM_WINDOW_BYTES as usize;
/// Bytes of a form that are read after an error. A form that ends within them is complete, and its connection can serve
/// another request. The rest of a longer form is drained by the server while the client receives the error.
const DRAIN_BYTES: usize = 1 << 20;
/// Maximum time for reading the rest of a form after an error.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);

/// Endpoint `POST /v1/files`: upload of a file.
pub struct UploadFileEndpoint;

impl Endpoint for UploadFileEndpoint {
    fn name(&self) -> &'static str {
        "file_upload"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/files"
    }

    fn required_scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    fn openapi_operation(&self) -> Operation {
        Operation::new(
            "Files",
            EndpointWorkKind::Store,
            "Uploads a file",
            &[(200, &[(JSON_CONTENT_TYPE, "File")])],
        )
        .with_body(FORM_CONTENT_TYPE, "FileRequest")
    }

    fn handle<'a>(&'a self, x: &'a mut Exchange<'_>, _tail: &'a str) -> EndpointFuture<'a> {
        Box::pin(async move {
            x.require_uncompressed_request_body()?;
            let kind = x.caller.header_field(header::CONTENT_TYPE).unwrap_or_default();
            let form = UploadParser::new(std::str::from_utf8(kind).unwrap_or_default())?;
            let largest = x.config.settings.files.upload;
            let cap = usize::try_from(largest.saturating_add(FORM_OVERHEAD)).unwrap_or(usize::MAX);
            x.admit_body(cap, Some(UPLOAD_MEMORY)).await?;
            let within = x.config.settings.limits.upload;
            let read = timeout(within, receive_form(x, form, cap)).await;
            let read = read.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::RequestTimeout)));
            let body_done = x.caller.is_body_done();
            x.record_body_end(body_done);
            let (writer, fields) = read?;
            let record = store_file(x, writer, fields).await?;
            let body = file_object(&record, x.app.file_expiry_context()).to_string();
            Ok(x.send_json(200, body.into_bytes()).await)
        })
    }
}

/// Reads an upload form to its end; returns the writer of its file, and its other fields.
async fn receive_form(
    x: &mut Exchange<'_>,
    mut form: UploadParser,
    cap: usize,
) -> Result<(UploadWriter, UploadFields), ApiError> {
    let files = &x.config.settings.files;
    let line = x.config.settings.batches.line;
    let (largest, bounds) = (
        files.upload,
        UploadLimits {
            max_total_bytes: files.disk,
            max_key_bytes: files.per_key,
            min_free_bytes: files.keep_free,
            max_line_bytes: line,
        },
    );
    let mut writer = UploadWriter::open(&x.app.files, &x.principal, bounds);
    let mut contents = Vec::new();
    // Memory that is counted for a long line; a line up to this size is included in `UPLOAD_MEMORY`.
    let mut counted = WRITE_SIZE;
    while let Some(piece) = x.next_body_chunk(cap).await? {
        let taken = async {
            x.require_current_key()?;
            form.push(piece, &mut contents)?;
            for piece in contents.drain(..) {
                writer.push(&piece, largest).await?;
            }
            if writer.line_memory > counted {
                x.reserve_memory(writer.line_memory - counted)?;
                counted = writer.line_memory;
            }
            Ok::<_, ApiError>(())
        };
        if let Err(refusal) = taken.await {
            writer.discard().await;
            timeout(DRAIN_TIMEOUT, drain_form(x, cap)).await.ok();
            return Err(refusal);
        }
    }
    Ok((writer, form.end()?))
}

/// Reads and discards the rest of a rejected form, at most `DRAIN_BYTES` beyond what was already read. `cap` is the
/// maximum length of the body.
async fn drain_form(x: &mut Exchange<'_>, cap: usize) {
    let most = x.record.bytes_in + DRAIN_BYTES;
    while x.record.bytes_in < most && matches!(x.next_body_chunk(cap).await, Ok(Some(_))) {}
}

async fn store_file(
    x: &Exchange<'_>,
    mut writer: UploadWriter,
    fields: UploadFields,
) -> Result<FileRecord, ApiError> {
    writer.flush().await?;
    let incoming = writer.finish_write().await?;
    let (app, principal) = (x.app.clone(), x.principal.clone());
    let stored = spawn_blocking(move || {
        let owner = FileOwner { key: &principal.public_id, account: &principal.account.id };
        app.files.store_upload(incoming, owner, fields, app.clock.calendar_now())
    });
    stored.await.unwrap_or(Err(FileError::ThreadEnded)).map_err(log_upload_failure)
}

/// Logs an upload that failed because of the disk, the bucket or the store, at most once a minute, and returns the error
/// for the client. Exceeded quotas and invalid lines are not logged.
fn log_upload_failure(failed: FileError) -> ApiError {
    static FAILURES: ThrottledLog = ThrottledLog::with_interval(Duration::from_secs(60));
    let why = match &failed {
        FileError::Io(error) => Some(error.kind().to_string()),
        FileError::Store(error) => Some(error.to_string()),
        FileError::Quota(_) | FileError::InvalidLines(_) | FileError::ThreadEnded => None,
    };
    if let Some(why) = why {
        FAILURES.log(Instant::now(), |times| tracing::error!(name: "file_not_stored", why, times));
    }
    failed.to_api_error()
}

/// Writer that fills one slice while another is written to the disk.
struct UploadWriter {
    pending_write: Option<JoinHandle<Result<FileUpload, FileError>>>,
    slice: Vec<u8>,
    bytes: u64,
    /// Most bytes that an incomplete line has used.
    line_memory: usize,
}

impl UploadWriter {
    fn open(files: &Arc<FileManager>, principal: &Arc<Principal>, bounds: UploadLimits) -> Self {
        let (files, principal) = (files.clone(), principal.clone());
        let busy = spawn_blocking(move || {
            let owner = FileOwner { key: &principal.public_id, account: &principal.account.id };
            files.start_upload(owner, bounds)
        });
        Self { pending_write: Some(busy), slice: Vec::new(), bytes: 0, line_memory: 0 }
    }

    async fn push(&mut self, piece: &[u8], largest: u64) -> Result<(), ApiError> {
        self.bytes += piece.len() as u64;
        if self.bytes > largest {
            let message = format!("file: expected at most {largest} bytes, got more.");
            return Err(ApiError::with_message(ErrorCode::TooLarge, message)
                .with_param("file")
                .with_details_member("limit_bytes", largest));
        }
        // The bytes are copied, because a small slice of a buffer may retain the whole buffer.
        self.slice.extend_from_slice(piece);
        if self.slice.len() >= WRITE_SIZE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), ApiError> {
        let mut incoming = self.finish_write().await?;
        self.line_memory = self.line_memory.max(incoming.held_bytes());
        let slice = std::mem::replace(&mut self.slice, Vec::with_capacity(WRITE_SIZE));
        self.pending_write = Some(spawn_blocking(move || {
            incoming.push(&slice)?;
            Ok(incoming)
        }));
        Ok(())
    }

    /// Waits for the pending write and returns the file.
    async fn finish_write(&mut self) -> Result<FileUpload, ApiError> {
        let written = match self.pending_write.take() {
            Some(busy) => busy.await.unwrap_or(Err(FileError::ThreadEnded)),
            None => Err(FileError::ThreadEnded),
        };
        written.map_err(log_upload_failure)
    }

    /// Discards the upload after an error.
    async fn discard(&mut self) {
        self.slice = Vec::new();
        if let Ok(incoming) = self.finish_write().await {
            drop_upload(incoming).await;
        }
    }
}

impl Drop for UploadWriter {
    fn drop(&mut self) {
        if let (Some(busy), Ok(runtime)) = (self.pending_write.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(Ok(incoming)) = busy.await {
                    drop_upload(incoming).await;
                }
            });
        }
    }
}

/// Removes the file on a blocking thread, since the removal of a large file takes time.
async fn drop_upload(incoming: FileUpload) {
    spawn_blocking(move || drop(incoming)).await.ok();
}
