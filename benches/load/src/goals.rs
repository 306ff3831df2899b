//! Performance goals (`docs/performance.md`), and the check of a run's figures against them.

/// Goal at 3,000 requests per second: maximum difference between Penstock's p99 and the provider's own, in
/// milliseconds.
pub const ADDED_P99: f64 = 0.4;
/// Alternative to [`ADDED_P99`] on a machine with other load: maximum of Penstock's p99 divided by nginx's p99.
pub const P99_BESIDE_NGINX: f64 = 1.2;

/// Goal with many open streams: maximum of Penstock's processor time divided by plain Pingora's.
pub const STREAMS_CPU: f64 = 1.3;
/// Goal: maximum memory for each open stream, in KiB.
pub const STREAM_KIB: f64 = 30.0;
/// Goal: maximum p99 of the delays of streamed events, in milliseconds.
pub const DELAY_P99: f64 = 10.0;
/// Goal: maximum memory one minute after all streams are closed, in MiB.
pub const AFTER_MIB: f64 = 150.0;
/// Goal: maximum memory before the first stream, in MiB.
pub const IDLE_MIB: f64 = 30.0;

/// Goal: maximum of the processor time of a request with open consoles, divided by that without them.
pub const CONSOLES_CPU: f64 = 1.02;

/// Results of the goals of a run.
#[derive(Default)]
pub struct Goals {
    text: String,
    missed: usize,
}

impl Goals {
    /// Checks that a figure is at most `bound`; a missing figure fails the check.
    pub fn check_max(&mut self, what: &str, figure: Option<f64>, bound: f64) {
        let met = figure.is_some_and(|figure| figure <= bound);
        self.note(what, figure, &format!("at most {bound}"), met);
    }

    /// Checks two figures: at least one of them has to be within its bound.
    pub fn check_either(
        &mut self,
        (what, figure, bound): (&str, Option<f64>, f64),
        or: (&str, Option<f64>, f64),
    ) {
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

    /// Returns the results since the last call as text, and clears them.
    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// # Errors
    /// Returns the number of missed goals, if there are any and `counts` is true.
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
