//! Cap on generated tokens that is too high for a provider: the request is sent again with a lower cap.

use super::FailoverRun;
use super::attempt::AttemptError;
use crate::proxy::context_window;
use crate::proxy::exchange::WriteOutcome;
use crate::upstream::offer::OfferState;
use penstock_core::{ApiError, ErrorCode, OutputBudget, UpstreamError};
use penstock_tokens::{CountMethod, TokenCount};
use std::sync::Arc;

/// Cap on tokens that a provider refused.
#[derive(Clone, Copy)]
enum RefusedCap {
    /// The provider named the tokens that are left in its window, or no number.
    Counted(Option<u64>),
    /// The provider named the maximum length of an answer to any input.
    AboveMaximum(u64),
    /// Input and answer together exceed the window, and the provider has not counted the whole input.
    UncountedInput { window: u64 },
}

impl FailoverRun<'_, '_> {
    /// Returns the cap on generated tokens to send; `None` to send that of the client or the dialect, if there is one.
    pub(super) fn reduced_max_tokens(&self, offer: &OfferState) -> Option<u64> {
        let fits = self.candidates.reduced_max_tokens(offer, self.request);
        let asked = fits.or_else(|| context_window::requested_output_tokens(self.request, offer))?;
        offer.learned.max_output_tokens(|| self.now()).filter(|most| *most < asked).or(fits)
    }

    /// Retries with a lower cap if the provider refused the cap on tokens. If the provider reported a maximum that
    /// applies to any input, the maximum is remembered once the provider has answered.
    pub(super) async fn retry_with_fewer_tokens(
        &mut self,
        offer: &Arc<OfferState>,
        number: u32,
        done: Result<WriteOutcome, AttemptError>,
    ) -> Result<WriteOutcome, AttemptError> {
        let refused = match &done {
            Err(AttemptError::Fault(fault)) if !self.progress.has_content() => refused_cap(fault),
            _ => None,
        };
        let named = match refused {
            None => return done,
            Some(RefusedCap::UncountedInput { window }) => {
                return Box::pin(self.retry_within_window(offer, number, done, window)).await;
            }
            Some(RefusedCap::Counted(left)) => left,
            Some(RefusedCap::AboveMaximum(most)) => Some(most),
        };
        if !self.candidates.lower_refused_output_cap(offer, self.request, named) {
            return done;
        }
        let done = Box::pin(self.send_request(offer, number)).await;
        if let (Ok(_), Some(RefusedCap::AboveMaximum(most))) = (&done, refused)
            && offer.learned.record_output_limit(most, self.now())
        {
            self.log_refused_member(offer, &format!("max_tokens above {most}"));
        }
        done
    }

    /// Retries with the tokens that a window leaves by the count of the gateway. The error is about the input if the
    /// count exceeds the window, or if it may exceed the window and the provider refuses the lower cap too.
    async fn retry_within_window(
        &mut self,
        offer: &Arc<OfferState>,
        number: u32,
        done: Result<WriteOutcome, AttemptError>,
        window: u64,
    ) -> Result<WriteOutcome, AttemptError> {
        let Some(count) = self.count_prompt(offer).await else { return done };
        if context_window::minimum_tokens(Some(&count)) >= window {
            return done.map_err(|error| long_input_error(error, window, &count));
        }
        let asked = self
            .reduced_max_tokens(offer)
            .or_else(|| context_window::requested_output_tokens(self.request, offer));
        let left = asked.and_then(|asked| context_window::lowered_output_tokens(window, &count, asked));
        let is_lowered =
            left.is_some() && self.candidates.lower_refused_output_cap(offer, self.request, left);
        let done = if is_lowered { Box::pin(self.send_request(offer, number)).await } else { done };
        match done {
            Err(AttemptError::Fault(fault))
                if !self.progress.has_content()
                    && count.tokens >= window
                    && matches!(fault.output_budget, Some(OutputBudget::UncountedInput { .. })) =>
            {
                Err(long_input_error(AttemptError::Fault(fault), window, &count))
            }
            done => done,
        }
    }

    /// Returns the token count of the prompt for the model of an offer; `None` if the model is no longer configured.
    async fn count_prompt(&mut self, offer: &OfferState) -> Option<TokenCount> {
        let id = &offer.offer.model.card.id;
        if let Some(count) = self.candidates.token_count(id) {
            return Some(*count);
        }
        let model = self.exchange.config.model(id)?.clone();
        let counting = self.exchange.token_count_context();
        let count = context_window::count_refused_prompt(&counting, &model, self.request).await;
        self.exchange.record.waited += counting.take_engine_wait();
        Some(count)
    }
}

/// Returns the cap that a provider refused; `None` for an error about something else.
fn refused_cap(fault: &UpstreamError) -> Option<RefusedCap> {
    if !fault.is_output_length_error() {
        return None;
    }
    Some(match (fault.output_budget, fault.max_output) {
        (Some(OutputBudget::UncountedInput { window }), _) => RefusedCap::UncountedInput { window },
        (Some(OutputBudget::Exact(left)), _) => RefusedCap::Counted(Some(left)),
        (None, Some(most)) => RefusedCap::AboveMaximum(most),
        (None, None) => RefusedCap::Counted(None),
    })
}

/// Returns the error of an input that exceeds a window, with the number of its tokens unless `count` is an estimate.
fn long_input_error(error: AttemptError, window: u64, count: &TokenCount) -> AttemptError {
    let AttemptError::Fault(fault) = error else { return error };
    let refusal = match count.method {
        CountMethod::Estimate => {
            ApiError::new(ErrorCode::ContextLength).with_details_member("context_length", window)
        }
        CountMethod::Exact | CountMethod::Engine => ApiError::context_length_exceeded(window, count.tokens),
    };
    AttemptError::Fault(UpstreamError { output_budget: None, api_error: Some(Box::new(refusal)), ..fault })
}
