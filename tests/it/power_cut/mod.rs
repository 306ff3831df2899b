//! Power cuts during files and batches: a gateway runs while a preloaded library (shim) records its disk calls. Then
//! the test builds disk images as a power cut at some moment could have left them, and starts a gateway on each.
//! Acknowledged state must be present, nothing may be partial, and batches complete with each line charged once.
//!
//! `PENSTOCK_POWERCUT_ROUNDS=20 cargo test --test it power_cut` is the long form.

mod recorded_client;
mod verification;

use crate::disk::{POLICIES, Policy, image};
use crate::harness::Provider;
use crate::harness::process::{Home, catalogue};
use crate::trace::{Event, read_placed};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use recorded_client::{Acknowledgement, RecordedActions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::task::JoinSet;
use verification::StateVerifier;

/// Number of cut points per round; each is tried with every policy for unsynced data.
const CUTS: usize = 12;

/// Returns the folder of the disk images: in memory if there is space, since their verification syncs often.
fn scratch() -> PathBuf {
    let memory = Path::new("/dev/shm");
    if tempfile::tempdir_in(memory).is_ok() { memory.to_owned() } else { std::env::temp_dir() }
}

/// Compiles the shim with the C compiler.
pub fn shim(into: &Path) -> PathBuf {
    let library = into.join("shim.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("plugins/storage/tests/powercut/shim.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-lpthread")
        .status()
        .expect("this test needs a C compiler named cc");
    assert!(compiled.success());
    library
}

/// Disk calls of a gateway while the recorded client uses it.
struct Recorded {
    events: Vec<Event>,
    /// Position of the end of each event in the trace.
    ends: Vec<u64>,
    story: RecordedActions,
    settings: String,
}

fn settings(provider: &Provider) -> String {
    format!("[batches]\nconcurrency = 4\n{}", catalogue(provider, ""))
}

async fn recorded(provider: &Provider) -> (Home, Recorded) {
    let home = Home::within(&scratch());
    let settings = settings(provider);
    home.write(&settings);
    let log = home.path().join("log");
    let library = shim(home.path());
    let mut process = home
        .run_with(|command| {
            command.env("LD_PRELOAD", library).env("SHIM_ROOT", home.storage()).env("SHIM_LOG", &log);
        })
        .await;
    let story = RecordedActions::play(&home, &log).await;
    process.signal("TERM");
    assert_eq!(process.until_ended().await.code(), Some(0), "{}", process.output());
    let (ends, events) = read_placed(&log, &home.storage()).into_iter().unzip();
    (home, Recorded { events, ends, story, settings })
}

/// Returns the cut points. A quarter is after an acknowledgement, a quarter at a change of file names, a quarter
/// after a sync during a batch, and a quarter at random. No cut is before the creation of the key.
fn cuts(recorded: &Recorded, random: &mut StdRng) -> Vec<usize> {
    let behind = |at: u64| recorded.ends.partition_point(|end| *end <= at);
    let (first, last) = (behind(recorded.story.begin), recorded.events.len());
    let acknowledged: Vec<usize> = recorded.story.facts.iter().map(|(at, _)| behind(*at)).collect();
    let positions = |of: &dyn Fn(usize, &Event) -> bool| -> Vec<usize> {
        (first..last).filter(|at| of(*at, &recorded.events[*at])).map(|at| at + 1).collect()
    };
    let named = positions(&|_, event| match event {
        Event::Create(path) | Event::Rename { to: path, .. } | Event::Remove(path) => {
            path.starts_with("files")
        }
        _ => false,
    });
    let mut works = Vec::new();
    let mut since = None;
    for (at, fact) in &recorded.story.facts {
        match fact {
            Acknowledgement::Created { .. } => since = Some(behind(*at)),
            Acknowledgement::Ended { .. } => works.extend(since.take().map(|since| since..behind(*at))),
            _ => {}
        }
    }
    let synced = positions(&|at, event| {
        matches!(event, Event::Sync(_)) && works.iter().any(|work| work.contains(&at))
    });
    (0..CUTS)
        .map(|number| match number % 4 {
            0 => acknowledged[random.random_range(0..acknowledged.len())],
            1 => named[random.random_range(0..named.len())],
            2 => synced[random.random_range(0..synced.len())],
            _ => random.random_range(first..=last),
        })
        .collect()
}

fn assert_same_tree(made: &Path, real: &Path) {
    let list = |folder: &Path| {
        let mut names: Vec<_> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(list(made), list(real), "in {}", real.display());
    for name in list(real) {
        let (made, real) = (made.join(&name), real.join(&name));
        if real.is_dir() {
            assert_same_tree(&made, &real);
        } else {
            assert!(std::fs::read(&made).unwrap() == std::fs::read(&real).unwrap(), "{}", real.display());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_power_cut_takes_a_file_or_a_result_or_charges_one_twice() {
    let provider = Provider::start().await;
    let rounds = std::env::var("PENSTOCK_POWERCUT_ROUNDS").map_or(1, |rounds| rounds.parse().unwrap());
    for round in 0..rounds {
        let (home, recorded) = recorded(&provider).await;
        // Asserts that the record is complete: a replay of all events gives the files that the gateway left on the
        // disk.
        let all = home.path().join("all");
        let last = recorded.events.len();
        image(&recorded.events, last, Policy::KeepAll, &mut StdRng::seed_from_u64(0), &all);
        assert_same_tree(&all, &home.storage());
        try_all(Arc::new(recorded), round).await;
    }
}

async fn try_all(recorded: Arc<Recorded>, round: u64) {
    let mut random = StdRng::seed_from_u64(round);
    let cuts = cuts(&recorded, &mut random);
    let tries: Vec<(usize, Policy)> =
        cuts.iter().flat_map(|cut| POLICIES.into_iter().map(|policy| (*cut, policy))).collect();
    let (tries, next) = (Arc::new(tries), Arc::new(AtomicUsize::new(0)));
    let mut judges = JoinSet::new();
    for _ in 0..2 {
        let (recorded, tries, next) = (recorded.clone(), tries.clone(), next.clone());
        judges.spawn(async move {
            let mut failures = Vec::new();
            while let Some((cut, policy)) = tries.get(next.fetch_add(1, Ordering::Relaxed)).copied() {
                let mut random = StdRng::seed_from_u64(round << 32 | cut as u64);
                let home = Home::within(&scratch());
                image(&recorded.events, cut, policy, &mut random, &home.storage());
                home.write(&recorded.settings);
                let position = recorded.ends[..cut].last().copied().unwrap_or(0);
                let judge = StateVerifier { home, story: &recorded.story, position };
                if let Err(why) = judge.judge().await {
                    failures.push(format!("cut {cut} of {}, {policy:?}: {why}", recorded.events.len()));
                }
            }
            failures
        });
    }
    let failures: Vec<String> = judges.join_all().await.into_iter().flatten().collect();
    assert!(failures.is_empty(), "round {round}: {} failed\n{}", failures.len(), failures.join("\n"));
}

/// Tests the verification itself: if the recorded syncs of files are ignored, it must find lost acknowledged
/// contents.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_that_are_not_synced_are_missed() {
    let provider = Provider::start().await;
    let (_home, recorded) = recorded(&provider).await;
    let Recorded { events, story, settings, .. } = recorded;
    let unsynced = |event: &Event| !matches!(event, Event::Sync(path) if path.starts_with("files"));
    let events: Vec<Event> = events.into_iter().filter(unsynced).collect();
    let home = Home::within(&scratch());
    home.write(&settings);
    let mut random = StdRng::seed_from_u64(0);
    image(&events, events.len(), Policy::LoseUnsynced, &mut random, &home.storage());
    let judged = StateVerifier { home, story: &story, position: u64::MAX }.judge().await;
    assert!(judged.unwrap_err().contains("file "));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_verification_detects_lost_and_false_state() {
    let provider = Provider::start().await;
    let (home, recorded) = recorded(&provider).await;
    let Recorded { story, settings, .. } = recorded;
    let files = home.storage().join("files");
    let copy = |harm: &dyn Fn(&Path)| {
        let other = Home::within(&scratch());
        let copied = Command::new("cp").arg("-a").args([home.storage(), other.storage()]).status();
        assert!(copied.unwrap().success());
        other.write(&settings);
        harm(&other.storage().join("files"));
        other
    };
    let judged = async |home: Home| StateVerifier { home, story: &story, position: u64::MAX }.judge().await;
    judged(copy(&|_| {})).await.unwrap();
    let gone = |file: &str| story.deletes.iter().any(|(id, _)| id == file);
    let is_retained = |fact: &Acknowledgement| matches!(fact, Acknowledgement::Uploaded { id } if !gone(id));
    let Some((_, Acknowledgement::Uploaded { id })) = story.facts.iter().find(|(_, fact)| is_retained(fact))
    else {
        panic!("nothing was uploaded")
    };
    assert!(files.join(id).exists());
    let lost = judged(copy(&|files| std::fs::remove_file(files.join(id)).unwrap())).await;
    assert!(lost.unwrap_err().contains(id), "a file that is lost");
    let flipped = judged(copy(&|files| {
        let mut bytes = std::fs::read(files.join(id)).unwrap();
        bytes[7] ^= 1;
        std::fs::write(files.join(id), bytes).unwrap();
    }));
    assert!(flipped.await.unwrap_err().contains(id), "a file with other bytes");
}
