//! Facts about an offer that its own answers have shown: members that it refuses, whether it gives several choices, the
//! name of its reasoning, the most tokens of an answer. Kept in memory for an hour; a reload forgets them.

use parking_lot::Mutex;
use penstock_core::{ExtraMember, ExtraMembers, OfferObservation, ReasoningName, RequestAdjustment};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// Seconds for which a refusal is remembered: an engine may have been updated since.
const KEPT: u64 = 3_600;

/// Name of no reasoning so far, and the two names.
const NONE: u8 = 0;
const CONTENT: u8 = 1;
const SHORT: u8 = 2;

/// Facts that were learned of one offer.
#[derive(Debug, Default)]
pub struct Learned {
    /// Members that are left out, below; above, the second of the gateway's clock until which that holds. 0: none.
    members: AtomicU64,
    /// The name of reasoning that its answers have.
    seen: AtomicU8,
    /// The name that it took after it had refused the other one.
    taken: AtomicU8,
    /// The most tokens of an answer that it takes, below; above, the second until which that holds. 0: not known.
    max_output: AtomicU64,
    /// Held while the members change.
    change: Mutex<()>,
}

impl Learned {
    /// Returns the adjustments of a request to the offer. `named`: the configuration names its reasoning member.
    pub fn adjust(&self, now: impl FnOnce() -> Duration, named: bool) -> RequestAdjustment {
        let seen = if named { NONE } else { self.seen.load(Ordering::Relaxed) };
        let taken = name(self.taken.load(Ordering::Relaxed));
        RequestAdjustment {
            omitted: self.without(now),
            reasoning_name: taken.or(name(seen)),
            ..RequestAdjustment::default()
        }
    }

    /// Returns true if the offer returns one choice per request.
    pub fn gives_one(&self, now: impl FnOnce() -> Duration) -> bool {
        self.without(now).contains(ExtraMember::MultipleChoices)
    }

    fn without(&self, now: impl FnOnce() -> Duration) -> ExtraMembers {
        ExtraMembers::from_bits(known(&self.members, now).unwrap_or_default())
    }

    /// The most tokens of an answer that it takes; `None` where no refusal has named them.
    pub fn max_output(&self, now: impl FnOnce() -> Duration) -> Option<u64> {
        known(&self.max_output, now).map(u64::from)
    }

    /// Remembers that it answers where no more tokens are asked for, and refuses more; whether that is news.
    pub fn limits_output(&self, most: u64, now: Duration) -> bool {
        let Ok(most) = u32::try_from(most) else { return false };
        let is_news = known(&self.max_output, || now) != Some(most);
        self.max_output.store(kept(most, now), Ordering::Relaxed);
        is_news
    }

    /// Remembers that it answers without these; returns what is news. `name` is what its reasoning is called.
    pub fn refuses(&self, refused: ExtraMembers, name: Option<ReasoningName>, now: Duration) -> ExtraMembers {
        // What it took instead is remembered, and not that the usual name was exchanged.
        let renamed = ExtraMembers::of(ExtraMember::ReasoningName);
        if refused.contains(ExtraMember::ReasoningName) && !refused.contains(ExtraMember::Reasoning) {
            self.taken.store(code(name), Ordering::Relaxed);
        }
        let _alone = self.change.lock();
        let known = self.without(|| now);
        let news = refused.difference(known);
        let all = known.union(refused).difference(renamed);
        if !all.is_empty() && !news.difference(renamed).is_empty() {
            self.members.store(kept(all.bits(), now), Ordering::Relaxed);
        }
        news
    }

    /// Remembers what an answer showed.
    pub fn notice(&self, noticed: OfferObservation) {
        if noticed.reasoning_name.is_some() {
            self.seen.store(code(noticed.reasoning_name), Ordering::Relaxed);
        }
    }
}

/// A value with the second until which it holds.
fn kept(value: u32, now: Duration) -> u64 {
    now.as_secs().saturating_add(KEPT).min(u64::from(u32::MAX)) << 32 | u64::from(value)
}

/// The value, as long as it holds.
fn known(kept: &AtomicU64, now: impl FnOnce() -> Duration) -> Option<u32> {
    match kept.load(Ordering::Relaxed) {
        0 => None,
        kept if kept >> 32 <= now().as_secs() => None,
        kept => u32::try_from(kept & u64::from(u32::MAX)).ok(),
    }
}

const fn name(code: u8) -> Option<ReasoningName> {
    match code {
        CONTENT => Some(ReasoningName::ReasoningContent),
        SHORT => Some(ReasoningName::Reasoning),
        _ => None,
    }
}

const fn code(name: Option<ReasoningName>) -> u8 {
    match name {
        None => NONE,
        Some(ReasoningName::ReasoningContent) => CONTENT,
        Some(ReasoningName::Reasoning) => SHORT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_refused_member_is_left_out_for_an_hour() {
        let learned = Learned::default();
        let stream = ExtraMembers::of(ExtraMember::StreamOptions);
        assert_eq!(learned.adjust(|| at(5), false), RequestAdjustment::default());
        assert_eq!(learned.refuses(stream, None, at(5)), stream);
        assert!(learned.refuses(stream, None, at(6)).is_empty(), "no news");
        assert_eq!(learned.adjust(|| at(5 + KEPT - 1), false).omitted, stream);
        assert!(learned.adjust(|| at(5 + KEPT), false).omitted.is_empty());
        assert!(!learned.gives_one(|| at(6)));
        let many = ExtraMembers::of(ExtraMember::MultipleChoices);
        assert_eq!(learned.refuses(many, None, at(6)), many);
        assert_eq!(learned.adjust(|| at(7), false).omitted, stream.union(many));
        assert!(learned.gives_one(|| at(7)) && !learned.gives_one(|| at(6 + KEPT)));
        assert_eq!(learned.refuses(stream, None, at(u64::MAX)), stream, "at the end of time");
    }

    #[test]
    fn the_most_tokens_that_were_named_hold_for_an_hour() {
        let learned = Learned::default();
        assert_eq!(learned.max_output(|| at(5)), None);
        assert!(learned.limits_output(4096, at(5)));
        assert!(!learned.limits_output(4096, at(6)), "no news");
        assert_eq!(learned.max_output(|| at(6 + KEPT - 1)), Some(4096));
        assert_eq!(learned.max_output(|| at(6 + KEPT)), None);
        assert!(learned.limits_output(2048, at(7)));
        assert_eq!(learned.max_output(|| at(8)), Some(2048));
        assert!(!learned.limits_output(u64::MAX, at(8)), "no cap at all");
        assert_eq!(learned.max_output(|| at(8)), Some(2048));
    }

    #[test]
    fn the_name_that_was_taken_counts_before_the_one_that_was_seen() {
        let learned = Learned::default();
        let reasoning = |named| learned.adjust(|| at(1), named).reasoning_name;
        let seen =
            |name| learned.notice(OfferObservation { reasoning_name: name, ..OfferObservation::default() });
        assert_eq!(reasoning(false), None);
        seen(Some(ReasoningName::Reasoning));
        seen(None);
        assert_eq!(reasoning(false), Some(ReasoningName::Reasoning));
        assert_eq!(reasoning(true), None, "the configuration names it");
        let renamed = ExtraMembers::of(ExtraMember::ReasoningName);
        learned.refuses(renamed, Some(ReasoningName::ReasoningContent), at(1));
        assert_eq!(reasoning(false), Some(ReasoningName::ReasoningContent));
        assert_eq!(reasoning(true), Some(ReasoningName::ReasoningContent));
        assert!(learned.adjust(|| at(1), false).omitted.is_empty());
        let dropped = renamed.union(ExtraMembers::of(ExtraMember::Reasoning));
        learned.refuses(dropped, None, at(1));
        assert_eq!(learned.adjust(|| at(1), false).omitted, ExtraMembers::of(ExtraMember::Reasoning));
    }
}
