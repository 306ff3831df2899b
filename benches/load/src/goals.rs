//! What has to hold (`docs/performance.md`): goals, and whether the figures of this run reach them.

/// At 3,000 requests a second: milliseconds that the slowest hundredth may take longer than the provider itself …
pub const ADDED_P99: f64 = 0.4;
/// … or, on a machine that does other things too, as a share of nginx's.
pub const P99_BESIDE_NGINX: f64 = 1.2;

/// With many open streams: processor time beside the bare Pingora's.
pub const STREAMS_CPU: f64 = 1.3;
/// Memory of each, in KiB.
pub const STREAM_KIB: f64 = 30.0;
/// Delay of the slowest hundredth of events, in milliseconds.
pub const DELAY_P99: f64 = 10.0;
/// Memory a minute after all have closed, in MiB.
pub const AFTER_MIB: f64 = 150.0;
/// Memory before there is one, in MiB.
pub const IDLE_MIB: f64 = 30.0;

/// The goals of a run, as they were looked at.
#[derive(Default)]
pub struct Goals {
    text: String,
    missed: usize,
}

impl Goals {
    /// Whether a figure is within its bound; one that is missing is not.
    pub fn most(&mut self, what: &str, figure: Option<f64>, bound: f64) {
        let met = figure.is_some_and(|figure| figure <= bound);
        self.note(what, figure, &format!("at most {bound}"), met);
    }

    /// The same where either of two is enough.
    pub fn either(&mut self, (what, figure, bound): (&str, Option<f64>, f64), or: (&str, Option<f64>, f64)) {
        let within = |figure: Option<f64>, bound: f64| figure.is_some_and(|figure| figure <= bound);
        let met = within(figure, bound) || within(or.1, or.2);
        let bound = format!("at most {bound}, or {}: {}, at most {}", or.0, shown(or.1), or.2);
        self.note(what, figure, &bound, met);
    }

    fn note(&mut self, what: &str, figure: Option<f64>, bound: &str, met: bool) {
        self.missed += usize::from(!met);
        let word = if met { "met" } else { "MISSED" };
        self.text.push_str(&format!("{word:6}  {what}: {}, {bound}\n", shown(figure)));
    }

    /// What was looked at since the last time.
    pub fn told(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// # Errors
    /// How many were missed, if that counts.
    pub fn verdict(&self, counts: bool) -> Result<(), String> {
        match self.missed {
            missed if missed > 0 && counts => Err(format!("{missed} goals missed")),
            _ => Ok(()),
        }
    }
}

fn shown(figure: Option<f64>) -> String {
    figure.map_or_else(|| "none".to_owned(), |figure| format!("{figure:.2}"))
}
