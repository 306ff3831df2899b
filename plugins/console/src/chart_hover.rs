//! Values that a plot shows while the pointer is on it. All values of a bar share one tooltip, so that pages stay
//! small.

use crate::chart::{COLOUR_COUNT, ChartSeries};
use crate::format::{html_length, truncate_middle};
use crate::language::Language;
use crate::text::Text;

/// Maximum size of the series names in all tooltips of a plot, in bytes of HTML. If the names are larger, the
/// tooltips have the numbers of the legend instead.
const MAX_NAME_BYTES: usize = 1_500;
/// Maximum size of a name in a legend, in bytes of HTML.
const MAX_LEGEND_BYTES: usize = 60;

/// Text with the values of a bar or of a point in time, shown while the pointer is on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartTooltip {
    /// Index of the bar.
    pub bar: usize,
    /// Text shown while the pointer is on the bar.
    pub title: String,
}

/// Names of the series of a plot, for its tooltips and its legend.
pub(crate) struct SeriesNames {
    names: Vec<String>,
    /// True if tooltips have the numbers of the series instead of their names.
    is_numbered: bool,
}

impl SeriesNames {
    /// Creates the names for a plot with this number of bars.
    pub fn new(series: &[ChartSeries], bars: usize, language: Language) -> Self {
        let name = |series: &ChartSeries| truncate_middle(&series.name.render(language), MAX_LEGEND_BYTES);
        let names: Vec<String> = series.iter().map(name).collect();
        let size = names.iter().map(|name| html_length(name)).sum::<usize>() * bars;
        Self { is_numbered: names.len() > 1 && size > MAX_NAME_BYTES, names }
    }

    /// Returns the legend: the number of the colour and the name of each series.
    pub fn legend(&self) -> Vec<(usize, String)> {
        let text = |(number, name): (usize, &String)| match self.is_numbered {
            true => format!("{}: {name}", number + 1),
            false => name.clone(),
        };
        self.names.iter().enumerate().map(|row| (row.0 % COLOUR_COUNT, text(row))).collect()
    }

    /// Returns a line of text with the exact value for each series whose value at this bar is visible in the plot, as
    /// `is_drawn` decides.
    pub fn tooltip_lines(
        &self,
        series: &[ChartSeries],
        bar: usize,
        is_drawn: impl Fn(f64) -> bool,
        language: Language,
    ) -> String {
        let line = |(number, (series, name)): (usize, (&ChartSeries, &String))| {
            let value = series.values.get(bar).copied().filter(|value| is_drawn(*value))?;
            let figure = format_exact_figure(value, "", language);
            Some(match self.is_numbered {
                true => format!("\n{}: {figure}", number + 1),
                false => format!("\n{name}: {figure}"),
            })
        };
        series.iter().zip(&self.names).enumerate().filter_map(line).collect()
    }
}

/// Returns true for a value whose bar is visible: finite and not zero.
pub(crate) fn has_visible_bar(value: f64) -> bool {
    value.is_finite() && value != 0.0
}

/// Returns an exact number with its unit. Plain spaces replace the narrow no-break spaces, because the text of a
/// tooltip is not wrapped.
pub(crate) fn format_exact_figure(value: f64, unit: &'static str, language: Language) -> String {
    Text::exact_number(value, unit).render(language).replace('\u{202f}', " ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    fn series(name: &str, values: &[f64]) -> ChartSeries {
        ChartSeries { name: Text::Data(name.to_owned()), values: values.to_vec() }
    }

    #[test]
    fn long_names_become_the_numbers_of_the_legend() {
        let long = "family/a-model-with-a-very-long-name-instruct";
        for (bars, shown, line) in
            [(3, long, format!("\n{long}: 1")), (31, &*format!("1: {long}"), "\n1: 1".to_owned())]
        {
            let all = [series(long, &[1.0; 31]), series("other", &[0.0; 31])];
            let names = SeriesNames::new(&all, bars, Language::English);
            assert_eq!(names.legend()[0], (0, shown.to_owned()));
            let lines = names.tooltip_lines(&all, 2, has_visible_bar, Language::English);
            assert_eq!(lines, line, "a value of zero has no line");
        }
    }

    #[test]
    fn names_are_measured_as_html() {
        let all = [series(&"&".repeat(10), &[1.0; 31]), series("other", &[1.0; 31])];
        let names = SeriesNames::new(&all, 31, Language::English);
        assert_eq!(names.legend()[1].1, "2: other", "31 titles with 55 bytes are too many");
    }
}
