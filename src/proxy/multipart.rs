//! Upload of an audio file as a multipart form: parts in any order, the audio to a spool, with constant
//! memory for any size.

use crate::http::STREAM_WINDOW;
use crate::proxy::exchange::{Exchange, too_large, unread};
use crate::storage::files::disk;
use crate::storage::spool::Spooled;
use bytes::Bytes;
use http::header;
use penstock_contract::{Code, Refusal, Task};
use penstock_media::speech::Upload;
use std::time::Instant;
use tokio::time::timeout;

impl Exchange<'_> {
    /// Reads a complete form within its limits.
    ///
    /// # Errors
    /// No form, too large, too slow, cut short, or what is wrong with a part.
    pub async fn sound(&mut self) -> Result<(Box<str>, Task, Spooled), Refusal> {
        self.plain_encoding()?;
        let kind = self.caller.field(header::CONTENT_TYPE).unwrap_or_default();
        let upload = Upload::new(std::str::from_utf8(kind).unwrap_or_default())?;
        let limits = &self.live.settings.limits;
        let (cap, within) = (limits.audio_body, limits.upload);
        // Memory of the spool, and the receive window while the disk is slow.
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

    /// Reads the next piece of a body of at most `cap` bytes; `None` at its end.
    ///
    /// # Errors
    /// Returns a refusal if the body is too large, too slow or truncated.
    pub(crate) async fn next_piece(&mut self, cap: usize) -> Result<Option<Bytes>, Refusal> {
        let asked = Instant::now();
        let read = timeout(self.live.settings.limits.body_idle, self.caller.read_request_body()).await;
        // The wait for a client is not counted as processing time.
        self.record.waited += asked.elapsed();
        let piece = read.map_err(|_| Refusal::new(Code::RequestTimeout))?.map_err(|error| unread(&error))?;
        self.record.bytes_in += piece.as_ref().map_or(0, Bytes::len);
        if self.record.bytes_in > cap {
            return Err(too_large(cap));
        }
        Ok(piece)
    }
}
