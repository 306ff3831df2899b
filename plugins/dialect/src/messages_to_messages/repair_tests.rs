//! Repair tests: removal of members leaves valid JSON at every position; text of a start event is sent once.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::repair::{repair_block, repair_block_start};
use crate::decode::messages::EventMembers;
use crate::document_patches::DocumentPatches;
use crate::response_constraints::ToolCallIds;
use bytes::Bytes;
use penstock_core::ThinkingDisplay;
use serde_json::Value;

#[test]
fn null_members_are_removed_and_the_rest_is_unchanged() {
    let members = [r#""type":"text""#, r#""citations":null"#, r#""caller" : null"#, r#""text":"x""#];
    // Every selection of the members in every order.
    for number in 0..4_usize.pow(4) {
        let mut chosen: Vec<&str> = Vec::new();
        for position in 0..4 {
            let member = members.get(number / 4_usize.pow(position) % 4).unwrap();
            if !chosen.contains(member) {
                chosen.push(member);
            }
        }
        let object = Bytes::from(format!("{{ {} }}", chosen.join(" , ")));
        let mut patches = DocumentPatches::new(&object);
        repair_block(&mut patches, &object, |_| String::new());
        let done: Value = serde_json::from_slice(&patches.finish().concat()).unwrap();
        let mut expected: Value = serde_json::from_slice(&object).unwrap();
        expected.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        if expected["type"] == "text" && expected["text"].is_null() {
            expected["text"] = "".into();
        }
        assert_eq!(done, expected);
    }
}

#[test]
fn a_text_repeated_in_a_block_start_is_sent_once() {
    for (members, heard) in [
        (r#""text":"a","text":"b""#, Some("a")),
        (r#""text":"a","text":"""#, Some("a")),
        (r#""text":"","text":"b""#, None),
        (r#""text":null,"text":"b""#, None),
    ] {
        let data = format!(
            r#"{{"type":"content_block_start","index":0,"content_block":{{"type":"text",{members}}}}}"#
        );
        let data = Bytes::from(data);
        let start = repair_block_start(
            &data,
            &EventMembers::parse(&data),
            ThinkingDisplay::Shown,
            (&mut ToolCallIds::default(), "seed"),
        );
        assert_eq!(start.early_text.map(|(_, words)| words), heard.map(Bytes::from), "{members}");
        let left: Value = serde_json::from_slice(&start.data).unwrap();
        assert_eq!(left["content_block"], serde_json::json!({"type": "text", "text": ""}), "{members}");
        assert!(!start.data.windows(3).any(|part| part == br#""a""# || part == br#""b""#), "{members}");
    }
}
