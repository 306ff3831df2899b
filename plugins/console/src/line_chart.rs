//! Plot of two panels with the same times: lines of a measured value above, bars of requests or answers below.

use crate::chart::{BarChart, COLOUR_COUNT, ChartPath, ChartSeries};
use crate::chart_hover::{ChartTooltip, SeriesNames, has_visible_bar};
use crate::format::truncate_middle;
use crate::language::Language;
use crate::panel::{AxisLabel, PlotArea, axis_end, format_position};
use crate::text::Text;
use std::borrow::Cow;

/// Unit of the intensity.
pub const INTENSITY_UNIT: &str = "g/kWh";
const LINES: PlotArea = PlotArea { top: 8.0, bottom: 138.0 };
const BARS: PlotArea = PlotArea { top: 158.0, bottom: 236.0 };
/// Maximum size of the name of a group in a heading, in bytes of HTML.
const MAX_HEADING_BYTES: usize = 60;

/// Metric of a line chart: the values of its lines and bars, and its texts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineChartMetric {
    /// Grid intensity by zone and hour, above the requests of batches.
    #[default]
    GridIntensity,
    /// Median time to the first token by minute, above the answers.
    FirstToken,
}

/// English texts of a metric, which are the keys of the translation table.
struct LineChartTexts {
    unit: &'static str,
    time: &'static str,
    bars: &'static str,
    value_heading: &'static str,
    bar_heading: &'static str,
    description: &'static str,
}

impl LineChartMetric {
    const fn texts(self) -> LineChartTexts {
        match self {
            Self::GridIntensity => LineChartTexts {
                unit: INTENSITY_UNIT,
                time: "Hour, UTC",
                bars: "Requests of batches",
                value_heading: "{0}, g CO₂e per kWh",
                bar_heading: "{0}, requests of batches",
                description: "{0}, {1} to {2}: {3} to {4}; {5} requests of batches",
            },
            Self::FirstToken => LineChartTexts {
                unit: "s",
                time: "Minute, UTC",
                bars: "Streamed answers",
                value_heading: "{0}, median seconds",
                bar_heading: "{0}, answers",
                description: "{0}, {1} to {2}: {3} to {4}; {5} answers",
            },
        }
    }
}

/// Plot of a measured value by group, and of the requests or answers at the same times.
#[derive(Clone, Debug, Default)]
pub struct LineChart {
    /// Metric that the lines show.
    pub metric: LineChartMetric,
    /// Title of the plot.
    pub title: Text,
    /// Start of each hour or minute, as its label on the horizontal axis.
    pub times: Vec<Text>,
    /// Measured values of each group; a negative or not finite value is unknown.
    pub values: Vec<ChartSeries>,
    /// Requests or answers at each time: a series for each group, in the order of `values`, then one for all other
    /// groups together if they have any.
    pub requests: Vec<ChartSeries>,
}

/// Line of a group: a step for each time.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartLine {
    /// Number of the colour, and of the dashes.
    pub colour: usize,
    /// Coordinates of the line's points, in the SVG syntax of `points`.
    pub points: String,
}

/// Returns the known values of a series, each with its index.
fn known(series: &ChartSeries) -> impl Iterator<Item = (usize, f64)> {
    series.values.iter().copied().enumerate().filter(|(_, value)| is_known(*value))
}

fn is_known(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

impl LineChart {
    fn axis_end(&self) -> f64 {
        let highest = self.values.iter().flat_map(known).map(|(_, value)| value).fold(0.0, f64::max);
        axis_end(highest, self.metric.texts().unit)
    }

    fn bars(&self) -> BarChart {
        BarChart {
            title: self.metric.texts().bars.into(),
            unit: "",
            labels: self.times.clone(),
            series: self.requests.clone(),
        }
    }

    /// Returns the lines of the groups. Unknown values interrupt a line, so a group may have several.
    #[must_use]
    pub fn value_lines(&self) -> Vec<ChartLine> {
        let end = self.axis_end();
        let mut lines = Vec::new();
        for (number, series) in self.values.iter().enumerate() {
            let mut points = String::new();
            let mut next = None;
            for (index, value) in known(series) {
                if next.is_some_and(|next| next != index) {
                    lines.push(ChartLine {
                        colour: number % COLOUR_COUNT,
                        points: std::mem::take(&mut points),
                    });
                }
                let y = format_position(LINES.bottom - LINES.value_height(value, end));
                let gap = if points.is_empty() { "" } else { " " };
                // A step extends from half a slot before the center of its time to half a slot after it.
                match index.checked_sub(1) {
                    Some(before) => points.push_str(&format!("{gap}{before}.5,{y} {index}.5,{y}")),
                    None => points.push_str(&format!("{gap}-.5,{y} .5,{y}")),
                }
                next = Some(index + 1);
            }
            if !points.is_empty() {
                lines.push(ChartLine { colour: number % COLOUR_COUNT, points });
            }
        }
        lines
    }

    /// Returns a path for each group with a dot at the center of each step: a line of length 0, which browsers draw
    /// as a dot.
    #[must_use]
    pub fn value_dots(&self) -> Vec<ChartPath> {
        let end = self.axis_end();
        let path = |(number, series): (usize, &ChartSeries)| {
            let dots = known(series).map(|(index, value)| {
                format!("M{index} {}h0", (LINES.bottom - LINES.value_height(value, end)).round())
            });
            ChartPath { colour: number % COLOUR_COUNT, path: dots.collect() }
        };
        self.values.iter().enumerate().map(path).filter(|path| !path.path.is_empty()).collect()
    }

    /// Returns a tooltip for each time that has a value: the exact values of the lines, then those of the bars.
    #[must_use]
    pub fn tooltips(&self, language: Language) -> Vec<ChartTooltip> {
        let names = self.names(language);
        let texts = self.metric.texts();
        let hover = |(bar, time): (usize, &Text)| {
            let values = names.tooltip_lines(&self.values, bar, is_known, language);
            let requests = names.tooltip_lines(&self.requests, bar, has_visible_bar, language);
            let mut title = time.render(language).into_owned();
            if !values.is_empty() {
                title.push_str(&format!(", {}:{values}", texts.unit));
            }
            if !requests.is_empty() {
                title.push_str(&format!("\n{}:{requests}", Text::from(texts.bars).render(language)));
            }
            (!values.is_empty() || !requests.is_empty()).then_some(ChartTooltip { bar, title })
        };
        self.times.iter().enumerate().filter_map(hover).collect()
    }

    /// Returns the names for tooltips and legend: those of the series of bars, which are one for each line and perhaps
    /// one for all other groups together. If a line has no bars, returns the names of the lines.
    fn names(&self, language: Language) -> SeriesNames {
        let has_all = self.requests.len() >= self.values.len();
        let named = if has_all { &self.requests } else { &self.values };
        SeriesNames::new(named, self.times.len(), language)
    }

    /// Returns the bars, which show the requests, as a path for each group.
    #[must_use]
    pub fn request_bar_paths(&self) -> Vec<ChartPath> {
        self.bars().paths_in(BARS)
    }

    /// Returns the width of the lines that draw the bars, as a fraction of the distance between two bars.
    #[must_use]
    pub fn request_bar_width(&self) -> String {
        self.bars().bar_width()
    }

    /// Returns the lines of both vertical axes with their values.
    #[must_use]
    pub fn y_axis_labels(&self, language: Language) -> Vec<AxisLabel> {
        let mut marks = LINES.y_axis_labels(self.axis_end(), self.metric.texts().unit, language);
        marks.extend(self.bars().y_axis_labels_in(BARS, language));
        marks
    }

    /// Returns the labels of the times on the horizontal axis.
    #[must_use]
    pub fn x_axis_labels(&self, language: Language) -> Vec<AxisLabel> {
        BARS.x_axis_labels(&self.times, language)
    }

    /// Returns the legend: the number of the colour and the name of each series of bars, or of each line if a line has
    /// no bars.
    #[must_use]
    pub fn legend(&self, language: Language) -> Vec<(usize, String)> {
        self.names(language).legend()
    }

    /// Returns a description for screen readers; the table has the values.
    #[must_use]
    pub fn description(&self, language: Language) -> String {
        let values = || self.values.iter().flat_map(known).map(|(_, value)| value);
        let quantity = |value| Text::Quantity(value, self.metric.texts().unit);
        let requests = self.requests.iter().flat_map(known).map(|(_, value)| value).sum();
        let (first, last) = (self.times.first().cloned(), self.times.last().cloned());
        let description = Text::with_values(
            self.metric.texts().description,
            [
                self.title.clone(),
                first.unwrap_or_default(),
                last.unwrap_or_default(),
                quantity(values().reduce(f64::min).unwrap_or(f64::NAN)),
                quantity(values().reduce(f64::max).unwrap_or(f64::NAN)),
                Text::Quantity(requests, ""),
            ],
        );
        description.render(language).into_owned()
    }

    /// Returns the heading of the first column of the table.
    #[must_use]
    pub const fn time_heading(&self) -> &'static str {
        self.metric.texts().time
    }

    /// Returns the headings of the table after the time: value and requests of each group.
    #[must_use]
    pub fn table_headings(&self, language: Language) -> Vec<String> {
        let of = |template| {
            move |series: &ChartSeries| {
                let name = truncate_middle(&series.name.render(language), MAX_HEADING_BYTES);
                Text::with_values(template, [name.into()]).render(language).into_owned()
            }
        };
        let texts = self.metric.texts();
        let values = self.values.iter().map(of(texts.value_heading));
        values.chain(self.requests.iter().map(of(texts.bar_heading))).collect()
    }

    /// Returns the rows of the table: the time and its values.
    #[must_use]
    pub fn table_rows(&self, language: Language) -> Vec<(Cow<'_, str>, Vec<String>)> {
        let cell = |series: &ChartSeries, index: usize| {
            let value = series.values.get(index).copied().filter(|value| is_known(*value));
            value.map_or_else(
                || "–".to_owned(),
                |value| Text::Quantity(value, "").render(language).into_owned(),
            )
        };
        let row = |(index, hour)| {
            let all = self.values.iter().chain(&self.requests);
            (Text::render(hour, language), all.map(|series| cell(series, index)).collect())
        };
        self.times.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn series(name: &str, values: &[f64]) -> ChartSeries {
        ChartSeries { name: Text::Data(name.to_owned()), values: values.to_vec() }
    }

    fn chart(intensity: &[&[f64]], requests: &[&[f64]]) -> LineChart {
        let hours = intensity.iter().chain(requests).map(|values| values.len()).max().unwrap_or(0);
        let named = |all: &[&[f64]]| {
            all.iter().enumerate().map(|(number, values)| series(&format!("Z{number}"), values)).collect()
        };
        LineChart {
            title: "Grid intensity and requests of batches".into(),
            metric: LineChartMetric::GridIntensity,
            times: (0..hours).map(|hour| Text::Data(format!("{hour:02}:00"))).collect(),
            values: named(intensity),
            requests: named(requests),
        }
    }

    fn numbers(points: &str) -> Vec<(f64, f64)> {
        let pairs = points.split(' ').map(|pair| pair.split_once(',').unwrap());
        pairs.map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap())).collect()
    }

    #[test]
    fn lines_and_bars_of_an_hour_are_above_each_other_and_within_their_panels() {
        let chart = chart(&[&[30.0, 400.0, 0.0]], &[&[0.0, 7.0, 2.0]]);
        let lines = chart.value_lines();
        assert_eq!(lines.len(), 1);
        let line = numbers(&lines[0].points);
        assert_eq!(line.len(), 6, "two points for each hour");
        assert!(line.iter().all(|(_, y)| (LINES.top..=LINES.bottom).contains(y)), "{line:?}");
        // The axis ends at 400.
        assert!((line[2].1 - LINES.top).abs() < 0.01, "{line:?}");
        assert_eq!((line[2].0, line[3].0), (0.5, 1.5), "around the bar at 1");
        let paths = chart.request_bar_paths();
        assert_eq!(paths[0].path, "M1 236V168M2 236V217", "an hour without requests has no bar");
        assert_eq!(chart.value_dots()[0].path, "M0 128h0M1 8h0M2 138h0");
        let hover = &chart.tooltips(Language::German)[1];
        assert_eq!(hover.title, "01:00, g/kWh:\nZ0: 400\nBatch-Anfragen:\nZ0: 7");
        let hover = &chart.tooltips(Language::German)[2];
        assert_eq!(hover.title, "02:00, g/kWh:\nZ0: 0\nBatch-Anfragen:\nZ0: 2", "a measured zero is a value");
    }

    #[test]
    fn an_unknown_hour_interrupts_the_line() {
        let chart = chart(&[&[30.0, f64::NAN, 31.0, 32.0], &[f64::NAN, -1.0, -1.0, -1.0]], &[&[0.0; 4]]);
        let points: Vec<usize> = chart.value_lines().iter().map(|line| numbers(&line.points).len()).collect();
        assert_eq!(points, [2, 4]);
        assert_eq!(chart.tooltips(Language::English).len(), 3);
        assert_eq!(chart.table_rows(Language::English)[1].1, ["–", "–", "0"]);
    }

    #[test]
    fn the_table_has_every_value_with_its_unit_in_the_heading() {
        let chart = chart(&[&[30.5, 1_200.0]], &[&[0.0, 7.0]]);
        assert_eq!(
            chart.table_headings(Language::English),
            ["Z0, g CO₂e per kWh", "Z0, requests of batches"]
        );
        let rows = chart.table_rows(Language::German);
        assert_eq!((&*rows[0].0, &*rows[0].1.join("|")), ("00:00", "30,5|0"));
        assert_eq!(rows[1].1[1], "7");
    }

    #[test]
    fn the_description_has_the_range_and_the_sum() {
        let described = chart(&[&[31.0, 44.0], &[600.0, 20.0]], &[&[2.0, 3.0]]);
        assert_eq!(
            described.description(Language::English),
            "Grid intensity and requests of batches, 00:00 to 01:00: 20\u{202f}g/kWh to 600\u{202f}g/kWh; 5 requests of batches"
        );
        let empty = chart(&[], &[]);
        assert!(empty.value_lines().is_empty() && empty.request_bar_paths().is_empty());
        assert!(empty.description(Language::French).contains('–'));
    }
}
