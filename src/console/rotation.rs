//! Rotation of a key by a form of any site: its request body, and the question before a rotation that ends a secret at
//! once.

use super::confirmation::{Confirmation, ConfirmedObject};
use super::request::ConsoleRequest;
use penstock_console::pages::percent_encode;
use serde_json::{Map, Value};

/// Returns the request body with the seconds for which the previous secret stays valid, and with the permission to end
/// an earlier secret, as far as the form has them. A value that is not a number is refused by the admin API.
pub fn rotation_body(request: &ConsoleRequest) -> Value {
    let mut body = Map::new();
    match request.form_field("overlap_seconds") {
        "" => {}
        text => {
            let seconds = text.parse::<u64>().map_or_else(|_| Value::from(text), Value::from);
            body.insert("overlap_seconds".to_owned(), seconds);
        }
    }
    if ends_earlier_secret(request) {
        body.insert("end_previous".to_owned(), true.into());
    }
    Value::Object(body)
}

/// Returns the question to confirm before a rotation of the key `id` that makes the present secret invalid at once, or
/// an earlier one whose overlap has not ended; `None` for any other rotation. `fields` are the fields of the form.
pub fn rotation_confirmation(
    request: &ConsoleRequest,
    id: &str,
    fields: &'static [&'static str],
) -> Option<Confirmation> {
    let question = if request.form_or_query_value("overlap_seconds") == "0" {
        "Give the key {0} a new secret? Requests with the present one are refused at once."
    } else if ends_earlier_secret(request) {
        "Give the key {0} a new secret? Requests with the secret before the present one are refused at once, although it would still be valid."
    } else {
        return None;
    };
    Some(Confirmation {
        question,
        values: Vec::new(),
        object: Some(ConfirmedObject::Named(format!("/admin/keys/{}", percent_encode(id)))),
        submit: "Rotate",
        fields,
    })
}

/// Returns true if the form was shown while an earlier secret was valid.
fn ends_earlier_secret(request: &ConsoleRequest) -> bool {
    request.form_or_query_value("end_previous") == "true"
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn form(fields: &[(&str, &str)]) -> ConsoleRequest {
        let mut request = ConsoleRequest::default();
        request.form = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        request
    }

    #[test]
    fn a_rotation_that_ends_a_secret_at_once_is_confirmed() {
        let overlap = ("overlap_seconds", "3600");
        for (fields, body, question) in [
            (&[][..], json!({}), None),
            (&[overlap], json!({ "overlap_seconds": 3_600 }), None),
            (
                &[("overlap_seconds", "0")],
                json!({ "overlap_seconds": 0 }),
                Some("the present one are refused"),
            ),
            (
                &[overlap, ("end_previous", "true")],
                json!({ "overlap_seconds": 3_600, "end_previous": true }),
                Some("the secret before the present one are refused"),
            ),
            (&[("end_previous", "true")], json!({ "end_previous": true }), Some("before the present one")),
        ] {
            let request = form(fields);
            assert_eq!(rotation_body(&request), body);
            let confirmation = rotation_confirmation(&request, "k", &["overlap_seconds", "end_previous"]);
            assert_eq!(confirmation.is_some(), question.is_some(), "{body}");
            if let Some((confirmation, part)) = confirmation.zip(question) {
                assert!(confirmation.question.contains(part), "{}", confirmation.question);
            }
        }
    }
}
