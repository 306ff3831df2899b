//! Tests that removing parts leaves the remaining parts intact.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::BodyEdits;
use crate::body::is_opaque_member;
use penstock_core::BodyEdit;
use penstock_json_scan::tape::{JsonTape, StructureLimits, scan};

fn applied(text: &str, edits: &[BodyEdit]) -> String {
    let mut out = String::new();
    let mut at = 0;
    for edit in edits {
        out.push_str(&text[at..edit.range.start]);
        out.push_str(std::str::from_utf8(&edit.replacement).unwrap());
        at = edit.range.end;
    }
    out + &text[at..]
}

#[test]
fn any_selection_of_members_or_items_can_be_dropped() {
    for (open, close, part) in [("{", "}", "\"k\":"), ("[", "]", "")] {
        for count in 0..6_u32 {
            for space in ["", " ", "\n  "] {
                let list = |selection: u32| {
                    let parts = (0..count).filter(move |index| selection & 1 << index != 0);
                    parts.map(|index| format!("{}{index}", part.replace('k', &index.to_string())))
                };
                let all: Vec<String> = list(u32::MAX).collect();
                let text = format!("{open}{space}{}{space}{close}", all.join(&format!("{space},{space}")));
                for selection in 0..1_u32 << count {
                    let nodes =
                        scan(text.as_bytes(), StructureLimits { depth: 9, nodes: 99 }, is_opaque_member)
                            .unwrap();
                    let tape = JsonTape { text: &text, nodes: &nodes };
                    let root = tape.root().unwrap();
                    let keep = |value: penstock_json_scan::tape::JsonValue<'_>| {
                        selection & 1 << value.raw().parse::<u32>().unwrap() != 0
                    };
                    let mut edits = BodyEdits::default();
                    if root.is_object() {
                        edits.retain_members(root, |_, value| keep(value));
                    } else {
                        assert_eq!(edits.retain_items(root, keep), selection.count_ones() as usize);
                    }
                    let got: serde_json::Value =
                        serde_json::from_str(&applied(&text, &edits.into_sorted_edits())).unwrap();
                    let expected = format!("{open}{}{close}", list(selection).collect::<Vec<_>>().join(","));
                    assert_eq!(
                        got,
                        serde_json::from_str::<serde_json::Value>(&expected).unwrap(),
                        "{text} {selection:b}"
                    );
                }
            }
        }
    }
}

#[test]
fn edits_come_out_in_order_and_none_lies_inside_another() {
    let mut edits = BodyEdits::default();
    edits.replace(10..20, "");
    edits.replace(12..13, "inside");
    edits.insert(10, "before");
    edits.replace(20..21, "after");
    edits.replace(2..3, "first");
    let order: Vec<_> = edits.into_sorted_edits().into_iter().map(|edit| edit.range).collect();
    assert_eq!(order, [2..3, 10..10, 10..20, 20..21]);
}
