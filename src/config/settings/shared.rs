//! Versions of the configuration sections that all gateways of a fleet must have in common.

use super::ConfigVersion;
use std::collections::BTreeMap;

/// Versions of the common configuration: of all sections together, and of each section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedSectionVersions {
    /// Version of all sections that the gateways of a fleet must have in common.
    pub all: ConfigVersion,
    /// Short hashes of the sections, four hexadecimal digits, by name.
    pub sections: BTreeMap<String, String>,
    /// Short hashes of the settings in the sections, by section and name, such as `routing.attempts` or
    /// `providers.example`. A section with very many settings has none.
    pub settings: BTreeMap<String, String>,
}
