//! `POST /v1/files`: a multipart form with a file, which is validated and written to the disk while it arrives. A
//! file with invalid lines is read to its end, to report all errors in it. After any other error, or a line that is
//! too long, only a little more is read.

use super::object::object;
use crate::http::STREAM_WINDOW;
use crate::proxy::endpoint::Endpoint;
use crate::proxy::exchange::{Ended, Exchange};
use crate::storage::files::quota::Bounds;
use crate::storage::files::{Failed, Files, Incoming, Owner};
use async_trait::async_trait;
use http::{Method, header};
use penstock_auth::KeyScope;
use penstock_batch::upload_form::{UploadParser, Uploaded};
use penstock_contract::{Code, Refusal};
use penstock_storage::files::FileRecord;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

/// Allowance for the other parts of the form, in bytes.
const AROUND: u64 = 1 << 20;
/// Bytes per write to the disk.
const SLICE: usize = 256 << 10;
/// Memory per upload: a slice that is filled, a slice that is written, the start of a line, and the receive window.
/// Longer lines are counted as they arrive.
const HELD: usize = 3 * SLICE + STREAM_WINDOW as usize;
/// Bytes that are read of a form after an error: a short form is then complete, and its connection can serve another
/// request. The server drains a longer one while the client receives the error.
const REST: usize = 1 << 20;
/// Longest time to read these bytes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Endpoint of uploads.
pub struct Create;

#[async_trait]
impl Endpoint for Create {
    fn name(&self) -> &'static str {
        "file_upload"
    }

    fn method(&self) -> Method {
        Method::POST
    }

    fn path(&self) -> &'static str {
        "/v1/files"
    }

    fn scope(&self) -> KeyScope {
        KeyScope::Batches
    }

    async fn handle(&self, x: &mut Exchange<'_>, _tail: &str) -> Result<Ended, Refusal> {
        x.plain_encoding()?;
        let kind = x.caller.field(header::CONTENT_TYPE).unwrap_or_default();
        let form = UploadParser::new(std::str::from_utf8(kind).unwrap_or_default())?;
        let largest = x.live.settings.files.upload;
        let cap = usize::try_from(largest.saturating_add(AROUND)).unwrap_or(usize::MAX);
        x.invite(cap, Some(HELD)).await?;
        let within = x.live.settings.limits.upload;
        let read = timeout(within, arrived(x, form, cap)).await;
        let read = read.unwrap_or_else(|_| Err(Refusal::new(Code::RequestTimeout)));
        let whole = x.caller.is_body_done();
        x.invited(whole);
        let (writer, said) = read?;
        let record = kept(x, writer, said).await?;
        let body = object(&record, x.house.when()).to_string();
        Ok(x.answer(200, body.into_bytes()).await)
    }
}

/// Reads the form to its end.
async fn arrived(
    x: &mut Exchange<'_>,
    mut form: UploadParser,
    cap: usize,
) -> Result<(Writer, Uploaded), Refusal> {
    let files = &x.live.settings.files;
    let line = x.live.settings.batches.line;
    let (largest, bounds) =
        (files.upload, Bounds { all: files.disk, key: files.per_key, free: files.keep_free, line });
    let mut writer = Writer::open(&x.house.files, &x.grant.public_id, bounds);
    let mut contents = Vec::new();
    // Memory of a long line; a short line is included in `HELD`.
    let mut counted = SLICE;
    while let Some(piece) = x.next_piece(cap).await? {
        let taken = async {
            form.push(piece, &mut contents)?;
            for piece in contents.drain(..) {
                writer.push(&piece, largest).await?;
            }
            if writer.held > counted {
                x.hold(writer.held - counted)?;
                counted = writer.held;
            }
            Ok::<_, Refusal>(())
        };
        if let Err(refusal) = taken.await {
            writer.give_up().await;
            timeout(PATIENCE, rest(x, cap)).await.ok();
            return Err(refusal);
        }
    }
    Ok((writer, form.end()?))
}

/// Drains a little more of a rejected form.
async fn rest(x: &mut Exchange<'_>, cap: usize) {
    let most = x.record.bytes_in + REST;
    while x.record.bytes_in < most && matches!(x.next_piece(cap).await, Ok(Some(_))) {}
}

async fn kept(x: &Exchange<'_>, mut writer: Writer, said: Uploaded) -> Result<FileRecord, Refusal> {
    writer.flush().await?;
    let incoming = writer.idle().await?;
    let (house, grant) = (x.house.clone(), x.grant.clone());
    let kept = spawn_blocking(move || {
        let owner = Owner { key: &grant.public_id, account: &grant.account.id };
        house.files.keep(incoming, owner, said, house.clock.date())
    });
    Ok(kept.await.unwrap_or(Err(Failed::Gone))?)
}

/// Writer that fills one slice while another is written to the disk.
struct Writer {
    busy: Option<JoinHandle<Result<Incoming, Failed>>>,
    slice: Vec<u8>,
    bytes: u64,
    /// Most bytes that an incomplete line has used.
    held: usize,
}

impl Writer {
    fn open(files: &Arc<Files>, key: &Arc<str>, bounds: Bounds) -> Self {
        let (files, key) = (files.clone(), key.clone());
        let busy = spawn_blocking(move || files.incoming(&key, bounds));
        Self { busy: Some(busy), slice: Vec::new(), bytes: 0, held: 0 }
    }

    async fn push(&mut self, piece: &[u8], largest: u64) -> Result<(), Refusal> {
        self.bytes += piece.len() as u64;
        if self.bytes > largest {
            let message = format!("file: expected at most {largest} bytes, got more.");
            return Err(Refusal::because(Code::TooLarge, message).at("file").with("limit_bytes", largest));
        }
        // Copied, because a small slice may retain a large buffer.
        self.slice.extend_from_slice(piece);
        if self.slice.len() >= SLICE {
            self.flush().await?;
        }
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), Failed> {
        let mut incoming = self.idle().await?;
        self.held = self.held.max(incoming.held_bytes());
        let slice = std::mem::replace(&mut self.slice, Vec::with_capacity(SLICE));
        self.busy = Some(spawn_blocking(move || {
            incoming.push(&slice)?;
            Ok(incoming)
        }));
        Ok(())
    }

    /// Waits for the pending write and returns the file.
    async fn idle(&mut self) -> Result<Incoming, Failed> {
        match self.busy.take() {
            Some(busy) => busy.await.unwrap_or(Err(Failed::Gone)),
            None => Err(Failed::Gone),
        }
    }

    /// Discards the upload.
    async fn give_up(&mut self) {
        self.slice = Vec::new();
        if let Ok(incoming) = self.idle().await {
            let_go(incoming).await;
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let (Some(busy), Ok(runtime)) = (self.busy.take(), Handle::try_current()) {
            runtime.spawn(async move {
                if let Ok(Ok(incoming)) = busy.await {
                    let_go(incoming).await;
                }
            });
        }
    }
}

/// Removes the file on a blocking thread, since the removal of a large file takes time.
async fn let_go(incoming: Incoming) {
    spawn_blocking(move || drop(incoming)).await.ok();
}
