//! Energy that a provider has measured and reports in its answer, in the same forms as in answers of chat models.

use penstock_core::MeasuredEnergy;
use penstock_http_wire::usage;
use penstock_json_scan::json;

/// Reads the measured energy of one answer.
pub(crate) fn read_energy(body: &[u8]) -> Option<MeasuredEnergy> {
    let mut members = json::members(body);
    let mut found = None;
    while let Some((name, value)) = members.next_unescaped() {
        found = match &*name {
            "energy" => usage::parse_energy(value).or(found),
            "impact" => usage::parse_impact_energy(value).or(found),
            _ => found,
        };
    }
    found
}
