//! Tests of batches in slices, which both gateways run at the same time.

use super::*;
use penstock_storage::batches::{BatchSlice, EndRequest};

impl Pair {
    /// Starts a batch in slices; returns its id. The first member has claimed it, each member runs one slice, and
    /// their lines in flight wait.
    pub(super) async fn start_divided_batch(&self, count: usize) -> String {
        let id = self.started(0, count).await;
        until("the division of the batch", || self.record(&id).slices.is_some()).await;
        for (number, member) in self.members.iter().enumerate() {
            member.claim().await;
            assert!(member.runs(&slice_id(&id, number)), "one slice at a time each");
            let executor = &member.executor;
            until("lines in flight", || executor.started.load(Ordering::Acquire) == CONCURRENCY).await;
        }
        id
    }

    /// Checks that no row of a slice remains.
    pub(super) fn assert_no_slices(&self, id: &str, count: usize) {
        let store = &self.members[0].context.batches.store;
        assert_eq!(store.pending_slice_merge(id, 100).unwrap(), Default::default());
        assert!(
            store.unfinished_slices().unwrap() == Default::default()
                && store.unfinished_ids().unwrap().is_empty()
        );
        let ids: Vec<String> = (0..count).map(|number| slice_id(id, number)).chain([id.to_owned()]).collect();
        assert!(store.coordination(&ids).unwrap().into_iter().all(|row| row == Default::default()));
        assert!(ids.iter().all(|id| store.finished_line_bitmap(id).unwrap().is_none()));
    }

    fn completed(&self, id: &str) -> usize {
        self.record(id).counts.completed as usize
    }
}

/// Returns the id of the slice with this number.
pub(super) fn slice_id(batch: &str, number: usize) -> String {
    BatchSlice { number: u32::try_from(number).unwrap(), ..BatchSlice::default() }.id(batch)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_gateways_run_slices_of_a_batch_and_each_line_has_one_result() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(20).await;
    assert_eq!(pair.record(&id).slices, Some(4));
    let [first, second] = &pair.members;
    assert!(first.runs(&id) && !second.runs(&id), "one of them appends the results");
    first.claim().await;
    assert!(!first.runs(&slice_id(&id, 2)), "its slice has lines that have not started");
    for member in &pair.members {
        BatchManager::start_claim_task(&member.context);
        member.executor.permits.add_permits(1);
    }
    until("the first results", || pair.completed(&id) == 2).await;
    let growing = pair.record(&id).output.unwrap();
    let files = &first.context.files;
    assert_eq!(files.file_record_store().get(&growing).unwrap().unwrap().lines, 2);
    pair.members.iter().for_each(|member| member.executor.permits.add_permits(100));
    let end = pair.ended(&id).await;
    assert_eq!((end.usage, end.output.as_ref()), (Default::default(), Some(&growing)));
    pair.assert_exactly_once(&id, 20).await;
    pair.assert_no_slices(&id, 4);
    assert!(pair.calls.lock().values().all(|calls| *calls == 1));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_slices_of_a_dead_gateway_are_continued_and_its_late_results_are_refused() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    let [first, second] = &pair.members;
    first.executor.permits.add_permits(3);
    until("results", || pair.completed(&id) == 3).await;
    until("more lines in flight", || first.executor.started.load(Ordering::Acquire) == 6).await;
    let output = pair.record(&id).output.unwrap();
    pair.silence(0);
    BatchManager::start_claim_task(&second.context);
    second.claim().await;
    assert!(second.runs(&id), "the batch itself is taken over");
    second.executor.permits.add_permits(100);
    let end = pair.ended(&id).await;
    assert_ne!(end.output, Some(output), "the first may still write to its file");
    // The first member continues its slice, since it does not know of the takeover yet.
    first.executor.permits.add_permits(100);
    until("the first to give up", || !first.runs(&id) && !first.runs(&slice_id(&id, 0))).await;
    assert_eq!(first.executor.started.load(Ordering::Acquire), 6, "it sent nothing more");
    pair.assert_no_slices(&id, 3);
    let repeated = pair.calls.lock().values().filter(|calls| **calls == 2).count();
    assert_eq!(repeated, 3, "the lines in flight of the first slice are sent again");
    // The late results are in files without a record, which the sweep removes.
    let folder = pair.app.config_snapshot().settings.files.path.clone();
    for entry in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("file-") && first.context.files.file_record_store().get(&name).unwrap().is_none()
        {
            // The gateway may remove the file of a merged segment at the same time.
            std::fs::remove_file(entry.path()).ok();
        }
    }
    pair.assert_exactly_once(&id, 18).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_gateway_releases_batch_and_slice_and_the_other_continues_the_same_file() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    let [first, second] = &pair.members;
    first.executor.permits.add_permits(2);
    until("results", || pair.completed(&id) == 2).await;
    let output = pair.record(&id).output;
    let closed = first.context.batches.close();
    first.executor.permits.add_permits(CONCURRENCY);
    assert!(closed.await);
    BatchManager::start_claim_task(&second.context);
    second.claim().await;
    assert!(second.runs(&id), "although the first still lives");
    second.executor.permits.add_permits(100);
    assert_eq!(pair.ended(&id).await.output, output);
    pair.assert_exactly_once(&id, 18).await;
    pair.assert_no_slices(&id, 3);
    assert!(pair.calls.lock().values().all(|calls| *calls == 1));
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancellation_through_any_gateway_ends_the_slices_of_both() {
    for through in [0, 1] {
        let pair = Pair::start_with(8).await;
        let id = pair.start_divided_batch(24).await;
        for member in &pair.members {
            BatchManager::start_claim_task(&member.context);
            member.executor.permits.add_permits(2);
        }
        until("results", || pair.completed(&id) == 4).await;
        let in_flight = || pair.members.iter().map(|member| member.executor.started.load(Ordering::Acquire));
        until("lines in flight", || in_flight().sum::<usize>() == 12).await;
        let cancelled = pair.members[through].context.batches.cancel(ACCOUNT, &id).await.unwrap();
        let counts = cancelled.counts;
        assert_eq!(cancelled.state, BatchState::Cancelled);
        assert_eq!((counts.total, counts.completed, counts.cancelled), (24, 4, 20));
        assert_eq!(in_flight().sum::<usize>(), 12, "the third slice was never started");
        pair.assert_no_slices(&id, 3);
        until("the ledger to be written", || pair.app.ledger.durability_snapshot().waiting == 0).await;
        assert_eq!(pair.entries().into_iter().filter_map(settled_request).count(), 4);
        let files = &pair.members[0].context.files;
        let output = files.file_record_store().get(&cancelled.output.clone().unwrap()).unwrap().unwrap();
        assert_eq!((output.lines, output.bytes), (4, cancelled.output_bytes));
        pair.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deletion_of_the_input_file_ends_the_slices_and_keeps_their_results() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    let [first, second] = &pair.members;
    second.executor.permits.add_permits(1);
    until("a result", || pair.completed(&id) == 1).await;
    let old = FileExpiryContext { now: u64::MAX, retention: Some(1) };
    assert_eq!(second.context.files.delete_expired(old).unwrap(), 0, "the batch reads and writes them");
    for member in &pair.members {
        BatchManager::start_claim_task(&member.context);
    }
    let (key, at) = (pair.principal.public_id.clone(), FileExpiryContext { now: 0, retention: None });
    second.context.files.delete(&key, &pair.record(&id).input, at).await.unwrap();
    let end = pair.record(&id);
    assert_eq!((end.state, end.errors[0].code.as_str()), (BatchState::Failed, "input_file_deleted"));
    assert_eq!((end.counts.completed, end.counts.cancelled), (1, 17));
    assert!(!first.runs(&id));
    pair.assert_no_slices(&id, 3);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_not_divided_for_a_small_number_of_lines_or_with_an_earlier_version() {
    let pair = Pair::start_with(6).await;
    let small = pair.running(0, 6).await;
    assert_eq!(pair.record(&small).slices, None);
    pair.members[0].executor.permits.add_permits(6);
    pair.ended(&small).await;
    pair.assert_exactly_once(&small, 6).await;
    pair.stop().await;
    let pair = Pair::start_with(6).await;
    pair.members[0].context.batches.set_peers_run_slices(false);
    let whole = pair.running(0, 12).await;
    pair.members[0].executor.permits.add_permits(12);
    assert_eq!(pair.ended(&whole).await.slices, None);
    pair.assert_exactly_once(&whole, 12).await;
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_becomes_the_only_one_continues_a_batch_in_slices() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    pair.members[1].executor.permits.add_permits(2);
    until("results", || pair.completed(&id) == 2).await;
    for member in &pair.members {
        let closed = member.context.batches.close();
        assert!(closed.await);
    }
    let alone = Member::alone(&pair.app, &pair.calls);
    BatchManager::resume(&alone.context).await.unwrap();
    alone.executor.permits.add_permits(100);
    let end = pair.ended(&id).await;
    assert_eq!((end.state, end.counts.completed), (BatchState::Completed, 18));
    pair.assert_no_slices(&id, 3);
    let files = alone.context.files.file_record_store();
    assert_eq!(files.get(&end.output.unwrap()).unwrap().unwrap().lines, 18);
    assert_eq!(files.list_all(None, 100).unwrap().files.len(), 2, "input and output");
    until("the ledger to be written", || pair.app.ledger.durability_snapshot().waiting == 0).await;
    assert_eq!(pair.entries().into_iter().filter_map(settled_request).count(), 18);
    assert!(alone.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_in_slices_is_continued_if_other_gateways_do_not_see_it() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    let [first, second] = &pair.members;
    // Without slices, the hash would almost certainly assign the batch to one of these 40 members.
    let store = &pair.app.stores.store;
    let join = |number: usize| join_fleet(store.clone(), pair.folder.path(), &format!("earlier-{number}"));
    let earlier: Vec<_> = (0..40).map(join).collect();
    pair.observe(StdInstant::now());
    assert_eq!(second.fleet.live_members().len(), 2 + earlier.len());
    let closed = first.context.batches.close();
    first.executor.permits.add_permits(CONCURRENCY);
    assert!(closed.await);
    BatchManager::start_claim_task(&second.context);
    second.claim().await;
    assert!(second.runs(&id));
    second.executor.permits.add_permits(100);
    pair.ended(&id).await;
    pair.assert_exactly_once(&id, 18).await;
    pair.assert_no_slices(&id, 3);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_becomes_the_only_one_ends_a_batch_that_was_cancelled_before() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    pair.members[1].executor.permits.add_permits(2);
    until("results", || pair.completed(&id) == 2).await;
    // No member reads its claims, so none learns of the request.
    let store = &pair.members[0].context.batches.store;
    store.request_end(&id, EndRequest::Cancelled).unwrap();
    for member in &pair.members {
        assert!(member.context.batches.close().await);
    }
    let alone = Member::alone(&pair.app, &pair.calls);
    BatchManager::resume(&alone.context).await.unwrap();
    let end = pair.ended(&id).await;
    assert_eq!((end.state, end.counts.completed, end.counts.cancelled), (BatchState::Cancelled, 2, 16));
    pair.assert_no_slices(&id, 3);
    assert!(alone.context.batches.close().await);
    pair.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_output_file_ends_the_slices_and_leaves_no_rows() {
    let pair = Pair::start_with(6).await;
    let id = pair.start_divided_batch(18).await;
    let [first, second] = &pair.members;
    first.executor.permits.add_permits(2);
    until("results", || pair.completed(&id) == 2).await;
    let closed = first.context.batches.close();
    first.executor.permits.add_permits(CONCURRENCY);
    assert!(closed.await);
    let output = pair.record(&id).output.unwrap();
    std::fs::write(second.context.files.contents_path(&output), b"").unwrap();
    BatchManager::start_claim_task(&second.context);
    second.claim().await;
    let end = pair.ended(&id).await;
    assert_eq!((end.state, end.errors[0].code.as_str()), (BatchState::Failed, "output_file_damaged"));
    assert_eq!((end.counts.completed, end.counts.cancelled), (2, 16));
    pair.assert_no_slices(&id, 3);
    let files = second.context.files.file_record_store();
    let records = files.list_all(None, 100).unwrap().files;
    assert_eq!(records.len(), 2, "input and output");
    let used = files.used_bytes(&pair.principal.public_id).unwrap();
    assert_eq!(used.all, records.iter().map(|file| file.bytes).sum::<u64>());
    pair.stop().await;
}
