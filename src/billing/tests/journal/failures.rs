//! Journals whose files reject writes for a time: their charges are appended later, or the journal stays failing.

use super::*;

impl Process {
    /// Limits the size of the journal's files, which stands for a full disk.
    fn limit_journal(&self, bytes: u64) {
        self.ledger.journal.read().as_ref().unwrap().set_max_bytes(bytes);
    }

    fn journal_state(&self) -> JournalSnapshot {
        self.ledger.journal_snapshot().unwrap()
    }

    /// Returns the size of the journal's files after all operations so far.
    fn journal_bytes(&self) -> u64 {
        let journal = self.ledger.journal.read().clone().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(journal.wait_journaled(self.ledger.last_pushed_ticket()));
        self.journal_state().bytes
    }

    /// Simulates an outage of the database, and serves a request whose charge the journal cannot write.
    fn serve_unwritten(&self, name: &str, limit: u64) {
        self.connection.full.store(true, Ordering::Release);
        self.limit_journal(limit);
        self.serve(name, 1, 10);
        until("both failures to show", || self.ledger.is_failing() && self.journal_state().is_failing);
    }
}

#[test]
fn charges_that_the_files_rejected_for_a_time_are_replayed() {
    for later in [0, 3] {
        let folder = Folder::new();
        let first = folder.start();
        first.grant(1_000_000);
        first.serve("before", 5, 100);
        let bytes = first.journal_bytes();
        first.serve_unwritten("rejected", bytes);
        first.limit_journal(u64::MAX);
        first.serve("later", later, 10);
        until("the journal to be written", || !first.journal_state().is_failing);
        first.end();
        let second = folder.start();
        assert_eq!(second.journal_state().replayed, 1 + later as u64);
        assert_eq!(settled(&second.ledger).open_reservations, 0);
        assert_eq!(folder.balance(), 1_000_000 - 500 - 10 * (1 + later as i64));
    }
}

#[test]
fn a_journal_without_all_charges_is_failing_until_the_database_has_them() {
    let folder = Folder::new();
    let process = folder.start();
    process.grant(1_000_000);
    process.serve("before", 5, 100);
    // Charges beyond the maximum size of the journal's files are dropped.
    process.serve_unwritten("dropped", 0);
    let bytes = process.journal_state().bytes;
    process.limit_journal(u64::MAX);
    process.serve("later", 1, 10);
    until("the later charge to be in the files", || process.journal_state().bytes > bytes);
    assert!(process.journal_state().is_failing);
    process.connection.full.store(false, Ordering::Release);
    settled(&process.ledger);
    process.serve("again", 1, 10);
    until("the journal to be complete", || !process.journal_state().is_failing);
    process.ledger.close();
    assert_eq!(folder.balance(), 1_000_000 - 530);
}
