//! Tests of base64 validation: alphabet, padding and length.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::Base64Validator;

fn is_whole(pieces: &[&[u8]]) -> bool {
    let mut proof = Base64Validator::default();
    pieces.iter().for_each(|piece| proof.push(piece));
    proof.is_valid()
}

#[test]
fn whole_groups_of_the_standard_alphabet_are_taken() {
    for good in ["AAAA", "ab+/", "YQ==", "YWI=", "Zm9vYmFy"] {
        assert!(is_whole(&[good.as_bytes()]), "{good}");
    }
    for bad in
        ["", "A", "AA", "AAA", "AAAAA", "====", "A===", "AA=A", "AA==AAAA", "AA-_", "AA A", "AAA\n", "é=="]
    {
        assert!(!is_whole(&[bad.as_bytes()]), "{bad}");
    }
}

#[test]
fn pieces_count_as_one() {
    assert!(is_whole(&[b"ab", b"/", b"c"]));
    assert!(is_whole(&[b"abc", b"="]));
    assert!(is_whole(&[b"ab", b"=", b"="]));
    assert!(!is_whole(&[b"ab=", b"c"]));
    assert!(!is_whole(&[b"a", b"==="]));
}

#[test]
fn each_byte_anywhere_is_judged_alike() {
    for length in [4, 64, 68, 128, 132] {
        for at in [0, 1, length / 2, length - 1] {
            for byte in 0..=255_u8 {
                let mut text = vec![b'A'; length];
                text[at] = byte;
                let is_letter = byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/';
                let is_padding = byte == b'=' && at == length - 1;
                assert_eq!(is_whole(&[&text]), is_letter || is_padding, "{byte} at {at} of {length}");
            }
        }
    }
}
