//! Tests of batches of two gateways: the gateway that runs a batch dies, is slow or stops, and requests reach the other
//! gateway.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_a_dead_holder_is_continued_and_its_late_results_are_refused() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 20).await;
    // Some results are committed before the first member stops sending heartbeats.
    first.executor.permits.add_permits(CONCURRENCY);
    until("a commit", || pair.record(&id).counts.completed as usize == CONCURRENCY).await;
    until("more lines in flight", || first.executor.started.load(Ordering::Acquire) == 2 * CONCURRENCY).await;
    let output = pair.record(&id).output.unwrap();
    second.claim().await;
    assert!(!second.runs(&id), "its holder lives");
    pair.silence(0);
    second.claim().await;
    assert!(second.runs(&id));
    second.executor.permits.add_permits(100);
    let end = pair.ended(&id).await;
    assert_ne!(end.output.as_ref(), Some(&output), "the first may still write to its file");
    // The first member continues, since it does not know of the takeover yet.
    first.executor.permits.add_permits(100);
    until("the first to give up", || !first.runs(&id)).await;
    pair.assert_exactly_once(&id, 20).await;
    assert_eq!(first.executor.started.load(Ordering::Acquire), 2 * CONCURRENCY, "it sent nothing more");
    assert!(pair.calls.lock().values().all(|calls| *calls <= 2));
    assert_eq!(pair.calls.lock().values().filter(|calls| **calls == 2).count(), CONCURRENCY);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_reads_that_its_claim_is_lost_stops_at_once() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    pair.silence(0);
    second.claim().await;
    assert!(second.runs(&id));
    first.context.batches.check_claims().await;
    until("the first to stop", || !first.runs(&id)).await;
    assert_eq!(first.executor.started.load(Ordering::Acquire), CONCURRENCY);
    second.executor.permits.add_permits(100);
    pair.ended(&id).await;
    pair.assert_exactly_once(&id, 12).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_has_not_read_its_claims_for_long_starts_no_line() {
    let pair = Pair::start().await;
    let batches = &pair.members[0].context.batches;
    assert!(!batches.still_holds_claims(), "it has not read any");
    batches.check_claims().await;
    assert!(batches.still_holds_claims());
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_gateway_releases_its_batch_and_the_other_continues_the_same_file() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    first.executor.permits.add_permits(CONCURRENCY);
    until("a commit", || pair.record(&id).counts.completed as usize == CONCURRENCY).await;
    let output = pair.record(&id).output;
    let closed = first.context.batches.close();
    first.executor.permits.add_permits(CONCURRENCY);
    assert!(closed.await);
    let claim =
        first.context.batches.store.coordination(std::slice::from_ref(&id)).unwrap()[0].claim.unwrap();
    assert_eq!(claim.state, ClaimState::Released);
    second.claim().await;
    assert!(second.runs(&id), "although the first still lives");
    second.executor.permits.add_permits(100);
    assert_eq!(pair.ended(&id).await.output, output);
    pair.assert_exactly_once(&id, 12).await;
    let rows = first.context.batches.store.coordination(&[id]).unwrap();
    assert_eq!(rows, [Default::default()], "nothing of the claim remains");
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_seen_and_cancelled_through_the_other_gateway() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    BatchManager::start_claim_task(&first.context);
    first.executor.permits.add_permits(CONCURRENCY);
    until("a commit", || pair.record(&id).counts.completed as usize == CONCURRENCY).await;
    let seen = second.context.batches.get(ACCOUNT, &id).await.unwrap();
    assert_eq!((seen.state, seen.counts.completed as usize), (BatchState::InProgress, CONCURRENCY));
    assert!(second.context.batches.get("other", &id).await.is_err());
    let cancelled = second.context.batches.cancel(ACCOUNT, &id).await.unwrap();
    assert_eq!(cancelled.state, BatchState::Cancelled);
    assert_eq!(cancelled.counts.completed as usize, CONCURRENCY);
    assert_eq!(first.executor.started.load(Ordering::Acquire), 2 * CONCURRENCY);
    assert_eq!(second.context.batches.cancel(ACCOUNT, &id).await.unwrap(), cancelled, "it stays so");
    until("the ledger to be written", || pair.app.ledger.durability_snapshot().waiting == 0).await;
    let charged = pair.entries().into_iter().filter_map(settled_request).count();
    assert_eq!(charged, CONCURRENCY);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_deleted_on_one_gateway_ends_its_batch_on_the_other_and_is_gone_there() {
    let pair = Pair::start().await;
    let [first, second] = &pair.members;
    let id = pair.running(0, 12).await;
    let input = pair.record(&id).input;
    BatchManager::start_claim_task(&first.context);
    let (key, at) = (pair.principal.public_id.clone(), FileExpiryContext { now: 0, retention: None });
    let old = FileExpiryContext { now: u64::MAX, retention: Some(1) };
    assert_eq!(second.context.files.delete_expired(old).unwrap(), 0, "a batch of the first reads it");
    second.context.files.delete(&key, &input, at).await.unwrap();
    assert_eq!(pair.record(&id).state, BatchState::Failed);
    assert!(first.context.files.get(&key, &input, at).await.is_err());
    assert_eq!(pair.create(0, &input).await.err(), Some(ErrorCode::NotFound));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limits_of_an_account_and_a_key_hold_over_both_gateways() {
    let pair = Pair::start().await;
    let input = pair.upload(0, 1).unwrap();
    for member in [0, 1, 0] {
        pair.create(member, &input).await.unwrap();
    }
    assert_eq!(pair.create(1, &input).await.err(), Some(ErrorCode::RateLimited));
    // Each line is about 80 bytes.
    pair.upload_within(4_000, 0, 20).unwrap();
    pair.upload_within(4_000, 1, 20).unwrap();
    for member in [0, 1] {
        let refused = pair.upload_within(4_000, member, 20).err().unwrap().to_api_error();
        assert_eq!(refused.details["limit_bytes"], 4_000);
    }
    pair.stop().await;
}
