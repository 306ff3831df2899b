//! Members of a request that a provider refuses, and the requests to which the refusal applies.

use crate::request_adjustment::{AdjustableMember, AdjustableMemberSet};

/// Members added by the gateway that a provider's error message refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedMembers {
    /// Members that the message names.
    Named(NamedMembers),
    /// One or more of [`AdjustableMemberSet::ADDED_BY_GATEWAY`]: the message refuses an unknown member without naming
    /// it.
    Unnamed,
}

/// Members that the message of a provider's refusal names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NamedMembers {
    /// All named members that may be omitted from the request, or renamed in it.
    pub all: AdjustableMemberSet,
    /// Those of them that the provider refuses in each request. The others are refused only because of their value in
    /// this request, or because of other members of it.
    pub lasting: AdjustableMemberSet,
}

/// Requests to which a refusal applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalScope {
    /// The refused request alone: its value, or its combination of members, is the cause.
    Request,
    /// Each request to the offer.
    Offer,
}

impl NamedMembers {
    /// Returns members that a provider refuses in each request.
    #[must_use]
    pub const fn refused_always(members: AdjustableMemberSet) -> Self {
        Self { all: members, lasting: members }
    }

    /// Returns those of the omitted members that the provider refuses in each request. Reasoning is omitted if its names
    /// are refused.
    pub(crate) fn lasting_omissions(self, omitted: AdjustableMemberSet) -> AdjustableMemberSet {
        let reasoning = match self.lasting.contains(AdjustableMember::ReasoningName) {
            true => AdjustableMemberSet::from_member(AdjustableMember::Reasoning),
            false => AdjustableMemberSet::NONE,
        };
        omitted.intersection(self.lasting.union(reasoning))
    }
}

impl RefusedMembers {
    /// Empty set: no members are refused.
    pub const NONE: Self = Self::Named(NamedMembers::refused_always(AdjustableMemberSet::NONE));

    /// Returns the members that the message may mean.
    #[must_use]
    pub const fn possible_members(self) -> AdjustableMemberSet {
        match self {
            Self::Named(named) => named.all,
            Self::Unnamed => AdjustableMemberSet::ADDED_BY_GATEWAY,
        }
    }

    /// Returns the requests in which a member is refused, if the message means this member.
    #[must_use]
    pub const fn scope_of(self, member: AdjustableMember) -> RefusalScope {
        match self {
            Self::Named(named) if named.all.contains(member) && !named.lasting.contains(member) => {
                RefusalScope::Request
            }
            _ => RefusalScope::Offer,
        }
    }
}

impl AdjustableMember {
    /// Returns true if the gateway or the operator chooses the value of the member, and no client: a refused value is
    /// then refused in each request that has the member.
    #[must_use]
    pub const fn has_constant_value(self) -> bool {
        use AdjustableMember as E;
        !matches!(
            self,
            E::MultipleChoices
                | E::CapName
                | E::ReasoningName
                | E::Reasoning
                | E::ThinkingSwitch
                | E::Effort
                | E::Thinking
                | E::Strict
                | E::Stop
                | E::Instructions
                | E::ReasoningObject
                | E::Signature
                | E::ExactEffort
                | E::CacheControl
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request_adjustment::AdjustableMember as E;

    #[test]
    fn a_member_that_is_refused_for_its_value_is_refused_in_one_request() {
        let (effort, store) =
            (AdjustableMemberSet::from_member(E::Effort), AdjustableMemberSet::from_member(E::Store));
        let refused = RefusedMembers::Named(NamedMembers { all: effort.union(store), lasting: store });
        assert_eq!(refused.scope_of(E::Effort), RefusalScope::Request);
        assert_eq!(refused.scope_of(E::Store), RefusalScope::Offer);
        assert_eq!(refused.scope_of(E::Seed), RefusalScope::Offer, "not named, so the cause is not known");
        assert_eq!(RefusedMembers::Unnamed.scope_of(E::Effort), RefusalScope::Offer);
        assert_eq!(refused.possible_members(), effort.union(store));
    }

    #[test]
    fn reasoning_is_refused_always_if_its_name_is() {
        let name = AdjustableMemberSet::from_member(E::ReasoningName);
        let both = name.union(AdjustableMemberSet::from_member(E::Reasoning));
        assert_eq!(NamedMembers::refused_always(name).lasting_omissions(both), both);
        let by_value = NamedMembers { all: name, lasting: AdjustableMemberSet::NONE };
        assert!(by_value.lasting_omissions(both).is_empty());
    }
}
