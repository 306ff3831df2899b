//! Tests of the row encoding: a round trip, and the detection of every change.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;

#[test]
fn a_row_comes_back_as_it_went_in() {
    for value in [&b""[..], b"x", &[7; 64 * 1024]] {
        let key = disk_key(StoreTable::Keys, b"some key");
        assert_eq!(decode_checksummed(&key, &encode_checksummed(&key, value)).unwrap(), value);
    }
}

#[test]
fn every_single_flipped_bit_is_noticed() {
    let key = disk_key(StoreTable::Accounts, b"acme");
    let sealed = encode_checksummed(&key, b"{\"balance\":12}");
    for bit in 0..sealed.len() * 8 {
        let mut damaged = sealed.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_checksummed(&key, &damaged).is_err(), "bit {bit} went unnoticed");
    }
}

#[test]
fn a_row_under_another_key_is_noticed() {
    let sealed = encode_checksummed(&disk_key(StoreTable::Keys, b"a"), b"v");
    assert!(decode_checksummed(&disk_key(StoreTable::Keys, b"b"), &sealed).is_err());
    assert!(decode_checksummed(&disk_key(StoreTable::Files, b"a"), &sealed).is_err());
}

#[test]
fn every_cut_is_noticed() {
    let key = disk_key(StoreTable::Keys, b"k");
    let sealed = encode_checksummed(&key, b"value");
    for length in 0..sealed.len() {
        assert!(decode_checksummed(&key, &sealed[..length]).is_err());
    }
}
