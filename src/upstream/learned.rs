//! Behavior of an offer, as its own answers have shown it: request members that it refuses, its support for several
//! choices, the name of its reasoning member, and its limit on output tokens. Refused members, the support for several
//! choices and the limit are remembered for an hour. All of it is in memory only, and a reload forgets it.

use parking_lot::Mutex;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, OfferObservation, ReasoningName, RequestAdjustment,
};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Seconds for which a refused member or a limit is remembered. The time is limited because an engine may be updated.
const LEARNED_TTL: u64 = 3_600;

/// Codes of the reasoning name: unknown, `reasoning_content`, `reasoning`.
const NAME_UNKNOWN: u8 = 0;
const NAME_REASONING_CONTENT: u8 = 1;
const NAME_REASONING: u8 = 2;

/// Learned behavior of one offer.
#[derive(Debug, Default)]
pub struct LearnedBehavior {
    /// Bits of the request members that are left out; 0 for none.
    members: AtomicU64,
    /// Time at which the members expire, in seconds of the steady clock.
    members_expiry: AtomicU64,
    /// Code of the reasoning name in the offer's answers.
    observed: AtomicU8,
    /// Code of the reasoning name that the offer accepted after it had refused the other name.
    accepted: AtomicU8,
    /// Limit on output tokens in the low 32 bits, and the time at which the limit expires, in seconds of the steady
    /// clock, in the high 32 bits; 0 if no limit is known.
    max_output: AtomicU64,
    /// Time until which a complete answer with several choices proves that the offer supports them, in seconds of the
    /// steady clock; 0 if there was none.
    several_choices_expiry: AtomicU64,
    /// True once an answer far exceeded its `max_tokens`.
    exceeds_output: AtomicBool,
    /// Lock that is held while the omitted request members change.
    change: Mutex<()>,
}

impl LearnedBehavior {
    /// Returns the adjustments of a request to the offer. `named` is true if the configuration names the reasoning
    /// member.
    pub fn request_adjustment(&self, now: impl FnOnce() -> Duration, named: bool) -> RequestAdjustment {
        let observed = if named { NAME_UNKNOWN } else { self.observed.load(Ordering::Relaxed) };
        let accepted = decode_reasoning_name(self.accepted.load(Ordering::Relaxed));
        RequestAdjustment {
            omitted: self.unsupported_members(now),
            reasoning_name: accepted.or(decode_reasoning_name(observed)),
            ..RequestAdjustment::default()
        }
    }

    /// Returns true if the offer is known to return only one choice per request.
    pub fn returns_single_choice(&self, now: impl FnOnce() -> Duration) -> bool {
        self.unsupported_members(now).contains(AdjustableMember::MultipleChoices)
    }

    /// Records a complete answer with several choices.
    pub fn record_several_choices(&self, now: Duration) {
        self.several_choices_expiry.store(now.as_secs().saturating_add(LEARNED_TTL), Ordering::Relaxed);
    }

    /// Records that the offer returned fewer choices than requested. Returns true if this is new. An offer that has
    /// returned several choices in the last hour still counts as able to, because a single answer with fewer choices
    /// may be an exception.
    pub fn record_fewer_choices(&self, now: Duration) -> bool {
        if self.several_choices_expiry.load(Ordering::Relaxed) > now.as_secs() {
            return false;
        }
        let several = AdjustableMemberSet::from_member(AdjustableMember::MultipleChoices);
        !self.record_refused_members(several, None, now).is_empty()
    }

    fn unsupported_members(&self, now: impl FnOnce() -> Duration) -> AdjustableMemberSet {
        match self.members.load(Ordering::Relaxed) {
            0 => AdjustableMemberSet::NONE,
            _ if self.members_expiry.load(Ordering::Relaxed) <= now().as_secs() => AdjustableMemberSet::NONE,
            bits => AdjustableMemberSet::from_bits(bits),
        }
    }

    /// Returns the offer's limit on output tokens; `None` if no refusal of the last hour has named one.
    pub fn max_output_tokens(&self, now: impl FnOnce() -> Duration) -> Option<u64> {
        decode_unexpired(&self.max_output, now).map(u64::from)
    }

    /// Records the maximum number of output tokens that the offer accepts. Returns true if this limit is new.
    pub fn record_output_limit(&self, max_tokens: u64, now: Duration) -> bool {
        let Ok(max_tokens) = u32::try_from(max_tokens) else { return false };
        let is_new = decode_unexpired(&self.max_output, || now) != Some(max_tokens);
        self.max_output.store(encode_expiring(max_tokens, now), Ordering::Relaxed);
        is_new
    }

    /// Records that an answer far exceeded its `max_tokens`. Returns true the first time.
    pub fn record_output_excess(&self) -> bool {
        !self.exceeds_output.swap(true, Ordering::Relaxed)
    }

    /// Records members that the offer refuses, after it has answered a request without them. Returns the members that
    /// were not known before. `name` is the reasoning name that the offer accepts; `None` if it is not known.
    pub fn record_refused_members(
        &self,
        refused: AdjustableMemberSet,
        name: Option<ReasoningName>,
        now: Duration,
    ) -> AdjustableMemberSet {
        // If the offer refuses a reasoning name, the member is not recorded as left out; instead, the name that the
        // offer accepts is recorded.
        let renamed = AdjustableMemberSet::from_member(AdjustableMember::ReasoningName);
        if refused.contains(AdjustableMember::ReasoningName) && !refused.contains(AdjustableMember::Reasoning)
        {
            self.accepted.store(encode_reasoning_name(name), Ordering::Relaxed);
        }
        let _guard = self.change.lock();
        let known = self.unsupported_members(|| now);
        let added = refused.difference(known);
        let all = known.union(refused).difference(renamed);
        if !all.is_empty() && !added.difference(renamed).is_empty() {
            self.members_expiry.store(now.as_secs().saturating_add(LEARNED_TTL), Ordering::Relaxed);
            self.members.store(all.bits(), Ordering::Relaxed);
        }
        added
    }

    /// Forgets that the offer refuses a member. Returns true if this was remembered.
    pub fn forget_refused_member(&self, member: AdjustableMember) -> bool {
        let single = AdjustableMemberSet::from_member(member);
        if !AdjustableMemberSet::from_bits(self.members.load(Ordering::Relaxed)).contains(member) {
            return false;
        }
        let _guard = self.change.lock();
        let known = AdjustableMemberSet::from_bits(self.members.load(Ordering::Relaxed));
        self.members.store(known.difference(single).bits(), Ordering::Relaxed);
        known.contains(member)
    }

    /// Records the name of the reasoning member that an answer showed, if it showed one.
    pub fn record_reasoning_name(&self, observation: OfferObservation) {
        if observation.reasoning_name.is_some() {
            self.observed.store(encode_reasoning_name(observation.reasoning_name), Ordering::Relaxed);
        }
    }
}

/// Encodes a value together with the second at which it expires, [`LEARNED_TTL`] after `now`.
fn encode_expiring(value: u32, now: Duration) -> u64 {
    now.as_secs().saturating_add(LEARNED_TTL).min(u64::from(u32::MAX)) << 32 | u64::from(value)
}

/// Decodes the value; `None` if it is unset or expired.
fn decode_unexpired(stored: &AtomicU64, now: impl FnOnce() -> Duration) -> Option<u32> {
    match stored.load(Ordering::Relaxed) {
        0 => None,
        stored if stored >> 32 <= now().as_secs() => None,
        stored => u32::try_from(stored & u64::from(u32::MAX)).ok(),
    }
}

const fn decode_reasoning_name(code: u8) -> Option<ReasoningName> {
    match code {
        NAME_REASONING_CONTENT => Some(ReasoningName::ReasoningContent),
        NAME_REASONING => Some(ReasoningName::Reasoning),
        _ => None,
    }
}

const fn encode_reasoning_name(name: Option<ReasoningName>) -> u8 {
    match name {
        None => NAME_UNKNOWN,
        Some(ReasoningName::ReasoningContent) => NAME_REASONING_CONTENT,
        Some(ReasoningName::Reasoning) => NAME_REASONING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_refused_member_is_omitted_for_an_hour() {
        let learned = LearnedBehavior::default();
        let stream = AdjustableMemberSet::from_member(AdjustableMember::StreamOptions);
        assert_eq!(learned.request_adjustment(|| at(5), false), RequestAdjustment::default());
        assert_eq!(learned.record_refused_members(stream, None, at(5)), stream);
        assert!(learned.record_refused_members(stream, None, at(6)).is_empty(), "already known");
        assert_eq!(learned.request_adjustment(|| at(5 + LEARNED_TTL - 1), false).omitted, stream);
        assert!(learned.request_adjustment(|| at(5 + LEARNED_TTL), false).omitted.is_empty());
        assert!(!learned.returns_single_choice(|| at(6)));
        let many = AdjustableMemberSet::from_member(AdjustableMember::MultipleChoices);
        assert_eq!(learned.record_refused_members(many, None, at(6)), many);
        assert_eq!(learned.request_adjustment(|| at(7), false).omitted, stream.union(many));
        assert!(
            learned.returns_single_choice(|| at(7)) && !learned.returns_single_choice(|| at(6 + LEARNED_TTL))
        );
        assert_eq!(learned.record_refused_members(stream, None, at(u64::MAX)), stream, "at the end of time");
    }

    #[test]
    fn a_forgotten_member_is_sent_again_and_the_others_are_not() {
        let learned = LearnedBehavior::default();
        let (cap, store) =
            (AdjustableMember::CapName, AdjustableMemberSet::from_member(AdjustableMember::Store));
        assert!(!learned.forget_refused_member(cap));
        learned.record_refused_members(store.union(AdjustableMemberSet::from_member(cap)), None, at(5));
        assert!(learned.forget_refused_member(cap) && !learned.forget_refused_member(cap));
        assert_eq!(learned.request_adjustment(|| at(6), false).omitted, store);
    }

    #[test]
    fn an_answer_with_several_choices_outweighs_one_with_fewer_for_an_hour() {
        let learned = LearnedBehavior::default();
        learned.record_several_choices(at(5));
        assert!(!learned.record_fewer_choices(at(6)) && !learned.returns_single_choice(|| at(6)));
        assert!(learned.record_fewer_choices(at(5 + LEARNED_TTL)));
        assert!(!learned.record_fewer_choices(at(6 + LEARNED_TTL)), "already known");
        assert!(learned.returns_single_choice(|| at(6 + LEARNED_TTL)));
        let unproven = LearnedBehavior::default();
        assert!(unproven.record_fewer_choices(at(5)) && unproven.returns_single_choice(|| at(6)));
    }

    #[test]
    fn an_output_limit_holds_for_an_hour() {
        let learned = LearnedBehavior::default();
        assert_eq!(learned.max_output_tokens(|| at(5)), None);
        assert!(learned.record_output_limit(4096, at(5)));
        assert!(!learned.record_output_limit(4096, at(6)), "already known");
        assert_eq!(learned.max_output_tokens(|| at(6 + LEARNED_TTL - 1)), Some(4096));
        assert_eq!(learned.max_output_tokens(|| at(6 + LEARNED_TTL)), None);
        assert!(learned.record_output_limit(2048, at(7)));
        assert_eq!(learned.max_output_tokens(|| at(8)), Some(2048));
        assert!(!learned.record_output_limit(u64::MAX, at(8)), "no cap at all");
        assert_eq!(learned.max_output_tokens(|| at(8)), Some(2048));
    }

    #[test]
    fn an_accepted_name_takes_precedence_over_an_observed_one() {
        let learned = LearnedBehavior::default();
        let reasoning = |named| learned.request_adjustment(|| at(1), named).reasoning_name;
        let observed = |name| {
            learned.record_reasoning_name(OfferObservation {
                reasoning_name: name,
                ..OfferObservation::default()
            })
        };
        assert_eq!(reasoning(false), None);
        observed(Some(ReasoningName::Reasoning));
        observed(None);
        assert_eq!(reasoning(false), Some(ReasoningName::Reasoning));
        assert_eq!(reasoning(true), None, "the configuration names it");
        let renamed = AdjustableMemberSet::from_member(AdjustableMember::ReasoningName);
        learned.record_refused_members(renamed, Some(ReasoningName::ReasoningContent), at(1));
        assert_eq!(reasoning(false), Some(ReasoningName::ReasoningContent));
        assert_eq!(reasoning(true), Some(ReasoningName::ReasoningContent));
        assert!(learned.request_adjustment(|| at(1), false).omitted.is_empty());
        let dropped = renamed.union(AdjustableMemberSet::from_member(AdjustableMember::Reasoning));
        learned.record_refused_members(dropped, None, at(1));
        assert_eq!(
            learned.request_adjustment(|| at(1), false).omitted,
            AdjustableMemberSet::from_member(AdjustableMember::Reasoning)
        );
    }
}
