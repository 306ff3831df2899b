//! Limits of an answer that depend on its provider. They are determined again for each provider of a rescued answer.

use crate::output_limit::OutputLimit;
use crate::token_cap::TokenCap;
use bytes::Bytes;
use penstock_core::{AttemptTarget, BodyMembers, InferenceRequest, InferenceTask, UsageBounds};

/// Limits of the answer of the present provider.
pub(super) struct AttemptLimits {
    /// Request, without the parts that no limit depends on.
    request: InferenceRequest,
    /// Bounds of the usage, wide enough for each of the providers so far.
    pub(super) usage_bounds: UsageBounds,
    pub(super) output: OutputLimit,
    pub(super) token_cap: TokenCap,
}

impl AttemptLimits {
    /// Returns the limits of the first provider.
    pub(super) fn new(ask: &InferenceRequest, target: &AttemptTarget<'_>) -> Self {
        let usage_bounds = ask.usage_bounds(target);
        Self {
            request: without_irrelevant_parts(ask),
            usage_bounds,
            output: OutputLimit::new(ask, &usage_bounds),
            token_cap: TokenCap::new(ask, target),
        }
    }

    /// Sets the limits of another provider. The bounds of the usage still include those of the earlier providers,
    /// because the answer contains the text that they have generated.
    pub(super) fn restart(&mut self, target: &AttemptTarget<'_>) {
        let bounds = self.request.usage_bounds(target);
        self.output = OutputLimit::new(&self.request, &bounds);
        self.token_cap = TokenCap::new(&self.request, target);
        self.usage_bounds = UsageBounds {
            input: self.usage_bounds.input.max(bounds.input),
            output: self.usage_bounds.output.max(bounds.output),
            max_undelivered: self.usage_bounds.max_undelivered.max(bounds.max_undelivered),
            least_input: self.usage_bounds.least_input.min(bounds.least_input),
            ..bounds
        };
    }
}

fn without_irrelevant_parts(ask: &InferenceRequest) -> InferenceRequest {
    let (kind, members) = (ask.kind, BodyMembers::default());
    InferenceRequest {
        body: ask.body.clone(),
        task: ask.task.clone(),
        max_tokens: ask.max_tokens,
        n: ask.n,
        required: ask.required,
        prompt_bytes: ask.prompt_bytes,
        image_count: ask.image_count,
        ..InferenceRequest::from_non_chat_task(
            kind,
            Bytes::new(),
            members,
            Box::default(),
            InferenceTask::Chat,
        )
    }
}
