//! SIGKILL at random moments: after reopening, transactions that a child process acknowledged on its standard output
//! are complete, and no other transaction is partial. `PENSTOCK_KILL_ROUNDS` sets the number of kills.
#![cfg(unix)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

#[path = "powercut/ledger.rs"]
mod ledger;
#[path = "powercut/workload.rs"]
mod workload;

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use penstock_storage::ledger::LedgerStore;
use penstock_storage::{StoreOptions, open};
use rand::Rng;

use self::workload::{Acknowledged, check, work};

const WORKERS: u8 = 4;

fn options() -> StoreOptions {
    StoreOptions { ballast_bytes: 0, ..StoreOptions::default() }
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_works_until_it_is_killed() {
    let Some(path) = env::var_os("PENSTOCK_CHILD").map(PathBuf::from) else { return };
    let store = open(&path, options()).unwrap();
    thread::scope(|scope| {
        for worker in 0..WORKERS {
            let store = &store;
            scope.spawn(move || {
                let acknowledge = |n| {
                    let line = format!("\nacknowledged {worker} {n}\n");
                    io::stdout().lock().write_all(line.as_bytes()).unwrap();
                };
                work(&**store, worker, 100_000, acknowledge).unwrap();
            });
        }
    });
}

/// Parses `worker n`; `None` for lines of the test harness, and for a line truncated by the kill.
fn parse(line: &str) -> Option<(u8, u32)> {
    let (worker, n) = line.strip_prefix("acknowledged ")?.strip_suffix('\n')?.split_once(' ')?;
    Some((worker.parse().ok()?, n.parse().ok()?))
}

#[test]
fn no_kill_takes_an_acknowledged_batch_or_leaves_half_of_one() {
    let rounds: u32 = env::var("PENSTOCK_KILL_ROUNDS").map_or(8, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut acknowledged = Acknowledged::new();
    for round in 0..rounds {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child_that_works_until_it_is_killed", "--ignored", "--nocapture"])
            .env("PENSTOCK_CHILD", &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut left = rand::rng().random_range(1..300_u32);
        let mut seen = 0;
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            if let Some((worker, n)) = parse(&line) {
                acknowledged.insert(worker, n);
                seen += 1;
                left = left.saturating_sub(1);
                if left == 0 {
                    // The child is killed only once; the loop then reads its remaining output to the end.
                    child.kill().unwrap();
                }
            }
            line.clear();
        }
        child.wait().unwrap();
        assert!(seen > 0, "round {round}: the child did not work");
        let store = open(&path, options()).unwrap();
        check(&*store, WORKERS, &acknowledged).unwrap_or_else(|why| panic!("round {round}: {why}"));
        // The last transaction may have been written without an acknowledgement. From here on it counts as
        // acknowledged.
        for worker in 0..WORKERS {
            acknowledged.insert(worker, workload::head(&*store, worker).unwrap());
        }
    }
}

#[test]
#[ignore = "run by other tests as a child process"]
fn child_that_keeps_a_ledger_until_it_is_killed() {
    let Some(path) = env::var_os("PENSTOCK_CHILD").map(PathBuf::from) else { return };
    let store = open(&path.join("store"), options()).unwrap();
    let book = LedgerStore::open(store, Some(&path.join("ledger"))).unwrap();
    let acknowledge = |n| {
        io::stdout().lock().write_all(format!("\nacknowledged 0 {n}\n").as_bytes()).unwrap();
    };
    ledger::work(&book, 100_000, acknowledge).unwrap();
}

#[test]
fn no_kill_takes_an_acknowledged_entry_of_the_ledger_or_its_second_copy() {
    let rounds: u32 = env::var("PENSTOCK_KILL_ROUNDS").map_or(5, |rounds| rounds.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = 0;
    for round in 0..rounds {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child_that_keeps_a_ledger_until_it_is_killed", "--ignored", "--nocapture"])
            .env("PENSTOCK_CHILD", dir.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut left = rand::rng().random_range(1..60_u32);
        let mut line = String::new();
        while output.read_line(&mut line).unwrap() > 0 {
            if let Some((_, n)) = parse(&line) {
                acknowledged = u64::from(n);
                left = left.saturating_sub(1);
                if left == 0 {
                    child.kill().unwrap();
                }
            }
            line.clear();
        }
        child.wait().unwrap();
        let store = open(&dir.path().join("store"), options()).unwrap();
        let checked = ledger::check(&store, &dir.path().join("ledger"), acknowledged);
        let (_, head) = checked.unwrap_or_else(|why| panic!("round {round}: {why}"));
        acknowledged = head;
    }
    assert!(acknowledged > 0, "no child did any work");
}
