//! Parts of a request that the gateway adds or changes and that a provider refuses: members and headers of the gateway,
//! Parts of a request that the gateway adds or changes and that a provider refuses: members and headers of the gateway,
//! and several choices at once. The request is sent again without these parts, and the refusal is remembered for the
//! offer, unless the provider refused only a value or a combination in this request.

use super::FailoverRun;
use super::attempt::{self, AttemptError};
use super::separate_choices::SeparateChoices;
use crate::proxy::exchange::WriteOutcome;
use crate::upstream::offer::OfferState;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, ApiError, ChoiceSelection, ErrorCode, InferenceTask,
    MemberOmissions, OfferObservation, RefusalScope, RefusedMembers, RequestAdjustment, TokenUsage,
    UpstreamError, UpstreamErrorKind, UpstreamRequest, UsageSource,
};
use penstock_routing::{RetryAction, RetryPlanner};
use std::sync::Arc;

impl FailoverRun<'_, '_> {
    /// Returns the adjustments of the request: it leaves out or changes the parts that its offer is known to refuse.
    pub(super) fn request_adjustment(&self, offer: &OfferState) -> RequestAdjustment {
        let named = offer.offer.capabilities.reasoning_name.is_some();
        let mut adjust = offer.learned.request_adjustment(|| self.now(), named);
        adjust.omitted = adjust.omitted.union(self.omitted_members);
        adjust.choices = self.choices;
        adjust
    }

    pub(super) fn log_refused_member(&self, offer: &OfferState, member: &str) {
        let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
        tracing::info!(name: "parameter_refused", provider, model, member);
    }

    /// Retries without the JSON members that the gateway added and the provider refused, as long as the provider
    /// refuses further members. Members that are proven to be refused are stored once the provider has answered.
    pub(super) async fn retry_without_members(
        &mut self,
        offer: &Arc<OfferState>,
        number: u32,
        mut done: Result<WriteOutcome, AttemptError>,
    ) -> Result<WriteOutcome, AttemptError> {
        let mut first = None;
        let mut omissions = MemberOmissions::default();
        while let Some(refused) = refused_members(&done)
            && let Some(omitted) = self.removable_members(offer, refused, &omissions)
        {
            omissions.record_omission(refused, omitted);
            self.omitted_members = self.omitted_members.union(omitted);
            let result = Box::pin(self.send_request(offer, number)).await;
            first.get_or_insert(std::mem::replace(&mut done, result));
        }
        if let Some(first) = first {
            match refused_members(&done) {
                // The provider refuses a member that was already left out, so the refusal has another cause.
                Some(refused)
                    if !refused.possible_members().intersection(self.omitted_members).is_empty() =>
                {
                    done = Err(first.err().unwrap_or(AttemptError::Disconnected));
                }
                None if done.is_ok() => self.remember_refused(offer, omissions.proven_refusals()),
                _ => {}
            }
            self.omitted_members = AdjustableMemberSet::NONE;
        }
        match done {
            Err(AttemptError::Fault(fault)) if self.request.n > 1 && !self.progress.has_content() => {
                Err(choice_count_refusal(&fault)
                    .map_or(AttemptError::Fault(fault), AttemptError::SeparateChoices))
            }
            done => done,
        }
    }

    /// Returns the refused members that the gateway can leave out of the request, in addition to those of `omissions`;
    /// `None` if there are none. These may be members that another request has learned to leave out in the meantime.
    fn removable_members(
        &self,
        offer: &OfferState,
        refused: RefusedMembers,
        omissions: &MemberOmissions,
    ) -> Option<AdjustableMemberSet> {
        let known = self.request_adjustment(offer).omitted;
        let learned = known.difference(self.sent_omissions).intersection(refused.possible_members());
        if !learned.is_empty() {
            return Some(learned);
        }
        let fresh = refused.possible_members().next_omissions(known);
        if fresh.is_empty() {
            return None;
        }
        let before = self.build_upstream_requests(offer, AdjustableMemberSet::NONE);
        let changes = |without: AdjustableMemberSet| self.build_upstream_requests(offer, without) != before;
        let RefusedMembers::Named(named) = refused else {
            return omissions.guess_refused_members(fresh, changes);
        };
        let leaves = |extra: &AdjustableMember| {
            let continues = self.progress.has_content()
                && matches!(extra, AdjustableMember::ContinueFinal | AdjustableMember::Prefix);
            continues || self.sends_header(offer, *extra) || changes(AdjustableMemberSet::from_member(*extra))
        };
        let removable = fresh.iter().filter(leaves).fold(AdjustableMemberSet::NONE, |removable, extra| {
            removable.union(AdjustableMemberSet::from_member(extra))
        });
        if !removable.is_empty() {
            return Some(removable.without_containing_members());
        }
        // In some dialects, reasoning that the client sends back has no member name that could be replaced. If the
        // provider refuses it, the reasoning itself is left out.
        let is_replayed = named.all.contains(AdjustableMember::ReasoningName)
            && !known.contains(AdjustableMember::Reasoning)
            && leaves(&AdjustableMember::Reasoning);
        is_replayed.then_some(AdjustableMemberSet::from_member(AdjustableMember::Reasoning))
    }

    /// Returns true if requests to the offer have a header of `extra` that can be left out: one that the gateway adds
    /// or forwards. A header that the operator configured for the provider is never left out.
    fn sends_header(&self, offer: &OfferState, extra: AdjustableMember) -> bool {
        if extra == AdjustableMember::TraceContext {
            return self
                .exchange
                .record
                .trace
                .as_deref()
                .is_some_and(|trace| trace.headers().next().is_some());
        }
        let Ok(Some(head)) =
            attempt::wire_format(self, offer).map(|wire_format| wire_format.request_head(offer))
        else {
            return false;
        };
        let is_configured =
            |name: &str| offer.offer.provider.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let headers = &head.parsed.headers;
        extra.header_names().iter().any(|name| headers.contains_key(*name) && !is_configured(name))
    }

    /// Builds the upstream requests to the offer, without the members `without` and those omitted before.
    pub(super) fn build_upstream_requests(
        &self,
        offer: &OfferState,
        without: AdjustableMemberSet,
    ) -> Result<Vec<UpstreamRequest>, ApiError> {
        let unsupported = || ApiError::new(ErrorCode::Unsupported);
        let wire_format = attempt::wire_format(self, offer).map_err(|_| unsupported())?;
        let mut target =
            attempt::translation_parameters(self, offer, wire_format.dialect(), self.received_at);
        target.adjustment.omitted = target.adjustment.omitted.union(without);
        wire_format.build_requests(self.request, &target)
    }

    /// Stores the members that the offer refuses, apart from markers of the prompt cache: these are values of the client,
    /// so their refusal says nothing about other requests.
    fn remember_refused(&self, offer: &OfferState, refused: AdjustableMemberSet) {
        let refused = refused.difference(AdjustableMemberSet::from_member(AdjustableMember::CacheControl));
        let name =
            attempt::translation_parameters(self, offer, penstock_core::Dialect::Chat, self.received_at)
                .reasoning_replay_member();
        let refused_members = offer.learned.record_refused_members(refused, name, self.now());
        refused_members.log_names().for_each(|member| self.log_refused_member(offer, member));
    }

    /// Stores the abilities of the offer that a complete response has shown. `reported` is the usage of the offer's own
    /// work, if it is counted in tokens.
    pub(super) fn record_capabilities(
        &self,
        offer: &OfferState,
        observation: OfferObservation,
        reported: Option<&TokenUsage>,
    ) {
        offer.learned.record_reasoning_name(observation);
        self.record_several_choices(offer);
        if observation.exceeds_output_limit || self.has_exceeded_cap(offer, reported) {
            // The offer may ignore the other name of the cap, so the next request has the usual name again.
            offer.learned.forget_refused_member(AdjustableMember::CapName);
        }
        if observation.exceeds_output_limit && offer.learned.record_output_excess() {
            let (provider, model) = (&*offer.offer.provider.id, &*offer.offer.model.card.id);
            tracing::warn!(name: "max_tokens_ignored", provider, model);
        }
    }

    /// Returns true if an offer reported more tokens than the request allows. Its usage was then reduced to the cap.
    fn has_exceeded_cap(&self, offer: &OfferState, reported: Option<&TokenUsage>) -> bool {
        let cap = self.reduced_max_tokens(offer).or(self.request.max_tokens);
        let overstated = reported.filter(|usage| usage.source == UsageSource::Overstated);
        overstated.zip(cap).is_some_and(|(usage, cap)| usage.output >= cap)
    }

    /// Records that the offer returned fewer choices than requested, so that it gets one request per choice,
    /// unless it has returned several choices within the last hour.
    pub(super) fn record_single_choice_offer(&self, offer: &OfferState) {
        if offer.learned.record_fewer_choices(self.now()) {
            self.log_refused_member(offer, "n");
        }
    }

    /// Records that the offer returned all of several choices, if the request asked it for several.
    fn record_several_choices(&self, offer: &OfferState) {
        let requested = match &self.request.task {
            InferenceTask::Chat => self.request.n,
            InferenceTask::Complete(task) => task.choices_per_prompt,
            _ => 1,
        };
        if requested > 1 && self.choices == ChoiceSelection::All {
            offer.learned.record_several_choices(self.now());
        }
    }

    /// Returns true if the choices of this request are requested from the offer one by one.
    pub(super) fn needs_separate_choices(&self, index: usize) -> bool {
        self.request.has_separable_choices()
            && self
                .exchange
                .config
                .offers
                .get(index)
                .is_some_and(|offer| offer.requires_separate_choices(self.request, || self.now()))
    }

    /// Switches to one request per choice. A stream of several choices that has already begun cannot be continued in
    /// this form.
    pub(super) fn split_choices(&mut self, course: &mut RetryPlanner) -> RetryAction {
        if self.progress.has_content() {
            return course.on_skipped(self.now());
        }
        self.separate_choices = Some(SeparateChoices::all_choices());
        RetryAction::ReturnError
    }

    /// Handles an offer that returned fewer choices than requested: for a stream that has begun, the missing choices
    /// are requested one by one; otherwise, all choices are requested again, one by one. An offer that returned
    /// several, but fewer than requested, may return all of fewer choices. `discarded` is the usage of the answer if it
    /// was buffered.
    pub(super) fn handle_fewer_choices(
        &mut self,
        offer: &OfferState,
        whole: u32,
        discarded: Option<&TokenUsage>,
    ) {
        if whole <= 1 {
            self.record_single_choice_offer(offer);
        }
        if self.progress.has_content() {
            self.separate_choices = Some(SeparateChoices::starting_at(whole));
        } else {
            self.record_failed_energy(offer, discarded);
            self.separate_choices = Some(SeparateChoices::all_choices());
        }
    }
}

/// Returns the members added by the gateway that may be the cause of a provider's refusal; `None` if the outcome is
/// no refusal.
fn refused_members(done: &Result<WriteOutcome, AttemptError>) -> Option<RefusedMembers> {
    match done {
        Err(AttemptError::Fault(fault)) if fault.kind == UpstreamErrorKind::Caller => {
            Some(fault.refused_members)
        }
        // Some engines report a member that they do not support as a failure of their own.
        Err(AttemptError::Fault(fault)) if fault.refused_members != RefusedMembers::NONE => {
            Some(fault.refused_members)
        }
        _ => None,
    }
}

/// Returns the requests to which a refusal applies that may be due to the number of choices: it names the choices, or it
/// names no cause. `None` for any other error.
pub(super) fn choice_count_refusal(fault: &UpstreamError) -> Option<RefusalScope> {
    let nameless = |refusal: &ApiError| refusal.code == ErrorCode::InvalidRequest && refusal.param.is_none();
    let may_concern_choices = fault.kind == UpstreamErrorKind::Caller
        && (fault.refused_members.possible_members().contains(AdjustableMember::MultipleChoices)
            || fault.api_error.as_deref().is_some_and(nameless));
    may_concern_choices.then(|| fault.refused_members.scope_of(AdjustableMember::MultipleChoices))
}
