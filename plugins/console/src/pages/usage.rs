//! Usage page: charts by day, week or month, and the same figures as a table.

use super::usage_chart::{series_order, usage_chart};
use super::usage_step::UsageStep;
use super::{day, exact, number, place, quantity_cell, rows, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, Table};
use crate::text::Text;
use serde_json::Value;
use std::collections::BTreeMap;

/// Members of a row that count its requests: charged ones, and those that are not charged.
pub(super) const REQUEST_COUNT_MEMBERS: &[&str] = &["requests", "requests_not_charged"];
/// Maximum number of rows of the table with the values of each step and group.
const MAX_VALUE_ROWS: usize = 60;
/// Figures of a row, with their units.
const MEMBERS: [(&str, &str); 9] = [
    ("requests", ""),
    ("requests_not_charged", ""),
    ("input_tokens", ""),
    ("output_tokens", ""),
    ("energy_kwh", "kWh"),
    ("failed_energy_kwh", "kWh"),
    ("carbon_g_co2", "g"),
    ("water_liters", "l"),
    ("eur", "EUR"),
];

/// Query of the usage page, and settings of its display.
#[derive(Clone, Debug, Default)]
pub struct UsageView {
    /// Path of the page.
    pub path: String,
    /// First day of the usage page, as the query states it.
    pub from: String,
    /// Last day of the usage page, as the query states it.
    pub to: String,
    /// Dimension by which usage is grouped into series, such as `model`.
    pub by: String,
    /// Dimensions that can be chosen, with their names.
    pub dimensions: &'static [(&'static str, &'static str)],
    /// Period of one bar.
    pub step: UsageStep,
    /// Names of the keys by their ids, for the dimension `key`.
    pub key_names: BTreeMap<String, String>,
    /// True if money is shown.
    pub with_money: bool,
    /// Path of the same figures as CSV; `None` if there is none.
    pub csv_path: Option<&'static str>,
}

/// Figure of a chart: title, members of a row whose sum it shows, and unit.
type ChartFigure = (&'static str, &'static [&'static str], &'static str);

/// Figures of the charts, in their order.
const FIGURES: [ChartFigure; 6] = [
    ("Requests", REQUEST_COUNT_MEMBERS, ""),
    ("Generated tokens", &["output_tokens"], ""),
    ("Energy", &["energy_kwh"], "kWh"),
    ("Carbon, location-based", &["carbon_g_co2"], "g"),
    ("Water", &["water_liters"], "l"),
    ("Charged", &["eur"], "EUR"),
];

/// Dimensions of the usage of all accounts.
pub const GATEWAY_DIMENSIONS: &[(&str, &str)] =
    &[("model", "Model"), ("provider", "Provider"), ("location", "Location"), ("outcome", "Outcome")];
/// Dimensions of the usage of one account.
pub const ACCOUNT_DIMENSIONS: &[(&str, &str)] =
    &[("model", "Model"), ("key", "Key"), ("day", "Day"), ("location", "Location"), ("outcome", "Outcome")];

impl UsageView {
    /// Returns the dimensions of the query, for the parameter `group_by`.
    #[must_use]
    pub fn group_by_parameter(&self) -> String {
        let step = self.step.dimension();
        if self.by == "day" { step.to_owned() } else { format!("{step},{}", self.by) }
    }

    /// Returns the name of the row member that contains the group of the row.
    fn group_member(&self) -> &str {
        if self.by == "day" { self.step.dimension() } else { &self.by }
    }

    /// Returns the series to which a row belongs: the same for all rows if they are grouped by time only, otherwise
    /// that of the row's group.
    pub(super) fn series_of(&self, row: &Value) -> String {
        if self.by == "day" { String::new() } else { text(row, &self.by) }
    }

    /// Returns the displayed name of a series of the chart.
    pub(super) fn series_name(&self, series: &str) -> Text {
        if self.by == "day" { "all".into() } else { self.group_name(series) }
    }

    /// Returns the displayed name of a group: a value of the dimension `by`.
    fn group_name(&self, group: &str) -> Text {
        match &*self.by {
            "key" => Text::Data(self.key_names.get(group).cloned().unwrap_or_else(|| group.to_owned())),
            "day" => self.step.table_text(group.to_owned()),
            "outcome" => Text::Word(group.to_owned()),
            _ if group.is_empty() => "not answered".into(),
            "location" => place(group),
            _ => Text::Data(group.to_owned()),
        }
    }
}

/// Form with the range of days and the dimension of the series.
#[must_use]
pub fn usage_form(view: &UsageView) -> Form {
    let dimensions = FieldKind::choice(view.dimensions);
    let by = Field::new("by", "Grouped by").with_kind(dimensions).with_value(view.by.clone());
    let mut form = Form::new(view.path.clone(), "Range", "Show")
        .with_field(
            Field::new("from", "First day, UTC").with_kind(FieldKind::Date).with_value(view.from.clone()),
        )
        .with_field(Field::new("to", "Last day, UTC").with_kind(FieldKind::Date).with_value(view.to.clone()))
        .with_field(by);
    form.is_query = true;
    form
}

/// Charts and a table of usage by time and one further dimension.
#[must_use]
pub fn usage_blocks(usage: &Value, view: &UsageView) -> Vec<Block> {
    let mut blocks: Vec<Block> = charts(usage, view, |_| true).collect();
    blocks.push(Block::Details(value_table(usage, view)));
    blocks.push(Block::Table(table(usage, view)));
    blocks.extend(view.csv_path.map(|path| {
        let query = format!("{path}?from={}&to={}&by={}", text(usage, "from"), text(usage, "to"), view.by);
        Block::Links(vec![
            (query.clone(), "CSV, decimal point".into()),
            (format!("{query}&separator=;&decimal=,"), "CSV, semicolon and decimal comma".into()),
        ])
    }));
    blocks
}

/// Charts of requests and charges by time and group, with the link to the page of all figures.
#[must_use]
pub fn usage_summary_blocks(usage: &Value, view: &UsageView) -> Vec<Block> {
    let link = Block::Links(vec![(view.path.clone(), "All figures of the usage".into())]);
    charts(usage, view, |title| ["Requests", "Charged"].contains(&title)).chain([link]).collect()
}

/// Charts of the figures whose titles `is_shown` selects.
fn charts(usage: &Value, view: &UsageView, is_shown: impl Fn(&str) -> bool) -> impl Iterator<Item = Block> {
    let order = series_order(usage, view);
    let (of_all, by_dimension) = view.step.chart_titles();
    let figures = FIGURES
        .into_iter()
        .filter(move |(title, _, unit)| is_shown(title) && (view.with_money || *unit != "EUR"));
    figures.map(move |(title, members, unit)| {
        let title = match &*view.by {
            "day" => Text::with_values(of_all, [title.into()]),
            by => Text::with_values(by_dimension, [title.into(), Text::Word(by.to_owned())]),
        };
        Block::Chart(usage_chart(usage, view, &order, members, title, unit))
    })
}

/// Returns the sum of members of a row; a member that the row lacks counts as zero.
pub(super) fn sum_of(row: &Value, members: &[&str]) -> f64 {
    members.iter().filter_map(|member| number(row, member)).sum()
}

/// Table of the exact values of all charts: a row for each step and group, or for each step if `usage` has more than
/// [`MAX_VALUE_ROWS`] rows.
pub(super) fn value_table(usage: &Value, view: &UsageView) -> Table {
    let by_group = view.by != "day" && rows(usage).len() <= MAX_VALUE_ROWS;
    let mut sums: BTreeMap<(String, String), BTreeMap<&str, f64>> = BTreeMap::new();
    for row in rows(usage) {
        let group = if by_group { view.series_of(row) } else { String::new() };
        let sum = sums.entry((text(row, view.step.dimension()), group)).or_default();
        for (member, _) in MEMBERS {
            *sum.entry(member).or_default() += number(row, member).unwrap_or(0.0);
        }
    }
    let shown = || MEMBERS.iter().filter(|(member, _)| view.with_money || *member != "eur");
    let row = |((step, group), sum): ((String, String), BTreeMap<&str, f64>)| {
        let value = |(member, unit): &(&'static str, &'static str)| {
            Cell::number(exact(sum.get(member).copied().unwrap_or_default(), unit))
        };
        let mut cells = vec![Cell::text(view.step.table_text(step))];
        cells.extend(by_group.then(|| Cell::text(view.group_name(&group))));
        cells.extend(shown().map(value));
        cells
    };
    let others = headings(view.with_money).into_iter().skip(usize::from(!by_group));
    let (title, heading) = view.step.table_titles();
    let headings = std::iter::once(heading).chain(others).collect();
    Table {
        title: title.into(),
        headings,
        rows: sums.into_iter().map(row).collect(),
        empty_text: "There is no usage in this range.",
        next: None,
        is_screen_only: true,
    }
}

fn headings(with_money: bool) -> Vec<&'static str> {
    let mut headings = vec![
        "Group",
        "Charged requests",
        "Without a charge",
        "Input tokens",
        "Output tokens",
        "Energy",
        "Of failed attempts",
        "Carbon",
        "Water",
    ];
    if with_money {
        headings.push("Charged");
    }
    headings
}

fn table(usage: &Value, view: &UsageView) -> Table {
    let mut groups: BTreeMap<String, BTreeMap<&str, f64>> = BTreeMap::new();
    for row in rows(usage) {
        let sums = groups.entry(text(row, view.group_member())).or_default();
        for (member, _) in MEMBERS {
            *sums.entry(member).or_default() += number(row, member).unwrap_or(0.0);
        }
    }
    let shown = |member: &str| view.with_money || member != "eur";
    let total = usage.get("total").cloned().unwrap_or_default();
    let mut table_rows: Vec<Vec<Cell>> = groups
        .into_iter()
        .map(|(name, sums)| {
            let sums = serde_json::json!(sums);
            let cells = MEMBERS.iter().filter(|(member, _)| shown(member));
            std::iter::once(Cell::text(view.group_name(&name)))
                .chain(cells.map(|(member, unit)| quantity_cell(&sums, member, unit)))
                .collect()
        })
        .collect();
    if !table_rows.is_empty() {
        let cells = MEMBERS.iter().filter(|(member, _)| shown(member));
        let cells = cells.map(|(member, unit)| quantity_cell(&total, member, unit));
        table_rows.push(std::iter::once(Cell::text("Total")).chain(cells).collect());
    }
    let title = Text::with_values(
        "Sums by {0}, {1} to {2}",
        [Text::Word(view.group_member().to_owned()), day(usage, "from"), day(usage, "to")],
    );
    Table {
        title,
        headings: headings(view.with_money),
        rows: table_rows,
        empty_text: "There is no usage in this range.",
        next: None,
        is_screen_only: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_without_a_charge_are_drawn_too() {
        let row = |outcome: &str, charged: u64, free: u64| json!({ "day": "2026-11-01", "outcome": outcome, "requests": charged, "requests_not_charged": free });
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-01", "data": [
            row("charged", 5, 1), row("failed", 0, 3), row("cancelled", 0, 2),
        ], "total": { "requests": 5, "requests_not_charged": 6 } });
        let view = UsageView { by: "outcome".to_owned(), ..UsageView::default() };
        let blocks = usage_blocks(&usage, &view);
        let Block::Chart(chart) = &blocks[0] else { panic!("{blocks:?}") };
        let drawn: Vec<(String, f64)> = chart
            .series
            .iter()
            .map(|series| (series.name.render(crate::Language::German).into_owned(), series.values[0]))
            .collect();
        assert_eq!(
            drawn,
            [("berechnet", 6.0), ("fehlgeschlagen", 3.0), ("abgebrochen", 2.0)]
                .map(|(name, value)| (name.to_owned(), value))
        );
        let table = value_table(&usage, &view);
        let sum = |column: usize| {
            let cells = table.rows.iter().filter_map(|row| match &row[column].text {
                Text::Exact(number, _) => number.parse::<f64>().ok(),
                _ => None,
            });
            cells.sum::<f64>()
        };
        assert_eq!(sum(2) + sum(3), 11.0, "the table has the same requests");
    }

    #[test]
    fn a_colour_means_the_same_group_in_all_charts_and_a_table_has_the_values() {
        let row = |day: &str, model: &str, requests: u64, kwh: f64| json!({ "day": day, "model": model, "requests": requests, "energy_kwh": kwh });
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-02", "data": [
            row("2026-11-01", "small", 9, 0.001), row("2026-11-01", "large", 2, 0.123_456_7),
            row("2026-11-02", "large", 1, 0.2),
        ] });
        let view = UsageView { by: "model".to_owned(), ..UsageView::default() };
        let order = series_order(&usage, &view);
        let names = |member| {
            let chart = usage_chart(&usage, &view, &order, &[member], Text::default(), "");
            chart.series.iter().map(|series| series.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("requests"), ["small", "large"].map(|name| Text::Data(name.to_owned())));
        assert_eq!(names("requests"), names("energy_kwh"));
        let table = value_table(&usage, &view);
        assert_eq!((table.rows.len(), table.headings[..2].to_vec()), (3, vec!["Day", "Group"]));
        assert_eq!(table.rows[0][6].text, Text::Exact("0.1234567".to_owned(), "kWh"));
        let view = UsageView { by: "day".to_owned(), ..view };
        let table = value_table(&usage, &view);
        assert_eq!((table.rows.len(), table.headings[0]), (2, "Day"));
        assert_eq!(table.rows[0][1].text, Text::Exact("11".to_owned(), ""));
    }

    #[test]
    fn money_is_shown_only_to_those_who_may_see_it() {
        let usage = json!({ "from": "2026-11-01", "to": "2026-11-01", "data": [
            { "day": "2026-11-01", "model": "m", "requests": 1, "eur": 12.5 },
        ], "total": { "eur": 12.5 } });
        for with_money in [true, false] {
            let view = UsageView { by: "model".to_owned(), with_money, ..UsageView::default() };
            assert_eq!(format!("{:?}", usage_blocks(&usage, &view)).contains("EUR"), with_money);
        }
    }
}
