//! Usage as JSON: the query that the public API and the admin API share, and its answer.

use crate::billing::format::json_number;
use crate::billing::report::ReportError;
use crate::billing::rollups::query::{DayReader, for_each_hour_rollup};
use crate::storage::files::store_to_api_error;
use penstock_core::{ApiError, ErrorCode};
use penstock_ledger::StatementSums;
use penstock_storage::keys::KeyStore;
use penstock_storage::ledger::LedgerStore;
use penstock_usage::{
    GroupError, RangeError, RollupDimensions, UsageGrouping, UsageRange, UsageReport, UsageSums,
};
use rust_decimal::Decimal;
use serde_json::{Map, Value, json};

/// Maximum number of rows of an answer.
pub const MAX_GROUPS: usize = 10_000;
/// Maximum number of rollups that a query reads.
const MAX_ROLLUPS: usize = 250_000;

/// Query of usage: filter, days and grouping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageQuery {
    /// Public id of the key to which the usage is restricted; `None` for all keys.
    pub key: Option<String>,
    /// Days for which usage is reported.
    pub range: UsageRange,
    /// Dimensions by which the usage is grouped into rows.
    pub groupings: Vec<UsageGrouping>,
}

impl UsageQuery {
    /// Parses the parameters `from`, `to`, `group_by` and `key`; `value` returns the value of a parameter. The key is
    /// not looked up, see [`check_key_of_account`].
    ///
    /// # Errors
    /// Returns a refusal that names the invalid parameter.
    pub fn parse<'a>(value: impl Fn(&str) -> Option<&'a str>, now: u64) -> Result<Self, ApiError> {
        let range = UsageRange::parse(value("from"), value("to"), now)
            .map_err(|error: RangeError| ApiError::invalid(error.parameter(), error.to_string()))?;
        let groupings = UsageGrouping::parse_list(value("group_by")).map_err(invalid_grouping)?;
        Ok(Self { key: value("key").map(str::to_owned), range, groupings })
    }
}

fn invalid_grouping(error: GroupError) -> ApiError {
    ApiError::invalid("group_by", error.to_string())
}

/// Error of a query.
enum QueryError {
    Store(ReportError),
    Refused(ApiError),
}

impl From<ReportError> for QueryError {
    fn from(error: ReportError) -> Self {
        Self::Store(error)
    }
}

/// Checks that the key of a query is a key of the account, so that a misspelt id is not taken for a key without usage.
/// Blocks.
///
/// # Errors
/// Returns the same 400 for a key that does not exist and for a key of another account, and 503 if the store cannot be
/// read.
pub fn check_key_of_account(keys: &KeyStore, account: &str, query: &UsageQuery) -> Result<(), ApiError> {
    let Some(id) = &query.key else { return Ok(()) };
    let found = keys.get(id).map_err(|error| store_to_api_error(&error))?;
    if found.is_some_and(|key| key.account == account) {
        return Ok(());
    }
    Err(ApiError::invalid("key", "key: expected the id of a key of this account"))
}

/// Reads the usage of an account; the empty account is the whole gateway. Blocks.
///
/// # Errors
/// Returns 400 if the query reads or returns too much, 503 if the store cannot be read, or 500 if its contents are invalid.
pub fn read_usage(store: &LedgerStore, account: &str, query: &UsageQuery) -> Result<UsageReport, ApiError> {
    let mut report = UsageReport::new(query.groupings.clone(), MAX_GROUPS);
    let mut count = 0;
    let add = |cell: &RollupDimensions, sums: &UsageSums| {
        count += 1;
        if count > MAX_ROLLUPS {
            let expected = "from: the period has too many different keys and models; expected fewer days";
            return Err(QueryError::Refused(ApiError::invalid("from", expected)));
        }
        if query.key.as_ref().is_none_or(|key| *cell.key == **key) {
            report.add(cell, sums).map_err(|error| QueryError::Refused(invalid_grouping(error)))?;
        }
        Ok(())
    };
    let read = if query.groupings.contains(&UsageGrouping::Hour) {
        for_each_hour_rollup(store, account, query.range.hour_bounds(), add)
    } else {
        let read_days = |reader: DayReader<'_>| reader.for_each(account, query.range.day_bounds(), add);
        DayReader::open(store).map_err(QueryError::Store).and_then(read_days)
    };
    match read {
        Ok(()) => Ok(report),
        Err(QueryError::Refused(refusal)) => Err(refusal),
        Err(QueryError::Store(ReportError::Store(error))) => Err(store_to_api_error(&error)),
        Err(QueryError::Store(ReportError::Invalid(why))) => {
            Err(ApiError::with_message(ErrorCode::Internal, why))
        }
    }
}

/// Returns the response to a usage query as JSON.
#[must_use]
pub fn usage_json(query: &UsageQuery, report: &UsageReport) -> Value {
    let rows = report.groups().map(|group| {
        let mut row = Map::new();
        for (grouping, name) in query.groupings.iter().zip(&group.names) {
            row.insert(grouping.name().to_owned(), name.as_str().into());
        }
        row.extend(sums_json(&group.sums));
        Value::Object(row)
    });
    json!({
        "object": "usage",
        "from": query.range.from.to_string(),
        "to": query.range.to.to_string(),
        "group_by": query.groupings.iter().map(|grouping| grouping.name()).collect::<Vec<_>>(),
        "data": rows.collect::<Vec<_>>(),
        "total": Value::Object(sums_json(report.total())),
    })
}

/// Returns the sums of a row as JSON numbers, in the units of `environment_impact` and `billing_cost`.
fn sums_json(sums: &UsageSums) -> Map<String, Value> {
    let StatementSums { credits, energy, .. } = sums.billed;
    let of = &sums.billed;
    let scaled = |amount: i128, scale: u32| {
        Decimal::try_from_i128_with_scale(amount, scale).map_or(Value::Null, json_number)
    };
    let members = [
        ("requests", of.requests.into()),
        ("requests_not_charged", of.uncharged.into()),
        ("batch_requests", sums.batch_requests.into()),
        ("input_tokens", of.input.into()),
        ("cached_input_tokens", of.cached.into()),
        ("output_tokens", of.output.into()),
        ("images", of.images.into()),
        ("audio_seconds", json_number(of.seconds)),
        ("energy_kwh", json_number(of.kwh)),
        ("failed_energy_kwh", json_number(sums.failed_kwh)),
        ("carbon_g_co2", json_number(of.carbon_g)),
        ("carbon_g_co2_low", json_number(sums.carbon_low_g)),
        ("carbon_g_co2_high", json_number(sums.carbon_high_g)),
        ("water_liters", json_number(of.water_l)),
        ("credits", scaled(credits, 6)),
        ("charged_kwh", scaled(energy, 9)),
        ("eur", json_number(of.eur)),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Names of the members that the rows of both APIs have in addition to the dimensions.
pub const SUM_MEMBERS: [&str; 17] = [
    "requests",
    "requests_not_charged",
    "batch_requests",
    "input_tokens",
    "cached_input_tokens",
    "output_tokens",
    "images",
    "audio_seconds",
    "energy_kwh",
    "failed_energy_kwh",
    "carbon_g_co2",
    "carbon_g_co2_low",
    "carbon_g_co2_high",
    "water_liters",
    "credits",
    "charged_kwh",
    "eur",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_documented_members() {
        let names: Vec<String> = sums_json(&UsageSums::default()).keys().cloned().collect();
        let mut documented = SUM_MEMBERS.map(str::to_owned).to_vec();
        documented.sort_by_key(|name| names.iter().position(|known| known == name));
        assert_eq!(names, documented);
    }
}
