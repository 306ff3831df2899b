//! Keys: shape, checksum, secrecy, digest.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]

use penstock_auth::{ApiKey, MalformedKey, digests_equal, key_digest, presented_keys};

/// Returns bytes that differ in each call. They are not random, which is sufficient here.
fn source(start: u64) -> impl FnMut(&mut [u8]) {
    let mut state = start;
    move |buffer| {
        for byte in buffer {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
    }
}

fn key(start: u64) -> ApiKey {
    ApiKey::generate(&mut source(start))
}

#[test]
fn a_key_is_a_prefix_and_62_characters_of_base62() {
    let key = key(1);
    let tail = key.reveal().strip_prefix("sk-svc-").unwrap();
    assert_eq!(tail.len(), 16 + 40 + 6);
    assert!(tail.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    assert_eq!(key.public_id(), &tail[..16]);
}

#[test]
fn a_new_key_parses_as_itself() {
    for start in 0..500 {
        let key = key(start);
        let again = ApiKey::parse(key.reveal()).unwrap();
        assert_eq!(again.reveal(), key.reveal());
        assert_eq!(again.public_id(), key.public_id());
    }
}

#[test]
fn the_checksum_is_crc32c_of_the_56_characters_in_base62() {
    // crc32c of 56 zeros in ASCII, computed bit by bit from the polynomial.
    let body = [b'0'; 56];
    let mut crc = u32::MAX;
    for byte in body {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
        }
    }
    let mut left = u64::from(!crc);
    let digits: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    let mut sum = String::new();
    for _ in 0..6 {
        sum.insert(0, digits[(left % 62) as usize]);
        left /= 62;
    }
    let zeros = ApiKey::generate(&mut |buffer: &mut [u8]| buffer.fill(0));
    assert_eq!(zeros.reveal(), format!("sk-svc-{}{sum}", "0".repeat(56)));
}

#[test]
fn the_highest_random_bytes_make_the_last_digit() {
    let key = ApiKey::generate(&mut |buffer: &mut [u8]| buffer.fill(255));
    assert_eq!(key.public_id(), "z".repeat(16));
}

#[test]
fn every_single_changed_character_is_refused() {
    let key = key(7);
    let text = key.reveal().as_bytes();
    for index in 0..text.len() {
        for character in 0..128_u8 {
            if character != text[index] {
                let mut typo = text.to_vec();
                typo[index] = character;
                let typo = String::from_utf8(typo).unwrap();
                assert_eq!(ApiKey::parse(&typo).err(), Some(MalformedKey), "{index} {character}");
            }
        }
    }
}

#[test]
fn swapped_neighbours_are_refused() {
    let key = key(8);
    let text = key.reveal().as_bytes();
    for index in 7..text.len() - 1 {
        let mut typo = text.to_vec();
        typo.swap(index, index + 1);
        if typo != text {
            assert!(ApiKey::parse(str::from_utf8(&typo).unwrap()).is_err());
        }
    }
}

#[test]
fn an_invalid_key_is_rejected() {
    let good = key(9);
    let good = good.reveal();
    let malformed = [
        String::new(),
        "sk-svc-".to_owned(),
        format!("{good} "),
        format!(" {good}"),
        format!("{good}0"),
        good[..good.len() - 1].to_owned(),
        good.replacen("sk-svc-", "sk-abc-", 1),
        good.replacen("sk-svc-", "SK-SVC-", 1),
        format!("sk-svc-{}", "é".repeat(31)),
        "x".repeat(1 << 20),
    ];
    for text in malformed {
        assert!(ApiKey::parse(&text).is_err(), "{text:.80}");
    }
}

#[test]
fn debug_shows_nothing_of_a_key() {
    assert_eq!(format!("{:?} {:#?}", key(1), key(1)), "*** ***");
}

#[test]
fn the_digest_is_hmac_sha256_of_the_secret_under_the_pepper() {
    use hmac::{Hmac, Mac};
    let key = key(3);
    let pepper = [7_u8; 32];
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&pepper).unwrap();
    mac.update(&key.reveal().as_bytes()[7 + 16..7 + 56]);
    let expected: [u8; 32] = mac.finalize().into_bytes().into();
    assert_eq!(key_digest(&pepper, &key), expected);
}

#[test]
fn only_the_same_secret_under_the_same_pepper_verifies() {
    let stored = key_digest(&[1; 32], &key(1));
    assert!(digests_equal(&stored, &key_digest(&[1; 32], &key(1))));
    assert!(!digests_equal(&stored, &key_digest(&[2; 32], &key(1))));
    assert!(!digests_equal(&stored, &key_digest(&[1; 32], &key(2))));
}

#[test]
fn bearer_comes_before_x_api_key_and_both_are_offered() {
    let list = |authorization: Option<&'static str>, x_api_key: Option<&'static str>| -> Vec<&'static str> {
        presented_keys(authorization.map(str::as_bytes), x_api_key.map(str::as_bytes)).collect()
    };
    assert_eq!(list(Some("Bearer a"), Some("b")), ["a", "b"]);
    assert_eq!(list(None, Some(" b ")), ["b"]);
    assert_eq!(list(Some("bEARER   a "), None), ["a"]);
    assert_eq!(list(Some("Basic dXNlcg=="), Some("b")), ["b"]);
    for nothing in ["", " ", "Bearer", "Bearer ", "a"] {
        assert!(list(Some(nothing), Some("")).is_empty(), "{nothing:?}");
    }
    assert!(list(None, None).is_empty());
    assert_eq!(presented_keys(Some(b"Bearer \xff"), None).count(), 0);
}

#[test]
fn a_renewed_key_keeps_its_public_id_and_has_another_secret() {
    let old = key(1);
    let new = ApiKey::generate_for_id(old.public_id(), &mut source(2)).unwrap();
    assert_eq!(new.public_id(), old.public_id());
    assert_ne!(new.reveal(), old.reveal());
    assert_eq!(ApiKey::parse(new.reveal()).unwrap().reveal(), new.reveal());
    assert!(!digests_equal(&key_digest(&[7; 32], &old), &key_digest(&[7; 32], &new)));
    for id in ["", "short", "0123456789abcde-", "0123456789abcdef0"] {
        assert!(ApiKey::generate_for_id(id, &mut source(3)).is_none());
    }
}

/// Parses keys with one wrong character, at each position and with each other character: a million with
/// `PENSTOCK_FULL=1`.
#[test]
fn no_mistyped_key_comes_as_far_as_a_look_up() {
    let most = if std::env::var_os("PENSTOCK_FULL").is_some() { 1_000_000 } else { 50_000 };
    let digits: Vec<u8> = (b'0'..=b'9').chain(b'A'..=b'Z').chain(b'a'..=b'z').collect();
    let mut typos = 0;
    for start in 1_000.. {
        let key = key(start);
        let mut text = key.reveal().as_bytes().to_vec();
        for index in "sk-svc-".len()..text.len() {
            let right = text[index];
            for digit in digits.iter().filter(|digit| **digit != right) {
                text[index] = *digit;
                assert!(ApiKey::parse(str::from_utf8(&text).unwrap()).is_err(), "{index} {digit}");
                typos += 1;
            }
            text[index] = right;
        }
        if typos >= most {
            break;
        }
    }
    println!("{typos} mistyped keys, all of them refused by their checksum");
}
