//! Tests of the progress display with a simulated clock, as a bar and as lines.

#![allow(clippy::unwrap_used)]

use super::*;
use std::cell::Cell;
use std::rc::Rc;

#[derive(Clone, Default)]
struct Written(Rc<RefCell<Vec<u8>>>);

impl Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Trial {
    progress: ProgressReporter,
    now: Rc<Cell<u64>>,
    written: Written,
}

impl Trial {
    fn new(form: ProgressForm) -> Self {
        let (now, written) = (Rc::new(Cell::new(0)), Written::default());
        let clock = now.clone();
        let clock = Box::new(move || Duration::from_millis(clock.get()));
        let progress = ProgressReporter::new(form, clock, Box::new(written.clone()), || 100);
        Self { progress, now, written }
    }

    fn pass(&self, milliseconds: u64) {
        self.now.set(self.now.get() + milliseconds);
    }

    fn text(&self) -> String {
        String::from_utf8(self.written.0.take()).unwrap()
    }
}

#[test]
fn lines_come_every_five_seconds_and_at_the_end_of_a_stage() {
    let trial = Trial::new(ProgressForm::Lines);
    trial.progress.begin_stage("File contents", ProgressUnit::Bytes, Some(3 << 30));
    for _ in 0..150 {
        trial.pass(100);
        trial.progress.advance(10 << 20);
    }
    let second = "File contents: 1000.0 MiB of 3.0 GiB (32 %) so far.";
    let text = trial.text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "15 s of 150 steps: {lines:?}");
    assert_eq!(lines.get(1), Some(&second));
    trial.progress.begin_stage("Rows", ProgressUnit::Rows, None);
    trial.progress.advance(7);
    trial.progress.finish_stage();
    let ends = "File contents: 1.5 GiB of 3.0 GiB (48 %) in 15.0 s.\nRows: 7 rows in 0.0 s.\n";
    assert_eq!(trial.text(), ends);
    drop(trial.progress);
    assert!(trial.written.0.borrow().is_empty(), "a stage ends once");
}

#[test]
fn a_bar_is_drawn_ten_times_a_second_and_leaves_an_empty_line() {
    let trial = Trial::new(ProgressForm::Bar);
    trial.progress.begin_stage("Files", ProgressUnit::Bytes, Some(100 << 20));
    for _ in 0..200 {
        trial.pass(10);
        trial.progress.advance(256 << 10);
    }
    let text = trial.text();
    let drawn: Vec<&str> = text.split(CLEAR).skip(1).collect();
    assert_eq!(drawn.len(), 21, "2 s: {drawn:?}");
    assert_eq!(drawn.first(), Some(&"Files [------------------------]   0 % 0 bytes"));
    assert_eq!(drawn.last(), Some(&"Files [############------------]  50 % 2 s left, 50.0 MiB, 25.0 MiB/s"));
    assert!(!text.contains('\n'));
    drop(trial.progress);
    assert_eq!(String::from_utf8(trial.written.0.take()).unwrap(), CLEAR);
}

#[test]
fn a_bar_is_never_wider_than_the_terminal() {
    let stage = |done| ProgressStage {
        name: "Check of the archive",
        unit: ProgressUnit::Bytes,
        total: Some(5),
        done,
        started: Duration::ZERO,
        drawn: Duration::ZERO,
    };
    for columns in [0, 1, 20, 80] {
        for done in [0, 5, 6, u64::MAX] {
            let bar = stage(done).bar_text(Duration::from_secs(3), columns);
            let bar = bar.strip_prefix(CLEAR).unwrap();
            assert!(bar.chars().count() < columns.max(1), "{bar}");
        }
    }
    assert!(stage(u64::MAX).bar_text(Duration::ZERO, 100).contains("100 %"), "more than the total");
}

#[test]
fn amounts_carry_their_units() {
    assert_eq!(ProgressUnit::Entries.text(12), "12 entries");
    assert_eq!(ProgressUnit::Batches.text(0), "0 batches");
    for (amount, text) in
        [(1023, "1023 bytes"), (1024, "1.0 KiB"), (1 << 20, "1.0 MiB"), (u64::MAX, "17179869184.0 GiB")]
    {
        assert_eq!(format_bytes(amount), text);
    }
}

#[test]
fn hidden_progress_counts_nothing() {
    let progress = ProgressReporter::hidden();
    progress.begin_stage("Rows", ProgressUnit::Rows, Some(1));
    progress.advance(1);
    progress.finish_stage();
    assert!(progress.0.is_none());
}
