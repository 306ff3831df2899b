//! Usage rollups: hourly sums of the ledger's entries by account, key, model, provider, location, outcome and class of
//! the price.
//!
//! A rollup is a pure function of the entries of its hour ([`entry_rollup`]), so that all rollups can be rebuilt from
//! the ledger and compared with it. Each entry counts in two rollups: that of its account, and that of the whole
//! gateway, whose account and key are empty. So a sum over all accounts reads only few rows.
//!
//! | entry | outcome | figures |
//! |---|---|---|
//! | settle | `charged` | one request, tokens, images, seconds, amounts, footprint |
//! | void | `failed`, `left`, `cancelled` or `interrupted` | one request without a charge, footprint of attempts |
//! | correct of a charge | `corrected` | the difference of the amounts, with the model of the charge |
//! | grant, correct of a grant | `granted` | the granted amount |
//!
//! Day rollups are added up from those of the hours after the day has ended ([`DayRollups`]), so that a query of a long
//! period reads few rows; [`DayRollupWatermark`] says up to which day they are complete.
//!
//! Amounts are integers and exact decimals; there are no floats.

mod cell;
mod day;
mod day_mark;
mod fold;
mod group;
mod price_class;
mod range;
mod row;
mod statement;
mod sums;

pub use cell::{HourNumber, RollupDimensions, UsageOutcome};
pub use day::{DayNumber, DayRollups, day_from_row_key, day_key_prefix, decode_day_row};
pub use day_mark::{ChainPosition, DayRollupBuild, DayRollupWatermark, day_watermark_key};
pub use fold::{ChargeDimensions, data_center_location, entry_rollup};
pub use group::{GroupError, UsageGroup, UsageGrouping, UsageReport};
pub use price_class::PriceClass;
pub use range::{MAX_RANGE_DAYS, RangeError, UsageRange};
pub use row::{
    RowError, account_key_prefix, decode_row, encode_row_value, hour_key_prefix, parse_row_key, row_key,
};
pub use statement::add_to_statement;
pub use sums::UsageSums;
