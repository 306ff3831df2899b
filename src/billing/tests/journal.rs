//! Tests of a fleet member's journal: the next process writes the charges that the store lacks, each once.

use super::*;
use crate::config::settings::FleetSettings;
use crate::fleet::FleetMember;
use penstock_storage::fleet::{Fleet, SharedFleet, credit_pool_name};
use penstock_storage::ledger::ChainClaim;
use penstock_storage::ledger::journal::LedgerJournal;
use std::path::{Path, PathBuf};

mod failures;

/// Folder of a gateway, and the database behind its processes.
struct Folder {
    database: Arc<dyn Store>,
    dir: tempfile::TempDir,
}

/// Process of the folder with a connection of its own.
struct Process {
    connection: Arc<Flaky>,
    member: Arc<FleetMember>,
    ledger: Arc<Ledger>,
}

impl Folder {
    fn new() -> Self {
        Self { database: open_in_memory(), dir: tempfile::tempdir().unwrap() }
    }

    /// Returns the folder of another gateway on the same database.
    fn sibling(&self) -> Self {
        Self { database: self.database.clone(), dir: tempfile::tempdir().unwrap() }
    }

    /// Returns the renamed folders of journals whose charges were not made.
    fn unwritten(&self) -> Vec<PathBuf> {
        let files = std::fs::read_dir(self.dir.path()).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|end| end == "unwritten")).collect()
    }

    fn start(&self) -> Process {
        let connection = Flaky::over(self.database.clone());
        let fleet = SharedFleet::new(connection.clone());
        let seconds = Duration::from_secs;
        let settings = FleetSettings {
            name: None,
            claim: seconds(15),
            lease: seconds(600),
            advance: seconds(60),
            stale: None,
        };
        let member = FleetMember::join(fleet, &settings, &self.dir.path().join("member")).unwrap();
        let claim = ChainClaim::take(&*connection, member.member_number()).unwrap();
        let book = LedgerStore::open_member(connection.clone(), None, claim).unwrap();
        let terms = super::settings("[ledger]\nwindow = \"0\"\nslow = \"100ms\"\n").ledger;
        let ledger = Ledger::open_for_member(Arc::new(book), &terms, ProcessClock::start(), &member).unwrap();
        Process { connection, member, ledger }
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("member.journal")
    }

    fn balance(&self) -> i64 {
        LedgerStore::open_read_only(self.database.clone()).balance("acme").unwrap().unwrap().credits
    }

    /// Returns the sum of the pool and of all leases, which must be equal to the balance.
    fn pool_and_parts(&self, process: &Process) -> i64 {
        let rest =
            SharedFleet::new(self.database.clone()).available_amount(&credit_pool_name("acme")).unwrap();
        rest + process.member.leased_amounts().unwrap().iter().map(|part| part.amount).sum::<i64>()
    }
}

impl Process {
    fn grant(&self, amount: i64) {
        grant(&self.ledger, "g", amount).unwrap();
    }

    /// Serves requests, which draw from the pool where the lease is too small.
    fn serve(&self, name: &str, count: usize, amount: i64) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut ticket = 0;
        for number in 0..count {
            let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
            runtime.block_on(self.ledger.ensure_funded("acme", need(amount), deadline)).unwrap();
            ticket =
                reserve(&self.ledger, &format!("{name}{number}"), amount).unwrap().settle(charge(amount));
        }
        runtime.block_on(self.ledger.wait_written_or_journaled(ticket));
    }

    /// Simulates a permanent loss of the database, and serves requests from the lease.
    fn lose_database(&self) {
        self.connection.full.store(true, Ordering::Release);
        self.serve("first", 1, 10);
        until("the failure to be known", || self.ledger.is_failing());
        self.serve("later", 19, 10);
    }

    /// Ends the process while it cannot write to the database.
    fn end(self) {
        self.ledger.close();
        assert!(!self.ledger.is_completely_written());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for file in std::fs::read_dir(from).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[test]
fn the_next_process_writes_what_an_outage_left_and_the_one_after_it_nothing() {
    let folder = Folder::new();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 5, 100);
    first.lose_database();
    let lease = first.ledger.balance("acme").credits.amount;
    first.end();
    assert_eq!(folder.balance(), 1_000_000 - 500);
    let second = folder.start();
    assert_eq!(second.ledger.journal_snapshot().unwrap().replayed, 20);
    assert_eq!(
        second.ledger.balance("acme").credits.amount,
        lease,
        "the lease is less what was served from it"
    );
    let charges = second.ledger.take_replayed_charges();
    assert_eq!(charges.iter().map(|charge| charge.amount).sum::<i64>(), 200);
    settled(&second.ledger);
    assert_eq!(folder.balance(), 1_000_000 - 700);
    assert_eq!(folder.pool_and_parts(&second), folder.balance());
    second.serve("after", 3, 10);
    second.ledger.close();
    let third = folder.start();
    assert_eq!(third.ledger.journal_snapshot().unwrap().replayed, 0);
    assert_eq!(settled(&third.ledger).open_reservations, 0);
    assert_eq!(folder.balance(), 1_000_000 - 730);
}

#[test]
fn a_process_that_ends_during_the_replay_leaves_the_rest_to_the_next() {
    let folder = Folder::new();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 1, 100);
    first.lose_database();
    first.end();
    // The database is lost again at once.
    let second = folder.start();
    second.connection.full.store(true, Ordering::Release);
    second.serve("second", 4, 10);
    second.ledger.close();
    let third = folder.start();
    assert_eq!(settled(&third.ledger).open_reservations, 0);
    assert_eq!(folder.balance(), 1_000_000 - 100 - 200 - 40);
}

#[test]
fn files_of_a_backup_are_not_replayed_again() {
    let folder = Folder::new();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 1, 100);
    first.lose_database();
    first.end();
    let backup = folder.dir.path().join("backup");
    copy(&folder.journal(), &backup);
    let second = folder.start();
    settled(&second.ledger);
    second.serve("second", 4, 10);
    second.ledger.close();
    let after = folder.balance();
    copy(&backup, &folder.journal());
    let third = folder.start();
    assert_eq!(third.ledger.journal_snapshot().unwrap().replayed, 0);
    third.serve("third", 1, 10);
    third.ledger.close();
    assert_eq!(folder.balance(), after - 10);
    drop(third);
    // The numbers of the journal continue after those in the database, so nothing is replayed.
    let fourth = folder.start();
    assert_eq!(fourth.ledger.journal_snapshot().unwrap().replayed, 0);
    settled(&fourth.ledger);
    assert_eq!(folder.balance(), after - 10);
}

#[test]
fn charges_of_a_buried_member_are_quarantined() {
    let folder = Folder::new();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 1, 100);
    first.lose_database();
    let incarnation = first.member.member_number();
    first.end();
    let fleet = SharedFleet::new(folder.database.clone());
    let peer = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == incarnation).unwrap();
    assert!(fleet.evict(&peer).unwrap());
    let second = folder.start();
    assert_eq!(second.ledger.journal_snapshot().unwrap().replayed, 0);
    second.ledger.void_abandoned_reservations().unwrap();
    second.serve("second", 1, 10);
    assert_eq!(settled(&second.ledger).open_reservations, 0);
    assert_eq!(folder.balance(), 1_000_000 - 110);
    let unwritten = folder.unwritten();
    assert_eq!(unwritten.len(), 1);
    assert!(LedgerJournal::read(&unwritten[0]).unwrap().unwrap().records.len() >= 40);
}

#[test]
fn after_an_orderly_stop_of_all_gateways_nothing_is_reported_as_lost() {
    let folder = Folder::new();
    let other = folder.sibling();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 5, 100);
    first.ledger.close();
    first.member.leave_fleet();
    // Another gateway continues the chain. So the journal position in the store is that of the other gateway, and
    // many entries follow those of the first journal.
    let second = other.start();
    second.serve("second", 300, 1);
    second.ledger.close();
    second.member.leave_fleet();
    let third = folder.start();
    assert_eq!(third.ledger.journal_snapshot().unwrap().replayed, 0);
    assert_eq!(folder.unwritten(), Vec::<PathBuf>::new());
    third.serve("third", 1, 10);
    assert_eq!(settled(&third.ledger).open_reservations, 0);
    assert_eq!(folder.balance(), 1_000_000 - 500 - 300 - 10);
}

#[test]
fn charges_that_the_ledger_lacks_are_reported_though_another_gateway_has_the_chain() {
    let folder = Folder::new();
    let other = folder.sibling();
    let first = folder.start();
    first.grant(1_000_000);
    first.serve("before", 1, 100);
    first.lose_database();
    let incarnation = first.member.member_number();
    first.end();
    let fleet = SharedFleet::new(folder.database.clone());
    let peer = fleet.incarnations().unwrap().into_iter().find(|peer| peer.id == incarnation).unwrap();
    assert!(fleet.evict(&peer).unwrap());
    let second = other.start();
    second.ledger.void_abandoned_reservations().unwrap();
    second.serve("second", 1, 10);
    let third = folder.start();
    assert_eq!(third.ledger.journal_snapshot().unwrap().replayed, 0);
    assert_eq!(folder.unwritten().len(), 1);
}

#[test]
fn a_full_disk_of_the_journal_stops_no_request_while_the_database_answers() {
    let folder = Folder::new();
    let process = folder.start();
    process.grant(1_000_000);
    // A limit below the size of a group stands for a full disk.
    process.ledger.journal.read().as_ref().unwrap().set_max_bytes(0);
    process.serve("full", 3, 10);
    until("the failure to show", || process.ledger.journal_snapshot().unwrap().is_failing);
    process.ledger.journal.read().as_ref().unwrap().set_max_bytes(u64::MAX);
    process.serve("again", 3, 10);
    until("the journal to be written", || !process.ledger.journal_snapshot().unwrap().is_failing);
    process.ledger.close();
    assert_eq!(folder.balance(), 1_000_000 - 60);
}

#[test]
fn a_gateway_without_a_fleet_has_no_journal() {
    let store = Flaky::over(open_in_memory());
    let ledger = open(&store, QUICK);
    assert_eq!(ledger.journal_snapshot(), None);
    assert_eq!(ledger.threads.lock().len(), 1);
}
