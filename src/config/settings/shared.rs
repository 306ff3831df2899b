//! Versions of what the gateways of a fleet have in common.

use super::ConfigVersion;
use std::collections::BTreeMap;

/// Version of the common configuration, as a whole and of each section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedVersions {
    /// Version of all common sections together.
    pub all: ConfigVersion,
    /// Short hashes of the sections, four hexadecimal digits, by name.
    pub sections: BTreeMap<String, String>,
}
