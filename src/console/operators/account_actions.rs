//! Forms that change accounts and users: name and limits, suspension, corrections of the ledger, and roles.

use crate::console::actions::{
    ActionDefinition, fields_json, json_member_text, limits_json, message_result, new_admin_call,
    no_confirmation,
};
use crate::console::amount::normalize_amount;
use crate::console::confirmation::{ChangePreview, Confirmation, ConfirmedObject};
use crate::console::invoice::ISSUER_ROLES;
use crate::console::request::ConsoleRequest;
use http::Method;
use penstock_console::Text;
use penstock_console::pages::{
    correction_blocks, correction_form, credit_note_preview_blocks, edit_account_form, percent_encode,
    user_role_form,
};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole::{Admin, Finance};
use serde_json::{Value, json};

/// Form that changes the name and the limits of an account.
pub const CHANGE_ACCOUNT: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/change",
    roles: &[Admin],
    build: |request, id| {
        let name = request.form_field("name").trim();
        let mut body = fields_json(request, &["version"]);
        if let Some(members) = body.as_object_mut() {
            members.insert("name".to_owned(), (!name.is_empty()).then_some(name).into());
            members.insert("limits".to_owned(), limits_json(request));
        }
        new_admin_call(Method::PATCH, admin_account(id), body)
    },
    page: |_, id| account_path(id),
    show: |answer| message_result("The account {0} was changed.", [json_member_text(answer, "id")]),
    form: Some(|request, id| edit_account_form(&json!({ "id": id }), request.language)),
    confirm: no_confirmation,
};

/// Form that suspends an account.
pub const SUSPEND_ACCOUNT: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/suspend",
    roles: &[Admin],
    build: |_, id| new_admin_call(Method::PATCH, admin_account(id), json!({ "state": "suspended" })),
    page: |_, id| account_path(id),
    show: |answer| message_result("The account {0} is suspended.", [json_member_text(answer, "id")]),
    form: None,
    confirm: |_, id| {
        Some(Confirmation {
            question: "Suspend the account {0}? Requests with its keys are refused at once.",
            values: vec![Text::Data(id.to_owned())],
            object: Some(ConfirmedObject::Existing(admin_account(id))),
            submit: "Suspend",
            fields: &[],
        })
    },
};

/// Form that resumes a suspended account.
pub const RESUME_ACCOUNT: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/resume",
    roles: &[Admin],
    build: |_, id| new_admin_call(Method::PATCH, admin_account(id), json!({ "state": "active" })),
    page: |_, id| account_path(id),
    show: |answer| message_result("The account {0} is active.", [json_member_text(answer, "id")]),
    form: None,
    confirm: no_confirmation,
};

/// Form that corrects a charge or a grant of an account.
pub const CORRECT_LEDGER_ENTRY: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/correct",
    roles: &[Admin, Finance],
    build: |request, id| {
        new_admin_call(Method::POST, "/admin/credits/correct".into(), correction(request, id))
    },
    page: |_, id| account_path(id),
    show: |answer| {
        message_result(
            "The entry was corrected by entry {0} of the ledger.",
            [json_member_text(answer, "entry")],
        )
    },
    form: Some(|request, id| correction_form(id, request.form_field("id"))),
    confirm: |request, id| {
        let body = correction(request, id);
        let query = ["account", "entry", "credits", "kwh"].map(|name| (name, json_member_text(&body, name)));
        Some(Confirmation {
            question: "Correct the entry {0} of the account {1}? An entry can be corrected once only.",
            values: vec![
                Text::Data(request.form_or_query_value("entry").to_owned()),
                Text::Data(id.to_owned()),
            ],
            object: Some(ConfirmedObject::Described {
                path: "/admin/credits/correction".to_owned(),
                query: query.into(),
                refuse: |_, _| None,
                describe: describe_correction,
            }),
            submit: "Correct",
            fields: &["id", "entry", "credits", "wallet", "note"],
        })
    },
};

/// Form that issues the credit note of an invoice.
pub const ISSUE_CREDIT_NOTE: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/invoice/credit",
    roles: ISSUER_ROLES,
    build: |request, id| {
        let members = credited_invoice(request, id).into_iter();
        let body = members.map(|(name, value)| (name.to_owned(), value.into())).collect();
        new_admin_call(Method::POST, "/admin/credit-notes".into(), Value::Object(body))
    },
    page: |_, id| format!("{}/invoice", account_path(id)),
    show: |answer| message_result("The credit note {0} was issued.", [json_member_text(answer, "number")]),
    form: None,
    confirm: |request, id| {
        let invoice = request.form_or_query_value("invoice").to_owned();
        Some(Confirmation {
            question: "Issue the credit note of the invoice {0} of the account {1}? An issued credit note never changes.",
            values: vec![Text::Data(invoice), Text::Data(id.to_owned())],
            object: Some(ConfirmedObject::Described {
                path: "/admin/credit-note".to_owned(),
                query: credited_invoice(request, id),
                refuse: refuse_credit_note,
                describe: |note| ChangePreview {
                    blocks: credit_note_preview_blocks(note),
                    fields: Vec::new(),
                },
            }),
            submit: "Issue with the next number",
            fields: &["invoice", "invoice_from"],
        })
    },
};

/// Returns the account, the number and the first day of the invoice that a credit note corrects.
fn credited_invoice(request: &ConsoleRequest, account: &str) -> Vec<(&'static str, String)> {
    let value = |name: &'static str| (name, request.form_or_query_value(name).to_owned());
    let mut members = vec![("account", account.to_owned()), value("invoice"), value("invoice_from")];
    members.retain(|(name, value)| *name != "invoice_from" || !value.is_empty());
    members
}

/// Returns the reason to refuse a credit note: no correction is left that no document has, or those that are left
/// amount to nothing. Returns `None` if the note can be issued.
fn refuse_credit_note(_: &ConsoleRequest, note: &Value) -> Option<ApiError> {
    let has_corrections = note.get("lines").and_then(Value::as_array).is_some_and(|lines| !lines.is_empty());
    let message = match has_corrections {
        true => {
            "The open corrections of this invoice amount to 0.00 EUR so far, so there is nothing to credit."
        }
        false => "No charge of this invoice was corrected since, or other documents have all corrections.",
    };
    (note.get("can_issue") != Some(&Value::Bool(true)))
        .then(|| ApiError::with_message(ErrorCode::Conflict, message).with_param("invoice"))
}

/// Form that changes the role of a user.
pub const CHANGE_ROLE: ActionDefinition = ActionDefinition {
    path: "/console/users/{id}/role",
    roles: &[Admin],
    build: |request, id| {
        let path = format!("/admin/users/{}", percent_encode(id));
        new_admin_call(Method::PATCH, path, fields_json(request, &["role", "version"]))
    },
    page: |_, id| format!("/console/users/{}", percent_encode(id)),
    show: |answer| {
        message_result(
            "The user {0} has the role {1} from the next sign-in on.",
            [json_member_text(answer, "name"), json_member_text(answer, "role")],
        )
    },
    form: Some(|request, id| user_role_form(&json!({ "name": id, "role": request.form_field("role") }))),
    confirm: no_confirmation,
};

/// Shows the amounts before and after a correction.
fn describe_correction(preview: &Value) -> ChangePreview {
    let is_increase = preview.get("is_increase") == Some(&Value::Bool(true));
    let fields = if is_increase { vec![("increase", "true")] } else { Vec::new() };
    ChangePreview { blocks: correction_blocks(preview), fields }
}

/// Returns the request body of a correction: the entry, its new amount, and the account to which the entry has to
/// belong.
fn correction(request: &ConsoleRequest, account: &str) -> Value {
    let mut body = fields_json(request, &["id", "note"]);
    let value = |name: &str| request.form_or_query_value(name).trim();
    let entry = value("entry");
    let wallet = if value("wallet") == "kwh" { "kwh" } else { "credits" };
    if let Some(members) = body.as_object_mut() {
        members.insert("account".to_owned(), account.into());
        if value("increase") == "true" {
            members.insert("increase".to_owned(), true.into());
        }
        members.insert("entry".to_owned(), entry.parse::<u64>().map_or_else(|_| json!(entry), Value::from));
        if !value("credits").is_empty() {
            let amount = normalize_amount(value("credits"), request.language);
            members.insert(wallet.to_owned(), amount.into());
        }
    }
    body
}

fn admin_account(id: &str) -> String {
    format!("/admin/accounts/{}", percent_encode(id))
}

/// Returns the path of the page of an account.
pub fn account_path(id: &str) -> String {
    format!("/console/accounts/{}", percent_encode(id))
}
