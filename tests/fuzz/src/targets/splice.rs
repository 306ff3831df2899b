//! Insertion of `environment_impact` and `billing_cost` into an answer: the result does not depend on the cuts, and
//! nothing else changes.

use crate::however_cut;
use bytes::Bytes;
use penstock_json_scan::json::insert_members;
use penstock_response_metadata as response_metadata;
use serde_json::Value;

const MEMBERS: &[u8] = br#""environment_impact":{"energy_kwh":1.5},"billing_cost":{"credits":2}"#;

pub fn check(bytes: &[u8]) {
    let spliced = however_cut(bytes, |pieces| {
        response_metadata::insert_members(
            pieces.iter().map(|piece| Bytes::copy_from_slice(piece)).collect(),
            MEMBERS,
        )
        .concat()
    });
    let inserted = insert_members(Bytes::copy_from_slice(bytes), MEMBERS).concat();
    let Ok(Value::Object(mut object)) = serde_json::from_slice(bytes) else {
        return;
    };
    let expected: Value = serde_json::from_slice(&[b"{", MEMBERS, b"}"].concat()).expect("JSON");
    for (name, value) in expected.as_object().expect("an object") {
        object.insert(name.clone(), value.clone());
    }
    for out in [spliced, inserted] {
        let value: Value = serde_json::from_slice(&out).expect("still JSON");
        assert_eq!(value, Value::Object(object.clone()));
    }
}
