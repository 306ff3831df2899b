//! Benchmark of durable transactions per second on this machine's disk, by number of concurrent writers: `cargo run
//! --release -p penstock-storage --example commits [FOLDER]` (default: the directory for temporary files, which may be
//! in memory).
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use penstock_storage::{StoreOptions, StoreTable, Transaction, open};

/// Duration of each measurement.
const LASTS: Duration = Duration::from_secs(4);

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let mut out = std::io::stdout();
    for writers in [1_u32, 8, 64] {
        let path = folder.join(format!("penstock-commits-{}-{writers}", std::process::id()));
        let store = open(&path, StoreOptions::default()).unwrap();
        let start = Instant::now();
        let mut times: Vec<Duration> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|writer| {
                    let store = &store;
                    scope.spawn(move || {
                        let mut times = Vec::new();
                        let mut n = 0_u32;
                        while start.elapsed() < LASTS {
                            n += 1;
                            let key = [writer.to_be_bytes(), n.to_be_bytes()].concat();
                            let batch = Transaction::new()
                                .require_absent(StoreTable::Ledger, key.clone())
                                .put(StoreTable::Ledger, key, vec![1; 200])
                                .put(StoreTable::Accounts, writer.to_be_bytes(), n.to_be_bytes());
                            let begun = Instant::now();
                            store.apply(batch).unwrap();
                            times.push(begun.elapsed());
                        }
                        times
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        times.sort();
        let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied().unwrap_or_default();
        writeln!(
            out,
            "{writers:>3} writers: {per_second:>7.0} durable batches/s, answer p50 {:?} p99 {:?}",
            at(0.5),
            at(0.99)
        )
        .unwrap();
        drop(store);
        std::fs::remove_dir_all(&path).unwrap();
    }
}
