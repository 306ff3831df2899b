//! Issued invoices on every engine: numbers without gaps, at most one invoice for each day of an account, documents
//! that never change.

use super::each_engine;
use penstock_storage::audit::{AuditLog, ChangeDescription};
use penstock_storage::invoices::credit_notes::{CreditNoteOutcome, CreditNoteRecord};
use penstock_storage::invoices::{InvoiceRecord, InvoiceStore, IssueOutcome};
use penstock_storage::{Store, StoreTable, Transaction};
use std::collections::BTreeSet;
use std::sync::Arc;

fn draft(series: &str, year: u16, account: &str, from: &str, to: &str) -> InvoiceRecord {
    InvoiceRecord {
        number: String::new(),
        series: series.to_owned(),
        year,
        sequence: 0,
        account: account.to_owned(),
        from: from.to_owned(),
        to: to.to_owned(),
        issued: 1,
        net_eur: "1.00".to_owned(),
        vat_eur: "0.19".to_owned(),
        total_eur: "1.19".to_owned(),
        parts: 0,
    }
}

fn issue(store: &Arc<dyn Store>, draft: &InvoiceRecord, document: &[u8]) -> IssueOutcome {
    issue_with_prefix(store, "PS-", draft, document)
}

fn issue_with_prefix(
    store: &Arc<dyn Store>,
    prefix: &str,
    draft: &InvoiceRecord,
    document: &[u8],
) -> IssueOutcome {
    let change = |record: &InvoiceRecord| ChangeDescription {
        at: 1,
        who: "fin".to_owned(),
        what: "invoice.issue".to_owned(),
        target: record.number.clone(),
        change: serde_json::json!({}),
    };
    let invoices = InvoiceStore::new(store.clone());
    loop {
        let documents = invoices.document_count(&draft.account).unwrap();
        match invoices.issue((draft, documents), prefix, |_| document.to_vec(), change).unwrap() {
            IssueOutcome::Changed => {}
            outcome => return outcome,
        }
    }
}

fn issued(outcome: IssueOutcome) -> InvoiceRecord {
    match outcome {
        IssueOutcome::Issued(record) => record,
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_are_consecutive_per_series_and_year_and_documents_stay() {
    each_engine(|store| {
        let invoices = InvoiceStore::new(store.clone());
        let first = issued(issue(store, &draft("s", 2026, "acme", "2026-01-01", "2026-01-31"), b"first"));
        assert_eq!((&*first.number, first.sequence), ("PS-2026-000001", 1));
        let second = issued(issue(store, &draft("s", 2026, "other", "2026-01-01", "2026-01-31"), b"second"));
        assert_eq!(second.sequence, 2);
        let other_prefix = draft("t", 2026, "acme", "2026-02-01", "2026-02-28");
        assert_eq!(issued(issue_with_prefix(store, "QS-", &other_prefix, b"")).number, "QS-2026-000001");
        assert_eq!(
            issued(issue(store, &draft("s", 2027, "acme", "2026-03-01", "2026-03-31"), b"")).sequence,
            1
        );
        // A second call for the same period returns the same invoice, even if its figures would differ now.
        let again = issue(store, &draft("s", 2026, "acme", "2026-01-01", "2026-01-31"), b"changed");
        assert_eq!(again, IssueOutcome::Existing(first.clone()));
        assert_eq!(invoices.document(&first).unwrap(), b"first");
        for (from, to) in
            [("2026-01-31", "2026-01-31"), ("2025-12-01", "2026-01-01"), ("2026-01-01", "2026-01-30")]
        {
            let overlapping = issue(store, &draft("s", 2026, "acme", from, to), b"");
            assert_eq!(overlapping, IssueOutcome::Overlapping(first.clone()), "{from}");
        }
        assert_eq!(
            issued(issue(store, &draft("s", 2026, "acme", "2026-04-01", "2026-04-30"), b"")).sequence,
            3
        );
        assert_eq!(invoices.find_by_period("acme", "2026-01-01", "2026-01-31").unwrap(), Some(first.clone()));
        assert_eq!(invoices.find_by_period("acme", "2026-01-01", "2026-01-30").unwrap(), None);
        assert_eq!(invoices.list(Some("acme")).unwrap().len(), 4);
        assert_eq!(invoices.list(Some("acm")).unwrap(), []);
        assert_eq!(invoices.list(None).unwrap().len(), 5);
        // Every number has its audit entry.
        let log = AuditLog::new(store.clone());
        assert_eq!(log.verify().unwrap(), None);
    });
}

/// Deletes the counter of the prefix `PS-`, which an earlier version of the gateway did not write.
fn delete_prefix_counter(store: &Arc<dyn Store>) {
    let key = b"pPS-\x002026\0";
    assert!(store.get(StoreTable::Invoices, key).unwrap().is_some());
    store.apply(Transaction::new().delete(StoreTable::Invoices, key.as_slice())).unwrap();
}

#[test]
fn series_with_the_same_prefix_have_no_number_in_common() {
    for is_upgraded in [false, true] {
        each_engine(|store| {
            let mut numbers = Vec::new();
            let mut months = (1..=12).map(|month| format!("2026-{month:02}-01"));
            let mut issue_next = |series: &str| {
                let day = months.next().unwrap();
                numbers.push(issued(issue(store, &draft(series, 2026, "acme", &day, &day), b"")).sequence);
            };
            issue_next("s");
            issue_next("s");
            let mut note = credit_note("acme", vec![7]);
            let CreditNoteOutcome::Issued(first) = issue_note(store, &note, 2) else { panic!("not issued") };
            if is_upgraded {
                delete_prefix_counter(store);
            }
            issue_next("t");
            issue_next("t");
            note.entries = vec![8];
            let CreditNoteOutcome::Issued(second) = issue_note(store, &note, 5) else { panic!("not issued") };
            issue_next("s");
            issue_next("t");
            assert_eq!((first.sequence, second.sequence), (3, 6));
            assert_eq!(numbers, [1, 2, 4, 5, 7, 8]);
            // A further year and another prefix have numbers of their own.
            let next_year = draft("t", 2027, "acme", "2027-01-01", "2027-01-31");
            assert_eq!(issued(issue(store, &next_year, b"")).number, "PS-2027-000001");
            let other = draft("u", 2026, "acme", "2027-02-01", "2027-02-28");
            let other = issued(issue_with_prefix(store, "PS-2026-", &other, b""));
            assert_eq!(
                (other.number.as_str(), other.number_prefix()),
                ("PS-2026-2026-000001", Some("PS-2026-"))
            );
        });
    }
}

#[test]
fn a_large_document_is_stored_whole_and_a_huge_one_takes_no_number() {
    each_engine(|store| {
        let mut state = 7_u32;
        let mut noise = |bytes: usize| -> Vec<u8> {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            };
            (0..bytes).map(|_| next()).collect()
        };
        let document = noise(1_000_000);
        let record = issued(issue(store, &draft("s", 2026, "a", "2026-01-01", "2026-01-31"), &document));
        assert!(record.parts > 10);
        assert_eq!(InvoiceStore::new(store.clone()).document(&record).unwrap(), document);
        let huge = issue(store, &draft("s", 2026, "b", "2026-01-01", "2026-01-31"), &noise(5_000_000));
        assert_eq!(huge, IssueOutcome::TooLarge);
        assert_eq!(issued(issue(store, &draft("s", 2026, "b", "2026-01-01", "2026-01-31"), b"")).sequence, 2);
    });
}

#[test]
fn concurrent_issues_give_each_number_once_and_leave_no_gap() {
    each_engine(|store| {
        let outcomes: Vec<IssueOutcome> = std::thread::scope(|scope| {
            let issue_one = |n: usize| {
                // Every period is issued by two threads.
                let account = format!("account-{}", n / 2);
                scope.spawn(move || {
                    issue(store, &draft("s", 2026, &account, "2026-01-01", "2026-01-31"), b"x")
                })
            };
            let threads: Vec<_> = (0..12).map(issue_one).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let numbers: Vec<u64> = outcomes
            .iter()
            .filter_map(|outcome| match outcome {
                IssueOutcome::Issued(record) => Some(record.sequence),
                IssueOutcome::Existing(_) => None,
                other => panic!("{other:?}"),
            })
            .collect();
        let distinct: BTreeSet<u64> = numbers.iter().copied().collect();
        assert_eq!((numbers.len(), distinct), (6, (1..=6).collect()));
    });
}

fn credit_note(account: &str, entries: Vec<u64>) -> CreditNoteRecord {
    CreditNoteRecord {
        number: String::new(),
        series: "s".to_owned(),
        year: 2026,
        sequence: 0,
        account: account.to_owned(),
        invoice: "PS-2026-000001".to_owned(),
        issued: 2,
        net_eur: "-1.00".to_owned(),
        vat_eur: "-0.19".to_owned(),
        total_eur: "-1.19".to_owned(),
        entries,
        parts: 0,
    }
}

fn issue_note(store: &Arc<dyn Store>, draft: &CreditNoteRecord, documents: u64) -> CreditNoteOutcome {
    issue_note_with_prefix(store, "PS-", (draft, documents), b"a note")
}

fn issue_note_with_prefix(
    store: &Arc<dyn Store>,
    prefix: &str,
    draft: (&CreditNoteRecord, u64),
    document: &[u8],
) -> CreditNoteOutcome {
    let change = |record: &CreditNoteRecord| ChangeDescription {
        at: 1,
        who: "fin".to_owned(),
        what: "credit_note.issue".to_owned(),
        target: record.number.clone(),
        change: serde_json::json!({}),
    };
    let invoices = InvoiceStore::new(store.clone());
    invoices.issue_credit_note(draft, prefix, |_| document.to_vec(), change).unwrap()
}

#[test]
fn credit_notes_share_the_numbers_of_invoices_and_are_no_invoices() {
    each_engine(|store| {
        let invoices = InvoiceStore::new(store.clone());
        issued(issue(store, &draft("s", 2026, "acme", "2026-01-01", "2026-01-31"), b"first"));
        assert_eq!(invoices.document_count("acme").unwrap(), 1);
        let note = credit_note("acme", vec![7, 9]);
        assert_eq!(issue_note(store, &note, 0), CreditNoteOutcome::Changed);
        let CreditNoteOutcome::Issued(record) = issue_note(store, &note, 1) else { panic!("not issued") };
        assert_eq!((&*record.number, record.sequence, &*record.entries), ("PS-2026-000002", 2, &[7, 9][..]));
        assert_eq!(invoices.credit_note_document(&record).unwrap(), b"a note");
        assert_eq!(invoices.credit_notes("acme").unwrap(), [*record]);
        assert_eq!(invoices.credit_notes("acm").unwrap(), []);
        assert_eq!(invoices.list(None).unwrap().len(), 1);
        // The figures of this invoice were read before the credit note was issued (document count 1), so they may
        // contain the corrections of the credit note. The invoice must be refused.
        let (second, change) =
            (draft("s", 2026, "acme", "2026-02-01", "2026-02-28"), |_: &InvoiceRecord| panic!("written"));
        let stale = invoices.issue((&second, 1), "PS-", |_| Vec::new(), change);
        assert_eq!(stale.unwrap(), IssueOutcome::Changed);
        assert_eq!(issued(issue(store, &second, b"second")).sequence, 3);
        assert_eq!(AuditLog::new(store.clone()).verify().unwrap(), None);
    });
}

/// Moves the rows of a credit note to the keys of an earlier version, which have no series.
fn remove_series_from_keys(store: &Arc<dyn Store>, note: &CreditNoteRecord) {
    let number = format!("{}\0{:04}-{:012}\0", note.account, note.year, note.sequence);
    let series = format!("{}\0", note.series);
    let mut batch = Transaction::new();
    for (kind, part) in [("k", ""), ("e", "\0\0")] {
        let earlier = format!("{kind}{number}{part}");
        let key = format!("{kind}{number}{series}{part}");
        let row = store.get(StoreTable::Invoices, key.as_bytes()).unwrap().unwrap();
        batch = batch.delete(StoreTable::Invoices, key.as_bytes());
        batch = batch.put(StoreTable::Invoices, earlier.as_bytes(), row);
    }
    store.apply(batch).unwrap();
}

#[test]
fn credit_notes_of_two_series_of_an_account_may_have_the_same_sequence_number() {
    for is_upgraded in [false, true] {
        each_engine(|store| {
            let invoices = InvoiceStore::new(store.clone());
            let mut notes = Vec::new();
            for (series, prefix, day) in [("s", "PS-", "2026-01-01"), ("t", "QS-", "2026-02-01")] {
                let invoice = draft(series, 2026, "acme", day, day);
                issued(issue_with_prefix(store, prefix, &invoice, b"an invoice"));
                let draft = CreditNoteRecord { series: series.to_owned(), ..credit_note("acme", vec![7]) };
                let documents = invoices.document_count("acme").unwrap();
                let text = format!("the note of {series}");
                let outcome = issue_note_with_prefix(store, prefix, (&draft, documents), text.as_bytes());
                let CreditNoteOutcome::Issued(note) = outcome else { panic!("{outcome:?}") };
                if is_upgraded && series == "s" {
                    remove_series_from_keys(store, &note);
                }
                notes.push(*note);
            }
            assert_eq!((notes[0].sequence, notes[1].sequence), (2, 2));
            assert_eq!(invoices.credit_notes("acme").unwrap(), notes);
            for (note, text) in notes.iter().zip(["the note of s", "the note of t"]) {
                assert_eq!(invoices.credit_note_document(note).unwrap(), text.as_bytes());
            }
        });
    }
}
