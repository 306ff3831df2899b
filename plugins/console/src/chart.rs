//! Bar charts as SVG: this module computes the layout, the template writes it.

use crate::format::{format_rounded, unit_scale};
use crate::language::Language;
use crate::text::Text;
use std::borrow::Cow;

/// Width of a plot: horizontal positions and widths are percentages, so that the plot fits any screen while its texts
/// keep their size. Vertical positions are pixels.
const WIDTH: f64 = 100.0;
const HEIGHT: f64 = 200.0;
const BOTTOM: f64 = 24.0;
/// Maximum width of a bar, in percent, for plots with few bars.
const MAX_BAR: f64 = 8.0;
const TOP: f64 = 8.0;
/// Number of colours in the style sheet.
pub(crate) const COLOURS: usize = 6;
/// Distance of the labels from the lower edge of the panel, in pixels.
const TICK_OFFSET: f64 = 18.0;
/// Maximum number of labels below the bars.
const MAX_LABELS: usize = 8;

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

/// Segment of a bar.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartSegment {
    /// Left edge of the segment, in percent of the width.
    pub x: String,
    /// Upper edge of the segment, in pixels.
    pub y: String,
    /// Width of the segment, in percent of the width.
    pub width: String,
    /// Height of the segment, in pixels.
    pub height: String,
    /// Index of the colour in the palette of the style sheet.
    pub colour: usize,
    /// Text shown when the pointer is on the segment.
    pub title: String,
}

/// Label on an axis of a chart, with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartMark {
    /// Horizontal position of the label, in percent of the width.
    pub x: String,
    /// Vertical position of the label, in pixels.
    pub y: String,
    /// Text of the label.
    pub text: String,
    /// True if narrow screens have no room for the label.
    pub is_wide_only: bool,
}

/// Rectangle of a plot, in pixels. All panels have the same horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Panel {
    /// Upper edge of the plot.
    pub top: f64,
    /// Lower edge, where the value is zero.
    pub bottom: f64,
}

impl Panel {
    /// Height in pixels of a value on an axis that ends at `end`.
    pub fn height_of(self, value: f64, end: f64) -> f64 {
        value / end * (self.bottom - self.top)
    }

    /// Lines of the vertical axis with their values.
    pub fn lines(self, end: f64, unit: &'static str, language: Language) -> Vec<ChartMark> {
        // All values of an axis have the same unit prefix, such as `k` or `M`.
        let (scale, name) = unit_scale(end, unit);
        let mark = |part: f64| ChartMark {
            x: String::new(),
            y: format_position(self.bottom - part * (self.bottom - self.top)),
            text: Text::Exact(format_rounded(end * part / scale), name).render(language).into_owned(),
            is_wide_only: false,
        };
        [0.0, 0.5, 1.0].map(mark).to_vec()
    }

    /// Labels below the panel; not every bar has one.
    pub fn ticks(self, labels: &[Text], language: Language) -> Vec<ChartMark> {
        let step = labels.len().div_ceil(MAX_LABELS).max(1);
        let shown = labels.iter().enumerate().step_by(step).enumerate();
        let marks = shown.map(|(number, (index, label))| ChartMark {
            x: format_position(bar_center(index, labels.len())),
            y: format_position(self.bottom + TICK_OFFSET),
            text: label.render(language).into_owned(),
            is_wide_only: number % 2 == 1,
        });
        marks.collect()
    }
}

/// Width of the slot of one of `bars` bars.
pub(crate) fn slot_width(bars: usize) -> f64 {
    WIDTH / count(bars.max(1))
}

/// Returns the horizontal center of the bar with this index, of `bars` bars.
pub(crate) fn bar_center(index: usize, bars: usize) -> f64 {
    slot_width(bars) * (count(index) + 0.5)
}

/// Upper end of an axis: the next of 1, 2 and 5 times a power of ten.
pub(crate) fn axis_end(maximum: f64) -> f64 {
    if maximum <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(maximum.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|end| *end >= maximum)
        .unwrap_or(maximum)
}

/// Formats a rounded quantity, with its exact value in parentheses if it differs.
pub(crate) fn exact_quantity(value: f64, unit: &'static str, language: Language) -> String {
    let rounded = Text::Quantity(value, unit).render(language).into_owned();
    let exact = Text::exact_number(value, unit).render(language).into_owned();
    if rounded == exact { rounded } else { format!("{rounded} ({exact})") }
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
    fn height_in(self, panel: Panel, value: f64) -> f64 {
        panel.height_of(value, self.above + self.below)
    }

    /// Returns the vertical position of zero.
    fn zero_in(self, panel: Panel) -> f64 {
        panel.bottom - self.height_in(panel, self.below)
    }

    /// Returns the lines of the axis: at zero, the ends, and the middle if there are no negative values.
    fn axis_lines_in(self, panel: Panel, unit: &'static str, language: Language) -> Vec<ChartMark> {
        if self.below <= 0.0 {
            return panel.lines(self.above, unit, language);
        }
        let (scale, name) = unit_scale(self.above.max(self.below), unit);
        let mark = |value: f64| ChartMark {
            x: String::new(),
            y: format_position(self.zero_in(panel) - value.signum() * self.height_in(panel, value.abs())),
            text: Text::Exact(format_rounded(value / scale), name).render(language).into_owned(),
            is_wide_only: false,
        };
        let upper = Some(self.above).filter(|above| *above > 0.0);
        [-self.below, 0.0].into_iter().chain(upper).map(mark).collect()
    }
}

impl BarChart {
    const PANEL: Panel = Panel { top: TOP, bottom: HEIGHT - BOTTOM };

    /// Returns the greatest sum of the values of a bar.
    fn maximum(&self) -> f64 {
        let sums = (0..self.labels.len()).map(|index| self.sum(index));
        sums.fold(0.0, f64::max)
    }

    fn sum(&self, index: usize) -> f64 {
        self.values(index).sum()
    }

    /// Returns the values of a bar.
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
            above: if above > 0.0 || below <= 0.0 { axis_end(above) } else { 0.0 },
            below: if below > 0.0 { axis_end(below) } else { 0.0 },
        }
    }

    /// Returns true if no bar has a value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (0..self.labels.len()).all(|index| self.values(index).all(|value| value == 0.0))
    }

    /// Returns the segments of all bars, without those of value zero. Negative values are below the line of zero.
    #[must_use]
    pub fn segments(&self, language: Language) -> Vec<ChartSegment> {
        self.segments_in(Self::PANEL, language)
    }

    /// Segments of all bars in a panel.
    pub(crate) fn segments_in(&self, panel: Panel, language: Language) -> Vec<ChartSegment> {
        let (axis, bars) = (self.axis(), self.labels.len());
        let width = (slot_width(bars) * 0.85).min(MAX_BAR);
        let mut segments = Vec::new();
        for (index, label) in self.labels.iter().enumerate() {
            let (mut top, mut bottom) = (axis.zero_in(panel), axis.zero_in(panel));
            for (number, series) in self.series.iter().enumerate() {
                let value = series.values.get(index).copied().unwrap_or(0.0);
                if !value.is_finite() || value == 0.0 {
                    continue;
                }
                let height = axis.height_in(panel, value.abs());
                let y = if value > 0.0 { top - height } else { bottom };
                if value > 0.0 {
                    top -= height;
                } else {
                    bottom += height;
                }
                segments.push(ChartSegment {
                    x: format_position(bar_center(index, bars) - width / 2.0),
                    y: format_position(y),
                    width: format_position(width),
                    height: format_position(height),
                    colour: number % COLOURS,
                    title: format!(
                        "{}, {}: {}",
                        label.render(language),
                        series.name.render(language),
                        exact_quantity(value, self.unit, language)
                    ),
                });
            }
        }
        segments
    }

    /// Returns the lines of the vertical axis with their values.
    #[must_use]
    pub fn lines(&self, language: Language) -> Vec<ChartMark> {
        self.axis_lines_in(Self::PANEL, language)
    }

    /// Lines of the vertical axis of a panel.
    pub(crate) fn axis_lines_in(&self, panel: Panel, language: Language) -> Vec<ChartMark> {
        self.axis().axis_lines_in(panel, self.unit, language)
    }

    /// Returns the labels of the horizontal axis; if there are many bars, not every bar has one.
    #[must_use]
    pub fn ticks(&self, language: Language) -> Vec<ChartMark> {
        Self::PANEL.ticks(&self.labels, language)
    }

    /// Returns the legend: the number of the colour and the name of each series. Series keep their colours in all plots
    /// of a page.
    #[must_use]
    pub fn legend(&self, language: Language) -> Vec<(usize, Cow<'_, str>)> {
        self.series
            .iter()
            .enumerate()
            .map(|(number, series)| (number % COLOURS, series.name.render(language)))
            .collect()
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

pub(crate) fn format_position(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[allow(clippy::cast_precision_loss, reason = "a chart has few bars")]
const fn count(number: usize) -> f64 {
    number as f64
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
        let segments = chart.segments(Language::English);
        assert_eq!(segments.len(), 4);
        for segment in segments {
            let (x, y): (f64, f64) = (segment.x.parse().unwrap(), segment.y.parse().unwrap());
            let (width, height): (f64, f64) =
                (segment.width.parse().unwrap(), segment.height.parse().unwrap());
            assert!(x >= 0.0 && x + width <= WIDTH + 0.01, "{segment:?}");
            assert!(y >= TOP - 0.01 && y + height <= HEIGHT - BOTTOM + 0.01, "{segment:?}");
        }
    }

    #[test]
    fn an_empty_chart_has_axes_and_no_bars() {
        let chart = chart(Vec::new());
        assert!(chart.segments(Language::English).is_empty() && chart.ticks(Language::English).is_empty());
        assert_eq!(chart.lines(Language::English).len(), 3);
    }

    #[test]
    fn the_axis_ends_at_a_round_number() {
        for (value, end) in [(0.7, 1.0), (1.0, 1.0), (13.0, 20.0), (51.0, 100.0), (201.0, 500.0)] {
            assert!((chart(vec![value]).axis().above - end).abs() < 1e-9, "{value}");
        }
    }

    #[test]
    fn negative_values_are_below_the_line_of_zero() {
        let mut chart = chart(vec![4.0, -3.0]);
        chart.series.push(ChartSeries { name: "b".into(), values: vec![-5.0, -1.0] });
        let lines = chart.lines(Language::English);
        let texts: Vec<_> = lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["-5", "0", "5"]);
        let zero: f64 = lines[1].y.parse().unwrap();
        let edges: Vec<(f64, f64)> = chart
            .segments(Language::English)
            .iter()
            .map(|segment| (segment.y.parse().unwrap(), segment.height.parse().unwrap()))
            .collect();
        assert!((edges[0].0 + edges[0].1 - zero).abs() < 0.1, "4 ends at zero: {edges:?}");
        assert!((edges[1].0 - zero).abs() < 0.1, "-5 begins at zero: {edges:?}");
        assert!((edges[3].0 - edges[2].0 - edges[2].1).abs() < 0.1, "-1 is below -3: {edges:?}");
    }
}
