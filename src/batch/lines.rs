//! Lines of a batch in flight: started as run permits allow, processed like requests, and then finished or retried.

use super::commit::Finished;
use super::context::{LineAsk, LineDone};
use super::input::Asked;
use super::large;
use super::runner::{Event, LOOK, Work};
use super::scheduler::Turn;
use crate::config::settings::BatchResultFormat;
use bytes::Bytes;
use penstock_batch::result_line;
use penstock_batch::state::{EndReason, LifecycleState};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pause before a line that yielded to online requests is retried.
const BREATH: Duration = Duration::from_millis(100);

impl Work {
    /// Starts as many lines as there are run permits.
    pub(super) fn begin_lines(&mut self) {
        let now = self.house.clock.unix();
        let due = self.life.state == LifecycleState::InProgress
            && self.record.scheduled.is_none_or(|hour| hour <= now)
            && !self.paused.held_up
            // While the disk rejects results, no line starts.
            && (self.disk.failures == 0 || self.unwritten.lines.is_empty())
            && !self.house.ledger.failing();
        while due && self.short.may_begin() && self.has_room() {
            let Some(asked) = self.next_line() else { break };
            let most = self.house.live().settings.batches.concurrency;
            match self.place.take(most, self.is_bare()) {
                Some(turn) => self.begin(asked, turn),
                None => {
                    self.put_back(asked);
                    return;
                }
            }
        }
        self.place.leave();
    }

    /// Returns true if memory and load allow another line. A batch without lines in flight may always start one, so
    /// that it makes progress, one line after the other.
    fn has_room(&self) -> bool {
        let share = &self.share;
        if self.flying.lines == 0 || self.unwritten.lines.len() >= share.results {
            return self.unwritten.lines.len() < share.results;
        }
        let expected = self.unwritten.bytes + self.flying.lines * self.unwritten.typical;
        let fits = self.flying.bytes + self.later.bytes() <= share.held && expected <= share.finished;
        fits && !self.house.overload.is_crowded()
    }

    fn next_line(&mut self) -> Option<Asked> {
        if let Some(again) = self.later.pop(Instant::now()) {
            return Some(again);
        }
        let line = if self.later.is_full() { None } else { self.ahead.lines.pop_front() };
        self.ahead.bytes -= line.as_ref().map_or(0, |line| line.body.len());
        line
    }

    fn put_back(&mut self, line: Asked) {
        self.ahead.bytes += line.body.len();
        self.ahead.lines.push_front(line);
    }

    fn begin(&mut self, asked: Asked, turn: Turn) {
        let Some(grant) = self.house.keyring.grant(&self.record.key) else {
            self.put_back(asked);
            return self.end(EndReason::KeyRevoked);
        };
        let Some(path) = self.path else { return self.end(EndReason::Invalid) };
        self.flying.lines += 1;
        self.short.begun();
        self.flying.bytes += asked.body.len();
        let (body, cancel) = (asked.body.clone(), self.flying.cancel.clone());
        let from = large::Source { input: self.record.input.clone(), account: grant.account.id.clone() };
        let (house, mut abort) = (self.house.clone(), self.flying.abort.subscribe());
        let flight = Flight { asked: Some((asked, turn)), tell: self.tell.clone() };
        self.house.batches.serve(async move {
            let flight = flight;
            let ask = async {
                // The memory permit is held until the line has ended.
                let (body, _memory) = large::load(&house, &from, body, &cancel).await?;
                let executor = house.executor.get()?;
                Some(executor.execute(LineAsk { grant, path, body, cancel }).await)
            };
            let done = tokio::select! {
                done = ask => done,
                _ = abort.wait_for(|abort| *abort) => None,
            };
            drop(house);
            flight.land(done);
        });
    }

    /// Handles the end of a line, with or without a result.
    pub(super) fn landed(&mut self, mut asked: Asked, turn: Turn, done: Option<Box<LineDone>>) {
        self.flying.lines = self.flying.lines.saturating_sub(1);
        self.flying.bytes = self.flying.bytes.saturating_sub(asked.body.len());
        let ends = self.exit.why.is_some() || self.exit.stopping;
        let Some(mut done) = done else {
            // The task was aborted or panicked: dropping it voided the reservation.
            self.short.freed(1);
            if !ends {
                asked.times += 1;
                self.again(asked, Duration::ZERO, false);
            }
            return;
        };
        if self.exit.why == Some(EndReason::OutputDamaged) {
            // The result cannot be stored; dropping its end voids the reservation.
            return;
        }
        let keyless = done.status == 401 && !self.key_is_good();
        if done.cancelled || keyless || (done.retry.is_some() && ends) {
            if !ends {
                // The key is suspended, or will soon be found revoked.
                self.later.push(asked, Instant::now() + LOOK * 2);
            }
            return self.void(done.end.take());
        }
        if done.short {
            // Put first in the queue: it starts as soon as earlier lines end, however much credit it needs.
            self.short.came_back();
            self.house.metrics.batches.line("retried");
            return self.put_back(asked);
        }
        if let Some(wanted) = done.retry {
            let waived = done.yielded;
            asked.times += u32::from(!waived);
            if waived || self.may_again(&asked) {
                self.house.metrics.batches.line("retried");
                self.void(done.end.take());
                return self.again(asked, wanted, waived);
            }
        }
        let good = (200..300).contains(&done.status);
        let mut text = Vec::with_capacity(128 + done.body.iter().map(Bytes::len).sum::<usize>());
        let id = format!("batch_{}", done.request.as_str());
        let form = match self.house.live().settings.compatibility.batch_results {
            BatchResultFormat::Flat => result_line::ResultFormat::Flat,
            BatchResultFormat::Nested => result_line::ResultFormat::Nested,
        };
        let body = done.body.iter().map(|piece| &**piece);
        result_line::write(&mut text, form, &id, &asked.custom_id, done.status, body);
        self.unwritten.bytes += text.len();
        self.unwritten.typical = (self.unwritten.typical * 7 + text.len()) / 8;
        self.unwritten.lines.push_back(Finished {
            index: asked.index,
            good,
            end: done.end,
            usage: done.usage,
            text,
            turn,
        });
    }

    fn key_is_good(&self) -> bool {
        let now = self.house.clock.unix();
        self.house.keyring.grant(&self.record.key).is_some_and(|grant| grant.good(now))
    }

    fn may_again(&self, asked: &Asked) -> bool {
        let again = self.house.live().settings.batches.retry;
        again.next_delay(asked.times, Duration::ZERO, 0, self.left()).is_some()
    }

    /// Schedules a retry; without backoff if the line only yielded to online requests.
    fn again(&mut self, asked: Asked, wanted: Duration, waived: bool) {
        let again = self.house.live().settings.batches.retry;
        let pause = again.next_delay(asked.times, wanted, rand::random(), self.left());
        let pause = match pause {
            _ if waived => wanted.max(BREATH),
            Some(pause) => pause,
            // A line without time for a retry ends with the completion window.
            None => wanted.max(again.base_delay),
        };
        self.later.push(asked, Instant::now() + pause);
    }

    /// Time left of the completion window.
    fn left(&self) -> Duration {
        Duration::from_secs(self.record.expires).saturating_sub(self.house.clock.date())
    }
}

/// Line in flight. Its end is always reported to the batch, also when the task is dropped.
struct Flight {
    asked: Option<(Asked, Turn)>,
    tell: mpsc::UnboundedSender<Event>,
}

impl Flight {
    fn land(mut self, done: Option<LineDone>) {
        if let Some((asked, turn)) = self.asked.take() {
            self.tell.send(Event::Line(asked, turn, done.map(Box::new))).ok();
        }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some((asked, turn)) = self.asked.take() {
            self.tell.send(Event::Line(asked, turn, None)).ok();
        }
    }
}
