//! Ledger workload whose every state can be verified: commit `n` adds one block, moves the tip from `n - 1` to `n`,
//! raises the balance to `n`, writes the row `n` of charged work, and removes the row before it. A month begins every
//! `PER_MONTH` commits, with a commit that has a block of both months.

use std::path::Path;
use std::sync::Arc;

use penstock_storage::ledger::{BalanceRecord, EntryBlock, LedgerCommit, LedgerStore, LedgerTip, RowWrite};
use penstock_storage::{Store, StoreError, StoreTable};

const PER_MONTH: u64 = 40;

fn tip(n: u64) -> LedgerTip {
    LedgerTip {
        seq: n * 2,
        hash: [u8::try_from(n % 251).unwrap(); 32],
        at: n,
        first_open: 0,
        are_rollups_complete: false,
    }
}

fn month(n: u64) -> String {
    format!("2026-{:02}", 1 + n / PER_MONTH)
}

fn line(seq: u64) -> Vec<u8> {
    let filling = "x".repeat(usize::try_from(seq.wrapping_mul(2_654_435_761) % 700).unwrap());
    format!("{{\"seq\":{seq},\"filling\":\"{filling}\"}}\n").into_bytes()
}

pub fn group(n: u64) -> LedgerCommit {
    let sheet = |month, last, text| EntryBlock { month, last, text };
    let (first, second) = (n * 2 - 1, n * 2);
    let sheets = if month(n) == month(n - 1) || n == 1 {
        vec![sheet(month(n), second, [line(first), line(second)].concat())]
    } else {
        vec![sheet(month(n - 1), first, line(first)), sheet(month(n), second, line(second))]
    };
    LedgerCommit {
        previous_tip: (n > 1).then(|| tip(n - 1)),
        new_tip: tip(n),
        blocks: sheets,
        balance_changes: vec![("acme".to_owned(), BalanceRecord { credits: 1, energy: 1 })],
        names: vec![(format!("name {n}"), n)],
        extra_rows: rows(n),
        ..LedgerCommit::default()
    }
}

/// Returns the rows of the work of commit `n`, which replace those of the previous commit.
fn rows(n: u64) -> Vec<RowWrite> {
    let row = |space, key: String, value| RowWrite { table: space, key: key.into_bytes(), value };
    vec![
        row(StoreTable::Lines, format!("line {n}"), Some(line(n))),
        row(StoreTable::Lines, format!("line {}", n - 1), None),
        row(StoreTable::Batches, "batch".to_owned(), Some(n.to_le_bytes().to_vec())),
    ]
}

/// Returns the number of the last commit.
pub fn head(ledger: &LedgerStore) -> Result<u64, StoreError> {
    Ok(ledger.tip()?.map_or(0, |tip| tip.seq / 2))
}

/// Makes `count` further commits and calls `acknowledge` for each.
pub fn work(ledger: &LedgerStore, count: u64, mut acknowledge: impl FnMut(u64)) -> Result<(), StoreError> {
    let first = head(ledger)? + 1;
    for n in first..first.saturating_add(count) {
        let appended = ledger.append(&group(n))?;
        assert!(appended.replicated, "commit {n} has no second copy");
        acknowledge(n);
    }
    Ok(())
}

/// Opens the ledger and checks it after commit `acknowledged`; returns the number of the last commit.
pub fn check(store: &Arc<dyn Store>, copies: &Path, acknowledged: u64) -> Result<(LedgerStore, u64), String> {
    let ledger = LedgerStore::open(Arc::clone(store), Some(copies))
        .map_err(|error| format!("the ledger does not open: {error}"))?;
    let to_text = |error: StoreError| error.to_string();
    let head = head(&ledger).map_err(to_text)?;
    if head < acknowledged || head > acknowledged + 1 {
        return Err(format!("{acknowledged} was acknowledged, the ledger is at {head}"));
    }
    let mut text = Vec::new();
    ledger
        .for_each_block(0, |sheet| {
            text.extend_from_slice(&sheet.text);
            Ok::<_, StoreError>(())
        })
        .map_err(to_text)?;
    if text != (1..=head * 2).flat_map(line).collect::<Vec<u8>>() {
        return Err("the sheets are not what was written".to_owned());
    }
    let balance = ledger.balance("acme").map_err(to_text)?.unwrap_or_default();
    if u64::try_from(balance.credits) != Ok(head) {
        return Err(format!("the balance is {balance:?} at {head}"));
    }
    if ledger.entry_number_by_name(&format!("name {head}")).map_err(to_text)?.unwrap_or(0) != head {
        return Err(format!("the name of {head} is not there"));
    }
    let (row, far) = work_done(&**store).map_err(to_text)?;
    if (row, far) != (head, head) {
        return Err(format!("the work is at {row} and {far}, the ledger at {head}"));
    }
    let findings = ledger.compare_replica().map_err(to_text)?;
    if findings.is_empty() { Ok((ledger, head)) } else { Err(findings.join("; ")) }
}

/// Returns the number of the only work row, and the number in the batch row.
fn work_done(store: &dyn Store) -> Result<(u64, u64), StoreError> {
    let page = store.scan(StoreTable::Lines, b"", None, 10)?;
    let row = match page.rows.as_slice() {
        [] => 0,
        [row] => {
            let n = std::str::from_utf8(&row.key).unwrap().trim_start_matches("line ").parse().unwrap();
            if row.value == line(n) { n } else { u64::MAX }
        }
        _ => u64::MAX,
    };
    let far = store.get(StoreTable::Batches, b"batch")?;
    Ok((row, far.map_or(0, |far| u64::from_le_bytes(far.try_into().unwrap()))))
}
