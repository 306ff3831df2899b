//! One process at a time.

use crate::{TAKEOVER, add_one, count, elsewhere, server::PostgresServer, wait_for};
use penstock_storage::{StoreError, StoreHealth, StoreSharing, open_postgres};
use std::io::Write as _;
use std::process::Command;

#[test]
fn a_second_live_process_is_refused_and_one_after_it_joins() {
    let server = PostgresServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = server.options();
    options.takeover_after = TAKEOVER;
    let first = open_postgres(&elsewhere(&options, &folders[0])).unwrap();
    add_one(&*first).unwrap();
    let refused = open_postgres(&elsewhere(&options, &folders[1])).unwrap_err();
    assert!(matches!(&refused, StoreError::InUse { holder } if holder.contains("process")), "{refused:?}");
    assert!(refused.to_string().contains("give all of them a [fleet] section"), "{refused}");
    let same_folder = open_postgres(&elsewhere(&options, &folders[0])).unwrap_err();
    assert!(matches!(same_folder, StoreError::Locked { .. }), "{same_folder:?}");
    add_one(&*first).unwrap();
    drop(first);
    let second = open_postgres(&elsewhere(&options, &folders[1])).unwrap();
    assert_eq!(count(&*second), 2);
}

#[test]
fn a_process_that_shares_the_database_and_one_that_does_not_refuse_each_other() {
    let server = PostgresServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut alone = server.options();
    alone.takeover_after = TAKEOVER;
    let mut shared = alone.clone();
    shared.sharing = StoreSharing::Shared;
    for (first, second) in [(&alone, &shared), (&shared, &alone)] {
        let held = open_postgres(&elsewhere(first, &folders[0])).unwrap();
        let refused = open_postgres(&elsewhere(second, &folders[1])).unwrap_err();
        assert!(matches!(refused, StoreError::InUse { .. }), "{refused:?}");
        drop(held);
    }
    let held = crate::reopen(&elsewhere(&shared, &folders[0])).unwrap();
    let other = open_postgres(&elsewhere(&shared, &folders[2])).unwrap();
    add_one(&*held).unwrap();
    assert_eq!(count(&*other), 1);
}

#[test]
fn processes_that_start_at_once_on_an_empty_database_create_its_tables_once() {
    let server = PostgresServer::start();
    for _ in 0..8 {
        let mut options = server.options();
        options.sharing = StoreSharing::Shared;
        std::thread::scope(|scope| {
            let starts = [(); 6].map(|()| {
                scope.spawn(|| {
                    let folder = tempfile::tempdir().unwrap();
                    open_postgres(&elsewhere(&options, &folder)).map(|store| add_one(&*store))
                })
            });
            for start in starts {
                start.join().unwrap().unwrap().unwrap();
            }
        });
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(count(&*open_postgres(&elsewhere(&options, &folder)).unwrap()), 6);
    }
}

#[test]
fn a_process_that_lost_its_incarnation_writes_nothing_more() {
    let server = PostgresServer::start();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut options = server.options();
    // With this long `takeover_after`, the first process sends no heartbeat during the test, like a stopped process.
    options.takeover_after = TAKEOVER * 36_000;
    let first = open_postgres(&elsewhere(&options, &folders[0])).unwrap();
    add_one(&*first).unwrap();
    options.takeover_after = TAKEOVER;
    let second = open_postgres(&elsewhere(&options, &folders[1])).unwrap();
    for _ in 0..2 {
        let refused = add_one(&*first).unwrap_err();
        assert!(matches!(refused, StoreError::Evicted { .. }), "{refused:?}");
        assert!(refused.to_string().contains("has taken over"), "{refused}");
    }
    assert_eq!(first.health(), StoreHealth::Failed);
    add_one(&*second).unwrap();
    drop(first);
    add_one(&*second).unwrap();
    assert_eq!(count(&*second), 3);
    assert_eq!(second.health(), StoreHealth::Ready);
}

#[test]
fn the_folder_of_a_killed_process_takes_over_at_once() {
    if let Ok(url) = std::env::var("PENSTOCK_TEST_CHILD") {
        let mut options =
            penstock_storage::PostgresOptions::new(url, std::env::var("PENSTOCK_TEST_FOLDER").unwrap());
        options.schema = "killed".to_owned();
        let store = open_postgres(&options).unwrap();
        add_one(&*store).unwrap();
        writeln!(std::io::stdout(), "written").unwrap();
        let _ = std::io::stdin().read_line(&mut String::new());
        std::process::abort();
    }
    let server = PostgresServer::start();
    let folder = tempfile::tempdir().unwrap();
    let mut options = elsewhere(&server.options(), &folder);
    options.schema = "killed".to_owned();
    // If the lock of the folder did not prove that the process is dead, the test would wait for an hour.
    options.takeover_after = TAKEOVER * 9_000;
    let killed = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sharing::the_folder_of_a_killed_process_takes_over_at_once", "--nocapture"])
        .env("PENSTOCK_TEST_CHILD", &options.url)
        .env("PENSTOCK_TEST_FOLDER", folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!killed.status.success() && String::from_utf8_lossy(&killed.stdout).contains("written"));
    let store = open_postgres(&options).unwrap();
    assert_eq!(count(&*store), 1);
    wait_for(&*store, |health| health == StoreHealth::Ready);
}
