//! Errors and events that follow the finish reasons of a streamed answer.

use super::StreamTranslator;
use crate::event::AnswerEvent;
use penstock_core::{StreamProgress, UpstreamError, UpstreamErrorKind};

impl StreamTranslator {
    /// Records usage or energy from an event that follows the end event. After the usage, nothing more is read.
    pub(super) fn record_late_event(&mut self, event: &AnswerEvent) {
        match event {
            AnswerEvent::Usage(stated) | AnswerEvent::InterimUsage(stated) => {
                self.reported_usage = Some(*stated);
                self.awaits_usage = false;
            }
            AnswerEvent::Energy(measured) => self.measured_energy = Some(*measured),
            _ => {}
        }
    }

    /// Ignores an error of the decoder after the end of the answer.
    ///
    /// Before the end event, a finish reason proves the end of the answer only if it came without output, or if usage
    /// has followed. After such a proof, an error that the provider states ends the answer, and a malformed event is
    /// skipped: later content shows that a part of the answer is lost. A last event that is cut needs no proof.
    ///
    /// # Errors
    /// Returns the error if the answer may be incomplete, or if the event contradicts its end: an unreadable tool call,
    /// or a finish reason that states an abort.
    pub(super) fn ignore_late_error(&mut self, error: UpstreamError) -> Result<(), UpstreamError> {
        if self.progress == StreamProgress::Ended {
            self.awaits_usage = false;
            return Ok(());
        }
        if self.progress < StreamProgress::Finished {
            return Err(error);
        }
        let is_proven = self.has_separate_final_usage() || !self.decoder.has_finish_with_output();
        match error.kind {
            UpstreamErrorKind::Truncated => Ok(()),
            _ if !is_proven => Err(error),
            _ if error.in_band_body.is_some() => self.handle_stream_end(),
            UpstreamErrorKind::Malformed => {
                self.skipped_error = Some(error);
                Ok(())
            }
            _ => Err(error),
        }
    }
}
