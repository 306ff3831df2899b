//! Members added by the gateway that are left out of a request after a provider refused it, and the proof of which ones
//! the provider refuses.

use crate::refused_members::RefusedMembers;
use crate::request_adjustment::AdjustableMemberSet;

/// Maximum number of attempts that omit one more member each, after refusals that name no member. The attempt after
/// them omits all remaining members.
const MAX_SINGLE_GUESSES: usize = 3;

/// Members that were omitted from the request after the refusals of earlier attempts.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemberOmissions {
    /// Members that the provider named in its refusals, and that it refuses in each request.
    named: AdjustableMemberSet,
    /// Members that the last request left out for the first time, after a refusal that names no member.
    last_guess: AdjustableMemberSet,
    /// Number of requests that left out members after a refusal that names no member.
    guesses: usize,
}

impl MemberOmissions {
    /// Returns the members to leave out after a refusal that names none. `possible` are the members that the provider
    /// may mean; `None` if the request contains none of these. `changes` returns true if the request would change
    /// without a set of members.
    pub fn guess_refused_members(
        &self,
        possible: AdjustableMemberSet,
        changes: impl Fn(AdjustableMemberSet) -> bool,
    ) -> Option<AdjustableMemberSet> {
        if !changes(possible) {
            return None;
        }
        Some(if self.guesses < MAX_SINGLE_GUESSES { first_present(possible, changes) } else { possible })
    }

    /// Records a refusal, and the members that the next attempt omits because of it.
    pub fn record_omission(&mut self, refused: RefusedMembers, omitted: AdjustableMemberSet) {
        match refused {
            RefusedMembers::Named(named) => {
                self.named = self.named.union(named.lasting_omissions(omitted));
                self.last_guess = AdjustableMemberSet::NONE;
            }
            RefusedMembers::Unnamed => {
                self.last_guess = omitted;
                self.guesses += 1;
            }
        }
    }

    /// Returns the members that the provider certainly refuses in each request, after a successful answer: the members
    /// that the provider named, unless it refused only their value or combination, and the last guess if it was a single member. Earlier guesses prove nothing, because the
    /// provider refused the request after them too.
    #[must_use]
    pub fn proven_refusals(&self) -> AdjustableMemberSet {
        let is_single = self.last_guess.iter().count() == 1;
        if is_single { self.named.union(self.last_guess) } else { self.named }
    }
}

/// Returns the first of these members that the request contains; at least one must be present. A binary search encodes
/// the request six times at most.
fn first_present(
    members: AdjustableMemberSet,
    changes: impl Fn(AdjustableMemberSet) -> bool,
) -> AdjustableMemberSet {
    let add = |sum: &mut AdjustableMemberSet, extra| {
        *sum = sum.union(AdjustableMemberSet::from_member(extra));
        Some(*sum)
    };
    let prefixes: Vec<AdjustableMemberSet> = members.iter().scan(AdjustableMemberSet::NONE, add).collect();
    let absent = prefixes.partition_point(|prefix| !changes(*prefix));
    members.iter().nth(absent).map_or(AdjustableMemberSet::NONE, AdjustableMemberSet::from_member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refused_members::NamedMembers;
    use crate::request_adjustment::AdjustableMember as E;
    use std::cell::Cell;

    fn set(members: &[E]) -> AdjustableMemberSet {
        members
            .iter()
            .fold(AdjustableMemberSet::NONE, |all, extra| all.union(AdjustableMemberSet::from_member(*extra)))
    }

    /// Simulates the attempts of a request with the members `present` at a provider that refuses the members
    /// `refused` without naming them. Returns the number of attempts and the members that are proven to be refused;
    /// `None` if no attempt succeeded.
    fn send(
        present: AdjustableMemberSet,
        refused: AdjustableMemberSet,
    ) -> (usize, Option<AdjustableMemberSet>) {
        let (mut omissions, mut omitted, mut calls) =
            (MemberOmissions::default(), AdjustableMemberSet::NONE, 1);
        loop {
            let sent = present.difference(omitted);
            if sent.intersection(refused).is_empty() {
                return (calls, Some(omissions.proven_refusals()));
            }
            let encodings = Cell::new(0);
            let changes = |without: AdjustableMemberSet| {
                encodings.set(encodings.get() + 1);
                !sent.intersection(without).is_empty()
            };
            let guess = omissions
                .guess_refused_members(AdjustableMemberSet::ADDED_BY_GATEWAY.difference(omitted), changes);
            assert!(encodings.get() <= 7, "{} encodings", encodings.get());
            let Some(guess) = guess else { return (calls, None) };
            omissions.record_omission(RefusedMembers::Unnamed, guess);
            omitted = omitted.union(guess);
            calls += 1;
        }
    }

    #[test]
    fn only_the_member_whose_omission_helped_is_proven() {
        let present = set(&[E::StreamOptions, E::ThinkingSwitch, E::Strict, E::Effort, E::Seed]);
        assert_eq!(send(present, set(&[E::StreamOptions])), (2, Some(set(&[E::StreamOptions]))));
        assert_eq!(send(present, set(&[E::Seed])), (3, Some(set(&[E::Seed]))));
        assert_eq!(send(present, AdjustableMemberSet::NONE), (1, Some(AdjustableMemberSet::NONE)));
        // Members that change the answer are never omitted, even if the provider may have meant them.
        for required in [E::ThinkingSwitch, E::Strict, E::Effort] {
            assert_eq!(send(present, set(&[required])), (3, None), "{required:?}");
        }
    }

    #[test]
    fn several_refused_members_are_learned_one_after_the_other() {
        let present = set(&[E::StreamOptions, E::ToolChoice, E::Store]);
        let refused = set(&[E::StreamOptions, E::Store]);
        let mut known = AdjustableMemberSet::NONE;
        for (calls, learned) in [(4, E::Store), (2, E::StreamOptions)] {
            assert_eq!(send(present.difference(known), refused), (calls, Some(set(&[learned]))));
            known = known.union(AdjustableMemberSet::from_member(learned));
        }
        assert_eq!(send(present.difference(known), refused), (1, Some(AdjustableMemberSet::NONE)));
    }

    #[test]
    fn many_members_are_left_out_together_and_then_prove_nothing() {
        let all = AdjustableMemberSet::ADDED_BY_GATEWAY;
        assert_eq!(send(all, set(&[E::ImageCount])), (5, Some(AdjustableMemberSet::NONE)));
    }

    #[test]
    fn a_named_member_is_proven_without_the_guess_before_it() {
        let mut omissions = MemberOmissions::default();
        omissions.record_omission(RefusedMembers::Unnamed, set(&[E::StreamOptions]));
        omissions.record_omission(
            RefusedMembers::Named(NamedMembers::refused_always(set(&[E::Seed]))),
            set(&[E::Seed]),
        );
        assert_eq!(omissions.proven_refusals(), set(&[E::Seed]));
    }
}
