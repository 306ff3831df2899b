//! `POST /v1/files`: a form with a file, whose bytes go to the disk while they arrive and are proven on the way.
//! A file with wrong lines is read to its end all the same, for the other mistakes in it; of what is refused for
//! anything else, or for a line without an end, only a little more is read.

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

/// Room for what a form holds besides the file.
const AROUND: u64 = 1 << 20;
/// Bytes that are given to the disk at once.
const SLICE: usize = 256 << 10;
/// Of a file in memory at most: a slice that is filled, one that the disk takes, the beginning of a line, and what comes
/// meanwhile. More of a longer line counts as it comes.
const HELD: usize = 3 * SLICE + STREAM_WINDOW as usize;
/// Bytes that are read of a form after it was refused: a short one is whole then, and its connection serves another
/// request. Of a longer one the front door reads on while its client hears why.
const REST: usize = 1 << 20;
/// How long that may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// The endpoint.
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
    // Of a long line; what a short one takes is in `HELD`.
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

/// Reads a little more of what nobody wants.
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

/// Writes behind the reading: one slice is filled while another goes to the disk.
struct Writer {
    busy: Option<JoinHandle<Result<Incoming, Failed>>>,
    slice: Vec<u8>,
    bytes: u64,
    /// Most bytes that an unfinished line has held.
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
        // Copied: a small piece may keep a large buffer alive.
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

    /// The file, once the disk has taken what it was given.
    async fn idle(&mut self) -> Result<Incoming, Failed> {
        match self.busy.take() {
            Some(busy) => busy.await.unwrap_or(Err(Failed::Gone)),
            None => Err(Failed::Gone),
        }
    }

    /// Nothing of it is wanted any more.
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

/// Removing a large file takes its time, and requests on this thread have none.
async fn let_go(incoming: Incoming) {
    spawn_blocking(move || drop(incoming)).await.ok();
}
