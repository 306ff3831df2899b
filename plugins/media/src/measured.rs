//! Energy measured by a provider, in the same forms as for chat.

use penstock_contract::Measured;
use penstock_wire::{figures, json};

/// Reads the measured energy of one answer.
pub(crate) fn measured(body: &[u8]) -> Option<Measured> {
    let mut members = json::members(body);
    let mut found = None;
    while let Some((name, value)) = members.next_named() {
        found = match &*name {
            "energy" => figures::energy(value).or(found),
            "impact" => figures::impact(value).or(found),
            _ => found,
        };
    }
    found
}

/// Adds the measured energy of several answers: none if one of them lacks it, or their meters have different
/// boundaries.
pub(crate) fn together<'b>(bodies: impl Iterator<Item = &'b [u8]>) -> Option<Measured> {
    let each: Option<Vec<Measured>> = bodies.map(measured).collect();
    let (first, rest) = each?.split_first().map(|(first, rest)| (*first, rest.to_vec()))?;
    rest.into_iter().try_fold(first, |sum, one| {
        let joules = sum.joules.checked_add(one.joules)?;
        (sum.boundary == one.boundary).then_some(Measured { joules, ..sum })
    })
}
