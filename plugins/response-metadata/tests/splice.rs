//! Members are inserted into any JSON object, for any split of its bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_response_metadata::insert_members;
use proptest::prelude::*;

const MEMBERS: &[u8] = br#""a":1,"b":{}"#;

fn spliced(pieces: &[&str], members: &[u8]) -> String {
    let body = pieces.iter().map(|piece| Bytes::copy_from_slice(piece.as_bytes())).collect();
    String::from_utf8(insert_members(body, members).concat()).unwrap()
}

#[test]
fn members_stand_before_the_last_brace_with_one_comma() {
    assert_eq!(spliced(&[r#"{"id":1}"#], MEMBERS), r#"{"id":1,"a":1,"b":{}}"#);
    assert_eq!(spliced(&[r#"{"id":{"#, "}", "}"], MEMBERS), r#"{"id":{},"a":1,"b":{}}"#);
    assert_eq!(spliced(&[r#"{"id":[{"#, "}]", " \n}"], MEMBERS), "{\"id\":[{}] \n,\"a\":1,\"b\":{}}");
}

#[test]
fn an_empty_object_gets_no_comma() {
    for pieces in [&["{}"][..], &["{", "}"], &["", "{ ", "\n", " }", ""], &["{}\r\n"]] {
        let read: serde_json::Value = serde_json::from_str(&spliced(pieces, MEMBERS)).unwrap();
        assert_eq!(read, serde_json::json!({"a": 1, "b": {}}), "{pieces:?}");
    }
}

#[test]
fn a_brace_inside_a_string_before_the_end_does_not_hide_the_comma() {
    assert_eq!(spliced(&[r#"{"id":"{"#, r#""}"#], MEMBERS), r#"{"id":"{","a":1,"b":{}}"#);
}

#[test]
fn white_space_after_the_object_is_dropped() {
    assert_eq!(spliced(&[r#"{"id":1}"#, " \n", "\t"], MEMBERS), r#"{"id":1,"a":1,"b":{}}"#);
}

#[test]
fn non_objects_and_empty_additions_are_left_unchanged() {
    assert_eq!(spliced(&[r#"{"id":1} "#], b""), r#"{"id":1} "#);
    for other in [&["[1]"][..], &[""], &[], &["plain text"], &[" ", "\n"]] {
        assert_eq!(spliced(other, MEMBERS), other.concat());
    }
}

#[test]
fn pieces_are_sliced_and_not_copied() {
    let body = Bytes::from_static(br#"{"id":1}"#);
    let out = insert_members(vec![body.clone()], MEMBERS);
    assert_eq!((out.len(), out[0].as_ptr()), (2, body.as_ptr()));
}

proptest! {
    #[test]
    fn any_object_cut_anywhere_gains_its_members(
        names in prop::collection::btree_map("[c-z]{1,4}", any::<String>(), 0..4),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let whole = serde_json::to_vec(&names).unwrap();
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
        ends.push(whole.len());
        ends.sort_unstable();
        let mut start = 0;
        let mut body = Vec::new();
        for end in ends {
            body.push(Bytes::copy_from_slice(&whole[start..end]));
            start = end;
        }
        let read: serde_json::Value = serde_json::from_slice(&insert_members(body, MEMBERS).concat()).unwrap();
        let mut expected = serde_json::to_value(&names).unwrap();
        expected["a"] = 1.into();
        expected["b"] = serde_json::json!({});
        prop_assert_eq!(read, expected);
    }
}
