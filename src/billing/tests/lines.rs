//! Tests of batch lines in the ledger: their ends are committed with their rows, or not at all.

use super::*;
use penstock_storage::ledger::decompress;

fn row(key: &str, value: Option<&[u8]>) -> RowWrite {
    RowWrite { table: StoreTable::Batches, key: key.into(), value: value.map(<[u8]>::to_vec) }
}

fn is_durable(ledger: &Ledger, ticket: u64) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(ledger.wait_durable(ticket))
}

fn entered(ledger: &Ledger, ends: Vec<HoldEnd>, rows: Vec<RowWrite>) -> u64 {
    ledger.record_outcomes(ends, rows).map_err(|_| "too much").unwrap()
}

#[test]
fn batch_ends_and_their_rows_are_one_commit() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 10_000_000).unwrap();
    store.stalls.store(true, Ordering::Release);
    // More operations than fit in one commit.
    let hold = |name: String| reserve(&ledger, &name, 100).unwrap();
    (0..4_000).for_each(|n| {
        hold(format!("before{n}")).settle(charge(1));
    });
    let ends: Vec<HoldEnd> = (0..MAX_OUTCOMES)
        .map(|n| match n % 2 {
            0 => hold(format!("line{n:03}.")).into_settled_end(charge(10)),
            _ => hold(format!("line{n:03}.")).into_voided_end("failed", RequestFootprint::default()),
        })
        .collect();
    let rows = (0..MAX_EXTRA_ROWS).map(|n| row(&format!("batch{n}"), Some(b"done"))).collect();
    let ticket = entered(&ledger, ends, rows);
    store.stalls.store(false, Ordering::Release);
    assert!(is_durable(&ledger, ticket));
    settled(&ledger);
    assert_eq!(ledger.balance("acme").credits.amount, 10_000_000 - 4_000 - 256 * 10);
    let batches = store.committed.lock();
    assert!(batches.len() > 2, "they did not fit one commit");
    let ended = |batch: &Transaction, n: usize| {
        batch.operations().iter().any(|operation| match &operation.op {
            penstock_storage::TransactionOp::Put(value) if operation.table == StoreTable::Ledger => {
                let text = String::from_utf8(decompress(value.to_vec()).unwrap()).unwrap();
                let name = format!("line{n:03}.");
                text.lines().any(|line| line.contains(&name) && !line.contains("\"reserve\""))
            }
            _ => false,
        })
    };
    let with = |batch: &&Transaction| batch.operations().iter().any(|operation| operation.key == b"batch0");
    let own: Vec<&Transaction> = batches.iter().filter(with).collect();
    assert_eq!(own.len(), 1);
    assert!((0..MAX_OUTCOMES).all(|n| ended(own[0], n)), "all in the commit of the rows");
    let count = |batch: &Transaction| {
        batch.operations().iter().filter(|row| row.table == StoreTable::Batches).count()
    };
    assert_eq!(count(own[0]), MAX_EXTRA_ROWS);
}

#[test]
fn rows_alone_are_written_in_the_order_of_all() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    assert!(is_durable(&ledger, entered(&ledger, vec![], vec![row("a", Some(b"1")), row("b", Some(b"1"))])));
    grant(&ledger, "g1", 100).unwrap();
    store.lies.store(2, Ordering::Release);
    let hold = reserve(&ledger, "r1", 60).unwrap();
    entered(&ledger, vec![hold.into_settled_end(charge(25))], vec![row("a", Some(b"2"))]);
    let last = entered(&ledger, vec![], vec![row("a", Some(b"3")), row("b", None)]);
    assert!(is_durable(&ledger, last));
    let value = |key: &str| store.get(StoreTable::Batches, key.as_bytes()).unwrap();
    assert_eq!((value("a"), value("b")), (Some(b"3".to_vec()), None));
    let proof = settled(&ledger);
    assert_eq!((proof.entries, proof.open_reservations), (4, 0), "grant, reserve, terms, settle");
    assert_eq!(ledger.balance("acme").credits.amount, 75);
}

#[test]
fn an_end_that_is_never_recorded_is_a_void() {
    let ledger = open(&Flaky::over(open_in_memory()), QUICK);
    grant(&ledger, "g1", 100).unwrap();
    let end = reserve(&ledger, "r1", 60).unwrap().into_settled_end(charge(25));
    assert_eq!(ledger.balance("acme").credits, penstock_ledger::WalletBalance { amount: 100, held: 60 });
    drop(end);
    assert_eq!(settled(&ledger).open_reservations, 0);
    assert_eq!(ledger.balance("acme").credits, penstock_ledger::WalletBalance { amount: 100, held: 0 });
}

#[test]
fn data_that_exceeds_a_commit_is_returned() {
    let ledger = open(&Flaky::over(open_in_memory()), QUICK);
    let rows = |count: usize, bytes: usize| vec![row("x", Some(&vec![0; bytes])); count];
    assert!(ledger.record_outcomes(vec![], rows(MAX_EXTRA_ROWS, 10)).is_ok());
    let CommitTooLarge(ends, back) =
        ledger.record_outcomes(vec![], rows(MAX_EXTRA_ROWS + 1, 10)).err().unwrap();
    assert_eq!((ends.len(), back.len()), (0, MAX_EXTRA_ROWS + 1));
    assert!(ledger.record_outcomes(vec![], rows(17, 64 * 1024)).is_err());
    // One byte more than 64 KiB exceeds the store's limit for a row.
    assert!(ledger.record_outcomes(vec![], rows(1, 64 * 1024)).is_ok());
    assert!(ledger.record_outcomes(vec![], rows(1, 64 * 1024 + 1)).is_err());
    assert!(ledger.record_outcomes(vec![], vec![row(&"k".repeat(513), None)]).is_err());
    settled(&ledger);
}

#[test]
fn rejected_rows_delay_no_other_charge() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    grant(&ledger, "g1", 10_000).unwrap();
    // Pushed without the size check, all in one commit.
    let push = |end: HoldEnd, rows| {
        ledger.queue.push(WriteOp::Outcomes(BatchOutcomes { actions: vec![end.into_action()], rows }))
    };
    let end = |name: &str| reserve(&ledger, name, 100).unwrap().into_settled_end(charge(10));
    store.stalls.store(true, Ordering::Release);
    push(end("r1"), vec![row("before", Some(b"1"))]);
    push(end("r2"), vec![row("beside", Some(b"1")), row("large", Some(&vec![0; 100 << 10]))]);
    reserve(&ledger, "r3", 100).unwrap().settle(charge(10));
    let last = push(end("r4"), vec![row("behind", Some(b"1"))]);
    store.stalls.store(false, Ordering::Release);
    until("the queue to be written", || ledger.durability_snapshot().waiting == 0);
    assert!(is_durable(&ledger, last));
    assert_eq!((settled(&ledger).open_reservations, ledger.is_failing()), (0, false));
    assert_eq!(ledger.balance("acme").credits.amount, 10_000 - 4 * 10);
    let exists = |key: &str| store.get(StoreTable::Batches, key.as_bytes()).unwrap().is_some();
    let all = ["before", "beside", "large", "behind"].map(exists);
    assert_eq!(all, [true, false, false, true], "an op's rows are there together or not at all");
}

#[test]
fn rows_lost_by_a_failing_store_are_reported() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    store.full.store(true, Ordering::Release);
    let ticket = entered(&ledger, vec![], vec![row("a", Some(b"1"))]);
    ledger.close();
    assert!(!is_durable(&ledger, ticket));
    assert_eq!(store.get(StoreTable::Batches, b"a").unwrap(), None);
}
