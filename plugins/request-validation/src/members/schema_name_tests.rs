//! Tests of the names under which a client may state the schema of a JSON object.
#![allow(clippy::unwrap_used)]

use super::tests::ask;
use penstock_core::Dialect;

#[test]
fn the_schema_of_a_json_object_is_validated_under_each_name() {
    let format = |rest: &str| ask(Dialect::Chat, &format!(r#""response_format":{{"type":{rest}}}"#));
    for rest in [r#""json_object","value":{"type":"object"}"#, r#""json_object","value":null"#] {
        assert!(format(rest).is_ok(), "{rest}");
    }
    for (rest, param) in [
        (r#""json_object","value":"{}""#, "response_format.value"),
        (r#""json_object","value":{},"schema":{}"#, "response_format.value"),
        (r#""json_object","value":{},"json_schema":{"name":"a","schema":{}}"#, "response_format.value"),
        (r#""json","value":{"type":"object"}"#, "response_format.type"),
        (r#""regex","value":"a+""#, "response_format.type"),
    ] {
        assert_eq!(format(rest).unwrap_err().param.as_deref(), Some(param), "{rest}");
    }
}
