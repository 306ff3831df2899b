//! Bar charts as SVG: this module computes the layout, the template writes it.

use crate::chart_hover::{ChartTooltip, SeriesNames, format_exact_figure, has_visible_bar};
use crate::format::{format_significant, unit_scale};
use crate::language::Language;
use crate::panel::{AxisLabel, PlotArea, axis_end, format_position, slot_width};
use crate::text::Text;

/// Height of a chart, in pixels.
const HEIGHT: f64 = 200.0;
/// Height of the space for the labels below the bars, in pixels.
const BOTTOM: f64 = 24.0;
/// Maximum width of a bar, in percent, for plots with few bars.
const MAX_BAR: f64 = 8.0;
/// Maximum width of a bar, as a part of its slot.
const BAR_SHARE: f64 = 0.85;
/// Height of the space above the bars, in pixels.
const TOP: f64 = 8.0;
/// Number of colours in the style sheet.
pub(crate) const COLOUR_COUNT: usize = 6;

/// Series of values with a name.
#[derive(Clone, Debug, Default)]
pub struct ChartSeries {
    /// Name in the legend.
    pub name: Text,
    /// Values, one for each bar or time. In a bar chart, a value that is not finite counts as zero. In a line, a
    /// negative or not finite value is unknown.
    pub values: Vec<f64>,
}

/// Stacked bar chart.
#[derive(Clone, Debug, Default)]
pub struct BarChart {
    /// Title of the chart.
    pub title: Text,
    /// Unit of the values.
    pub unit: &'static str,
    /// Labels of the bars.
    pub labels: Vec<Text>,
    /// Series from the bottom to the top.
    pub series: Vec<ChartSeries>,
}

/// Part of a bar that shows one series. Vertical positions are pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BarPart {
    /// Index of the bar.
    pub bar: usize,
    /// Index of the series.
    pub series: usize,
    /// Upper edge.
    pub top: f64,
    /// Lower edge.
    pub bottom: f64,
}

/// Marks of one series as one SVG path: a vertical line for each part of a bar, or a dot for each value. Horizontal
/// positions are indices of bars.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartPath {
    /// Index of the colour in the palette of the style sheet.
    pub colour: usize,
    /// Value of the attribute `d`.
    pub path: String,
}

/// Vertical axis of stacked bars. Positive values are stacked above zero, negative ones below.
#[derive(Clone, Copy, Debug)]
struct BarAxis {
    /// Value of the upper end.
    above: f64,
    /// Absolute value of the lower end; 0 without negative values.
    below: f64,
}

impl BarAxis {
    /// Returns the height in pixels of an absolute value.
    fn height_in(self, panel: PlotArea, value: f64) -> f64 {
        panel.value_height(value, self.above + self.below)
    }

    /// Returns the vertical position of zero.
    fn zero_in(self, panel: PlotArea) -> f64 {
        panel.bottom - self.height_in(panel, self.below)
    }

    /// Returns the lines of the axis: at zero, the ends, and the middle if there are no negative values.
    fn axis_lines_in(self, panel: PlotArea, unit: &'static str, language: Language) -> Vec<AxisLabel> {
        if self.below <= 0.0 {
            return panel.y_axis_labels(self.above, unit, language);
        }
        let (scale, name) = unit_scale(self.above.max(self.below), unit);
        let mark = |value: f64| AxisLabel {
            x: String::new(),
            y: format_position(self.zero_in(panel) - value.signum() * self.height_in(panel, value.abs())),
            text: Text::Exact(format_significant(value / scale), name).render(language).into_owned(),
            is_wide_only: false,
        };
        let upper = Some(self.above).filter(|above| *above > 0.0);
        [-self.below, 0.0].into_iter().chain(upper).map(mark).collect()
    }
}

impl BarChart {
    const PANEL: PlotArea = PlotArea { top: TOP, bottom: HEIGHT - BOTTOM };

    /// Returns the greatest sum of the values of a bar; at least 0.
    fn maximum(&self) -> f64 {
        let sums = (0..self.labels.len()).map(|index| self.sum(index));
        sums.fold(0.0, f64::max)
    }

    fn sum(&self, index: usize) -> f64 {
        self.values(index).sum()
    }

    /// Returns the finite values of the bar at this index.
    fn values(&self, index: usize) -> impl Iterator<Item = f64> {
        let values = self.series.iter().filter_map(move |series| series.values.get(index));
        values.copied().filter(|value| value.is_finite())
    }

    fn axis(&self) -> BarAxis {
        let highest = |sign: f64| {
            let heights = (0..self.labels.len())
                .map(|index| self.values(index).map(|value| (value * sign).max(0.0)).sum::<f64>());
            heights.fold(0.0, f64::max)
        };
        let (above, below) = (highest(1.0), highest(-1.0));
        BarAxis {
            above: if above > 0.0 || below <= 0.0 { axis_end(above, self.unit) } else { 0.0 },
            below: if below > 0.0 { axis_end(below, self.unit) } else { 0.0 },
        }
    }

    /// Returns true if all values are zero or not finite.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (0..self.labels.len()).all(|index| self.values(index).all(|value| value == 0.0))
    }

    /// Returns the bars as a path for each series that has a visible value.
    #[must_use]
    pub fn paths(&self) -> Vec<ChartPath> {
        self.paths_in(Self::PANEL)
    }

    /// Returns the width of the lines that draw the bars, as a fraction of the distance between two bars.
    #[must_use]
    pub fn bar_width(&self) -> String {
        format_position((MAX_BAR / slot_width(self.labels.len())).min(BAR_SHARE))
    }

    /// Returns the bars as a path for each series that has a visible value, in a panel. Vertical positions are whole
    /// pixels; each part is at least one pixel high.
    pub(crate) fn paths_in(&self, panel: PlotArea) -> Vec<ChartPath> {
        let parts = self.parts_in(panel);
        let path = |series: usize| {
            let of_series = parts.iter().filter(|part| part.series == series);
            let lines = of_series.map(|part| {
                let (bottom, top) = (part.bottom.round(), part.top.round());
                format!("M{} {bottom}V{}", part.bar, top.min(bottom - 1.0))
            });
            ChartPath { colour: series % COLOUR_COUNT, path: lines.collect() }
        };
        (0..self.series.len()).map(path).filter(|path| !path.path.is_empty()).collect()
    }

    /// Returns the parts of all bars in a panel, without values that are zero or not finite. Negative values are below
    /// the line of zero.
    fn parts_in(&self, panel: PlotArea) -> Vec<BarPart> {
        let axis = self.axis();
        let mut parts = Vec::new();
        for bar in 0..self.labels.len() {
            let (mut upper, mut lower) = (axis.zero_in(panel), axis.zero_in(panel));
            for (number, series) in self.series.iter().enumerate() {
                let value = series.values.get(bar).copied().unwrap_or(0.0);
                if !value.is_finite() || value == 0.0 {
                    continue;
                }
                let height = axis.height_in(panel, value.abs());
                let edge = if value > 0.0 { &mut upper } else { &mut lower };
                let start = *edge;
                *edge += if value > 0.0 { -height } else { height };
                let (top, bottom) = (start.min(*edge), start.max(*edge));
                parts.push(BarPart { bar, series: number, top, bottom });
            }
        }
        parts
    }

    /// Returns a tooltip with the exact values for each bar that has a value other than zero.
    #[must_use]
    pub fn tooltips(&self, language: Language) -> Vec<ChartTooltip> {
        let names = SeriesNames::new(&self.series, self.labels.len(), language);
        let hover = |(bar, label): (usize, &Text)| {
            let total = format_exact_figure(self.sum(bar), self.unit, language);
            let mut title = format!("{}: {total}", label.render(language));
            if self.series.len() > 1 {
                title.push_str(&names.tooltip_lines(&self.series, bar, has_visible_bar, language));
            }
            self.values(bar).any(|value| value != 0.0).then_some(ChartTooltip { bar, title })
        };
        self.labels.iter().enumerate().filter_map(hover).collect()
    }

    /// Returns the lines of the vertical axis with their values.
    #[must_use]
    pub fn y_axis_labels(&self, language: Language) -> Vec<AxisLabel> {
        self.y_axis_labels_in(Self::PANEL, language)
    }

    /// Returns the lines of the vertical axis in a panel, with their values.
    pub(crate) fn y_axis_labels_in(&self, panel: PlotArea, language: Language) -> Vec<AxisLabel> {
        self.axis().axis_lines_in(panel, self.unit, language)
    }

    /// Returns the labels of the horizontal axis; if there are many bars, not every bar has one.
    #[must_use]
    pub fn x_axis_labels(&self, language: Language) -> Vec<AxisLabel> {
        Self::PANEL.x_axis_labels(&self.labels, language)
    }

    /// Returns the legend: the number of the colour and the name of each series. Series keep their colours in all plots
    /// of a page.
    #[must_use]
    pub fn legend(&self, language: Language) -> Vec<(usize, String)> {
        SeriesNames::new(&self.series, self.labels.len(), language).legend()
    }

    /// Returns a description for screen readers.
    #[must_use]
    pub fn description(&self, language: Language) -> String {
        let total: f64 = (0..self.labels.len()).map(|index| self.sum(index)).sum();
        let (first, last) = (self.labels.first().cloned(), self.labels.last().cloned());
        let figure = |amount| Text::Quantity(amount, self.unit);
        let description = Text::with_values(
            "{0}: {1} from {2} to {3}, at most {4} in one bar",
            [
                self.title.clone(),
                figure(total),
                first.unwrap_or_default(),
                last.unwrap_or_default(),
                figure(self.maximum()),
            ],
        );
        description.render(language).into_owned()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    fn chart(values: Vec<f64>) -> BarChart {
        let labels = (0..values.len()).map(|index| Text::Data(format!("day {index}"))).collect();
        let series = vec![ChartSeries { name: "a".into(), values }];
        BarChart { title: "Requests".into(), unit: "", labels, series }
    }

    #[test]
    fn bars_stay_within_the_view_box() {
        let chart = chart(vec![1.0, 0.0, 99.0, f64::NAN, f64::INFINITY, -3.0, 1e300]);
        let parts = chart.parts_in(BarChart::PANEL);
        assert_eq!(parts.len(), 4);
        for part in parts {
            assert!(part.top >= TOP - 0.01 && part.bottom <= HEIGHT - BOTTOM + 0.01, "{part:?}");
            assert!(part.top <= part.bottom && part.bar < 7, "{part:?}");
        }
    }

    #[test]
    fn a_series_is_one_path_and_a_small_value_has_a_pixel() {
        let mut chart = chart(vec![100.0, 0.0, 50.0]);
        chart.series.push(ChartSeries { name: "b".into(), values: vec![0.0, 0.001, 0.0] });
        let paths: Vec<String> = chart.paths().into_iter().map(|path| path.path).collect();
        assert_eq!(paths, ["M0 176V8M2 176V92", "M1 176V175"]);
    }

    #[test]
    fn a_bar_shows_its_exact_values() {
        let mut chart = chart(vec![1_234.5, 0.0]);
        chart.unit = "kWh";
        let titles = |chart: &BarChart| {
            chart.tooltips(Language::German).into_iter().map(|hover| hover.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(&chart), ["day 0: 1 234,5 kWh"]);
        chart.series.push(ChartSeries { name: Text::Data("b".to_owned()), values: vec![0.25, 0.0] });
        assert_eq!(titles(&chart), ["day 0: 1 234,75 kWh\na: 1 234,5\nb: 0,25"]);
    }

    #[test]
    fn an_empty_chart_has_axes_and_no_bars() {
        let chart = chart(Vec::new());
        assert!(chart.paths().is_empty() && chart.x_axis_labels(Language::English).is_empty());
        assert_eq!(chart.y_axis_labels(Language::English).len(), 2);
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        for (value, end) in [(0.7, 1.0), (1.0, 1.0), (13.0, 16.0), (51.0, 60.0), (206.0, 240.0), (1e6, 1e6)] {
            assert!((chart(vec![value]).axis().above - end).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn an_axis_of_counts_has_whole_numbers() {
        let labels = |value: f64, unit| {
            let chart = BarChart { unit, ..chart(vec![value]) };
            let lines = chart.y_axis_labels(Language::English);
            lines.into_iter().map(|line| line.text.replace('\u{202f}', " ")).collect::<Vec<_>>()
        };
        assert_eq!(labels(1.0, ""), ["0", "1"]);
        assert_eq!(labels(2.0, ""), ["0", "1", "2"]);
        assert_eq!(labels(3.0, ""), ["0", "2", "4"]);
        assert_eq!(labels(5.0, ""), ["0", "3", "6"]);
        assert_eq!(labels(11.0, ""), ["0", "6", "12"]);
        assert_eq!(labels(5.0, "EUR"), ["0 EUR", "2.5 EUR", "5 EUR"]);
        assert_eq!(labels(0.5, "EUR"), ["0 EUR", "0.25 EUR", "0.5 EUR"]);
    }

    #[test]
    fn negative_values_are_below_the_line_of_zero() {
        let mut chart = chart(vec![4.0, -3.0]);
        chart.series.push(ChartSeries { name: "b".into(), values: vec![-5.0, -1.0] });
        let lines = chart.y_axis_labels(Language::English);
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["-6", "0", "4"]);
        let zero: f64 = lines[1].y.parse().unwrap();
        let parts = chart.parts_in(BarChart::PANEL);
        assert!((parts[0].bottom - zero).abs() < 0.1, "4 ends at zero: {parts:?}");
        assert!((parts[1].top - zero).abs() < 0.1, "-5 begins at zero: {parts:?}");
        assert!((parts[3].top - parts[2].bottom).abs() < 0.1, "-1 is below -3: {parts:?}");
    }
}
