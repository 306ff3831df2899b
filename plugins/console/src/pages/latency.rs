//! Plot of the time to the first token in the last hour, by model or by provider, on its own page.

use super::{number, rows, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, Table};
use crate::chart::ChartSeries;
use crate::line_chart::{LineChart, LineChartMetric};
use crate::text::Text;
use serde_json::Value;

/// Maximum number of groups with a line of their own; the answers of all further groups are added up.
const MAX_LINES: usize = 5;

/// Form that groups the plot by model or by provider; `grouping` is the selected grouping.
#[must_use]
pub fn latency_grouping_form(path: &str, grouping: &str) -> Form {
    let groups = FieldKind::choice(&[("model", "Model"), ("provider", "Provider")]);
    let field = Field::new("by", "Grouped by").with_kind(groups).with_value(grouping);
    let mut form = Form::new(path, "Time to first token", "Show").with_field(field);
    form.is_query = true;
    form
}

/// Plot of the median time to the first token by minute, and a table of the last hour.
#[must_use]
pub fn latency_blocks(latency: &Value) -> Vec<Block> {
    let mut groups: Vec<&Value> = rows(latency).iter().collect();
    groups.sort_by(|one, other| answers(other).total_cmp(&answers(one)));
    if groups.is_empty() {
        let sentence = "No streamed answer was sent in the last hour, so there is no time to a first token.";
        return vec![Block::Prose(sentence.into())];
    }
    vec![Block::LineChart(chart(latency, &groups)), Block::Table(table(&groups))]
}

fn answers(group: &Value) -> f64 {
    number(group, "answers").unwrap_or_default()
}

fn name(group: &Value) -> Text {
    match text(group, "name") {
        name if name.is_empty() => "others".into(),
        name => Text::Data(name),
    }
}

fn chart(latency: &Value, groups: &[&Value]) -> LineChart {
    let times = latency.get("minutes").and_then(Value::as_array).into_iter().flatten();
    let times: Vec<Text> =
        times.filter_map(|time| Some(Text::Data(time.as_str()?.get(11..16)?.to_owned()))).collect();
    let (shown, others) = groups.split_at(groups.len().min(MAX_LINES));
    let series = |member: &'static str| {
        let one = move |group: &&Value| ChartSeries { name: name(group), values: values(group, member) };
        shown.iter().map(one).collect::<Vec<_>>()
    };
    let mut requests = series("answers_per_minute");
    if !others.is_empty() {
        let sum = |minute: usize| {
            others.iter().filter_map(|group| values(group, "answers_per_minute").get(minute).copied()).sum()
        };
        requests.push(ChartSeries { name: "others".into(), values: (0..times.len()).map(sum).collect() });
    }
    LineChart {
        metric: LineChartMetric::FirstToken,
        title: "Median time to first token per minute, seconds, and streamed answers, UTC".into(),
        times,
        values: series("median_seconds_per_minute"),
        requests,
    }
}

/// Returns the values of this member for each minute; NaN for an unknown value.
fn values(group: &Value, member: &str) -> Vec<f64> {
    let all = group.get(member).and_then(Value::as_array).into_iter().flatten();
    all.map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
}

fn table(groups: &[&Value]) -> Table {
    let row = |group: &&Value| {
        let seconds = |member| super::quantity_cell(group, member, "s");
        vec![
            Cell::text(name(group)),
            super::quantity_cell(group, "answers", ""),
            seconds("mean_seconds"),
            seconds("median_seconds"),
            seconds("p95_seconds"),
            seconds("maximum_seconds"),
        ]
    };
    Table {
        title: "Time to first token in the last hour".into(),
        headings: vec!["Group", "Streamed answers", "Mean", "Median", "95th percentile", "Maximum"],
        rows: groups.iter().map(row).collect(),
        empty_text: "No data",
        next: None,
        is_screen_only: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use crate::language::Language;
    use serde_json::json;

    #[test]
    fn the_groups_with_the_most_answers_have_lines() {
        let group = |name: &str, answers: u64| {
            json!({ "name": name, "answers": answers, "answers_per_minute": [0, answers],
                "median_seconds_per_minute": [null, 0.25] })
        };
        let groups: Vec<Value> = ["a", "b", "c", "d", "e", "f", ""]
            .iter()
            .zip(1..)
            .map(|(name, answers)| group(name, answers))
            .collect();
        let latency = json!({ "minutes": ["2026-11-28T10:00:00Z", "2026-11-28T10:01:00Z"], "data": groups });
        let blocks = latency_blocks(&latency);
        let Block::LineChart(chart) = &blocks[0] else { panic!("{blocks:?}") };
        assert_eq!((chart.values.len(), chart.requests.len()), (5, 6));
        assert_eq!(chart.values[0].name.render(Language::English), "others");
        assert_eq!(chart.requests[5].values, [0.0, 3.0]);
        let title = &chart.tooltips(Language::English)[0].title;
        assert!(title.starts_with("10:01, s:\nothers: 0.25\nf: 0.25\n"), "{title}");
        assert!(matches!(latency_blocks(&json!({}))[0], Block::Prose(_)));
    }
}
