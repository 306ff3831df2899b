//! Images of an offer that makes one image per request, whatever `n` says. The missing images are requested one by one,
//! as part of the same attempt, and later requests to the offer ask for one image each.

use super::FailoverRun;
use super::attempt::{self, AttemptError};
use super::{buffered, mismatch};
use crate::proxy::exchange::WriteOutcome;
use crate::upstream::offer::OfferState;
use crate::upstream::wire_format::WireFormat;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, InferenceRequest, InferenceTask, RefusalScope, UpstreamAnswer,
    UpstreamError, UpstreamErrorKind,
};
use penstock_media::image::{count_image_items, count_images};
use std::sync::Arc;

/// Member that an offer with one image per request does not accept.
const MULTIPLE: AdjustableMemberSet = AdjustableMemberSet::from_member(AdjustableMember::MultipleChoices);

impl FailoverRun<'_, '_> {
    /// Requests the images one by one if the provider may have refused the request because of their number. If the
    /// provider then makes the images, the limit of one image per request is remembered for the offer, unless the provider
    /// refused only this number.
    pub(super) async fn retry_with_single_images(
        &mut self,
        offer: &Arc<OfferState>,
        number: u32,
        done: Result<WriteOutcome, AttemptError>,
    ) -> Result<WriteOutcome, AttemptError> {
        let has_several = matches!(&self.request.task, InferenceTask::GenerateImages(task) if task.n > 1);
        let is_known = self.request_adjustment(offer).omitted.contains(AdjustableMember::MultipleChoices);
        let refused = match &done {
            Err(AttemptError::Fault(fault)) => mismatch::choice_count_refusal(fault),
            _ => None,
        };
        let Some(scope) = refused.filter(|_| has_several && !is_known) else { return done };
        self.omitted_members = MULTIPLE;
        let single = Box::pin(self.send_request(offer, number)).await;
        let single = Box::pin(self.retry_without_members(offer, number, single)).await;
        self.omitted_members = AdjustableMemberSet::NONE;
        match single {
            Ok(_) if scope == RefusalScope::Offer => self.record_single_choice_offer(offer),
            // The number of images was not the cause.
            Err(AttemptError::Fault(UpstreamError { kind: UpstreamErrorKind::Caller, .. })) => return done,
            Ok(_) | Err(_) => {}
        }
        single
    }
}

/// Requests the images that the provider's responses lack. A refusal of the content ends this, and the images that were
/// made are delivered. The limit of one image per request is remembered for the offer, unless the responses listed all
/// images and some of them were filtered.
pub async fn request_missing_images(
    run: &mut FailoverRun<'_, '_>,
    offer: &Arc<OfferState>,
    wire_format: WireFormat,
    answers: &mut Vec<UpstreamAnswer>,
) -> Result<(), AttemptError> {
    let target = attempt::translation_parameters(run, offer, wire_format.dialect(), run.received_at);
    let calls = wire_format.build_follow_up_requests(run.request, &target, answers);
    if calls.is_empty() {
        return Ok(());
    }
    let all = answers.len() + calls.len();
    let items: usize = answers.iter().filter_map(|answer| count_image_items(&answer.body)).sum();
    let lacks_items = matches!(&run.request.task, InferenceTask::GenerateImages(task)
        if u32::try_from(items).is_ok_and(|items| items < task.n));
    match buffered::call_provider(run, offer, wire_format, &calls, answers).await {
        Err(fault) if may_deliver_fewer(run.request, &fault, answers) => return Ok(()),
        called => called.map_err(|fault| run.record_completed_calls(offer, fault, answers, all))?,
    }
    if lacks_items {
        run.record_single_choice_offer(offer);
    }
    Ok(())
}

/// Returns true if the images of earlier calls are delivered although the provider refused the content of a further one.
pub fn may_deliver_fewer(ask: &InferenceRequest, fault: &AttemptError, answers: &[UpstreamAnswer]) -> bool {
    matches!(ask.task, InferenceTask::GenerateImages(_))
        && matches!(fault, AttemptError::Fault(UpstreamError { kind: UpstreamErrorKind::Caller, .. }))
        && answers.iter().any(|answer| count_images(&answer.body).is_some_and(|count| count > 0))
}
