//! A form with a sound on its way in: parts in any order, the sound to a spool,
//! memory the same whatever its size.

use crate::exchange::{Exchange, too_large, unread};
use crate::front::http2::STREAM_WINDOW;
use crate::spool::Spooled;
use bytes::Bytes;
use http::header;
use penstock_contract::{Code, Refusal, Task};
use penstock_media::speech::Upload;
use std::io::ErrorKind;
use std::time::Instant;
use tokio::time::timeout;

/// What a failing disk means to a client.
pub fn disk(error: &std::io::Error) -> Refusal {
    Refusal::new(match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Code::StorageFull,
        _ => Code::Internal,
    })
}

impl Exchange<'_> {
    /// Reads a form within its limits: the model, the task and the file.
    ///
    /// # Errors
    /// No form, too large, too slow, cut short, or what is wrong with a part.
    pub async fn sound(&mut self) -> Result<(Box<str>, Task, Spooled), Refusal> {
        self.plain_encoding()?;
        let kind = self.caller.field(header::CONTENT_TYPE).unwrap_or_default();
        let upload = Upload::new(std::str::from_utf8(kind).unwrap_or_default())?;
        let limits = &self.live.settings.limits;
        let (cap, within) = (limits.audio_body, limits.upload);
        // What the spool keeps, and what comes while the disk is slow.
        let held = self.live.settings.spool.memory + STREAM_WINDOW as usize;
        self.invite(cap, Some(held)).await?;
        let read = timeout(within, self.read_form(upload, cap)).await;
        let read = read.unwrap_or_else(|_| Err(Refusal::new(Code::RequestTimeout)));
        self.invited(read.is_ok());
        read
    }

    async fn read_form(
        &mut self,
        mut upload: Upload,
        cap: usize,
    ) -> Result<(Box<str>, Task, Spooled), Refusal> {
        let mut spool = self.house.spools.open();
        let mut sound = Vec::new();
        while let Some(piece) = self.next_piece(cap).await? {
            upload.push(piece, &mut sound)?;
            for piece in sound.drain(..) {
                spool.push(&piece).await.map_err(|error| disk(&error))?;
            }
        }
        let (model, task) = upload.end()?;
        let sound = spool.seal().await.map_err(|error| disk(&error))?;
        Ok((model, Task::Transcribe(task), sound))
    }

    /// The next piece of a body of at most `cap` bytes, `None` at its end.
    ///
    /// # Errors
    /// Too large, too slow, cut short.
    pub(crate) async fn next_piece(&mut self, cap: usize) -> Result<Option<Bytes>, Refusal> {
        let asked = Instant::now();
        let read = timeout(self.live.settings.limits.body_idle, self.caller.read_request_body()).await;
        // Waiting for a client is no work of the gateway's.
        self.record.waited += asked.elapsed();
        let piece = read.map_err(|_| Refusal::new(Code::RequestTimeout))?.map_err(|error| unread(&error))?;
        self.record.bytes_in += piece.as_ref().map_or(0, Bytes::len);
        if self.record.bytes_in > cap {
            return Err(too_large(cap));
        }
        Ok(piece)
    }
}
