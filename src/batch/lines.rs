//! Lines of a batch at work: begun as its turns allow, asked as requests are,
//! and then finished, or asked again.

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

/// Pause before a line is asked again that gave way to others.
const BREATH: Duration = Duration::from_millis(100);

impl Work {
    /// Begins as many lines as there are turns for.
    pub(super) fn begin_lines(&mut self) {
        let now = self.house.clock.unix();
        let due = self.life.state == LifecycleState::InProgress
            && self.record.scheduled.is_none_or(|hour| hour <= now)
            && !self.paused.held_up
            // As long as the disk takes no results, none are asked for.
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

    /// Whether another line may be begun, by what is in memory and by what else the house has to do. A batch with
    /// nothing at work goes on whatever that is, one line after the other.
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
                // Held until the line has ended.
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

    /// A line ended, one way or the other.
    pub(super) fn landed(&mut self, mut asked: Asked, turn: Turn, done: Option<Box<LineDone>>) {
        self.flying.lines = self.flying.lines.saturating_sub(1);
        self.flying.bytes = self.flying.bytes.saturating_sub(asked.body.len());
        let ends = self.exit.why.is_some() || self.exit.stopping;
        let Some(mut done) = done else {
            // It broke, or was cut: its reserve was voided when it was dropped.
            self.short.freed(1);
            if !ends {
                asked.times += 1;
                self.again(asked, Duration::ZERO, false);
            }
            return;
        };
        if self.exit.why == Some(EndReason::OutputDamaged) {
            // Its result has no place to go to; with its end dropped, it is voided.
            return;
        }
        let keyless = done.status == 401 && !self.key_is_good();
        if done.cancelled || keyless || (done.retry.is_some() && ends) {
            if !ends {
                // Its key is suspended, or about to be found revoked.
                self.later.push(asked, Instant::now() + LOOK * 2);
            }
            return self.void(done.end.take());
        }
        if done.short {
            // Before all others: as lines ahead of it end it gets its turn, however much it needs.
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

    /// Asks a line again after a while; at once if it was only in the way of others.
    fn again(&mut self, asked: Asked, wanted: Duration, waived: bool) {
        let again = self.house.live().settings.batches.retry;
        let pause = again.next_delay(asked.times, wanted, rand::random(), self.left());
        let pause = match pause {
            _ if waived => wanted.max(BREATH),
            Some(pause) => pause,
            // One that the window has no room for ends with the window.
            None => wanted.max(again.base_delay),
        };
        self.later.push(asked, Instant::now() + pause);
    }

    /// What is left of the window.
    fn left(&self) -> Duration {
        Duration::from_secs(self.record.expires).saturating_sub(self.house.clock.date())
    }
}

/// A line at work: whatever becomes of it, its batch hears of it.
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
