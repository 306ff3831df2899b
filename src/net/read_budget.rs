//! Budget of reads per poll. A peer whose reads never run dry would keep its task running for as long as it sends, and
//! other tasks of the thread, timers and the client's disconnection would wait. So bytes and steps are counted against
//! the budget that tokio gives a task per poll (128 units); a task that has used it up yields to the others.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::{consume_budget, has_budget_remaining};

/// Bytes per unit: a poll reads about 32 KiB.
const BYTES_PER_UNIT: usize = 256;

/// Takes one unit; yields if none is left.
pub async fn consume_step() {
    consume_budget().await;
}

/// Variant for poll functions: pending if no unit is left, and woken at the next poll. Takes no unit.
pub fn poll_budget(context: &mut Context<'_>) -> Poll<()> {
    if has_budget_remaining() { Poll::Ready(()) } else { pin!(consume_budget()).poll(context) }
}

/// Counts read bytes; the next step yields once they have used up the budget.
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

    /// How many turns other tasks had while one did so many rounds of this.
    async fn turns(rounds: usize, bytes: usize) -> usize {
        let (set, turns, over) = (LocalSet::new(), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let (counted, ended) = (turns.clone(), over.clone());
        set.spawn_local(async move {
            while !ended.get() {
                counted.set(counted.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        set.spawn_local(async move {
            for _ in 0..rounds {
                consume_step().await;
                charge_bytes(bytes);
            }
            over.set(true);
        });
        set.await;
        turns.get()
    }

    #[tokio::test]
    async fn a_task_yields_after_a_number_of_steps_or_bytes() {
        assert!(turns(100, 0).await <= 2, "a short exchange is not interrupted");
        assert!((9..=12).contains(&turns(1_280, BYTES_PER_UNIT - 1).await), "128 steps are a turn");
        assert!((90..=120).contains(&turns(100, 64 << 10).await), "a large piece is one");
        assert!((45..=60).contains(&turns(100, 64 * BYTES_PER_UNIT).await), "two of half a turn");
    }

    #[test]
    fn outside_of_a_task_nothing_is_counted() {
        charge_bytes(1 << 30);
        let mut context = Context::from_waker(Waker::noop());
        assert!(poll_budget(&mut context).is_ready() && pin!(consume_step()).poll(&mut context).is_ready());
    }
}
