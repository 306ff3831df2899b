//! Completed calls of a failed attempt. A request that is sent as several calls may fail after some of them were answered:
//! their energy counts, although their answers are not delivered. Calls that are repeated within the same attempt, for
//! example without a member that the provider refused, count once.

use super::FailoverRun;
use super::attempt::AttemptError;
use super::image_work::{MAX_MEASURED_CHARS, delivered_image_work, measure_base64_image};
use crate::upstream::offer::OfferState;
use penstock_core::{InferenceTask, TokenUsage, UpstreamAnswer, WorkDone};
use penstock_media::image::image_data;

/// Counts of an attempt that made several calls and failed at one of them. No call counts as answered if the attempt
/// made a single call.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletedCalls {
    /// Number of answered calls; 0 if the attempt was a single call.
    answered: usize,
    /// Number of calls whose input the provider may have processed: the answered ones, and the one that failed.
    processed: usize,
    /// Number of calls of the complete request.
    all: usize,
    /// Images in the answers, in their own size unless the request names one; `None` without images.
    images: Option<WorkDone>,
}

impl CompletedCalls {
    /// Returns true if any call was answered.
    pub const fn has_answers(&self) -> bool {
        self.answered > 0
    }

    /// Returns the work of the images in the answers; `None` without images.
    pub const fn image_work(&self) -> Option<WorkDone> {
        self.images
    }

    /// Leaves out the call that failed, because the provider did not process it.
    pub const fn without_failed_call(self) -> Self {
        Self { processed: self.answered, ..self }
    }

    /// Returns the share of the input that the processed calls had, rounded up. Calls have about equal parts of the
    /// input.
    pub fn share_of(&self, usage: TokenUsage) -> TokenUsage {
        if !self.has_answers() {
            return usage;
        }
        let count = |calls: usize| u64::try_from(calls).unwrap_or(u64::MAX);
        let processed = count(self.processed.min(self.all));
        let input = usage.input.saturating_mul(processed).div_ceil(count(self.all).max(1));
        TokenUsage { input, cached: usage.cached.min(input), ..usage }
    }
}

impl FailoverRun<'_, '_> {
    /// Records the calls of an attempt that were answered before one failed with this error, of `all` calls; returns the
    /// error.
    pub(super) fn record_completed_calls(
        &mut self,
        offer: &OfferState,
        fault: AttemptError,
        answers: &[UpstreamAnswer],
        all: usize,
    ) -> AttemptError {
        let images = self.image_work_of(offer, answers);
        self.completed =
            CompletedCalls { answered: answers.len(), processed: answers.len() + 1, all, images };
        fault
    }

    /// Records that all calls of an attempt for images were answered; the attempt may still fail, for example because an
    /// image cannot be fetched.
    pub(super) fn record_images(&mut self, offer: &OfferState, answers: &[UpstreamAnswer]) {
        let images = self.image_work_of(offer, answers);
        if images.is_some() {
            let count = answers.len();
            self.completed = CompletedCalls { answered: count, processed: count, all: count, images };
        }
    }

    /// Returns the work of the images in these answers, at most as many as were requested; `None` without images.
    fn image_work_of(&self, offer: &OfferState, answers: &[UpstreamAnswer]) -> Option<WorkDone> {
        let InferenceTask::GenerateImages(draw) = &self.request.task else { return None };
        let images = answers.iter().flat_map(|answer| image_data(&answer.body));
        let measured: Vec<Option<u64>> = images
            .take(draw.n.max(1) as usize)
            .map(|data| data.and_then(|data| measure_base64_image(&without_spaces(&data))))
            .collect();
        (!measured.is_empty()).then(|| delivered_image_work(&measured, draw, self.request, offer))
    }
}

/// Returns the start of base64 data, as much as is measured, without white space.
fn without_spaces(data: &[u8]) -> Vec<u8> {
    let start = data.get(..MAX_MEASURED_CHARS).unwrap_or(data);
    start.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_that_of_the_processed_calls() {
        let usage = TokenUsage { input: 1_000, ..TokenUsage::default() };
        for (answered, without_failed, with_failed) in
            [(0, 1_000, 1_000), (1, 334, 667), (2, 667, 1_000), (3, 1_000, 1_000), (9, 1_000, 1_000)]
        {
            let calls = CompletedCalls { answered, processed: answered + 1, all: 3, images: None };
            assert_eq!(calls.share_of(usage).input, with_failed, "{answered}");
            assert_eq!(calls.without_failed_call().share_of(usage).input, without_failed, "{answered}");
        }
    }
}
