//! Versions of a configuration: hashes of its document, which has all defaults and references instead of secrets.

use super::super::changes::ConfigDocument;
use super::super::raw::ConfigFile;
use super::super::settings::{ConfigVersion, SharedSectionVersions};
use penstock_core::hex;
use penstock_json_scan::json;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Sections in which the gateways of a fleet may differ: listeners, folders and the process. In the section `fleet`,
/// they may differ in their names only.
const MEMBER_SECTIONS: &[&str] =
    &["include", "listen", "console", "storage", "spool", "process", "log", "simulated"];

/// Size of the hash of a setting in a report, with its punctuation, in bytes.
const HASH_BYTES: usize = 10;
/// Maximum size of the settings of one section in a report, in bytes. For a larger section, a report has only the
/// hash of the whole section.
const MAX_SECTION_BYTES: usize = 5_000;
/// Maximum size of all settings in a report, in bytes.
const MAX_SETTING_BYTES: usize = 15_000;

/// Document with all defaults, and its versions.
pub struct HashedDocument {
    /// Version of the document.
    pub version: ConfigVersion,
    /// Versions of the sections that all gateways of a fleet must have in common.
    pub shared: SharedSectionVersions,
    /// Written configuration with all defaults, as a JSON document.
    pub document: ConfigDocument,
}

impl HashedDocument {
    /// Serializes a configuration and computes its versions.
    pub fn new(raw: &ConfigFile) -> Self {
        let document = serde_json::to_vec(raw).unwrap_or_default();
        Self {
            version: version_of(Sha256::new_with_prefix(&document)),
            shared: shared_versions(&document),
            document: ConfigDocument::new(document),
        }
    }
}

fn shared_versions(document: &[u8]) -> SharedSectionVersions {
    let mut all = Sha256::new();
    let mut shared = SharedSectionVersions {
        all: version_of(Sha256::new()),
        sections: Default::default(),
        settings: Default::default(),
    };
    let mut bytes = 0;
    let mut members = json::members(document);
    while let Some((name, section)) = members.next_unescaped() {
        if MEMBER_SECTIONS.contains(&&*name) {
            continue;
        }
        let hash =
            if name == "fleet" { hash_without_name(section) } else { Sha256::new_with_prefix(section) };
        all.update(name.as_bytes());
        all.update([0]);
        all.update(hash.clone().finalize());
        let settings = setting_hashes(&name, section);
        let size: usize = settings.iter().map(|(name, _)| name.len() + HASH_BYTES).sum();
        if size <= MAX_SECTION_BYTES && bytes + size <= MAX_SETTING_BYTES {
            bytes += size;
            shared.settings.extend(settings);
        }
        shared.sections.insert(name.into_owned(), abbreviated_hash(hash));
    }
    shared.all = version_of(all);
    shared
}

/// Returns the settings of a section with their hashes: the members of a table, or the elements of a list by their ids.
fn setting_hashes(section: &str, document: &[u8]) -> Vec<(String, String)> {
    let parsed: Value = serde_json::from_slice(document).unwrap_or_default();
    let hash = |value: &Value| abbreviated_hash(Sha256::new_with_prefix(value.to_string()));
    match &parsed {
        Value::Object(members) => {
            let compared = members.iter().filter(|(name, _)| section != "fleet" || *name != "name");
            compared.map(|(name, value)| (format!("{section}.{name}"), hash(value))).collect()
        }
        Value::Array(elements) => {
            let named = elements.iter().filter_map(|element| Some((element.get("id")?.as_str()?, element)));
            named.map(|(id, element)| (format!("{section}.{id}"), hash(element))).collect()
        }
        _ => Vec::new(),
    }
}

/// Hashes the members of a section other than `name`.
fn hash_without_name(section: &[u8]) -> Sha256 {
    let (mut hash, mut members) = (Sha256::new(), json::members(section));
    while let Some((name, value)) = members.next_unescaped() {
        if name != "name" {
            hash.update(name.as_bytes());
            hash.update([0]);
            hash.update(value);
            hash.update([0]);
        }
    }
    hash
}

/// Returns the first four hexadecimal digits of a hash.
fn abbreviated_hash(hash: Sha256) -> String {
    hex::encode(hash.finalize().iter().take(2))
}

fn version_of(hash: Sha256) -> ConfigVersion {
    ConfigVersion(hex::encode(hash.finalize().iter().take(6)).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::super::raw::{FleetConfig, NonZeroDuration};
    use super::*;

    fn versions(change: impl FnOnce(&mut ConfigFile)) -> HashedDocument {
        let mut raw = ConfigFile::default();
        change(&mut raw);
        HashedDocument::new(&raw)
    }

    #[test]
    fn sections_of_one_gateway_change_its_version_only() {
        let base = versions(|_| ());
        let moved = versions(|raw| "/elsewhere".clone_into(&mut raw.storage.path));
        assert_ne!(base.version, moved.version);
        assert_eq!(base.shared, moved.shared);
        for name in MEMBER_SECTIONS {
            assert!(!base.shared.sections.contains_key(*name), "{name}");
        }
    }

    #[test]
    fn a_changed_common_section_is_the_only_one_with_another_hash() {
        let (base, changed) = (versions(|_| ()), versions(|raw| raw.routing.attempts += 1));
        assert_ne!(base.shared.all, changed.shared.all);
        let differing = |(name, hash): &(&String, &String)| changed.shared.sections.get(*name) != Some(*hash);
        let names: Vec<&String> =
            base.shared.sections.iter().filter(differing).map(|(name, _)| name).collect();
        assert_eq!(names, ["routing"]);
        let differing = |(name, hash): &(&String, &String)| changed.shared.settings.get(*name) != Some(*hash);
        let names: Vec<&String> =
            base.shared.settings.iter().filter(differing).map(|(name, _)| name).collect();
        assert_eq!(names, ["routing.attempts"]);
    }

    #[test]
    fn gateways_of_a_fleet_may_differ_in_their_names_only() {
        let fleet = |name: &str, lease: u64| {
            let lease = NonZeroDuration::from_secs(lease);
            let fleet = FleetConfig { name: Some(name.to_owned()), lease, ..FleetConfig::default() };
            versions(|raw| raw.fleet = Some(fleet)).shared
        };
        assert_eq!(fleet("a", 20), fleet("b", 20));
        assert_ne!(fleet("a", 20).all, fleet("a", 600).all);
        assert_ne!(fleet("a", 20).sections.get("fleet"), fleet("a", 600).sections.get("fleet"));
    }

    #[test]
    fn settings_of_a_list_are_named_by_their_ids_and_very_many_are_left_out() {
        let list = |count: usize| {
            let elements: Vec<Value> =
                (0..count).map(|number| serde_json::json!({ "id": format!("m{number}") })).collect();
            Value::from(elements).to_string()
        };
        let named = setting_hashes("models", list(2).as_bytes());
        assert_eq!(
            named.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["models.m0", "models.m1"]
        );
        let versions = |count: usize| {
            shared_versions(format!("{{\"models\":{},\"limits\":{{\"a\":1}}}}", list(count)).as_bytes())
        };
        assert_eq!(versions(2).settings.len(), 3);
        assert_eq!(versions(9_000).settings.into_keys().collect::<Vec<_>>(), ["limits.a"]);
    }

    #[test]
    fn every_section_is_common_or_of_one_gateway() {
        let raw = ConfigFile { fleet: Some(FleetConfig::default()), ..ConfigFile::default() };
        let document = serde_json::to_value(&raw).unwrap();
        let common = HashedDocument::new(&raw).shared.sections;
        for name in document.as_object().unwrap().keys() {
            assert!(common.contains_key(name) != MEMBER_SECTIONS.contains(&name.as_str()), "{name}");
        }
    }
}
