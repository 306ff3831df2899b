//! Whose turn it is to count a long prompt: counting is all processor work, and must not take the machine from the
//! streams. Accounts take turns, a wait has an end, and whoever leaves the queue is not counted for.

use crate::exchange::Exchange;
use crate::house::House;
use crate::live::Live;
use crate::observe::panics;
use crate::overload::Why;
use crate::upstream::seats::{Place, Queued, Seats};
use penstock_contract::Refusal;
use penstock_limits::Work;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::time::timeout;

/// Long prompts that are counted at the same time.
static TURNS: LazyLock<Arc<Seats>> = LazyLock::new(|| Seats::new(Some(2), 1));

/// For whom something is counted, and how long that may wait for its turn.
pub struct Counting<'c> {
    house: &'c Arc<House>,
    /// The configuration that it happens under.
    pub live: Arc<Live>,
    whose: Arc<str>,
    /// None for a line of a batch, which has time.
    wait: Option<Duration>,
}

impl<'c> Counting<'c> {
    /// For whoever asks here: as long as for a place in the house, or without an end for who has time.
    pub fn of(x: &Exchange<'c>) -> Self {
        let wait = match x.work {
            Work::Request => Some(x.live.settings.overload.wait),
            Work::BatchLine => None,
        };
        Self { house: x.house, live: x.live.clone(), whose: x.grant.account.id.clone(), wait }
    }

    async fn turn(&self) -> Result<Place, Refusal> {
        let turn = turn(&TURNS, &self.whose, self.live.settings.overload.queue, self.wait);
        turn.await.map_err(|why| self.house.overload.full(why))
    }

    /// Works on a thread that may take its time. What has begun keeps its turn to its end, whoever waits for it.
    ///
    /// # Errors
    /// Too many others count; or a mistake of our own, which must not look like a prompt without tokens.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.turn().await?;
        let work = move || {
            let _place = place;
            work()
        };
        panics::off_thread(self.house, work).await
    }
}

/// A turn, after a wait in a queue of at most so many, or behind all of them without an end. Who leaves it is not
/// waited for.
async fn turn(
    turns: &Arc<Seats>,
    whose: &Arc<str>,
    most: usize,
    wait: Option<Duration>,
) -> Result<Place, Why> {
    let Some(wait) = wait else {
        return match turns.queue(None) {
            Queued::Place(place) => Ok(place),
            Queued::Turn(mut turn) => turn.come().await.ok_or(Why::Queue),
        };
    };
    if let Some(place) = turns.take() {
        return Ok(place);
    }
    let mut turn = turns.wait(whose, most).ok_or(Why::Queue)?;
    timeout(wait, turn.come()).await.map_err(|_| Why::House)?.ok_or(Why::Queue)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn accounts_count_in_turn_and_who_leaves_delays_nobody() {
        let (turns, wait) = (Seats::new(Some(1), 1), Some(Duration::from_secs(2)));
        let (busy, other): (Arc<str>, Arc<str>) = ("busy".into(), "other".into());
        let first = turn(&turns, &busy, 100, wait).await.unwrap();
        let wanted = |whose: &Arc<str>| {
            let (turns, whose) = (turns.clone(), whose.clone());
            tokio::spawn(async move { turn(&turns, &whose, 100, wait).await })
        };
        let (left, mut own): (Vec<_>, Vec<_>) =
            ((0..10).map(|_| wanted(&busy)).collect(), (0..10).map(|_| wanted(&busy)).collect());
        while turns.waiting() < 20 {
            tokio::task::yield_now().await;
        }
        left.iter().for_each(tokio::task::JoinHandle::abort);
        while turns.waiting() > 10 {
            tokio::task::yield_now().await;
        }
        let theirs = wanted(&other);
        while turns.waiting() < 11 {
            tokio::task::yield_now().await;
        }
        drop(first);
        let next = own.remove(0).await.unwrap().unwrap();
        drop(next);
        let theirs = theirs.await.unwrap().unwrap();
        assert_eq!(turns.waiting(), 9, "one of its own was before it, not ten");
        // It goes on longer than they wait.
        for one in own {
            assert_eq!(one.await.unwrap().err(), Some(Why::House));
        }
        drop(theirs);
        assert_eq!((turns.working(), turns.waiting()), (0, 0));
    }
    #[tokio::test(start_paused = true)]
    async fn lines_count_behind_whoever_waits() {
        let (turns, who) = (Seats::new(Some(1), 1), Arc::<str>::from("busy"));
        let first = turn(&turns, &who, 100, None).await.unwrap();
        let wanted = |wait: Option<Duration>| {
            let (turns, who) = (turns.clone(), who.clone());
            tokio::spawn(async move { turn(&turns, &who, 100, wait).await })
        };
        let line = wanted(None);
        while turns.waiting() < 1 {
            tokio::task::yield_now().await;
        }
        let request = wanted(Some(Duration::from_secs(2)));
        while turns.waiting() < 2 {
            tokio::task::yield_now().await;
        }
        drop(first);
        let request = request.await.unwrap().unwrap();
        assert!(!line.is_finished());
        drop(request);
        drop(line.await.unwrap().unwrap());
        assert_eq!((turns.working(), turns.waiting()), (0, 0));
    }
}
