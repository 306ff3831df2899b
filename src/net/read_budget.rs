//! Budget of reads per poll of a task. If a peer always has bytes to read, the task that reads them would run for as
//! long as the peer sends, while other tasks of the thread, timers and the detection of a client's disconnect have to
//! wait. So bytes and steps are counted in tokio's cooperative budget (128 units per poll); a task that has used up its
//! budget yields to other tasks.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::{consume_budget, has_budget_remaining};

/// Bytes that use one unit of the budget of a task; with the 128 units of tokio, a poll reads about 32 KiB.
const BYTES_PER_UNIT: usize = 256;

/// Takes one unit of the task's budget; yields to other tasks if none is left.
pub async fn consume_budget_unit() {
    consume_budget().await;
}

/// Checks the budget in a poll function, without taking a unit. If no unit is left, returns pending, and the task is
/// polled again soon.
pub fn poll_budget(context: &mut Context<'_>) -> Poll<()> {
    if has_budget_remaining() { Poll::Ready(()) } else { pin!(consume_budget()).poll(context) }
}

/// Takes one unit of the budget for each `BYTES_PER_UNIT` of the bytes that were read. If this uses up the budget,
/// the next step yields.
pub fn charge_bytes(bytes: usize) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..bytes / BYTES_PER_UNIT {
        if !has_budget_remaining() || pin!(consume_budget()).poll(&mut context).is_pending() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use tokio::task::LocalSet;

    /// Returns how often another task was polled while one task ran this many rounds of a step and a read.
    async fn polls(rounds: usize, bytes: usize) -> usize {
        let (set, polls, over) = (LocalSet::new(), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, ended) = (polls.clone(), over.clone());
        set.spawn_local(async move {
            while !ended.get() {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        set.spawn_local(async move {
            for _ in 0..rounds {
                consume_budget_unit().await;
                charge_bytes(bytes);
            }
            over.set(true);
        });
        set.await;
        polls.get()
    }

    #[tokio::test]
    async fn a_task_yields_after_a_number_of_steps_or_bytes() {
        assert!(polls(100, 0).await <= 2, "a short exchange is not interrupted");
        assert!((9..=12).contains(&polls(1_280, BYTES_PER_UNIT - 1).await), "a poll has 128 steps");
        assert!((90..=120).contains(&polls(100, 64 << 10).await), "a large read uses up a poll");
        assert!((45..=60).contains(&polls(100, 64 * BYTES_PER_UNIT).await), "two reads of half a poll each");
    }

    #[test]
    fn outside_of_a_task_nothing_is_counted() {
        charge_bytes(1 << 30);
        let mut context = Context::from_waker(Waker::noop());
        assert!(
            poll_budget(&mut context).is_ready() && pin!(consume_budget_unit()).poll(&mut context).is_ready()
        );
    }
}
