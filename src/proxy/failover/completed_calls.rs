//! Completed calls of a failed attempt. A request that is sent as several calls may fail after some of them were answered:
//! their energy counts, although their answers are not delivered. Calls that are repeated within the same attempt, for
//! example without a member that the provider refused, count once.

use super::FailoverRun;
use super::attempt::AttemptError;
use penstock_core::{ImageTask, InferenceTask, TokenUsage, UpstreamAnswer};
use penstock_media::image::count_images;

/// Calls of the last attempt, if it failed at one of several calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct CompletedCalls {
    /// Number of answered calls; 0 if the attempt was a single call.
    answered: usize,
    /// Number of calls whose input the provider may have processed: the answered ones, and the one that failed.
    processed: usize,
    /// Number of calls of the complete request.
    all: usize,
    /// Number of images in the answers.
    images: u32,
}

impl CompletedCalls {
    /// Returns true if any call was answered.
    pub const fn has_answers(&self) -> bool {
        self.answered > 0
    }

    /// Returns the images of the answered calls, as a task; `None` without images.
    pub fn images_of(&self, draw: &ImageTask) -> Option<ImageTask> {
        (self.images > 0).then(|| ImageTask { n: self.images.min(draw.n.max(1)), ..draw.clone() })
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
        fault: AttemptError,
        answers: &[UpstreamAnswer],
        all: usize,
    ) -> AttemptError {
        let images: usize = if matches!(self.request.task, InferenceTask::GenerateImages(_)) {
            answers.iter().filter_map(|answer| count_images(&answer.body)).sum()
        } else {
            0
        };
        let images = u32::try_from(images).unwrap_or(u32::MAX);
        self.completed =
            CompletedCalls { answered: answers.len(), processed: answers.len() + 1, all, images };
        fault
    }
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
            let calls = CompletedCalls { answered, processed: answered + 1, all: 3, images: 0 };
            assert_eq!(calls.share_of(usage).input, with_failed, "{answered}");
            assert_eq!(calls.without_failed_call().share_of(usage).input, without_failed, "{answered}");
        }
    }
}
