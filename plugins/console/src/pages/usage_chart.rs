//! Charts of usage: the groups that have a series, and the sums of each series.

use super::usage::{REQUEST_COUNT_MEMBERS, UsageView, sum_of};
use super::{rows, text};
use crate::chart::{BarChart, ChartSeries};
use crate::text::Text;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};

/// Maximum number of groups of a chart that have a series of their own if several groups share one more series.
const MAX_SERIES: usize = 5;

/// Returns the groups, that with the greatest sum of `members` first. Groups with the same sum are in the order of
/// their names.
fn groups_by(usage: &Value, view: &UsageView, members: &[&str]) -> Vec<(String, f64)> {
    let mut totals: BTreeMap<String, f64> = BTreeMap::new();
    for row in rows(usage) {
        *totals.entry(view.series_of(row)).or_default() += sum_of(row, members);
    }
    let mut groups: Vec<(String, f64)> = totals.into_iter().collect();
    groups.sort_by(|one, other| other.1.total_cmp(&one.1));
    groups
}

/// Returns the groups, that with the most requests first. The charts of a page have their series in this order, so that
/// a colour means the same group in each of them, as far as they show the same groups.
pub(super) fn series_order(usage: &Value, view: &UsageView) -> Vec<String> {
    groups_by(usage, view, REQUEST_COUNT_MEMBERS).into_iter().map(|(name, _)| name).collect()
}

/// Returns the groups of a chart of `members` that have a series of their own, in the order of the colours: all groups
/// if one more series is sufficient for the rest, otherwise those with the greatest sums. A group that is among the
/// first of `order` keeps its position there, and the other groups fill the remaining positions.
fn shown_groups(usage: &Value, view: &UsageView, order: &[String], members: &[&str]) -> Vec<String> {
    if order.len() <= MAX_SERIES + 1 {
        return order.to_vec();
    }
    let groups = groups_by(usage, view, members);
    let mut chosen: Vec<String> = groups.into_iter().take(MAX_SERIES).map(|(name, _)| name).collect();
    let mut slots: Vec<Option<String>> = order.iter().take(MAX_SERIES).cloned().map(Some).collect();
    for slot in &mut slots {
        match chosen.iter().position(|name| Some(name) == slot.as_ref()) {
            Some(index) => drop(chosen.remove(index)),
            None => *slot = None,
        }
    }
    let mut others = chosen.into_iter();
    slots.into_iter().filter_map(|slot| slot.or_else(|| others.next())).collect()
}

/// Chart of the sum of members by time, with a series for each of the groups with the greatest sums, and one for all
/// others together.
pub(super) fn usage_chart(
    usage: &Value,
    view: &UsageView,
    order: &[String],
    members: &[&str],
    title: Text,
    unit: &'static str,
) -> BarChart {
    let steps = view.step.steps_in_range(&text(usage, "from"), &text(usage, "to"));
    let step_index: HashMap<&str, usize> =
        steps.iter().enumerate().map(|(index, step)| (step.as_str(), index)).collect();
    let shown = shown_groups(usage, view, order, members);
    let series_index: HashMap<&str, usize> =
        shown.iter().enumerate().map(|(index, name)| (name.as_str(), index)).collect();
    let names = shown.iter().map(|name| view.series_name(name));
    let others = (order.len() > shown.len()).then(|| "others".into());
    let mut series: Vec<ChartSeries> =
        names.chain(others).map(|name| ChartSeries { name, values: vec![0.0; steps.len()] }).collect();
    for row in rows(usage) {
        let of = series_index.get(view.series_of(row).as_str()).copied().unwrap_or(shown.len());
        let Some(step) = step_index.get(text(row, view.step.dimension()).as_str()) else { continue };
        if let Some(sum) = series.get_mut(of).and_then(|series| series.values.get_mut(*step)) {
            *sum += sum_of(row, members);
        }
    }
    let labels = steps.into_iter().map(|step| view.step.bar_label(step)).collect();
    BarChart { title, unit, labels, series }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use serde_json::json;

    #[test]
    fn every_day_has_a_bar_and_the_smallest_groups_are_added_up() {
        let rows: Vec<Value> = (1..=9)
            .map(|index| json!({ "day": "2026-11-02", "model": format!("m{index}"), "requests": index }))
            .collect();
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-03", "data": rows });
        let view = UsageView { by: "model".to_owned(), ..UsageView::default() };
        let order = series_order(&usage, &view);
        let chart = usage_chart(&usage, &view, &order, REQUEST_COUNT_MEMBERS, Text::default(), "");
        assert_eq!(
            chart.labels,
            ["2026-11-01", "2026-11-02", "2026-11-03"].map(|day| Text::MonthDay(day.to_owned()))
        );
        assert_eq!(chart.series.len(), MAX_SERIES + 1);
        assert_eq!(chart.series[0].name, Text::Data("m9".to_owned()));
        assert_eq!(chart.series[MAX_SERIES].values, [0.0, 1.0 + 2.0 + 3.0 + 4.0, 0.0]);
        let all: f64 = chart.series.iter().flat_map(|series| &series.values).sum();
        assert!((all - 45.0).abs() < 1e-9);
    }

    #[test]
    fn a_single_group_is_not_hidden_among_others() {
        let rows: Vec<Value> = (1..=6)
            .map(|index| json!({ "day": "2026-11-01", "model": format!("m{index}"), "requests": index }))
            .collect();
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-01", "data": rows });
        let view = UsageView { by: "model".to_owned(), ..UsageView::default() };
        let order = series_order(&usage, &view);
        let chart = usage_chart(&usage, &view, &order, REQUEST_COUNT_MEMBERS, Text::default(), "");
        assert_eq!(chart.series.len(), 6);
        assert_eq!(chart.series[5].name, Text::Data("m1".to_owned()));
    }

    #[test]
    fn a_chart_shows_the_groups_that_are_great_in_it() {
        // The group without an answer has most requests and no energy; the last one has few requests and most energy.
        let row = |model: &str, requests: u64, kwh: f64| json!({ "day": "2026-11-01", "model": model, "requests": requests, "energy_kwh": kwh });
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-01", "data": [
            row("", 90, 0.0), row("a", 80, 0.1), row("b", 70, 0.2), row("c", 60, 0.3), row("d", 50, 0.4),
            row("e", 40, 0.5), row("f", 30, 0.01), row("g", 1, 9.0),
        ] });
        let view = UsageView { by: "model".to_owned(), ..UsageView::default() };
        let order = series_order(&usage, &view);
        let names = |member| {
            let chart = usage_chart(&usage, &view, &order, &[member], Text::default(), "");
            let all: f64 = chart.series.iter().flat_map(|series| &series.values).sum();
            let names =
                chart.series.iter().map(|series| series.name.render(crate::Language::English).into_owned());
            (names.collect::<Vec<_>>(), all)
        };
        assert_eq!(names("requests").0, ["not answered", "a", "b", "c", "d", "others"]);
        let (shown, all) = names("energy_kwh");
        assert_eq!(shown, ["g", "e", "b", "c", "d", "others"], "the colours of b, c and d stay");
        assert!((all - 10.51).abs() < 1e-9);
    }
}
