//! Forms of the dashboard.

use super::HOLDERS;
use crate::console::actions::{
    ActionRow, admin_call, completion_message, limits_json, member_text, new_key, shown_key,
};
use crate::console::request::ConsoleRequest;
use http::Method;
use penstock_console::pages::{encode, key_form, key_limits_form};
use serde_json::{Value, json};

/// All forms except those of the sign-in.
pub const ACTIONS: &[ActionRow] = &[
    ActionRow {
        path: "/dashboard/keys",
        roles: HOLDERS,
        build: |request, _| admin_call(Method::POST, "/admin/keys".into(), new_key(request, "")),
        page: |_, _| "/dashboard/keys".into(),
        show: |answer| shown_key(answer, "The new key, shown only now:"),
        form: Some(|_, _| key_form("/dashboard/keys")),
    },
    ActionRow {
        path: "/dashboard/keys/{id}/limits",
        roles: HOLDERS,
        build: |request, id| {
            let body = json!({ "name": request.field("name").trim(), "limits": limits_json(request) });
            admin_call(Method::PATCH, admin_key(id, ""), body)
        },
        page: |_, id| key_path(id),
        show: |answer| completion_message("The key {0} was changed.", [member_text(answer, "name")]),
        form: Some(|_, id| key_limits_form(&Value::Null, &key_path(id))),
    },
    ActionRow {
        path: "/dashboard/keys/{id}/rotate",
        roles: HOLDERS,
        build: |request, id| admin_call(Method::POST, admin_key(id, "/rotate"), overlap(request)),
        page: |_, id| key_path(id),
        show: |answer| shown_key(answer, "The new secret, shown only now:"),
        form: None,
    },
    ActionRow {
        path: "/dashboard/keys/{id}/revoke",
        roles: HOLDERS,
        build: |_, id| admin_call(Method::POST, admin_key(id, "/revoke"), json!({})),
        page: |_, id| key_path(id),
        show: |answer| completion_message("The key {0} was revoked.", [member_text(answer, "id")]),
        form: None,
    },
    ActionRow {
        path: "/dashboard/batches/{id}/cancel",
        roles: HOLDERS,
        build: |_, id| admin_call(Method::POST, format!("/admin/batches/{}/cancel", encode(id)), json!({})),
        page: |_, _| "/dashboard/batches".into(),
        show: |answer| completion_message("The batch {0} is cancelled.", [member_text(answer, "id")]),
        form: None,
    },
    ActionRow {
        path: "/dashboard/files/{id}/delete",
        roles: HOLDERS,
        build: |_, id| admin_call(Method::DELETE, format!("/admin/files/{}", encode(id)), json!({})),
        page: |_, _| "/dashboard/files".into(),
        show: |answer| completion_message("The file {0} was deleted.", [member_text(answer, "id")]),
        form: None,
    },
];

fn admin_key(id: &str, rest: &str) -> String {
    format!("/admin/keys/{}{rest}", encode(id))
}

fn key_path(id: &str) -> String {
    format!("/dashboard/keys/{}", encode(id))
}

/// Returns how long the previous secret stays valid. A value that is not a number is refused by the admin API.
fn overlap(request: &ConsoleRequest) -> Value {
    match request.field("overlap_seconds") {
        "" => json!({}),
        text => json!({ "overlap_seconds": text.parse::<u64>().map_or_else(|_| json!(text), Value::from) }),
    }
}
