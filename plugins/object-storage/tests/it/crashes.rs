//! A server that is killed in the middle of uploads.

use crate::seaweedfs::SeaweedServer;
use crate::{contents, one_server, read_all, temporary_file};
use penstock_object_storage::{Bucket, BucketError, ContentStore};
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ROUNDS: usize = 3;
const UPLOADERS: usize = 3;
/// Number of acknowledged objects in a round after which the server is killed.
const BEFORE_KILL: usize = 12;

/// Name, length and seed of an object.
type Upload = (String, usize, usize);

#[test]
fn an_acknowledged_object_survives_a_kill_and_any_other_is_whole_or_absent() {
    let _guard = one_server();
    let mut server = SeaweedServer::start();
    let bucket = Bucket::new(&server.options("crash")).unwrap();
    bucket.probe().unwrap();
    let (mut acknowledged, mut failed) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let (good, bad) = upload_until_killed(&bucket, &mut server, round);
        acknowledged.extend(good);
        failed.extend(bad);
        let refused = bucket.open("anything").unwrap_err();
        assert!(BucketError::from_io_error(&refused).unwrap().is_unreachable(), "{refused}");
        assert!(!bucket.is_available());
        server.restart();
        // While the server cannot be reached, one call a second is sent. The first one after the restart succeeds.
        while bucket.probe().is_err() {
            std::thread::yield_now();
        }
    }
    assert!(failed.len() >= ROUNDS, "uploads were in flight");
    for (name, length, seed) in &acknowledged {
        let bytes = read_all(&*bucket.open(name).unwrap()).unwrap();
        assert!(bytes == contents(*length, *seed), "{name} is as it was acknowledged");
    }
    // The client could not abort these uploads in parts, because the server was killed.
    let incomplete = || {
        let of_round = |round: usize| bucket.list_incomplete_uploads(&round.to_string()).unwrap();
        (0..ROUNDS).flat_map(of_round).collect::<Vec<_>>()
    };
    assert!(!incomplete().is_empty() && bucket.list_incomplete_uploads("other").unwrap().is_empty());
    for upload in incomplete() {
        assert!(failed.iter().any(|(name, ..)| *name == upload.name), "{}", upload.name);
        bucket.abort_upload(&upload).unwrap();
        bucket.abort_upload(&upload).unwrap();
    }
    assert!(incomplete().is_empty());
    for (name, length, seed) in &failed {
        match bucket.open(name) {
            Ok(object) => assert!(read_all(&*object).unwrap() == contents(*length, *seed), "{name} is whole"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{name}: {error}"),
        }
    }
}

/// Uploads small objects and objects in parts, and kills the server meanwhile. Returns the objects whose upload was
/// acknowledged, and those whose upload failed.
fn upload_until_killed(
    bucket: &Bucket,
    server: &mut SeaweedServer,
    round: usize,
) -> (Vec<Upload>, Vec<Upload>) {
    let (count, is_killed) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let uploaders: Vec<_> = (0..UPLOADERS)
            .map(|uploader| {
                let (count, is_killed) = (&count, &is_killed);
                scope.spawn(move || {
                    let (mut good, mut bad) = (Vec::new(), Vec::new());
                    for number in 0.. {
                        let length = if number % 2 == 0 { 100_000 + number } else { (20 << 20) + number };
                        let seed = round * 100 + uploader * 10 + number;
                        let upload = (format!("{round}/{uploader}/{number}"), length, seed);
                        let killed = is_killed.load(Ordering::SeqCst);
                        match bucket.create_from_file(&upload.0, temporary_file(&contents(length, seed))) {
                            Ok(()) => good.push(upload),
                            Err(_) => bad.push(upload),
                        }
                        count.fetch_add(1, Ordering::SeqCst);
                        if killed {
                            break;
                        }
                    }
                    (good, bad)
                })
            })
            .collect();
        while count.load(Ordering::SeqCst) < BEFORE_KILL {
            std::thread::yield_now();
        }
        server.kill();
        is_killed.store(true, Ordering::SeqCst);
        uploaders.into_iter().map(|uploader| uploader.join().unwrap()).fold(
            (Vec::new(), Vec::new()),
            |(mut good, mut bad), (some_good, some_bad)| {
                good.extend(some_good);
                bad.extend(some_bad);
                (good, bad)
            },
        )
    })
}
