//! Tests of batches in slices whose lines wait for a retry because their provider is overloaded.

use super::slices::slice_id;
use super::*;

impl Pair {
    /// Returns a batch in slices of which only the first member runs lines, all of which are refused for now.
    async fn overloaded(&self, count: usize) -> String {
        let first = &self.members[0];
        first.executor.is_overloaded.store(true, Ordering::Release);
        let id = self.started(0, count).await;
        until("the division of the batch", || self.record(&id).slices.is_some()).await;
        BatchManager::start_claim_task(&first.context);
        first.context.batches.claims.search.notify_one();
        id
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_runs_all_slices_of_a_batch_whose_lines_wait_for_a_retry() {
    let pair = Pair::start_with(2).await;
    let (first, id) = (&pair.members[0], pair.overloaded(40).await);
    until("all lines to start", || first.started() == 40).await;
    assert!((0..20).all(|number| first.runs(&slice_id(&id, number))));
    until("the slices to have no share of the memory", || {
        first.context.batches.running.lock().iter().all(|(id, batch)| batch.parked == is_slice_id(id))
    })
    .await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_starts_no_further_lines_of_a_batch_while_many_wait_for_a_retry() {
    let pair = Pair::start_with(100).await;
    let (first, id) = (&pair.members[0], pair.overloaded(500).await);
    let batches = &first.context.batches;
    let is_full = || {
        let running = batches.running.lock();
        running.get(slice_id(&id, 2).as_str()).is_some_and(|slice| slice.retry_load.is_full())
    };
    until("a full queue", is_full).await;
    for _ in 0..3 {
        first.claim().await;
    }
    assert!(!first.runs(&slice_id(&id, 3)));
    // Beyond the 256 lines of a full queue, only lines that were already in flight may have started.
    assert!((256..256 + CONCURRENCY).contains(&first.started()), "{}", first.started());
    pair.stop().await;
}
