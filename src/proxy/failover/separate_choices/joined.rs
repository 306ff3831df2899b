//! Response that joins choices which were requested one by one, as the response body filters see it.

use super::super::FailoverRun;
use super::super::attempt::AttemptError;
use super::sum::{self, ChoiceUsage};
use crate::proxy::filters::{ResponseContext, ResponseUsage};
use bytes::Bytes;
use penstock_core::{
    BufferedResponse, FinishReason, OfferObservation, StreamTranslation, TokenUsage, UpstreamAnswer, WorkDone,
};

/// Response that joins several choices, each from a separate request to a provider.
pub(super) struct JoinedResponse<'c, 'r, 'a> {
    pub(super) run: &'c mut FailoverRun<'r, 'a>,
    /// Usage of all choices.
    pub(super) total: TokenUsage,
    /// Usage of each choice, until it is settled.
    pub(super) parts: Vec<ChoiceUsage>,
    /// Body of a buffered response.
    pub(super) joined: Vec<Bytes>,
}

impl ResponseContext for JoinedResponse<'_, '_, '_> {
    type Error = AttemptError;

    fn translation(&mut self) -> Option<&mut (dyn StreamTranslation + 'static)> {
        self.run.translation.as_deref_mut()
    }

    // Progress is recorded by each choice, and not by the joined response.
    fn record_progress(&mut self, _bytes: usize) {}

    fn total_usage(&self) -> Option<TokenUsage> {
        Some(self.total)
    }

    /// Returns the joined body, whose choices have been translated already.
    async fn translate(&mut self, _: Vec<UpstreamAnswer>) -> Result<BufferedResponse, AttemptError> {
        Ok(BufferedResponse {
            body: std::mem::take(&mut self.joined),
            work: Some(WorkDone::Tokens(self.total)),
            provider_work: None,
            measured_energy: None,
            finish_reason: FinishReason::Stop,
            output_bytes: 0,
            images: Vec::new(),
            observation: OfferObservation::default(),
        })
    }

    fn estimate_unreported_usage(&self, output_bytes: usize) -> TokenUsage {
        self.run.request.estimate_unreported_usage(output_bytes)
    }

    /// Settles the usage of all choices, each with the footprint factors of its own offer.
    fn settle(&mut self, _: ResponseUsage) -> Vec<u8> {
        sum::settle_choices(self.run, std::mem::take(&mut self.parts))
    }
}
