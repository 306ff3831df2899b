//! Progress of long commands on standard error: a bar on a terminal, lines elsewhere, or nothing. A command is a
//! sequence of stages. Each stage counts rows, entries, batches or bytes, with a total if the total is known.

use rustix::termios::tcgetwinsize;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Interval at which a bar is redrawn.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// Interval of the lines of a stage.
const LINE_EVERY: Duration = Duration::from_secs(5);
/// Width of a progress bar, in characters.
const BAR_CELLS: u64 = 24;
/// Assumed number of columns if the terminal does not report its width.
const DEFAULT_COLUMNS: usize = 80;
/// Control sequence that moves the cursor to the first column and clears the line.
const CLEAR: &str = "\r\x1b[K";

/// Unit that a stage counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressUnit {
    /// Rows of the store.
    Rows,
    /// Entries of the ledger.
    Entries,
    /// Batches.
    Batches,
    /// Bytes, written in KiB, MiB, GiB.
    Bytes,
}

/// Form of the progress display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProgressForm {
    /// Progress bar, redrawn in one line.
    Bar,
    /// Line every five seconds, and one at the end of each stage.
    Lines,
}

/// Progress display of one command; shared by reference with all functions that report to it.
pub struct ProgressReporter(Option<RefCell<ProgressDisplay>>);

struct ProgressDisplay {
    form: ProgressForm,
    /// Function that returns the time since the command began.
    clock: Box<dyn Fn() -> Duration>,
    out: Box<dyn Write>,
    columns: fn() -> usize,
    stage: Option<ProgressStage>,
}

struct ProgressStage {
    name: &'static str,
    unit: ProgressUnit,
    total: Option<u64>,
    done: u64,
    started: Duration,
    drawn: Duration,
}

impl ProgressReporter {
    /// Returns a progress display that shows nothing.
    #[must_use]
    pub const fn hidden() -> Self {
        Self(None)
    }

    /// Returns a progress display on standard error: a bar on a terminal, lines elsewhere.
    #[must_use]
    pub fn on_stderr() -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let form = if stderr().is_terminal() && !dumb { ProgressForm::Bar } else { ProgressForm::Lines };
        let begun = Instant::now();
        Self::new(form, Box::new(move || begun.elapsed()), Box::new(stderr()), stderr_columns)
    }

    fn new(
        form: ProgressForm,
        clock: Box<dyn Fn() -> Duration>,
        out: Box<dyn Write>,
        columns: fn() -> usize,
    ) -> Self {
        Self(Some(RefCell::new(ProgressDisplay { form, clock, out, columns, stage: None })))
    }

    /// Begins a stage, and ends the previous one.
    pub fn begin_stage(&self, name: &'static str, unit: ProgressUnit, total: Option<u64>) {
        self.finish_stage();
        let Some(display) = &self.0 else { return };
        let mut display = display.borrow_mut();
        let now = (display.clock)();
        let stage = ProgressStage { name, unit, total, done: 0, started: now, drawn: now };
        if display.form == ProgressForm::Bar {
            let text = stage.bar_text(now, (display.columns)());
            display.print(&text);
        }
        display.stage = Some(stage);
    }

    /// Adds to the progress of the stage, in its unit; shows it if enough time has passed.
    pub fn advance(&self, done: u64) {
        let Some(display) = &self.0 else { return };
        let mut display = display.borrow_mut();
        let (now, form, columns) = ((display.clock)(), display.form, display.columns);
        let Some(stage) = &mut display.stage else { return };
        stage.done = stage.done.saturating_add(done);
        let pause = if form == ProgressForm::Bar { BAR_EVERY } else { LINE_EVERY };
        if now.saturating_sub(stage.drawn) < pause {
            return;
        }
        stage.drawn = now;
        let text = match form {
            ProgressForm::Bar => stage.bar_text(now, columns()),
            ProgressForm::Lines => format!("{}: {} so far.\n", stage.name, stage.amount_text()),
        };
        display.print(&text);
    }

    /// Ends the stage: clears the bar, or prints a summary line.
    pub fn finish_stage(&self) {
        let Some(display) = &self.0 else { return };
        let mut display = display.borrow_mut();
        let Some(stage) = display.stage.take() else { return };
        let text = match display.form {
            ProgressForm::Bar => CLEAR.to_owned(),
            ProgressForm::Lines => {
                let took = (display.clock)().saturating_sub(stage.started);
                format!("{}: {} in {:.1} s.\n", stage.name, stage.amount_text(), took.as_secs_f64())
            }
        };
        display.print(&text);
    }
}

impl Drop for ProgressReporter {
    fn drop(&mut self) {
        self.finish_stage();
    }
}

impl ProgressDisplay {
    /// Writes to the terminal; errors are ignored.
    fn print(&mut self, text: &str) {
        self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()).ok();
    }
}

impl ProgressStage {
    /// Formats the progress as `1.5 GiB of 3.0 GiB (50 %)` or `12 rows`.
    fn amount_text(&self) -> String {
        match self.percentage() {
            Some((percent, total)) => {
                format!("{} of {} ({percent} %)", self.unit.text(self.done), self.unit.text(total))
            }
            None => self.unit.text(self.done),
        }
    }

    /// Returns the percentage and the total; `None` if the total is unknown.
    fn percentage(&self) -> Option<(u64, u64)> {
        let total = self.total.filter(|total| *total > 0)?;
        let percent = u128::from(self.done.min(total)) * 100 / u128::from(total);
        Some((u64::try_from(percent).unwrap_or(100), total))
    }

    fn bar_text(&self, now: Duration, columns: usize) -> String {
        let mut text = format!("{} ", self.name);
        let passed = now.saturating_sub(self.started);
        if let Some((percent, total)) = self.percentage() {
            let full = percent * BAR_CELLS / 100;
            let cells: String = (0..BAR_CELLS).map(|cell| if cell < full { '#' } else { '-' }).collect();
            let _ = write!(text, "[{cells}] {percent:>3} % ");
            let rest = total.saturating_sub(self.done);
            // An estimate from less than one second is too inaccurate.
            if self.done > 0 && passed.as_secs() > 0 {
                let left = passed.as_secs_f64() * rest as f64 / self.done as f64;
                let _ = write!(text, "{left:.0} s left, ");
            }
        }
        text.push_str(&self.unit.text(self.done));
        if passed.as_secs() > 0 {
            let each_second = (self.done as f64 / passed.as_secs_f64()) as u64;
            let _ = write!(text, ", {}/s", self.unit.text(each_second));
        }
        // The last column stays empty: some terminals wrap after it.
        let text: String = text.chars().take(columns.saturating_sub(1)).collect();
        format!("{CLEAR}{text}")
    }
}

impl ProgressUnit {
    fn text(self, amount: u64) -> String {
        match self {
            Self::Rows => format!("{amount} rows"),
            Self::Entries => format!("{amount} entries"),
            Self::Batches => format!("{amount} batches"),
            Self::Bytes => format_bytes(amount),
        }
    }
}

fn format_bytes(amount: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.into_iter().find(|(_, bits)| amount >> bits > 0) {
        Some((unit, bits)) => format!("{:.1} {unit}", amount as f64 / (1_u64 << bits) as f64),
        None => format!("{amount} bytes"),
    }
}

fn stderr_columns() -> usize {
    match tcgetwinsize(stderr()) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        _ => DEFAULT_COLUMNS,
    }
}

#[cfg(test)]
mod tests;
