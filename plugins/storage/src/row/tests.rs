//! Tests of the row encoding: a round trip, and the detection of every change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

#[test]
fn a_row_comes_back_as_it_went_in() {
    for value in [&b""[..], b"x", &[7; 64 * 1024]] {
        let key = disk_key(Space::Keys, b"some key");
        assert_eq!(open(&key, &seal(&key, value)).unwrap(), value);
    }
}

#[test]
fn every_single_flipped_bit_is_noticed() {
    let key = disk_key(Space::Accounts, b"acme");
    let sealed = seal(&key, b"{\"balance\":12}");
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(open(&key, &damaged).is_err(), "bit {bit} went unnoticed");
    }
}

#[test]
fn a_row_under_another_key_is_noticed() {
    let sealed = seal(&disk_key(Space::Keys, b"a"), b"v");
    assert!(open(&disk_key(Space::Keys, b"b"), &sealed).is_err());
    assert!(open(&disk_key(Space::Files, b"a"), &sealed).is_err());
}

#[test]
fn every_cut_is_noticed() {
    let key = disk_key(Space::Keys, b"k");
    let sealed = seal(&key, b"value");
    for length in 0..sealed.len() {
        assert!(open(&key, &sealed[..length]).is_err());
    }
}
