//! Groups of rollups: sums by day, week, month, hour, model, key, provider, location or outcome.

use crate::cell::{RollupDimensions, UsageOutcome};
use crate::sums::UsageSums;
use penstock_core::calendar::{UtcDay, UtcMonth, format_rfc3339};
use std::collections::BTreeMap;

/// Dimension that rollups are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageGrouping {
    /// Day in UTC.
    Day,
    /// Week in UTC, named by the date of its Monday.
    Week,
    /// Month in UTC.
    Month,
    /// Hour in UTC.
    Hour,
    /// Catalogue id of the model.
    Model,
    /// Public id of the key.
    Key,
    /// Provider.
    Provider,
    /// City and country of the provider's data centre.
    Location,
    /// Outcome of the requests.
    Outcome,
}

/// Error of a query for grouped usage.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// Unknown or repeated dimension, or too many dimensions.
    #[error(
        "group_by: expected up to three different names of {}, with commas between them",
        UsageGrouping::names()
    )]
    InvalidNames,
    /// The result would have more groups than an answer may have.
    #[error("group_by: the answer would have more than {0} rows; expected fewer days or dimensions")]
    TooManyGroups(usize),
}

impl UsageGrouping {
    /// All dimensions.
    pub const ALL: [Self; 9] = [
        Self::Day,
        Self::Week,
        Self::Month,
        Self::Hour,
        Self::Model,
        Self::Key,
        Self::Provider,
        Self::Location,
        Self::Outcome,
    ];

    /// Returns the name of the dimension in queries, and of its member in responses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Hour => "hour",
            Self::Model => "model",
            Self::Key => "key",
            Self::Provider => "provider",
            Self::Location => "location",
            Self::Outcome => "outcome",
        }
    }

    fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    /// Parses dimension names separated by commas; `day` by default.
    ///
    /// # Errors
    /// Returns an error if a name is unknown or repeated, or if there are more than three.
    pub fn parse_list(text: Option<&str>) -> Result<Vec<Self>, GroupError> {
        let mut groupings = Vec::new();
        for name in text.unwrap_or("day").split(',').map(str::trim) {
            let grouping = Self::ALL.into_iter().find(|grouping| grouping.name() == name);
            let grouping = grouping.filter(|grouping| !groupings.contains(grouping));
            groupings.push(grouping.ok_or(GroupError::InvalidNames)?);
        }
        if groupings.len() > 3 { Err(GroupError::InvalidNames) } else { Ok(groupings) }
    }

    fn value(self, cell: &RollupDimensions) -> String {
        match self {
            Self::Day => UtcDay::from_unix(cell.hour.start()).to_string(),
            Self::Week => UtcDay::from_unix(cell.hour.start()).monday().to_string(),
            Self::Month => UtcMonth::from_unix(cell.hour.start()).to_string(),
            Self::Hour => format_rfc3339(cell.hour.start()),
            Self::Model => cell.model.to_string(),
            Self::Key => cell.key.to_string(),
            Self::Provider => cell.provider.to_string(),
            Self::Location => cell.location.to_string(),
            Self::Outcome => cell.outcome.name().to_owned(),
        }
    }
}

/// Group of a usage report: the values of its dimensions, and its sums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageGroup {
    /// Value of each dimension, in the order of the query.
    pub names: Vec<String>,
    /// Sums of the group.
    pub sums: UsageSums,
}

/// Report that groups rollups while they are read.
#[derive(Clone, Debug)]
pub struct UsageReport {
    groupings: Vec<UsageGrouping>,
    groups: BTreeMap<Vec<String>, UsageSums>,
    total: UsageSums,
    max_groups: usize,
}

impl UsageReport {
    /// Creates an empty report with at most `max_groups` groups.
    #[must_use]
    pub fn new(groupings: Vec<UsageGrouping>, max_groups: usize) -> Self {
        Self { groupings, groups: BTreeMap::new(), total: UsageSums::default(), max_groups }
    }

    /// Adds a rollup. Skips grants, because they are not usage.
    ///
    /// # Errors
    /// Returns an error if there are too many groups.
    pub fn add(&mut self, cell: &RollupDimensions, sums: &UsageSums) -> Result<(), GroupError> {
        if cell.outcome == UsageOutcome::Granted {
            return Ok(());
        }
        let names: Vec<String> = self.groupings.iter().map(|grouping| grouping.value(cell)).collect();
        if self.groups.len() >= self.max_groups && !self.groups.contains_key(&names) {
            return Err(GroupError::TooManyGroups(self.max_groups));
        }
        self.groups.entry(names).or_default().add(sums);
        self.total.add(sums);
        Ok(())
    }

    /// Returns the dimensions by which the report is grouped, in the order of the query.
    #[must_use]
    pub fn groupings(&self) -> &[UsageGrouping] {
        &self.groupings
    }

    /// Returns the sums of all groups.
    #[must_use]
    pub const fn total(&self) -> &UsageSums {
        &self.total
    }

    /// Returns the groups in ascending order of their values.
    pub fn groups(&self) -> impl Iterator<Item = UsageGroup> + '_ {
        self.groups.iter().map(|(names, sums)| UsageGroup { names: names.clone(), sums: sums.clone() })
    }
}
