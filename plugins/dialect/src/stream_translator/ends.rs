//! End of a streamed answer: finish reasons of its choices, the end event, and the end of an answer that exceeds its
//! limit.

use super::StreamTranslator;
use crate::choices;
use crate::event::AnswerEvent;
use penstock_core::{FinishReason, StreamProgress, UpstreamError, UpstreamErrorKind};

/// Confidence that the answer is complete when all choices have a finish reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FinishConfidence {
    /// Finish reasons are reliable: when all choices have one, only usage follows.
    Trusted,
    /// Content followed a finish reason, so only usage after another one, the end event, or the end of the connection
    /// ends the answer.
    Premature,
}

impl StreamTranslator {
    /// Appends the missing finish reasons and the end event of an answer that exceeds its limit. The rest of the stream
    /// is not read.
    pub(super) fn end_answer_at_limit(&mut self, events: &mut Vec<AnswerEvent>) {
        self.finish_open_choices(FinishReason::Length, events);
        events.push(AnswerEvent::End);
    }

    /// At the end of the provider's answer, appends the finish reasons of choices that have none, if the provider shows
    /// that they are complete: they have reached the token cap, or each ended with an empty finish reason and usage has
    /// followed.
    pub(super) fn finish_ended_choices(&mut self, event: &AnswerEvent, events: &mut Vec<AnswerEvent>) {
        match event {
            AnswerEvent::End | AnswerEvent::EmptyFinish if self.is_at_cap() => {
                self.finish_open_choices(FinishReason::Length, events);
            }
            AnswerEvent::EmptyFinish
                if self.has_output_in_all_choices() && self.has_separate_final_usage() =>
            {
                self.finish_open_choices(FinishReason::Stop, events);
            }
            _ => {}
        }
    }

    /// Appends this finish reason for choices that have none.
    fn finish_open_choices(&mut self, reason: FinishReason, events: &mut Vec<AnswerEvent>) {
        for (choice, _) in (0..).zip(&self.finished).filter(|(_, finished)| !**finished) {
            let event = AnswerEvent::Finish { choice, reason, stop_sequence: None };
            self.constraints.apply(event, events);
        }
    }

    /// Returns true if a choice has no finish reason, but all choices have output and have reached the token cap,
    /// according to the reported usage. False for a provider that continues an answer, because it has another cap.
    pub(super) fn is_at_cap(&self) -> bool {
        self.has_output_in_all_choices()
            && !self.has_all_finish_reasons()
            && !self.is_continuation
            && self.limits.token_cap.is_reached_by_reported_usage(self.provider_usage().as_ref())
    }

    fn has_output_in_all_choices(&self) -> bool {
        self.output_bytes > 0 && self.choice_sizes.iter().all(|size| size.bytes > 0)
    }

    /// Returns the error of a stream that ended before all choices had a finish reason. If the provider ended it itself
    /// and only returned fewer choices than requested, the error has the number of complete choices, because the
    /// provider is then not at fault. A stream that ended without an end event and without usage after its output may
    /// have been cut, and does not show how many choices the provider returns.
    fn truncation_error(&self, has_end_event: bool) -> UpstreamError {
        let choices = self.finished.iter().copied().zip(self.choice_sizes.iter().map(|size| size.bytes));
        let is_explicit = has_end_event || self.has_separate_final_usage();
        let answered = (is_explicit && self.prefix_matcher.is_none())
            .then(|| choices::complete_choice_count(choices))
            .flatten();
        UpstreamError { completed_choices: answered, ..UpstreamError::new(UpstreamErrorKind::Truncated) }
    }

    /// Handles the provider's end event (`[DONE]`, `message_stop`). Some engines report the usage after it.
    pub(super) fn handle_end_event(&mut self) -> Result<(), UpstreamError> {
        self.end_answer(true)?;
        self.awaits_usage = self.may_report_usage_late && self.reported_usage.is_none();
        Ok(())
    }

    /// Handles the end of the stream without an end event.
    pub(super) fn handle_stream_end(&mut self) -> Result<(), UpstreamError> {
        self.end_answer(false)
    }

    /// Ends the answer if all choices have a finish reason; otherwise returns the error of a truncated stream.
    fn end_answer(&mut self, has_end_event: bool) -> Result<(), UpstreamError> {
        if !self.has_all_finish_reasons() {
            return Err(self.truncation_error(has_end_event));
        }
        self.progress = StreamProgress::Ended;
        Ok(())
    }

    /// Records the finish reason of a choice. The finish reason of the first choice is also that of the whole answer.
    pub(super) fn record_finish(&mut self, choice: u32, reason: FinishReason) {
        if let Some(finished) = self.finished.get_mut(choice as usize) {
            *finished = true;
        }
        if choice == 0 || self.finish_reason.is_none() {
            self.finish_reason = Some(reason);
        }
        self.finish_after_output = true;
        self.update_progress();
    }

    /// Returns true if every choice has a finish reason.
    pub(super) fn has_all_finish_reasons(&self) -> bool {
        self.finished.iter().all(|finished| *finished)
    }

    /// Updates the progress when all choices have a finish reason. Finish reasons count only after output or usage,
    /// because some engines send them with the role, before the output.
    pub(super) fn update_progress(&mut self) {
        let is_answered = self.progress > StreamProgress::Pending || self.usage_after_output;
        let is_trusted = self.finish_confidence == FinishConfidence::Trusted
            || (self.finish_after_output && self.has_separate_final_usage());
        if is_answered && is_trusted && self.has_all_finish_reasons() {
            self.progress = self.progress.max(StreamProgress::Finished);
        }
    }

    /// Returns true if usage came after the last output, and not in the same chunk.
    pub(super) fn has_separate_final_usage(&self) -> bool {
        self.usage_after_output && !self.is_interim_usage
    }
}
