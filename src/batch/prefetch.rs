//! Input of a running batch: opens its files once and prefetches its lines. Files that are temporarily unreadable are
//! opened again later; a missing or invalid file ends the batch.

use super::carbon_schedule;
use super::input::Asked;
use super::open::{self, Opened};
use super::runner::{Event, Work};
use crate::telemetry::log;
use penstock_batch::completion_bitmap::CompletionBitmap;
use penstock_batch::state::{EndReason, LifecycleState};
use std::io::ErrorKind;

/// Number of prefetched lines below which more are read.
const AHEAD: usize = 128;

impl Work {
    /// Opens the files of the batch, once.
    pub(super) fn open(&mut self) {
        if self.files.input.is_none() && !self.disk.reading {
            self.disk.reading = true;
            let (house, record, tell) = (self.house.clone(), self.record.clone(), self.tell.clone());
            tokio::task::spawn_blocking(move || {
                let opened = open::open(&house, &record);
                // Dropped before the event is sent: after the batch has ended, no task of it holds the shared state.
                drop(house);
                tell.send(match opened {
                    Ok(opened) => Event::Opened(Box::new(opened)),
                    Err(error) => Event::Unopened(error.kind()),
                })
            });
        }
    }

    pub(super) fn read_ahead(&mut self) {
        let enough = self.ahead.lines.len() >= AHEAD || self.ahead.bytes >= self.share.ahead / 2;
        if self.disk.reading || enough || self.later.is_full() {
            return;
        }
        let Some(mut input) = self.files.input.take_if(|input| !input.over) else { return };
        self.disk.reading = true;
        let (done, tell, most) = (self.done.clone(), self.tell.clone(), self.share.ahead);
        tokio::task::spawn_blocking(move || {
            let read = input.read(&done, most);
            tell.send(Event::Read(input, read))
        });
    }

    pub(super) fn opened(&mut self, opened: Opened) {
        self.disk.reading = false;
        let Opened { mut input, first, file, output, done } = opened;
        let model = input.model.take();
        self.files.input = Some(input);
        self.done = done;
        if let Some((output, results)) = output {
            self.files.output = Some(output);
            self.files.results = Some(results);
        }
        self.disk.rest_until = None;
        if self.exit.why.is_some() {
            return;
        }
        if self.life.state == LifecycleState::Validating {
            if file.lines == 0 {
                return self.end(EndReason::Invalid);
            }
            self.record.model = model;
            self.done = CompletionBitmap::with_lines(file.lines);
            let clock = self.house.clock;
            self.life.start(file.lines, clock.unix());
            let plan = carbon_schedule::planned(&self.house.live(), &self.record, file.lines, clock);
            self.record.scheduled = plan.map(|plan| plan.start);
            self.keep_row();
        }
        self.is_ahead(first);
    }

    pub(super) fn is_ahead(&mut self, lines: Vec<Asked>) {
        self.ahead.bytes += lines.iter().map(|line| line.body.len()).sum::<usize>();
        self.ahead.lines.extend(lines);
    }

    pub(super) fn unopened(&mut self, kind: ErrorKind) {
        self.disk.reading = false;
        match kind {
            ErrorKind::NotFound => self.end(EndReason::InputDeleted),
            ErrorKind::InvalidData => self.end(EndReason::Invalid),
            // Sent by `open` only: the results file is shorter than the committed size.
            ErrorKind::UnexpectedEof => self.end(EndReason::OutputDamaged),
            kind => {
                let why = kind.to_string();
                log::event(log::error(), "batch_not_read", &[("batch", &self.record.id), ("why", &why)]);
                self.rest();
            }
        }
    }
}
