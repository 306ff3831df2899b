//! Panel of a plot, with its axes. Horizontal positions and widths are percentages, so that a plot fits any screen
//! while its texts keep their size. Vertical positions are pixels.

use crate::format::{format_significant, unit_scale};
use crate::language::Language;
use crate::text::Text;

/// Width of a plot, in percent.
const WIDTH: f64 = 100.0;
/// Distance of the labels from the lower edge of the lowest panel, in pixels.
const TICK_OFFSET: f64 = 18.0;
/// Maximum number of labels below the bars.
const MAX_LABELS: usize = 8;

/// Label on an axis of a chart, with its position.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisLabel {
    /// Horizontal position of the label, in percent of the width; empty on the vertical axis.
    pub x: String,
    /// Vertical position of the label, in pixels.
    pub y: String,
    /// Text of the label.
    pub text: String,
    /// True if the label is shown on wide screens only.
    pub is_wide_only: bool,
}

/// Vertical extent of a panel of a plot, in pixels. All panels of a plot have the same horizontal axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlotArea {
    /// Upper edge of the panel.
    pub top: f64,
    /// Lower edge: the value zero, or the lowest value of a bar chart that has negative values.
    pub bottom: f64,
}

impl PlotArea {
    /// Returns the height in pixels of a value on an axis that ends at `end`.
    pub fn value_height(self, value: f64, end: f64) -> f64 {
        value / end * (self.bottom - self.top)
    }

    /// Returns the labels of the vertical axis: at zero, at the middle and at `end`. An axis of counts has no label at
    /// the middle if that is no whole number.
    pub fn y_axis_labels(self, end: f64, unit: &'static str, language: Language) -> Vec<AxisLabel> {
        // All values of an axis have the same unit prefix, such as `k` or `M`.
        let (scale, name) = unit_scale(end, unit);
        let mark = |part: f64| AxisLabel {
            x: String::new(),
            y: format_position(self.bottom - part * (self.bottom - self.top)),
            text: Text::Exact(format_significant(end * part / scale), name).render(language).into_owned(),
            is_wide_only: false,
        };
        let is_shown = |part: &f64| !unit.is_empty() || is_whole(end * part);
        [0.0, 0.5, 1.0].into_iter().filter(is_shown).map(mark).collect()
    }

    /// Returns the labels below the panel, at most [`MAX_LABELS`]; not every bar has one.
    pub fn x_axis_labels(self, labels: &[Text], language: Language) -> Vec<AxisLabel> {
        let step = labels.len().div_ceil(MAX_LABELS).max(1);
        let shown = labels.iter().enumerate().step_by(step).enumerate();
        let marks = shown.map(|(number, (index, label))| AxisLabel {
            x: format_position(bar_center(index, labels.len())),
            y: format_position(self.bottom + TICK_OFFSET),
            text: label.render(language).into_owned(),
            is_wide_only: number % 2 == 1,
        });
        marks.collect()
    }
}

/// Returns the width of the slot of each of `bars` bars, in percent.
pub(crate) fn slot_width(bars: usize) -> f64 {
    WIDTH / count(bars.max(1))
}

/// Returns the horizontal center of the bar with this index, of `bars` bars.
fn bar_center(index: usize, bars: usize) -> f64 {
    slot_width(bars) * (count(index) + 0.5)
}

/// Upper ends of an axis, as multiples of a power of ten.
const AXIS_ENDS: [f64; 11] = [1.0, 1.2, 1.6, 2.0, 2.4, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0];

/// Returns the upper end of an axis: the smallest of the round numbers [`AXIS_ENDS`] that is at least `maximum`; 1 if
/// `maximum` is not positive. Half of the end of an axis of counts (`unit` is empty) is a whole number, except for the
/// end 1.
pub(crate) fn axis_end(maximum: f64, unit: &str) -> f64 {
    if maximum <= 0.0 {
        return 1.0;
    }
    let power = 10_f64.powf(maximum.log10().floor());
    let fits = |end: &f64| {
        *end >= maximum && (!unit.is_empty() || (*end - 1.0).abs() < 1e-9 || is_whole(*end / 2.0))
    };
    AXIS_ENDS.into_iter().map(|factor| factor * power).find(fits).unwrap_or(maximum)
}

fn is_whole(number: f64) -> bool {
    (number - number.round()).abs() < 1e-9 * number.abs().max(1.0)
}

/// Formats a position with at most two decimals.
pub(crate) fn format_position(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[allow(clippy::cast_precision_loss, reason = "a chart has few bars")]
const fn count(number: usize) -> f64 {
    number as f64
}
