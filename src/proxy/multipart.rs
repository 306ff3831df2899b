//! Upload of an audio file as a multipart form. The parts may come in any order, the audio is spooled, and the memory
//! does not depend on the size of the file.

use crate::http::H2_STREAM_WINDOW_BYTES;
use crate::proxy::exchange::{Exchange, body_read_refusal, body_too_large_error};
use crate::storage::files::io_to_api_error;
use crate::storage::spool::SpooledData;
use bytes::Bytes;
use http::header;
use penstock_core::{ApiError, ErrorCode, InferenceTask};
use penstock_media::speech::TranscriptionFormParser;
use std::time::Instant;
use tokio::time::timeout;

impl Exchange<'_> {
    /// Reads a complete form within its limits; returns the name of its model, its task and its audio file.
    ///
    /// # Errors
    /// Returns a refusal if the body is not a form, too large, too slow or truncated, or if a part is invalid.
    pub async fn read_audio_form(&mut self) -> Result<(Box<str>, InferenceTask, SpooledData), ApiError> {
        self.require_uncompressed_request_body()?;
        let kind = self.caller.header_field(header::CONTENT_TYPE).unwrap_or_default();
        let upload = TranscriptionFormParser::new(std::str::from_utf8(kind).unwrap_or_default())?;
        let limits = &self.config.settings.limits;
        let (cap, within) = (limits.audio_body, limits.upload);
        // Memory that one upload uses: that of the spool, plus the receive window, which fills if the disk is slow.
        let held = self.config.settings.spool.memory + H2_STREAM_WINDOW_BYTES as usize;
        self.admit_body(cap, Some(held)).await?;
        let read = timeout(within, self.read_form(upload, cap)).await;
        let read = read.unwrap_or_else(|_| Err(ApiError::new(ErrorCode::RequestTimeout)));
        self.record_body_end(read.is_ok());
        read
    }

    async fn read_form(
        &mut self,
        mut upload: TranscriptionFormParser,
        cap: usize,
    ) -> Result<(Box<str>, InferenceTask, SpooledData), ApiError> {
        let mut spool = self.app.spools.new_request_spool(&self.principal.account.id);
        let mut sound = Vec::new();
        while let Some(piece) = self.next_body_chunk(cap).await? {
            upload.push(piece, &mut sound)?;
            for piece in sound.drain(..) {
                spool.push(&piece).await.map_err(|error| io_to_api_error(&error))?;
            }
        }
        let (model, task) = upload.end()?;
        let sound = spool.finish().await.map_err(|error| io_to_api_error(&error))?;
        Ok((model, InferenceTask::Transcribe(task), sound))
    }

    /// Reads the next piece of a request body of at most `cap` bytes, and counts its bytes; `None` at the end of the
    /// body.
    ///
    /// # Errors
    /// Returns a refusal if the body is too large, too slow or truncated.
    pub(crate) async fn next_body_chunk(&mut self, cap: usize) -> Result<Option<Bytes>, ApiError> {
        let asked = Instant::now();
        let read = timeout(self.config.settings.limits.body_idle, self.caller.read_request_body()).await;
        // Waiting for the client does not count as the gateway's processing time.
        self.record.waited += asked.elapsed();
        let piece = read
            .map_err(|_| ApiError::new(ErrorCode::RequestTimeout))?
            .map_err(|error| body_read_refusal(&error))?;
        self.record.bytes_in += piece.as_ref().map_or(0, Bytes::len);
        if self.record.bytes_in > cap {
            return Err(body_too_large_error(cap));
        }
        Ok(piece)
    }
}
