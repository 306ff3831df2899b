//! Implementation of [`StreamTranslation`]: usage, rescue, and the end of the answer.

use super::{FinishConfidence, StreamTranslator};
use crate::charged_usage::usage_without_removed_output;
use crate::event::AnswerEvent;
use crate::prefill_repetition::PrefillFilter;
use crate::providers::provider_dialect;
use crate::repeated_text::RepetitionFilter;
use crate::{choices, decode};
use bytes::Bytes;
use penstock_core::{
    ApiError, AttemptTarget, DeliveredUsage, FinishReason, MeasuredEnergy, OfferObservation, OutputBuffer,
    RescueMode, StreamProgress, StreamTranslation, ThinkingDisplay, TokenUsage, UpstreamError,
    UpstreamErrorKind,
};

impl StreamTranslation for StreamTranslator {
    fn push(&mut self, mut bytes: Bytes, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        while self.progress < StreamProgress::Ended || self.awaits_usage {
            let decoded = self.decoder.push(std::mem::take(&mut bytes), &mut self.events);
            self.process_events(out)?;
            match decoded {
                Ok(()) => break,
                // The decoder then continues after the event with the error.
                Err(error) => self.ignore_late_error(error)?,
            }
        }
        Ok(())
    }

    fn end(&mut self, out: &mut OutputBuffer) -> Result<(), UpstreamError> {
        if self.progress == StreamProgress::Ended && !self.awaits_usage {
            return Ok(());
        }
        let decoded = self.decoder.end(&mut self.events);
        self.process_events(out)?;
        self.awaits_usage = false;
        if self.progress == StreamProgress::Ended {
            return Ok(());
        }
        match decoded {
            // A malformed object that was sent instead of a stream: its events are a part of the answer.
            Err(error) if error.kind == UpstreamErrorKind::Malformed => return Err(error),
            decoded => decoded.or_else(|error| self.ignore_late_error(error))?,
        }
        if self.is_at_cap() {
            self.events.push(AnswerEvent::End);
            self.process_events(out)?;
            self.awaits_usage = false;
        }
        self.handle_stream_end()
    }

    fn progress(&self) -> StreamProgress {
        self.progress
    }

    fn awaits_usage(&self) -> bool {
        self.awaits_usage
    }

    fn has_unconfirmed_finish(&self) -> bool {
        self.progress == StreamProgress::Finished && !self.has_separate_final_usage()
    }

    fn usage(&self) -> Option<TokenUsage> {
        if !self.constraints.has_discarded_output() {
            return self.provider_usage();
        }
        let delivered = self.delivered_text_bytes();
        let counted = TokenUsage::estimate(self.prompt_bytes, delivered);
        let stated = self.reported_usage.filter(|_| !self.is_continuation)?;
        Some(usage_without_removed_output(stated, &self.current_bounds(), &counted, delivered))
    }

    fn estimated_usage(&self) -> TokenUsage {
        TokenUsage::estimate(self.prompt_bytes, self.delivered_text_bytes())
            .clamp_to(&self.limits.usage_bounds)
    }

    fn offer_observation(&self) -> OfferObservation {
        OfferObservation {
            reasoning_name: self.decoder.reasoning_name(),
            exceeds_output_limit: self.limits.output.is_exceeded(),
        }
    }

    fn write_start(&mut self, out: &mut OutputBuffer) {
        self.writer.write_start(&mut self.held_output);
        self.progress = self.progress.max(StreamProgress::Committed);
        self.flush_held(out);
    }

    fn record_choice_finish(&mut self, choice: u32, finish: FinishReason) {
        if let Some(finished) = self.finished.get_mut(choice as usize) {
            *finished = true;
        }
        self.writer.record_separate_choice_finish(choice, finish);
    }

    fn delivered_text_bytes(&self) -> usize {
        self.output_bytes - self.echo.echoed_bytes()
    }

    fn delivered_usage(&self) -> DeliveredUsage {
        self.part_without(self.hidden_bytes + self.writer.undelivered_bytes())
    }

    fn received_text_bytes(&self) -> usize {
        self.attempt_bytes
    }

    fn attempt_usage(&self) -> TokenUsage {
        let generated = self.attempt_bytes - self.attempt_echo.echoed_bytes();
        let counted = TokenUsage::estimate(self.prompt_bytes, generated);
        let mut bounds = self.current_bounds();
        if self.is_continuation {
            // A provider that continues the answer reads the delivered text as a part of its prompt.
            bounds.input = bounds.input.saturating_add(self.output_bytes as u64);
        }
        let mut usage =
            self.reported_usage.map_or(counted, |stated| stated.to_plausible_usage(&bounds, &counted));
        if self.progress >= StreamProgress::Finished {
            choices::correct_undercounted_output(&mut usage, &self.choice_sizes);
        }
        // Usage reported before the end of the answer may be lower than the output so far.
        if self.progress < StreamProgress::Finished && usage.output < counted.output {
            return TokenUsage { output: counted.output, source: counted.source, ..usage };
        }
        usage
    }

    fn buffered_bytes(&self) -> usize {
        let repeated = self.repetition_filter.as_ref().map_or(0, RepetitionFilter::held_bytes);
        self.held_output.unshared_bytes()
            + repeated
            + self.prefill_filter.held_bytes()
            + self.decoder.buffered_bytes()
            + self.writer.buffered_bytes()
    }

    fn end_bytes(&self) -> usize {
        self.writer.end_bytes()
    }

    fn measured_energy(&self) -> Option<MeasuredEnergy> {
        self.measured_energy
    }

    fn has_invalid_output(&self) -> bool {
        self.writer.has_invalid_output()
    }

    fn finish_reason(&self) -> Option<FinishReason> {
        self.finish_reason
    }

    fn delivered_text(&mut self) -> Option<String> {
        self.delivered.plain_text()
    }

    fn start_rescue(&mut self, target: &AttemptTarget<'_>, mode: RescueMode) -> bool {
        if self.progress >= StreamProgress::Finished {
            return false;
        }
        self.repetition_filter = None;
        let mut prefill = self.prefill.clone();
        let comparison = match mode {
            RescueMode::Continue => {
                let Some(text) = self.delivered.plain_text() else { return false };
                if !prefill.is_empty() {
                    prefill.push_str(&text);
                }
                self.repetition_filter = RepetitionFilter::new(text);
                None
            }
            // An answer with log probabilities is not started over, because they cannot be compared with the delivered
            // ones.
            RescueMode::StartOver if self.constraints.allows_logprobs() => return false,
            // A request is not sent to a provider whose answer certainly differs.
            RescueMode::StartOver
                if self.delivered.has_adjacent_messages()
                    && !provider_dialect(target.dialect).has_message_boundaries =>
            {
                return false;
            }
            RescueMode::StartOver => match self.delivered.prefix_matcher() {
                None => return false,
                comparison => comparison,
            },
        };
        (self.message_start, self.prefix_matcher) = (None, comparison);
        self.prefill_filter = PrefillFilter::new(&prefill, target, self.finished.len());
        self.is_continuation = mode == RescueMode::Continue;
        self.drops_reasoning =
            self.is_continuation && self.writer.reasoning_display() == ThinkingDisplay::Omitted;
        self.decoder = decode::new_decoder(target.dialect, target.answer_id);
        self.constraints.restart(target);
        self.limits.restart(target);
        self.finished.fill(false);
        (self.finish_reason, self.finish_confidence) = (None, FinishConfidence::Trusted);
        self.skipped_error = None;
        self.may_report_usage_late = target.dialect.spec().reports_usage_late;
        self.awaits_usage = false;
        (self.reported_usage, self.measured_energy) = (None, None);
        (self.usage_after_output, self.finish_after_output) = (false, false);
        self.attempt_bytes = 0;
        (self.attempt_echo, self.attempt_output) = self.initial_state.clone();
        true
    }

    fn write_end(&mut self, usage: &TokenUsage, objects: &[u8], out: &mut OutputBuffer) {
        self.writer.write_end(usage, objects, &mut self.held_output);
        self.progress = StreamProgress::Ended;
        self.flush_held(out);
    }

    fn write_error(&mut self, refusal: &ApiError, request_id: &str, objects: &[u8], out: &mut OutputBuffer) {
        self.writer.write_error(refusal, request_id, objects, &mut self.held_output);
        self.progress = StreamProgress::Ended;
        self.flush_held(out);
    }
}
