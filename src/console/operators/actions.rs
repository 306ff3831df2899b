//! Forms of the operators' console.

use super::account_actions::{
    CHANGE_ACCOUNT, CHANGE_ROLE, CORRECT_LEDGER_ENTRY, ISSUE_CREDIT_NOTE, RESUME_ACCOUNT, SUSPEND_ACCOUNT,
    account_path,
};
use super::grant::GRANT_CREDITS;
use crate::console::actions::{
    ActionDefinition, ActionResult, create_key_body, fields_json, json_member_text, message_result,
    new_admin_call, no_confirmation, secret_result,
};
use crate::console::confirmation::{ChangePreview, Confirmation, ConfirmedObject};
use crate::console::invoice::{ISSUER_ROLES, issuing_refusal};
use crate::console::request::ConsoleRequest;
use crate::console::rotation::{rotation_body, rotation_confirmation};
use http::Method;
use penstock_console::pages::{
    configuration_changes_table, invite_user_form, invoice_period_form, issue_preview_blocks,
    new_account_form, new_key_form, percent_encode,
};
use penstock_console::{Block, NoticeKind, Text};
use penstock_storage::users::UserRole::{Admin, Operator};
use serde_json::{Value, json};

/// Path of the form that validates a configuration.
pub const CONFIGURATION_CHECK_PATH: &str = "/console/configuration/check";
/// Path of the page of the configuration.
pub const CONFIGURATION_PATH: &str = "/console/configuration";

/// Actions of all console forms except the sign-in forms.
pub const ACTIONS: &[ActionDefinition] = &[
    ActionDefinition {
        path: "/console/accounts",
        roles: &[Admin],
        build: |request, _| {
            new_admin_call(Method::POST, "/admin/accounts".into(), fields_json(request, &["id", "name"]))
        },
        page: |_, _| "/console/accounts".into(),
        show: |answer| message_result("The account {0} was created.", [json_member_text(answer, "id")]),
        form: Some(|_, _| new_account_form()),
        confirm: no_confirmation,
    },
    ActionDefinition {
        path: "/console/accounts/{id}/keys",
        roles: &[Admin],
        build: |request, id| new_admin_call(Method::POST, "/admin/keys".into(), create_key_body(request, id)),
        page: |_, id| account_path(id),
        show: |answer| secret_result(answer, "The new key, shown only now:"),
        form: Some(|_, id| new_key_form(&format!("/console/accounts/{}/keys", percent_encode(id)))),
        confirm: no_confirmation,
    },
    GRANT_CREDITS,
    CHANGE_ACCOUNT,
    SUSPEND_ACCOUNT,
    RESUME_ACCOUNT,
    CORRECT_LEDGER_ENTRY,
    ActionDefinition {
        path: "/console/accounts/{id}/invoice/issue",
        roles: ISSUER_ROLES,
        build: |request, id| {
            let mut body = fields_json(request, &["from", "to"]);
            if let Some(members) = body.as_object_mut() {
                members.insert("account".to_owned(), id.into());
            }
            new_admin_call(Method::POST, "/admin/invoices".into(), body)
        },
        page: |request, id| {
            let day = |name: &str| percent_encode(request.form_or_query_value(name));
            format!("{}/invoice?from={}&to={}", account_path(id), day("from"), day("to"))
        },
        show: |answer| message_result("The invoice {0} was issued.", [json_member_text(answer, "number")]),
        form: Some(|request, id| {
            let path = format!("{}/invoice", account_path(id));
            invoice_period_form(&path, request.form_or_query_value("from"), request.form_or_query_value("to"))
        }),
        confirm: |request, id| {
            let day = |name: &str| Text::Day(request.form_or_query_value(name).to_owned());
            Some(Confirmation {
                question: "Issue the invoice of the account {0} for {1} to {2}? An issued invoice never changes.",
                values: vec![Text::Data(id.to_owned()), day("from"), day("to")],
                object: Some(ConfirmedObject::Described {
                    path: "/admin/invoice".to_owned(),
                    query: vec![
                        ("account", id.to_owned()),
                        ("from", request.form_or_query_value("from").to_owned()),
                        ("to", request.form_or_query_value("to").to_owned()),
                    ],
                    refuse: issuing_refusal,
                    describe: |invoice| ChangePreview {
                        blocks: issue_preview_blocks(invoice),
                        fields: Vec::new(),
                    },
                }),
                submit: "Issue with the next number",
                fields: &["from", "to"],
            })
        },
    },
    ISSUE_CREDIT_NOTE,
    ActionDefinition {
        path: "/console/keys/{id}/revoke",
        roles: &[Admin],
        build: |_, id| {
            new_admin_call(Method::POST, format!("/admin/keys/{}/revoke", percent_encode(id)), json!({}))
        },
        page: |request, _| key_page(request),
        show: |answer| message_result("The key {0} was revoked.", [json_member_text(answer, "id")]),
        form: None,
        confirm: |_, id| {
            Some(Confirmation {
                question: "Revoke the key {0}? Its requests are refused at once. This cannot be undone.",
                values: Vec::new(),
                object: Some(ConfirmedObject::Named(format!("/admin/keys/{}", percent_encode(id)))),
                submit: "Revoke",
                fields: &["account"],
            })
        },
    },
    ActionDefinition {
        path: "/console/keys/{id}/rotate",
        roles: &[Admin],
        build: |request, id| {
            let path = format!("/admin/keys/{}/rotate", percent_encode(id));
            new_admin_call(Method::POST, path, rotation_body(request))
        },
        page: |request, _| key_page(request),
        show: |answer| {
            secret_result(answer, "The new secret, shown only now; the old one is valid for a day:")
        },
        form: None,
        confirm: |request, id| rotation_confirmation(request, id, &["account", "end_previous"]),
    },
    ActionDefinition {
        path: "/console/batches/{id}/cancel",
        roles: &[Admin, Operator],
        build: |_, id| {
            new_admin_call(Method::POST, format!("/admin/batches/{}/cancel", percent_encode(id)), json!({}))
        },
        page: |_, _| "/console/batches".into(),
        show: |answer| message_result("The batch {0} is cancelled.", [json_member_text(answer, "id")]),
        form: None,
        confirm: batch_cancellation_confirmation,
    },
    ActionDefinition {
        path: "/console/configuration/reload",
        roles: &[Admin, Operator],
        build: |_, _| new_admin_call(Method::POST, "/admin/reload".into(), json!({})),
        page: |_, _| CONFIGURATION_PATH.into(),
        show: |answer| {
            let text = "The configuration {0} is running.";
            let notice = notice_block(Text::with_values(text, [json_member_text(answer, "config").into()]));
            ActionResult::Blocks(vec![notice, Block::Table(configuration_changes_table(answer))])
        },
        form: None,
        confirm: no_confirmation,
    },
    ActionDefinition {
        path: "/console/users",
        roles: &[Admin],
        build: |request, _| {
            new_admin_call(
                Method::POST,
                "/admin/users".into(),
                fields_json(request, &["name", "role", "account"]),
            )
        },
        page: |_, _| "/console/users".into(),
        show: shown_invitation,
        form: Some(|_, _| invite_user_form()),
        confirm: no_confirmation,
    },
    CHANGE_ROLE,
    ActionDefinition {
        path: "/console/users/{id}/invite",
        roles: &[Admin],
        build: |_, id| {
            new_admin_call(Method::POST, format!("/admin/users/{}/invite", percent_encode(id)), json!({}))
        },
        page: |_, _| "/console/users".into(),
        show: shown_invitation,
        form: None,
        confirm: no_confirmation,
    },
    ActionDefinition {
        path: "/console/users/{id}/disable",
        roles: &[Admin],
        build: |_, id| {
            new_admin_call(
                Method::PATCH,
                format!("/admin/users/{}", percent_encode(id)),
                json!({ "disabled": "true" }),
            )
        },
        page: |_, _| "/console/users".into(),
        show: |answer| message_result("The user {0} is disabled.", [json_member_text(answer, "name")]),
        form: None,
        confirm: |_, id| {
            Some(Confirmation {
                question: "Disable the user {0}? All sessions of this user end at once.",
                values: vec![Text::Data(id.to_owned())],
                object: Some(ConfirmedObject::User(id.to_owned())),
                submit: "Disable",
                fields: &[],
            })
        },
    },
    ActionDefinition {
        path: "/console/users/{id}/enable",
        roles: &[Admin],
        build: |_, id| {
            new_admin_call(
                Method::PATCH,
                format!("/admin/users/{}", percent_encode(id)),
                json!({ "disabled": "false" }),
            )
        },
        page: |_, _| "/console/users".into(),
        show: |answer| message_result("The user {0} is enabled.", [json_member_text(answer, "name")]),
        form: None,
        confirm: no_confirmation,
    },
];

/// Returns a success notice as a block of a page.
pub(super) fn notice_block(text: Text) -> Block {
    Block::Notice(NoticeKind::Success, text)
}

/// Returns the question before a batch is cancelled.
pub fn batch_cancellation_confirmation(_: &ConsoleRequest, id: &str) -> Option<Confirmation> {
    Some(Confirmation {
        question: "Cancel the batch {0}? Lines that were not sent yet stay without a result.",
        values: vec![Text::Data(id.to_owned())],
        object: Some(ConfirmedObject::Existing(format!("/admin/batches/{}", percent_encode(id)))),
        submit: "Cancel the batch",
        fields: &[],
    })
}

/// Returns the path of the page to show after an action on a key: that of the account in the form, or the list of
/// accounts.
fn key_page(request: &ConsoleRequest) -> String {
    match request.form_or_query_value("account") {
        "" => "/console/accounts".to_owned(),
        account => account_path(account),
    }
}

fn shown_invitation(answer: &Value) -> ActionResult {
    let label = match &*json_member_text(answer, "role") {
        "account" => "Link to the dashboard for {0}, valid once and for 72 hours:",
        _ => "Link to this console for {0}, valid once and for 72 hours:",
    };
    let label = Text::with_values(label, [json_member_text(answer, "name").into()]);
    ActionResult::Blocks(vec![Block::Secret(label, json_member_text(answer, "link"))])
}
