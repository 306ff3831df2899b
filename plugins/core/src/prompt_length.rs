//! Length of the prompts of a request. Energy depends on it, because the work of attention grows with the length of each
//! prompt, and not with the tokens of all prompts together.

use crate::inference_request::InferenceRequest;
use crate::inference_task::InferenceTask;
use crate::usage::{TokenUsage, WorkDone};
use std::fmt;

/// Writes the mean length of the prompts only if there are several.
impl fmt::Debug for TokenUsage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { input, cached, output, reasoning, mean_prompt_length, source } = self;
        let mut fields = formatter.debug_struct("TokenUsage");
        fields.field("input", input).field("cached", cached).field("output", output);
        fields.field("reasoning", reasoning);
        if let Some(length) = mean_prompt_length {
            fields.field("mean_prompt_length", length);
        }
        fields.field("source", source).finish()
    }
}

impl TokenUsage {
    /// Returns the mean length of the prompts in tokens, at most the tokens of all prompts.
    #[must_use]
    pub fn prompt_length(&self) -> u64 {
        self.mean_prompt_length.unwrap_or(self.input).min(self.input)
    }

    /// Returns the mean prompt length of this usage and another one together, weighted by their prompt tokens and
    /// rounded up; `None` if neither has prompt tokens.
    #[must_use]
    pub fn joint_prompt_length(&self, other: &Self) -> Option<u64> {
        let weighted = |usage: &Self| u128::from(usage.input) * u128::from(usage.prompt_length());
        let tokens = u128::from(self.input) + u128::from(other.input);
        let sum = weighted(self).saturating_add(weighted(other));
        (tokens > 0).then(|| u64::try_from(sum.div_ceil(tokens)).unwrap_or(u64::MAX))
    }
}

impl InferenceRequest {
    /// Adds the mean length of the prompts to work in tokens, as [`Self::with_mean_prompt_length`] does.
    #[must_use]
    pub fn work_with_mean_prompt_length(&self, work: WorkDone) -> WorkDone {
        match work {
            WorkDone::Tokens(usage) => WorkDone::Tokens(self.with_mean_prompt_length(usage)),
            WorkDone::Images { .. } | WorkDone::Audio { .. } | WorkDone::Unknown => work,
        }
    }

    /// Adds the mean length of the prompts if the request has several. Providers report only the tokens of all prompts
    /// together, so these are divided in proportion to the bytes of the prompts.
    #[must_use]
    pub fn with_mean_prompt_length(&self, usage: TokenUsage) -> TokenUsage {
        let InferenceTask::Complete(task) = &self.task else { return usage };
        if task.prompts.len() < 2 || usage.mean_prompt_length.is_some() {
            return usage;
        }
        let (mut bytes, mut squares) = (0_u128, 0_u128);
        for length in task.prompts.iter().map(|prompt| prompt.len() as u128) {
            bytes = bytes.saturating_add(length);
            squares = squares.saturating_add(length.saturating_mul(length));
        }
        let mean =
            u128::from(usage.input).saturating_mul(squares).div_ceil(bytes.saturating_mul(bytes).max(1));
        TokenUsage { mean_prompt_length: Some(u64::try_from(mean).unwrap_or(u64::MAX)), ..usage }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::inference_request::BodyMembers;
    use crate::inference_task::CompletionTask;
    use crate::model_kind::ModelKind;
    use bytes::Bytes;

    fn request(prompts: &[&'static str]) -> InferenceRequest {
        let task = InferenceTask::Complete(CompletionTask {
            prompts: prompts.iter().map(|prompt| Bytes::from_static(prompt.as_bytes())).collect(),
            has_token_ids: false,
            echo: false,
            choices_per_prompt: 1,
            generations_per_prompt: 1,
        });
        InferenceRequest::from_non_chat_task(
            ModelKind::Chat,
            Bytes::new(),
            BodyMembers::default(),
            "m".into(),
            task,
        )
    }

    fn usage(input: u64) -> TokenUsage {
        TokenUsage { input, ..TokenUsage::default() }
    }

    #[test]
    fn prompts_of_a_list_share_the_tokens_by_their_bytes() {
        let lengths = |prompts: &[&'static str], input| {
            request(prompts).with_mean_prompt_length(usage(input)).mean_prompt_length
        };
        assert_eq!(lengths(&["\"one prompt\""], 900), None);
        assert_eq!(lengths(&["\"ab\"", "\"cd\"", "\"ef\""], 900), Some(300));
        // 8 bytes and 4 bytes: 600 and 300 tokens, so (600² + 300²) / 900.
        assert_eq!(lengths(&["\"abcdef\"", "\"ab\""], 900), Some(500));
        assert_eq!(lengths(&["\"a\"", "\"b\""], 3), Some(2), "rounded up");
        assert_eq!(lengths(&["\"a\"", "\"b\""], u64::MAX), Some(u64::MAX.div_ceil(2)));
        assert_eq!(lengths(&["\"a\"", "\"b\""], 0), Some(0));
    }

    #[test]
    fn a_known_length_is_kept() {
        let known = TokenUsage { mean_prompt_length: Some(7), ..usage(100) };
        assert_eq!(request(&["\"a\"", "\"b\""]).with_mean_prompt_length(known), known);
        assert_eq!(known.prompt_length(), 7);
        assert_eq!(usage(100).prompt_length(), 100);
        assert_eq!(TokenUsage { mean_prompt_length: Some(101), ..usage(100) }.prompt_length(), 100);
    }

    #[test]
    fn the_length_of_a_sum_is_weighted_by_its_parts() {
        assert_eq!(usage(0).joint_prompt_length(&usage(0)), None);
        assert_eq!(usage(0).joint_prompt_length(&usage(50)), Some(50));
        assert_eq!(usage(50).joint_prompt_length(&usage(50)), Some(50));
        let sum = TokenUsage { mean_prompt_length: Some(50), ..usage(100) };
        assert_eq!(sum.joint_prompt_length(&usage(50)), Some(50));
        assert_eq!(usage(100).joint_prompt_length(&usage(50)), Some(84), "(100² + 50²) / 150");
        assert!(usage(u64::MAX).joint_prompt_length(&usage(u64::MAX)).is_some(), "no overflow");
    }
}
