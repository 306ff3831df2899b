//! Usage of a period, on a page of any site.

use super::answer::refused_form_blocks;
use super::pages::PageContext;
use super::session::run_blocking;
use penstock_console::Block;
use penstock_console::pages::{self as blocks, UsageStep, UsageView};
use penstock_core::{ApiError, ErrorCode};
use penstock_usage::UsageRange;
use serde_json::Value;

/// Returns the period that one bar has in the charts of a range of days. For an invalid range, which the admin API
/// refuses, returns the default.
fn step_of(from: &str, to: &str, now: u64) -> UsageStep {
    let given = |day| Some(day).filter(|day: &&str| !day.is_empty());
    let range = UsageRange::parse(given(from), given(to), now);
    range.map_or_else(|_| UsageStep::default(), |range| UsageStep::for_days(range.day_count()))
}

/// Returns the blocks of a usage page: a form with the range of days, charts and a table. The query of the page fills
/// some fields of `view`; the caller provides the others. `filters` are additional parameters of the request to the
/// admin API; empty ones are left out.
///
/// # Errors
/// Returns the refusal of the admin API, unless it concerns a field of the form: that one is shown at the field.
pub async fn usage_page(
    page: &PageContext<'_>,
    view: UsageView,
    filters: &[(&str, &str)],
) -> Result<Vec<Block>, ApiError> {
    let given = |name: &str| page.request.query_parameter(name).unwrap_or_default().to_owned();
    let chosen =
        page.request.query_parameter("by").filter(|by| view.dimensions.iter().any(|(name, _)| name == by));
    let by = chosen.unwrap_or("model").to_owned();
    let (from, to) = (given("from"), given("to"));
    let step = step_of(&from, &to, page.console.app.clock.unix_seconds());
    let view = UsageView { from, to, by, step, ..view };
    let group_by = view.group_by_parameter();
    let mut query = vec![("group_by", group_by.as_str())];
    let range = [("from", view.from.as_str()), ("to", view.to.as_str())];
    query.extend(range.into_iter().chain(filters.iter().copied()).filter(|(_, value)| !value.is_empty()));
    match page.get_from_admin_api("/admin/usage", &query).await {
        Ok(usage) => {
            // The form shows the range of days of the page, even if the query names no range.
            let day = |name: &str| usage.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let form = blocks::usage_form(&UsageView { from: day("from"), to: day("to"), ..view.clone() });
            let charts = run_blocking(move || Ok(blocks::usage_blocks(&usage, &view))).await?;
            Ok([Block::Form(form)].into_iter().chain(charts).collect())
        }
        // An account that does not exist has no page.
        Err(refusal) if refusal.param.is_some() && refusal.code != ErrorCode::NotFound => {
            let mut form = blocks::usage_form(&view);
            form.restore_values(&[], refusal.param.as_deref().map(|field| (field, &*refusal.message)));
            Ok(refused_form_blocks(form, &refusal))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Returns the charts of the requests and charges of the last days, with a link to the page of all figures.
///
/// # Errors
/// Returns the refusal of the admin API.
pub async fn recent_usage_charts(
    page: &PageContext<'_>,
    view: UsageView,
    filters: &[(&str, &str)],
) -> Result<Vec<Block>, ApiError> {
    let view = UsageView { by: "model".to_owned(), ..view };
    let group_by = view.group_by_parameter();
    let mut query = vec![("group_by", group_by.as_str())];
    query.extend(filters.iter().copied());
    Ok(blocks::usage_summary_blocks(&page.get_from_admin_api("/admin/usage", &query).await?, &view))
}
