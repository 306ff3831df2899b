//! Tests with a stand-in for the successor: its process is `cat`, which runs until its input ends, and a thread of
//! the test writes its messages.
#![allow(clippy::unwrap_used)]

use super::*;
use parking_lot::Mutex;
use std::path::Path;
use std::process::ChildStdin;

/// Returns a successor whose process runs until the returned input is dropped, and the other end of its connection.
fn stand_in() -> (Successor, ChildStdin, UnixStream) {
    let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (stream, other_end) = UnixStream::pair().unwrap();
    let input = child.stdin.take().unwrap();
    (Successor { child, stream, is_serving: false }, input, other_end)
}

fn is_running(id: u32) -> bool {
    Path::new(&format!("/proc/{id}")).exists()
}

#[test]
fn a_successor_that_is_dropped_before_it_serves_is_killed() {
    let (successor, _input, _other_end) = stand_in();
    let id = successor.id();
    assert!(is_running(id));
    drop(successor);
    assert!(!is_running(id));
}

#[test]
fn a_successor_that_ends_the_connection_is_killed() {
    let (successor, _input, other_end) = stand_in();
    let id = successor.id();
    drop(other_end);
    let why = successor.hand_over(|_| {}).err().unwrap();
    assert!(why.ends_with("the old process continues."), "{why}");
    assert!(!is_running(id));
}

#[test]
fn a_key_that_changes_before_the_successor_serves_does_not_end_the_upgrade() {
    let (successor, input, mut other_end) = stand_in();
    let id = successor.id();
    let changed = Arc::new(Mutex::new(Vec::new()));
    let events = changed.clone();
    let peer = std::thread::spawn(move || {
        assert!(matches!(messages::read_message(&mut other_end), Ok(OldToNew::Yours)));
        messages::write_message(&mut other_end, &NewToOld::Key("k".to_owned())).unwrap();
        messages::write_message(&mut other_end, &NewToOld::Ready).unwrap();
        assert!(matches!(messages::read_message(&mut other_end), Ok(OldToNew::Bye)));
    });
    let note = move |event| {
        if let SuccessorEvent::KeyChanged(id) = event {
            events.lock().push(id);
        }
    };
    let channel = successor.hand_over(note).unwrap();
    assert_eq!(*changed.lock(), ["k"]);
    assert!(is_running(id));
    channel.close();
    peer.join().unwrap();
    drop(input);
}
