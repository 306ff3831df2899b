//! Report of a member to the others: its version and configuration, and its use of the limits that they share.
//!
//! Numbers are totals since the start of the process, so that nothing is lost if another member misses a report. A
//! report consists of several rows of at most 64 KiB: a header as JSON, then groups of keys.

use penstock_limits::{LimitAllowances, UsageTotals};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of keys and accounts in one report; any further ones are left out.
const MAX_REPORTED_KEYS: usize = 16_000;
/// Maximum number of keys in one row. A key has at most 320 bytes as JSON, so a row stays below 64 KiB.
const KEYS_PER_ROW: usize = 200;

/// Maximum number of wanted pools in one report.
const MAX_WANTED_POOLS: usize = 64;
/// Maximum number of keys and accounts in one report with their reserved tokens.
const MAX_RESERVED_TOKENS: usize = 128;

/// Report of a fleet member to the others: its version, configuration, and use of shared limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberReport {
    /// Random number of the process start: the totals restart with a new number.
    pub process_number: u64,
    /// Time of the report by the member's clock, Unix seconds.
    pub at: u64,
    /// Version of the gateway program that the member runs.
    pub version: String,
    /// Version of the configuration, by which members with different configurations are found.
    pub config_version: String,
    /// Hashes of the sections of the configuration by section name, to report which sections differ; empty from members
    /// that do not report them.
    pub sections: BTreeMap<String, String>,
    /// Hashes of the settings in the sections, by section and name; empty from members that do not report them.
    pub settings: BTreeMap<String, String>,
    /// Names of the pools that are too empty for this member's requests, although the other members hold enough.
    pub wanted_pools: Vec<String>,
    /// True if the member leases budgets. Its leases then include the amounts that its requests have reserved.
    pub leases_budgets: bool,
    /// True if the member runs slices of batches.
    pub runs_slices: bool,
    /// Use of the limits by this member, for each key and account.
    pub keys: Vec<KeyUsageReport>,
}

/// Use of the limits of one key or account by one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "KeyRow", from = "KeyRow")]
pub struct KeyUsageReport {
    /// Owner of the limits: `key/` or `account/`, followed by its id.
    pub owner: String,
    /// Usage since the process started, or since the key was last left out of a report.
    pub totals: UsageTotals,
}

/// Stored form: owner, totals of requests, tokens, wanted requests and wanted tokens, requests in flight, reserved
/// micro-credits; then the allowed requests, tokens and requests in flight.
type KeyRow = (String, u64, i64, u64, u64, u32, u64, (u64, u64, u64));

impl From<KeyUsageReport> for KeyRow {
    fn from(KeyUsageReport { owner, totals }: KeyUsageReport) -> Self {
        let allowed = (totals.allowed.requests, totals.allowed.tokens, totals.allowed.in_flight);
        let wanted = (totals.wanted_requests, totals.wanted_tokens);
        let (in_flight, reserved) = (totals.in_flight, totals.reserved);
        (owner, totals.requests, totals.tokens, wanted.0, wanted.1, in_flight, reserved, allowed)
    }
}

impl From<KeyRow> for KeyUsageReport {
    fn from(row: KeyRow) -> Self {
        let (owner, requests, tokens, wanted_requests, wanted_tokens, in_flight, reserved, allowed) = row;
        let allowed = LimitAllowances { requests: allowed.0, tokens: allowed.1, in_flight: allowed.2 };
        let totals = UsageTotals {
            requests,
            tokens,
            wanted_requests,
            wanted_tokens,
            in_flight,
            reserved,
            allowed,
            // The header has the reserved tokens, so the row has none.
            ..UsageTotals::default()
        };
        Self { owner, totals }
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    v: u32,
    start: u64,
    at: u64,
    version: String,
    config: String,
    #[serde(default)]
    sections: BTreeMap<String, String>,
    #[serde(default)]
    settings: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wanted_pools: Vec<String>,
    #[serde(default)]
    leases_budgets: bool,
    #[serde(default)]
    runs_slices: bool,
    /// Tokens reserved by requests in flight, by key or account.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    reserved_tokens: BTreeMap<String, u64>,
    rows: usize,
}

const VERSION: u32 = 1;

impl MemberReport {
    /// Encodes the report as rows for the store: a JSON header, then groups of keys.
    #[must_use]
    pub fn to_rows(&self) -> Vec<Vec<u8>> {
        let groups = self.keys.get(..MAX_REPORTED_KEYS).unwrap_or(&self.keys).chunks(KEYS_PER_ROW);
        let header = Header {
            v: VERSION,
            start: self.process_number,
            at: self.at,
            version: self.version.clone(),
            config: self.config_version.clone(),
            sections: self.sections.clone(),
            settings: self.settings.clone(),
            wanted_pools: self.wanted_pools.iter().take(MAX_WANTED_POOLS).cloned().collect(),
            leases_budgets: self.leases_budgets,
            runs_slices: self.runs_slices,
            reserved_tokens: self
                .keys
                .iter()
                .filter(|key| key.totals.reserved_tokens > 0)
                .take(MAX_RESERVED_TOKENS)
                .map(|key| (key.owner.clone(), key.totals.reserved_tokens))
                .collect(),
            rows: groups.len(),
        };
        let row = |value: serde_json::Result<Vec<u8>>| value.unwrap_or_default();
        let groups = groups.map(|keys| row(serde_json::to_vec(keys)));
        std::iter::once(row(serde_json::to_vec(&header))).chain(groups).collect()
    }

    /// Parses rows; `None` if they have another format. If there are more rows than the header states, the further
    /// ones belong to an earlier, longer report, and are ignored.
    #[must_use]
    pub fn from_rows(rows: &[Vec<u8>]) -> Option<Self> {
        let (header, groups) = rows.split_first()?;
        let header: Header =
            serde_json::from_slice(header).ok().filter(|header: &Header| header.v == VERSION)?;
        let mut keys = Vec::new();
        for group in groups.get(..header.rows)? {
            keys.extend(serde_json::from_slice::<Vec<KeyUsageReport>>(group).ok()?);
        }
        for key in keys.iter_mut().filter(|_| !header.reserved_tokens.is_empty()) {
            key.totals.reserved_tokens = header.reserved_tokens.get(&key.owner).copied().unwrap_or(0);
        }
        let Header {
            start,
            at,
            version,
            config,
            sections,
            settings,
            wanted_pools,
            leases_budgets,
            runs_slices,
            ..
        } = header;
        Some(Self {
            process_number: start,
            at,
            version,
            config_version: config,
            sections,
            settings,
            wanted_pools,
            leases_budgets,
            runs_slices,
            keys,
        })
    }

    /// Returns the names of the configuration sections that differ from those of the other member. A section that only
    /// one of them has counts as different, which happens if the members have different versions. Returns no names if
    /// the other member reports no sections.
    #[must_use]
    pub fn differing_sections<'r>(&'r self, other: &'r Self) -> Vec<&'r str> {
        if other.sections.is_empty() {
            return Vec::new();
        }
        differing_names(&self.sections, &other.sections)
    }

    /// Returns the names of the settings that differ from those of the other member, in the sections that differ. A
    /// section whose settings are not reported contributes no names.
    #[must_use]
    pub fn differing_settings<'r>(&'r self, other: &'r Self) -> Vec<&'r str> {
        if other.settings.is_empty() {
            return Vec::new();
        }
        let sections = self.differing_sections(other);
        let has_any = |settings: &BTreeMap<String, String>, section: &str| {
            settings.keys().any(|name| name.split_once('.').is_some_and(|(of, _)| of == section))
        };
        let is_of_section = |name: &&str| {
            let section = name.split_once('.').map(|(section, _)| section);
            section.is_some_and(|section| {
                sections.contains(&section)
                    && has_any(&self.settings, section)
                    && has_any(&other.settings, section)
            })
        };
        differing_names(&self.settings, &other.settings).into_iter().filter(is_of_section).collect()
    }
}

/// Returns the names whose hashes differ, or that only one of the maps has.
fn differing_names<'r>(
    own: &'r BTreeMap<String, String>,
    other: &'r BTreeMap<String, String>,
) -> Vec<&'r str> {
    let names: BTreeSet<&String> = own.keys().chain(other.keys()).collect();
    names.into_iter().filter(|name| own.get(*name) != other.get(*name)).map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use penstock_storage::MAX_VALUE_BYTES;

    fn report(keys: usize) -> MemberReport {
        let key = |n: usize| KeyUsageReport {
            owner: format!("account/{n:0>120}"),
            totals: UsageTotals {
                requests: u64::MAX,
                tokens: i64::MIN,
                wanted_requests: u64::MAX,
                wanted_tokens: u64::MAX,
                in_flight: u32::MAX,
                reserved: u64::MAX,
                reserved_tokens: if n < MAX_RESERVED_TOKENS { u64::MAX } else { 0 },
                allowed: LimitAllowances { requests: u64::MAX, tokens: u64::MAX, in_flight: u64::MAX },
            },
        };
        MemberReport {
            process_number: 7,
            at: 1_795_000_000,
            version: "1.0".to_owned(),
            config_version: "abc".to_owned(),
            sections: sections([("models", "1f00")]),
            settings: (0..150).map(|number| (format!("models.{number:0>80}"), "1f00".to_owned())).collect(),
            wanted_pools: vec![format!("credits/{:0>250}", 7); MAX_WANTED_POOLS],
            leases_budgets: true,
            runs_slices: true,
            keys: (0..keys).map(key).collect(),
        }
    }

    fn sections<const N: usize>(sections: [(&str, &str); N]) -> BTreeMap<String, String> {
        sections.map(|(name, hash)| (name.to_owned(), hash.to_owned())).into()
    }

    #[test]
    fn sections_that_differ_or_are_missing_are_named() {
        let own = MemberReport { sections: sections([("a", "1"), ("b", "2"), ("c", "3")]), ..report(0) };
        let other = MemberReport { sections: sections([("a", "1"), ("b", "9"), ("d", "4")]), ..report(0) };
        assert_eq!(own.differing_sections(&other), ["b", "c", "d"]);
        assert_eq!(own.differing_sections(&own), [""; 0]);
        let silent = MemberReport { sections: BTreeMap::new(), ..report(0) };
        assert_eq!(own.differing_sections(&silent), [""; 0]);
    }

    #[test]
    fn settings_of_the_sections_that_differ_are_named() {
        let member = |a: &str, b: &str, c: &str| MemberReport {
            sections: sections([("a", a), ("b", b)]),
            settings: sections([("a.x", a), ("a.y", "1"), ("b.x", b), ("b.y", c)]),
            ..report(0)
        };
        assert_eq!(member("1", "2", "3").differing_settings(&member("1", "9", "3")), ["b.x"]);
        assert_eq!(member("1", "2", "3").differing_settings(&member("1", "2", "4")), [""; 0]);
        let silent = MemberReport { settings: BTreeMap::new(), ..member("1", "9", "3") };
        assert_eq!(member("1", "2", "3").differing_settings(&silent), [""; 0]);
    }

    #[test]
    fn a_report_of_an_earlier_version_is_read() {
        let mut rows = report(1).to_rows();
        let mut header: serde_json::Value = serde_json::from_slice(&rows.remove(0)).unwrap();
        for added in
            ["sections", "settings", "wanted_pools", "leases_budgets", "runs_slices", "reserved_tokens"]
        {
            header.as_object_mut().unwrap().remove(added).unwrap();
        }
        rows.insert(0, serde_json::to_vec(&header).unwrap());
        let mut earlier = MemberReport {
            sections: BTreeMap::new(),
            settings: BTreeMap::new(),
            wanted_pools: Vec::new(),
            leases_budgets: false,
            runs_slices: false,
            ..report(1)
        };
        earlier.keys.iter_mut().for_each(|key| key.totals.reserved_tokens = 0);
        assert_eq!(MemberReport::from_rows(&rows), Some(earlier));
    }

    #[test]
    fn a_report_of_any_length_is_read_back_and_fits_its_rows() {
        for keys in [0, 1, KEYS_PER_ROW, KEYS_PER_ROW + 1, MAX_REPORTED_KEYS] {
            let rows = report(keys).to_rows();
            assert!(rows.iter().all(|row| row.len() <= MAX_VALUE_BYTES), "{keys}");
            assert_eq!(MemberReport::from_rows(&rows), Some(report(keys)), "{keys}");
        }
    }

    #[test]
    fn rows_of_an_earlier_report_are_ignored_and_missing_ones_noticed() {
        let mut rows = report(3).to_rows();
        rows.extend(report(600).to_rows().into_iter().skip(2));
        assert_eq!(MemberReport::from_rows(&rows), Some(report(3)));
        let incomplete: Vec<Vec<u8>> = report(400).to_rows().into_iter().take(2).collect();
        assert_eq!(MemberReport::from_rows(&incomplete), None);
        for broken in [&b""[..], b"{}", b"{\"v\":2}"] {
            assert_eq!(MemberReport::from_rows(&[broken.to_vec()]), None);
        }
        assert_eq!(MemberReport::from_rows(&[]), None);
    }
}
