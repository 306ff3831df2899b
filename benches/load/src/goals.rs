//! Performance goals (`docs/performance.md`), and the check of a run's figures against them.

/// Goal at 3,000 requests per second: milliseconds added to the provider's own p99 …
pub const ADDED_P99: f64 = 0.4;
/// … or, on a machine with other load, the ratio to nginx's p99.
pub const P99_BESIDE_NGINX: f64 = 1.2;

/// Goal with many open streams: ratio of processor time to plain Pingora's.
pub const STREAMS_CPU: f64 = 1.3;
/// Memory of each stream, in KiB.
pub const STREAM_KIB: f64 = 30.0;
/// p99 of the delays of events, in milliseconds.
pub const DELAY_P99: f64 = 10.0;
/// Memory one minute after all streams are closed, in MiB.
pub const AFTER_MIB: f64 = 150.0;
/// Memory before the first stream, in MiB.
pub const IDLE_MIB: f64 = 30.0;

/// Results of the goals of a run.
#[derive(Default)]
pub struct Goals {
    text: String,
    missed: usize,
}

impl Goals {
    /// Checks that a figure is within its bound; a missing figure is not.
    pub fn check_max(&mut self, what: &str, figure: Option<f64>, bound: f64) {
        let met = figure.is_some_and(|figure| figure <= bound);
        self.note(what, figure, &format!("at most {bound}"), met);
    }

    /// Checks two figures, of which one has to be within its bound.
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

    /// Takes the text of the results since the last call.
    pub fn take_text(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// # Errors
    /// Returns the number of missed goals, if `counts`.
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
