//! Limits of keys and accounts: command line arguments, and their text in tables.

use super::status::table_cell;
use crate::admin::input::LIMIT_MEMBERS;
use clap::Args;
use serde_json::{Map, Value};

/// Limits of a key or account; `none` removes a limit.
#[derive(Debug, Default, Args)]
pub struct LimitArgs {
    /// Requests per minute; `none` for no limit
    #[arg(long, value_name = "N", help_heading = "Limits")]
    requests_per_minute: Option<String>,
    /// Tokens per minute, input and output; an excess is a debt that has to refill first
    #[arg(long, value_name = "N", help_heading = "Limits")]
    tokens_per_minute: Option<String>,
    /// Concurrent requests
    #[arg(long, value_name = "N", help_heading = "Limits")]
    concurrent: Option<String>,
    /// Credits per day, from midnight to midnight, UTC
    #[arg(long, value_name = "CREDITS", help_heading = "Limits", allow_negative_numbers = true)]
    budget_per_day: Option<String>,
    /// Credits per calendar month, UTC
    #[arg(long, value_name = "CREDITS", help_heading = "Limits", allow_negative_numbers = true)]
    budget_per_month: Option<String>,
}

impl LimitArgs {
    /// Returns the member `limits` of a request, or `None` if no limit was given.
    #[must_use]
    pub fn to_json(&self) -> Option<Value> {
        let all = [
            &self.requests_per_minute,
            &self.tokens_per_minute,
            &self.concurrent,
            &self.budget_per_day,
            &self.budget_per_month,
        ];
        let given = LIMIT_MEMBERS.into_iter().zip(all).filter_map(|(name, typed)| {
            let typed = typed.as_deref()?;
            let value = match typed {
                "none" => Value::Null,
                // Amounts are sent as the text that the user typed, so that every digit is preserved.
                typed if name.starts_with("budget") => Value::from(typed),
                typed => typed.parse::<u64>().map_or_else(|_| Value::from(typed), Value::from),
            };
            Some((name.to_owned(), value))
        });
        let given: Map<String, Value> = given.collect();
        (!given.is_empty()).then_some(Value::Object(given))
    }
}

/// Formats limits as a table cell: `60 req/min, 5 credits/day`; empty if there are none.
#[must_use]
pub fn format_limits(item: &Value) -> String {
    let units = ["req/min", "tok/min", "at once", "credits/day", "credits/month"];
    let limits = item.get("limits").unwrap_or(&Value::Null);
    let each = LIMIT_MEMBERS.into_iter().zip(units).filter_map(|(name, unit)| {
        let most = table_cell(limits, name);
        (!most.is_empty()).then(|| format!("{most} {unit}"))
    });
    each.collect::<Vec<_>>().join(", ")
}

/// Formats the warnings in a response, for standard error.
#[must_use]
pub fn format_response_warnings(answer: &Value) -> String {
    let list = answer.get("warnings").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(|warning| format!("warning: {warning}\n")).collect()
}
