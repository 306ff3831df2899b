//! Tests of claims that change hands: a batch that was cancelled before its claim was taken, and one that another
//! member has ended.

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
    let id = pair.start_divided_batch(18).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_holder_stops_once_it_reads_that_another_gateway_has_ended_the_batch() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    pair.silence(0);
    second.claim().await;
    second.executor.permits.add_permits(100);
    pair.ended(&id).await;
    first.context.batches.check_claims().await;
    until("the first to stop", || !first.runs(&id)).await;
    assert_eq!(first.started(), CONCURRENCY);
    pair.assert_exactly_once(&id, 12).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_former_holder_of_a_slice_stops_once_it_reads_that_the_slice_has_ended() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(12).await;
    let [first, second] = &pair.members;
    pair.silence(0);
    BatchManager::start_claim_task(&second.context);
    second.claim().await;
    second.executor.permits.add_permits(100);
    assert_eq!(pair.ended(&id).await.state, BatchState::Completed);
    first.context.batches.check_claims().await;
    until("the first to stop", || !first.runs(&id) && !first.runs(&slice_id(&id, 0))).await;
    assert_eq!(first.started(), CONCURRENCY);
    pair.assert_no_slices(&id, 2);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_took_a_batch_in_slices_over_stops_if_another_has_ended_it() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(12).await;
    let [first, second] = &pair.members;
    let (before, ids) = (pair.record(&id), std::slice::from_ref(&id));
    let claim = second.context.batches.store.coordination(ids).unwrap()[0].claim.unwrap();
    for member in [first, second] {
        BatchManager::start_claim_task(&member.context);
        member.executor.permits.add_permits(100);
    }
    let end = pair.ended(&id).await;
    until("the first to finish", || !first.runs(&id)).await;
    // Simulates a gateway that took the batch over, but was cut off before its first commit until the batch had
    // ended.
    second.run(before, claims::HeldClaim { claim, takeover: claims::TakeoverKind::Forced });
    until("the second to stop", || !second.runs(&id)).await;
    assert_eq!(pair.record(&id), end);
    pair.assert_exactly_once(&id, 12).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_background_response_whose_claim_is_not_written_yet_is_not_interrupted() {
    use crate::batch::background_watch::{Interruption, InterruptionWatch};
    use penstock_dialect::background_response::BackgroundResponseState;
    let pair = Pair::start().await;
    let batches = &pair.members[0].context.batches;
    let claim = BatchClaim { incarnation: 1, number: 1, commits: 0, state: ClaimState::Held };
    let record = BatchRecord {
        id: "resp_1".to_owned(),
        key: pair.principal.public_id.to_string(),
        expires: u64::MAX,
        background: Some(Default::default()),
        ..BatchRecord::default()
    };
    let (commands, _published) = batches.register(&record, usize::MAX, Some(claim)).unwrap();
    batches.check_claims().await;
    batches.running.lock()["resp_1"].commands.send(BatchCommand::End(EndRequest::Cancelled)).unwrap();
    let mut watch = InterruptionWatch::new(&pair.members[0].context, &record, commands);
    let first = watch.wait_for_interruption().await;
    assert_eq!(first, Interruption::Ended(BackgroundResponseState::Cancelled));
    batches.unregister("resp_1");
    pair.stop().await;
}
