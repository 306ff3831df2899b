//! Member states of the European Union, all 27. The gateway serves from no other country.

/// ISO 3166-1 alpha-2 codes in order, with English names.
const MEMBERS: [(&str, &str); 27] = [
    ("AT", "Austria"),
    ("BE", "Belgium"),
    ("BG", "Bulgaria"),
    ("CY", "Cyprus"),
    ("CZ", "Czechia"),
    ("DE", "Germany"),
    ("DK", "Denmark"),
    ("EE", "Estonia"),
    ("ES", "Spain"),
    ("FI", "Finland"),
    ("FR", "France"),
    ("GR", "Greece"),
    ("HR", "Croatia"),
    ("HU", "Hungary"),
    ("IE", "Ireland"),
    ("IT", "Italy"),
    ("LT", "Lithuania"),
    ("LU", "Luxembourg"),
    ("LV", "Latvia"),
    ("MT", "Malta"),
    ("NL", "Netherlands"),
    ("PL", "Poland"),
    ("PT", "Portugal"),
    ("RO", "Romania"),
    ("SE", "Sweden"),
    ("SI", "Slovenia"),
    ("SK", "Slovakia"),
];

/// Returns the English name of a member state by its ISO 3166-1 alpha-2 code, in capitals (Greece is `GR`). `None` for
/// any other code.
#[must_use]
pub fn eu_member_state_name(code: &str) -> Option<&'static str> {
    MEMBERS.iter().find(|(known, _)| *known == code).map(|(_, name)| *name)
}

/// Returns all member states as (code, English name), by code.
pub fn eu_member_states() -> impl ExactSizeIterator<Item = (&'static str, &'static str)> {
    MEMBERS.iter().copied()
}
