//! Admission of an attempt: shows whether the attempt began before or after the last ejection of its offer.

/// Admission of an attempt by the breaker of its offer. The result of the attempt is recorded with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttemptAdmission {
    /// Number of ejections of the offer before the attempt.
    ejections: u64,
    permit: ProbePermit,
}

/// Permit of an admitted attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ProbePermit {
    /// The attempt is no probe, or has no permit because every offer is ejected.
    #[default]
    None,
    /// The attempt is a probe of a half-open offer.
    Held,
}

/// Begin of an attempt in relation to the last ejection of its offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptOrigin {
    /// The attempt began before the ejection, and is no evidence about the time after it.
    BeforeEjection,
    /// The attempt began after the ejection, or the offer was never ejected.
    AfterEjection,
}

impl AttemptAdmission {
    pub(super) const fn probe(ejections: u64) -> Self {
        Self { ejections, permit: ProbePermit::Held }
    }

    pub(super) const fn without_probe(ejections: u64) -> Self {
        Self { ejections, permit: ProbePermit::None }
    }

    /// Returns the origin of the attempt, if its offer has been ejected this many times.
    pub(super) const fn origin(self, ejections: u64) -> AttemptOrigin {
        if self.ejections == ejections { AttemptOrigin::AfterEjection } else { AttemptOrigin::BeforeEjection }
    }

    /// Returns true if the attempt holds a probe permit of the current ejection.
    pub(super) const fn holds_probe(self, ejections: u64) -> bool {
        self.ejections == ejections && matches!(self.permit, ProbePermit::Held)
    }
}
