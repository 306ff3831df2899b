//! One choice of several: an exchange of its own with all attempts of a request, whose response goes to the client's
//! exchange and not to the client.

use super::super::select::Selection;
use super::super::wait::Watch;
use super::super::{ResponseProgress, Run, Weight, settle};
use super::{Asking, Halt, Part};
use crate::auth::key_cache::Grant;
use crate::proxy::downstream::{Caller, Line};
use crate::proxy::exchange::{Ended, Exchange, ExchangeState};
use crate::proxy::{LineSession, RequestOrigin};
use crate::state::House;
use crate::telemetry::Record;
use crate::telemetry::request_id::RequestId;
use crate::upstream::config_snapshot::Live;
use bytes::{Bytes, BytesMut};
use penstock_contract::{Ask, Choices, Dialect, Extras, Finish, Needs, Refusal};
use penstock_limits::Work;
use std::sync::{Arc, OnceLock};
use std::time::Instant;
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

/// State that the choices of one request share.
pub(super) struct Seed<'a> {
    house: &'a Arc<House>,
    live: Arc<Live>,
    grant: Arc<Grant>,
    id: RequestId,
    dialect: Dialect,
    work: Work,
    started: Instant,
    flavor: Option<&'static str>,
    /// Request with one choice.
    ask: Ask,
    chosen: Selection,
    deadline: Instant,
    at: u64,
    /// Progress of the client's stream: the head alone may have been sent.
    progress: ResponseProgress,
    /// Signal of a parent that is a line of a batch and may be asked to give up its permit.
    back: Option<CancellationToken>,
    /// Cancels all choices.
    pub(super) cancel: CancellationToken,
    /// Provider of the first content, and the number of its attempt.
    pub(super) told: Arc<OnceLock<(Box<str>, u32)>>,
    /// Attempts before the choices.
    pub(super) before: u64,
}

/// End of a choice.
pub(super) struct End {
    pub(super) index: u32,
    ended: Result<Ended, Refusal>,
    /// True if all candidates were at their limit.
    pub(super) crowded: bool,
    /// Usage of the choice, and its offer.
    pub(super) part: Option<Part>,
    pub(super) finish: Option<Finish>,
    /// Completion, if it is no stream.
    pub(super) body: Bytes,
    spent: settle::Spent,
    record: Record,
}

impl<'a> Seed<'a> {
    /// Creates the shared state of a request's choices; offers that failed are not asked again.
    pub(super) fn of(run: &Run<'_, 'a>, failed: impl Fn(usize) -> bool) -> Self {
        let mut chosen = run.chosen.clone();
        chosen.entries.retain(|entry| !failed(entry.offer));
        let x = &*run.x;
        Self {
            house: x.house,
            live: x.live.clone(),
            grant: x.grant.clone(),
            id: x.id,
            dialect: x.dialect,
            work: x.work,
            started: x.started,
            flavor: x.record.flavor,
            ask: Ask { n: 1, needs: Needs { many: false, ..run.ask.needs }, ..run.ask.clone() },
            chosen,
            deadline: run.deadline,
            at: run.at,
            progress: run.progress.min(ResponseProgress::HeadSent),
            back: x.caller.asked_back(),
            cancel: CancellationToken::default(),
            told: Arc::default(),
            before: u64::try_from(x.record.attempts.len()).unwrap_or(u64::MAX),
        }
    }

    /// Returns the number of choices that are requested at the same time.
    pub(super) fn width(&self) -> usize {
        let offers = self.chosen.entries.iter().filter_map(|entry| self.live.offers.get(entry.offer));
        let seats = offers.map(|offer| offer.offer.provider.max_in_flight);
        let most = seats
            .map(|seats| seats.and_then(|seats| usize::try_from(seats).ok()))
            .max_by_key(|seats| seats.unwrap_or(usize::MAX));
        most.flatten().unwrap_or(usize::MAX).max(1)
    }
}

impl End {
    /// Adds the energy and the record of the choice to the client's request.
    pub(super) fn leave(&mut self, run: &mut Run<'_, '_>) {
        run.spent.merge(std::mem::take(&mut self.spent));
        let (mine, all) = (&mut self.record, &mut run.x.record);
        all.attempts.append(&mut mine.attempts);
        // Choices run at the same time.
        all.waited = all.waited.max(mine.waited);
        all.queued = all.queued.max(mine.queued);
    }

    /// Returns the reason why no other choice is requested.
    pub(super) fn halts(&self) -> Option<Halt> {
        match &self.ended {
            Ok(Ended::Written) => None,
            Ok(Ended::Left) => Some(Halt::Left),
            Err(refusal) => Some(Halt::Refused(refusal.clone())),
        }
    }
}

/// Requests one choice. The future is boxed, since a request for several choices contains those for one.
pub(super) fn ask<'s>(seed: &'s Seed<'_>, index: u32, pieces: Sender<Bytes>) -> Asking<'s> {
    Box::pin(async move {
        let pieces = seed.ask.stream.then_some(pieces);
        let line = Line::of_choice(seed.cancel.clone(), pieces, seed.told.clone(), seed.back.clone());
        let mut session = LineSession::of_choice(line.clone());
        let mut state = ExchangeState::new(seed.house);
        let caller = Caller::new(&mut session, Some(RequestOrigin::Line(line.clone())));
        let mut x = Exchange { house: seed.house, caller, state: &mut state };
        x.live = seed.live.clone();
        x.dialect = seed.dialect;
        x.work = seed.work;
        x.grant = seed.grant.clone();
        x.id = seed.id;
        x.started = seed.started;
        x.record = Record::new(seed.id, seed.dialect);
        x.record.flavor = seed.flavor;
        let mut watch = Watch::new(seed.grant.clone(), seed.live.settings.limits.heartbeat);
        if seed.progress.has_head() {
            watch.told(Instant::now());
        }
        let mut run = Run {
            watch,
            deadline: seed.deadline,
            ask: &seed.ask,
            upload: None,
            chosen: seed.chosen.clone(),
            reply: None,
            current: None,
            asked: None,
            progress: seed.progress,
            weight: Weight::new(),
            spent: settle::Spent::default(),
            hold: None,
            at: seed.at,
            ticket: None,
            refusal: None,
            unsaid: None,
            missed: false,
            choices: Choices::One(index),
            left_out: Extras::NONE,
            one_by_one: None,
            crowded: false,
            x: &mut x,
        };
        let ended = run.drive().await;
        let (spent, crowded) = (std::mem::take(&mut run.spent), run.crowded);
        drop(run);
        let record = std::mem::replace(&mut x.record, Record::new(seed.id, seed.dialect));
        drop(x);
        let mut body = BytesMut::new();
        line.take_response().iter().for_each(|piece| body.extend_from_slice(piece));
        let (part, finish) = line.take_part();
        End { index, ended, crowded, part, finish, body: body.freeze(), spent, record }
    })
}
