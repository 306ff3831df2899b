//! Forms of the dashboard.

use super::HOLDERS;
use crate::console::actions::{
    ActionDefinition, create_key_body, fields_json, json_member_text, limits_json, message_result,
    new_admin_call, no_confirmation, secret_result,
};
use crate::console::confirmation::{Confirmation, ConfirmedObject};
use crate::console::file_deletion::file_deletion_confirmation;
use crate::console::operators::actions::batch_cancellation_confirmation;
use crate::console::rotation::{rotation_body, rotation_confirmation};
use http::Method;
use penstock_console::pages::{edit_key_form, new_key_form, percent_encode};
use serde_json::{Value, json};

/// Actions of all dashboard forms except the sign-in forms.
pub const ACTIONS: &[ActionDefinition] = &[
    ActionDefinition {
        path: "/dashboard/keys",
        roles: HOLDERS,
        build: |request, _| new_admin_call(Method::POST, "/admin/keys".into(), create_key_body(request, "")),
        page: |_, _| "/dashboard/keys".into(),
        show: |answer| secret_result(answer, "The new key, shown only now:"),
        form: Some(|_, _| new_key_form("/dashboard/keys")),
        confirm: no_confirmation,
    },
    ActionDefinition {
        path: "/dashboard/keys/{id}/limits",
        roles: HOLDERS,
        build: |request, id| {
            let mut body = fields_json(request, &["version"]);
            if let Some(members) = body.as_object_mut() {
                members.insert("name".to_owned(), request.form_field("name").trim().into());
                members.insert("limits".to_owned(), limits_json(request));
            }
            new_admin_call(Method::PATCH, admin_key(id, ""), body)
        },
        page: |_, id| key_path(id),
        show: |answer| message_result("The key {0} was changed.", [json_member_text(answer, "name")]),
        form: Some(|request, id| edit_key_form(&Value::Null, &key_path(id), request.language)),
        confirm: no_confirmation,
    },
    ActionDefinition {
        path: "/dashboard/keys/{id}/rotate",
        roles: HOLDERS,
        build: |request, id| new_admin_call(Method::POST, admin_key(id, "/rotate"), rotation_body(request)),
        page: |_, id| key_path(id),
        show: |answer| secret_result(answer, "The new secret, shown only now:"),
        form: None,
        confirm: |request, id| rotation_confirmation(request, id, &["overlap_seconds", "end_previous"]),
    },
    ActionDefinition {
        path: "/dashboard/keys/{id}/revoke",
        roles: HOLDERS,
        build: |_, id| new_admin_call(Method::POST, admin_key(id, "/revoke"), json!({})),
        page: |_, id| key_path(id),
        show: |answer| message_result("The key {0} was revoked.", [json_member_text(answer, "id")]),
        form: None,
        confirm: |_, id| {
            Some(Confirmation {
                question: "Revoke the key {0}? Its requests are refused at once. This cannot be undone.",
                values: Vec::new(),
                object: Some(ConfirmedObject::Named(admin_key(id, ""))),
                submit: "Revoke",
                fields: &[],
            })
        },
    },
    ActionDefinition {
        path: "/dashboard/batches/{id}/cancel",
        roles: HOLDERS,
        build: |_, id| {
            new_admin_call(Method::POST, format!("/admin/batches/{}/cancel", percent_encode(id)), json!({}))
        },
        page: |_, _| "/dashboard/batches".into(),
        show: |answer| message_result("The batch {0} is cancelled.", [json_member_text(answer, "id")]),
        form: None,
        confirm: batch_cancellation_confirmation,
    },
    ActionDefinition {
        path: "/dashboard/files/{id}/delete",
        roles: HOLDERS,
        build: |_, id| {
            new_admin_call(Method::DELETE, format!("/admin/files/{}", percent_encode(id)), json!({}))
        },
        page: |_, _| "/dashboard/files".into(),
        show: |answer| message_result("The file {0} was deleted.", [json_member_text(answer, "id")]),
        form: None,
        confirm: file_deletion_confirmation,
    },
];

fn admin_key(id: &str, rest: &str) -> String {
    format!("/admin/keys/{}{rest}", percent_encode(id))
}

fn key_path(id: &str) -> String {
    format!("/dashboard/keys/{}", percent_encode(id))
}
