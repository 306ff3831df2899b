//! Step of the charts of usage: a long range has a bar for each week or month, so that its page stays small.

use crate::text::Text;
use penstock_core::calendar::{UtcDay, UtcMonth};

/// Maximum number of days with a bar for each.
const MAX_DAYS: u64 = 31;
/// Maximum number of days with a bar for each week.
const MAX_WEEK_DAYS: u64 = 84;
/// Maximum number of bars of any chart.
const MAX_STEPS: usize = 400;

/// Period that one bar of a usage chart covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UsageStep {
    /// Day in UTC.
    #[default]
    Day,
    /// Week in UTC, by its Monday.
    Week,
    /// Month in UTC.
    Month,
}

impl UsageStep {
    /// Returns the step for a range of this number of days: a day up to 31 days, a week up to 84 days, otherwise a
    /// month.
    #[must_use]
    pub const fn for_days(days: u64) -> Self {
        if days <= MAX_DAYS {
            Self::Day
        } else if days <= MAX_WEEK_DAYS {
            Self::Week
        } else {
            Self::Month
        }
    }

    /// Returns the name of this dimension in the admin API, which is also a member of each row.
    #[must_use]
    pub const fn dimension(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// Returns the title of a chart of all usage, and the title of a chart by a dimension.
    pub(super) const fn chart_titles(self) -> (&'static str, &'static str) {
        match self {
            Self::Day => ("{0} per day", "{0} per day by {1}"),
            Self::Week => ("{0} per week", "{0} per week by {1}"),
            Self::Month => ("{0} per month", "{0} per month by {1}"),
        }
    }

    /// Returns the title of the table of values, and the heading of its first column.
    pub(super) const fn table_titles(self) -> (&'static str, &'static str) {
        match self {
            Self::Day => ("Values by day, UTC", "Day"),
            Self::Week => ("Values by week, UTC", "Week from"),
            Self::Month => ("Values by month, UTC", "Month"),
        }
    }

    /// Returns the text of a step in a table.
    pub(super) fn table_text(self, step: String) -> Text {
        match self {
            Self::Day | Self::Week => Text::Day(step),
            Self::Month => Text::Month(step),
        }
    }

    /// Returns the label of a bar.
    pub(super) fn bar_label(self, step: String) -> Text {
        match self {
            Self::Day | Self::Week => Text::MonthDay(step),
            Self::Month => Text::Month(step),
        }
    }

    /// Returns the first day or the month of each step in a range of days, at most 400; none if a day is invalid.
    pub(super) fn steps_in_range(self, from: &str, to: &str) -> Vec<String> {
        let (Some(from), Some(to)) = (UtcDay::parse(from), UtcDay::parse(to)) else { return Vec::new() };
        let mut steps: Vec<String> = Vec::new();
        for day in from.iter_to(to) {
            let step = match self {
                Self::Day => day.to_string(),
                Self::Week => day.monday().to_string(),
                Self::Month => UtcMonth::from_unix(day.start()).to_string(),
            };
            if steps.last() != Some(&step) {
                if steps.len() == MAX_STEPS {
                    break;
                }
                steps.push(step);
            }
        }
        steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_range_has_few_steps() {
        for (days, step) in [
            (1, UsageStep::Day),
            (31, UsageStep::Day),
            (32, UsageStep::Week),
            (84, UsageStep::Week),
            (85, UsageStep::Month),
            (366, UsageStep::Month),
        ] {
            assert_eq!(UsageStep::for_days(days), step, "{days}");
        }
    }

    #[test]
    fn the_first_step_contains_the_first_day() {
        let all = |step: UsageStep| step.steps_in_range("2026-11-25", "2026-12-07");
        assert_eq!(all(UsageStep::Week), ["2026-11-23", "2026-11-30", "2026-12-07"]);
        assert_eq!(all(UsageStep::Month), ["2026-11", "2026-12"]);
        assert_eq!(all(UsageStep::Day).len(), 13);
        assert!(UsageStep::Day.steps_in_range("2026-11-25", "2026-11-24").is_empty());
    }

    #[test]
    fn the_last_step_contains_the_last_day_of_the_calendar() {
        let all = |step: UsageStep, from: &str| step.steps_in_range(from, "9999-12-31");
        assert_eq!(all(UsageStep::Day, "9999-12-30"), ["9999-12-30", "9999-12-31"]);
        assert_eq!(all(UsageStep::Day, "9999-12-31"), ["9999-12-31"]);
        assert_eq!(all(UsageStep::Week, "9999-12-20"), ["9999-12-20", "9999-12-27"]);
        assert_eq!(all(UsageStep::Month, "9999-11-30"), ["9999-11", "9999-12"]);
        assert_eq!(all(UsageStep::Day, "1970-01-01").len(), MAX_STEPS);
        assert_eq!(all(UsageStep::Month, "1970-01-01").len(), MAX_STEPS);
    }
}
