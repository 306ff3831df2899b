//! Tests of claims that are taken after the batch was cancelled.

use super::slices::slice_id;
use super::*;
use penstock_storage::batches::EndRequest;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_cancelled_before_its_takeover_starts_no_line() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    // The first member is declared dead before it has read the request.
    second.context.batches.store.request_end(&id, EndRequest::Cancelled).unwrap();
    pair.silence(0);
    second.claim().await;
    let end = pair.ended(&id).await;
    assert_eq!((end.state, end.counts.cancelled), (BatchState::Cancelled, 12));
    assert_eq!((first.started(), second.started()), (CONCURRENCY, 0));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_was_cancelled_before_its_first_claim_starts_no_line() {
    let pair = Pair::start().await;
    let id = pair.create(0, &pair.upload(0, 12).unwrap()).await.unwrap().id.clone();
    pair.members[0].context.batches.store.request_end(&id, EndRequest::Cancelled).unwrap();
    for member in &pair.members {
        member.claim().await;
    }
    assert_eq!(pair.ended(&id).await.state, BatchState::Cancelled);
    assert!(pair.members.iter().all(|member| member.started() == 0));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slice_whose_batch_was_cancelled_before_its_takeover_starts_no_line() {
    let pair = Pair::start_with(6).await;
    let id = pair.divided(18).await;
    let [first, second] = &pair.members;
    second.executor.permits.add_permits(6);
    until("the end of the second slice", || !second.runs(&slice_id(&id, 1))).await;
    second.context.batches.store.request_end(&id, EndRequest::Cancelled).unwrap();
    pair.silence(0);
    second.claim().await;
    let end = pair.ended(&id).await;
    assert_eq!((end.state, end.counts.completed, end.counts.cancelled), (BatchState::Cancelled, 6, 12));
    assert_eq!((first.started(), second.started()), (CONCURRENCY, 6), "the first slice was taken over");
    pair.assert_no_slices(&id, 3);
    pair.stop().await;
}
