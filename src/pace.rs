//! Cooperative budget of tasks that read. A peer whose data never runs out would keep its task running for as long as
//! it sends: other tasks of the thread, timers and the detection of a client's disconnect would wait. So bytes and
//! steps are charged against the budget that tokio gives a task for one poll (128 units); a task without budget yields
//! and continues after the others.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::task::coop::{consume_budget, has_budget_remaining};

/// Bytes per unit of the budget: one poll reads about 32 KiB.
const UNIT: usize = 256;

/// Takes one unit; yields if none is left.
pub async fn step() {
    consume_budget().await;
}

/// Returns ready while the budget has units left, and takes none. Else returns pending and wakes the task again.
pub fn poll_turn(context: &mut Context<'_>) -> Poll<()> {
    if has_budget_remaining() { Poll::Ready(()) } else { pin!(consume_budget()).poll(context) }
}

/// Charges bytes that were read; the task yields at the next step once the budget is used up.
pub fn charge(bytes: usize) {
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..bytes / UNIT {
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
                step().await;
                charge(bytes);
            }
            over.set(true);
        });
        set.await;
        turns.get()
    }

    #[tokio::test]
    async fn others_have_their_turn_after_so_many_steps_or_bytes() {
        assert!(turns(100, 0).await <= 2, "a short exchange is not interrupted");
        assert!((9..=12).contains(&turns(1_280, UNIT - 1).await), "128 steps are a turn");
        assert!((90..=120).contains(&turns(100, 64 << 10).await), "a large piece is one");
        assert!((45..=60).contains(&turns(100, 64 * UNIT).await), "two of half a turn");
    }

    #[test]
    fn outside_of_a_task_nothing_is_counted() {
        charge(1 << 30);
        let mut context = Context::from_waker(Waker::noop());
        assert!(poll_turn(&mut context).is_ready() && pin!(step()).poll(&mut context).is_ready());
    }
}
