//! Tests of the write window: an operation with a waiter is written soon, others are collected.

use super::*;

/// Window that is longer than any test.
const LONG: &str = "[ledger]\nwindow = \"1h\"\n";

#[test]
fn rows_without_a_waiter_are_written_with_later_ones() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    // The grant is written at once, because its caller waits for it. After that, the writer is active.
    grant(&ledger, "g1", 1_000).unwrap();
    let groups = store.committed.lock().len();
    let tickets: Vec<u64> =
        (0..50).map(|n| reserve(&ledger, &format!("r{n}"), 10).unwrap().settle(charge(10))).collect();
    assert!(ledger.durability_snapshot().waiting > 0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(ledger.wait_written_or_journaled(tickets[49]));
    assert_eq!(ledger.durability_snapshot().waiting, 0, "somebody waits, and it was not written");
    assert_eq!(store.committed.lock().len(), groups + 1, "all of it is one write");
    assert_eq!(settled(&ledger).entries, 1 + 1 + 2 * 50);
}

#[test]
fn rows_gathered_in_pieces_are_one_write() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    // Two operations for each request; a piece has 256 operations.
    let tickets: Vec<u64> =
        (0..500).map(|n| reserve(&ledger, &format!("r{n}"), 0).unwrap().settle(charge(0))).collect();
    until("most were taken", || {
        ledger.queue.collected_operation_count().is_some_and(|taken| taken > 2 * 256)
    });
    assert_eq!((ledger.durability_snapshot().entries, store.committed.lock().len()), (0, 0), "nobody waits");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(ledger.wait_written_or_journaled(tickets[499]));
    assert_eq!(store.committed.lock().len(), 1, "all of it is one write");
    assert_eq!(settled(&ledger).entries, 1 + 2 * 500);
}

#[test]
fn waiting_for_rows_already_taken_wakes_the_writer() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    // Two operations for each request: all of them are one piece.
    let tickets: Vec<u64> =
        (0..128).map(|n| reserve(&ledger, &format!("r{n}"), 0).unwrap().settle(charge(0))).collect();
    until("all were taken", || ledger.queue.collected_operation_count() == Some(256));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let durable =
        async { tokio::time::timeout(Duration::from_secs(30), ledger.wait_durable(tickets[127])).await };
    assert_eq!(runtime.block_on(durable), Ok(true));
}

#[test]
fn a_batch_line_does_not_wait_for_the_window() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    for n in 0..3 {
        reserve(&ledger, &format!("before{n}"), 0).unwrap().settle(charge(0));
        let end = reserve(&ledger, &format!("line{n}"), 0).unwrap().into_settled_end(charge(0));
        let ticket = ledger.record_outcomes(vec![end], Vec::new()).map_err(|_| "too much").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert!(runtime.block_on(ledger.wait_durable(ticket)));
        assert_eq!(ledger.durability_snapshot().waiting, 0);
    }
}

#[test]
fn rows_beyond_a_full_group_do_not_wait_for_the_window() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    // During the first write, which is blocked, pushes the operations of the first group and more than fit in the
    // second one. Each request has two operations.
    store.stalls.store(true, Ordering::Release);
    (0..2_048 + 3_000).for_each(|n| {
        reserve(&ledger, &format!("before{n}"), 0).unwrap().settle(charge(0));
    });
    let end = reserve(&ledger, "line", 0).unwrap().into_settled_end(charge(0));
    let ticket = ledger.record_outcomes(vec![end], Vec::new()).map_err(|_| "too much").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let durable = async {
        let mut wait = std::pin::pin!(ledger.wait_durable(ticket));
        // The waiter is registered before the writer continues.
        assert!(
            std::future::poll_fn(|context| std::task::Poll::Ready(wait.as_mut().poll(context)))
                .await
                .is_pending()
        );
        store.stalls.store(false, Ordering::Release);
        tokio::time::timeout(Duration::from_secs(30), wait).await
    };
    assert_eq!(runtime.block_on(durable), Ok(true));
    assert!(store.committed.lock().len() >= 3, "groups are no larger than they may be");
}

#[test]
fn a_group_never_exceeds_its_limit() {
    let queue = WriteQueue::new(Duration::from_secs(3_600), 0);
    let push = |count| {
        (0..count).for_each(|_| {
            queue.push(WriteOp::Outcomes(BatchOutcomes { actions: Vec::new(), rows: Vec::new() }));
        });
    };
    let collect = || {
        queue
            .take_operations(10_000, None)
            .map(|piece| (piece.ops.len(), piece.last, piece.is_complete))
            .unwrap()
    };
    push(3_840);
    assert_eq!(collect(), (3_840, 3_840, false));
    push(5_000);
    assert_eq!(collect(), (256, 4_096, true));
    assert_eq!(collect(), (4_096, 8_192, true));
}

#[test]
fn two_thousand_slow_clients_block_no_other() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, LONG);
    // Two operations for each request.
    (0..2_047).for_each(|n| {
        reserve(&ledger, &format!("r{n}"), 0).unwrap().settle(charge(0));
    });
    let last = reserve(&ledger, "last", 0).unwrap();
    assert!(ledger.durability_snapshot().waiting > 0);
    assert_eq!(ledger.durability_snapshot().entries, 0);
    last.settle(charge(0));
    until("all are written", || ledger.durability_snapshot().waiting == 0);
}

/// Requests the same grant twice during a write, so that both are in one commit.
fn twice_at_once(ledger: &Arc<Ledger>, store: &Flaky, id: &str) -> Vec<Result<u64, AdjustmentError>> {
    let begun = store.begun.load(Ordering::Acquire);
    store.stalls.store(true, Ordering::Release);
    reserve(ledger, id, 1).unwrap().settle(charge(1));
    until("the store to be at work", || store.begun.load(Ordering::Acquire) > begun);
    let before = ledger.queue.last_pushed_number();
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..2).map(|_| scope.spawn(|| grant(ledger, id, 7))).collect();
        until("both to be in the queue", || ledger.queue.last_pushed_number() == before + 2);
        store.stalls.store(false, Ordering::Release);
        asked.into_iter().map(|asked| asked.join().unwrap()).collect()
    })
}

#[test]
fn concurrent_identical_grants_are_made_once_and_acknowledged_when_durable() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "first", 1_000).unwrap();
    let results = twice_at_once(&ledger, &store, "g1");
    let made = results.iter().find_map(|result| result.ok()).unwrap();
    assert!(results.contains(&Err(AdjustmentError::Duplicate(made))), "{results:?}");
    // The store commits and reports a failure: neither caller waits, and neither receives a success.
    store.passes.store(1, Ordering::Release);
    store.lies.store(1, Ordering::Release);
    assert_eq!(
        twice_at_once(&ledger, &store, "g2"),
        [Err(AdjustmentError::OutcomeUnknown), Err(AdjustmentError::OutcomeUnknown)]
    );
    until("the store to be back", || !ledger.is_failing());
    assert!(matches!(grant(&ledger, "g2", 7), Err(AdjustmentError::Duplicate(_))));
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 1_000 - 2 + 2 * 7);
}

#[test]
fn operations_that_the_next_process_lost_do_not_count_as_written() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 1_000).unwrap();
    ledger.stop_writer();
    let (answers, sent) = mpsc::channel();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let send = move |_| {
        counted.fetch_add(1, Ordering::AcqRel);
        sent.recv().unwrap_or(true)
    };
    let forwarder = ledger.start_action_forwarder().unwrap();
    ledger.forward_actions(forwarder, 0, send);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let record = |end, answer: bool| {
        answers.send(answer).unwrap();
        let ticket = ledger.record_outcomes(vec![end], Vec::new()).map_err(|_| "too much").unwrap();
        runtime.block_on(async {
            let waited = tokio::time::timeout(Duration::from_secs(60), ledger.wait_durable(ticket)).await;
            waited.unwrap()
        })
    };
    let [first, second, third] = ["r1", "r2", "r3"].map(|name| reserve_unwritten(&ledger, name));
    assert!(record(first, true));
    assert!(!record(second, false), "the next process has ended");
    let sent_before = calls.load(Ordering::Acquire);
    // After a loss no further operation is sent, so that the next process never has an end without its reserve.
    assert!(!record(third, true));
    assert_eq!(calls.load(Ordering::Acquire), sent_before);
    assert!(ledger.is_failing());
    assert!(reserve(&ledger, "r4", 1).is_err(), "its charge would be lost");
}

/// Returns the end of a reservation that has no entry of its own.
fn reserve_unwritten(ledger: &Arc<Ledger>, name: &str) -> HoldEnd {
    let key: Arc<str> = "key".into();
    let account_balance = ledger.account_balance("acme");
    let hold = Hold::new(ledger.clone(), account_balance, name.into(), key, Wallet::Credits, 0, 0);
    hold.into_settled_end(charge(0))
}
