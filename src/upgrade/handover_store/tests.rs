//! Errors of a store that another process has, or that was lost.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::upgrade::messages::{self, NewToOld, OldToNew};
use penstock_storage::open_in_memory;
use std::os::unix::net::UnixStream;

fn why<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn errors_say_why_a_store_in_another_process_cannot_be_used() {
    let (stream, mut other_end) = UnixStream::pair().unwrap();
    let (channel, _serving) = ControlChannel::start(stream, |_| {}).unwrap();
    let store = HandoverStore::new(open_in_memory());
    store.hand_over_store(|| Ok(channel.clone()), || Err("It is not opened again.".to_owned())).unwrap();
    let peer = std::thread::spawn(move || {
        let request = messages::read_message(&mut other_end).unwrap();
        let OldToNew::Call { number, .. } = request else { return };
        messages::write_message(&mut other_end, &NewToOld::Answer(number, StoreResponse::Failed)).unwrap();
    });
    let failed = why(store.get(StoreTable::Keys, b"k"));
    assert_eq!(failed, "the process that took over the store could not execute the request");
    peer.join().unwrap();
    let lost = why(store.get(StoreTable::Keys, b"k"));
    assert_eq!(lost, "the process that took over the store does not answer any more");
    let copied = why(store.copy_rows(&mut |_| Ok(())));
    assert_eq!(copied, "the store is open in the process that took it over");
}

#[test]
fn errors_say_that_the_store_was_lost_in_an_upgrade() {
    let store = HandoverStore::new(open_in_memory());
    let why_lost =
        store.hand_over_store(|| Err("It failed.".to_owned()), || Err("It is damaged.".to_owned()));
    assert_eq!(why_lost.err().unwrap(), "It failed. It is damaged.");
    let expected = "the store could not be opened again after an upgrade that failed";
    assert_eq!(why(store.get(StoreTable::Keys, b"k")), expected);
    assert_eq!(why(store.copy_rows(&mut |_| Ok(()))), expected);
    assert_eq!(store.health(), StoreHealth::Failed);
}
