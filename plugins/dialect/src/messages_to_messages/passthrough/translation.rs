//! Implementation of [`StreamTranslation`] for the passthrough: most calls go to the shadow translator.

use super::StreamPassthrough;
use crate::decode::MAX_EVENT_BYTES;
use crate::decode::messages::MessagesDecoder;
use crate::write::{append_members, messages};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, DeliveredUsage, Dialect, FinishReason, MeasuredEnergy, OfferObservation,
    OutputBuffer, RescueMode, StreamProgress, StreamTranslation, TokenUsage, UpstreamError,
    UpstreamErrorKind,
};
use penstock_http_wire::{error, sse};

impl StreamTranslation for StreamPassthrough {
    fn push(&mut self, bytes: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.is_rescued {
            return self.observer.push(bytes, out);
        }
        let Some(bytes) = self.body_converter.push(bytes, MAX_EVENT_BYTES)? else { return Ok(()) };
        self.sse_decoder.push(bytes);
        while let Some(event) = self.sse_decoder.next() {
            if self.observer.progress() == StreamProgress::Ended {
                return Ok(());
            }
            match event {
                Ok(event) => self.process_event(&event, out)?,
                Err(sse::EventTooLong) => {
                    self.reject_event(UpstreamError::new(UpstreamErrorKind::Malformed))?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.is_rescued {
            return self.observer.end(out);
        }
        if let Some(object) = self.body_converter.take_buffered_object() {
            self.process_message(object, out)?;
        } else if let Some(event) = self.sse_decoder.end()
            && self.observer.progress() < StreamProgress::Ended
        {
            // An incomplete event means that the stream was truncated, not that it is malformed.
            self.process_event(&event, out).map_err(|fault| match fault.kind {
                UpstreamErrorKind::Malformed => UpstreamError::new(UpstreamErrorKind::Truncated),
                _ => fault,
            })?;
        }
        self.observer.end(&mut OutputBuffer::default())?;
        if let Some((index, stop)) = self.decoder.end_open_block()
            && !self.hidden_blocks.contains(Some(index))
        {
            self.forward_block_stop(&stop, index, out);
        }
        Ok(())
    }

    fn progress(&self) -> StreamProgress {
        self.observer.progress()
    }

    fn has_unconfirmed_finish(&self) -> bool {
        self.observer.has_unconfirmed_finish()
    }

    fn usage(&self) -> Option<TokenUsage> {
        self.observer.usage()
    }

    fn delivered_text_bytes(&self) -> usize {
        self.observer.delivered_text_bytes()
    }

    fn received_text_bytes(&self) -> usize {
        self.observer.received_text_bytes()
    }

    fn estimated_usage(&self) -> TokenUsage {
        self.observer.estimated_usage()
    }

    fn delivered_usage(&self) -> DeliveredUsage {
        if self.is_rescued { self.observer.delivered_usage() } else { self.observer.forwarded_usage() }
    }

    fn attempt_usage(&self) -> TokenUsage {
        self.observer.attempt_usage()
    }

    fn buffered_bytes(&self) -> usize {
        let held: usize = self.held_events.0.iter().map(Bytes::len).sum();
        let early: usize = self.early_inputs.iter().map(|(_, input)| input.len()).sum();
        let ends = [&self.held_message_start, &self.message_delta]
            .into_iter()
            .flatten()
            .map(Bytes::len)
            .sum::<usize>();
        held + early
            + ends
            + self.body_converter.buffered_bytes()
            + self.sse_decoder.buffered_bytes()
            + self.decoder.stored_block_bytes()
            + self.observer.buffered_bytes()
    }

    fn measured_energy(&self) -> Option<MeasuredEnergy> {
        self.observer.measured_energy()
    }

    fn has_invalid_output(&self) -> bool {
        self.observer.has_invalid_output()
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        self.observer.finish_reason()
    }

    fn offer_observation(&self) -> OfferObservation {
        self.observer.offer_observation()
    }

    fn delivered_text(&mut self) -> Option<String> {
        if self.client_blocks.differ_from_shadow() && !self.is_rescued {
            None
        } else {
            self.observer.delivered_text()
        }
    }

    fn start_rescue(&mut self, target: &AttemptTarget<'_>, mode: RescueMode) -> bool {
        if self.client_blocks.differ_from_shadow() && !self.is_rescued {
            return false;
        }
        let taken = self.observer.start_rescue(target, mode);
        if taken {
            self.is_rescued = true;
            // Held events open, sign or close blocks, which the shadow translator will do itself.
            (self.held_message_start, self.held_events) = (None, OutputBuffer::default());
            // The events of blocks that wait are not needed any more.
            self.decoder = MessagesDecoder::new(&self.id);
        }
        taken
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        if self.is_rescued {
            return self.observer.write_end(usage, objects, out);
        }
        if self.observer.has_invalid_output() {
            out.0.extend(self.held_message_start.take());
            out.0.append(&mut self.held_events.0);
            out.push(messages::invalid_output_event(&self.id, objects));
        } else {
            self.write_final_events(usage, objects, out);
        }
        self.observer.write_end(usage, &[], &mut OutputBuffer::default());
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut OutputBuffer) {
        if self.is_rescued {
            return self.observer.write_error(refusal, request_id, objects, out);
        }
        if self.observer.progress() > StreamProgress::Pending {
            // A held signature belongs to thinking that the client already has.
            out.0.append(&mut self.held_events.0);
        }
        let envelope = error::error_envelope(Dialect::Messages, refusal, request_id);
        out.push(sse::encode_named_event("error", &append_members(envelope, objects)));
        self.observer.write_error(refusal, request_id, &[], &mut OutputBuffer::default());
    }
}
