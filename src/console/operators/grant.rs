//! Form that grants credits to an account, after a confirmation.

use super::account_actions::account_path;
use crate::console::actions::{
    ActionDefinition, fields_json, json_member_text, message_result, new_admin_call,
};
use crate::console::amount::normalize_amount;
use crate::console::confirmation::{ChangePreview, Confirmation, ConfirmedObject};
use crate::console::request::ConsoleRequest;
use http::Method;
use penstock_console::Text;
use penstock_console::pages::{grant_form, percent_encode};
use penstock_core::ApiError;
use penstock_storage::users::UserRole::{Admin, Finance};
use rust_decimal::Decimal;
use serde_json::Value;

/// Maximum number of decimals of an amount of credits.
const DECIMALS: u32 = 6;

/// Form that grants credits to an account.
pub const GRANT_CREDITS: ActionDefinition = ActionDefinition {
    path: "/console/accounts/{id}/grant",
    roles: &[Admin, Finance],
    build: |request, id| new_admin_call(Method::POST, "/admin/credits/grant".into(), grant(request, id)),
    page: |_, id| account_path(id),
    show: |answer| {
        let sent = answer.get("sent").unwrap_or(&Value::Null);
        message_result(
            "The account {1} received {0} credits by entry {2} of the ledger.",
            [
                json_member_text(sent, "credits"),
                json_member_text(sent, "account"),
                json_member_text(answer, "entry"),
            ],
        )
    },
    form: Some(|request, id| grant_form(id, request.form_or_query_value("id"))),
    confirm: |request, id| {
        let amount = json_member_text(&grant(request, id), "credits");
        Some(Confirmation {
            question: "Grant {0} to the account {1}? The account can spend them at once.",
            values: vec![Text::Exact(amount, "credits"), Text::Data(id.to_owned())],
            object: Some(ConfirmedObject::Described {
                path: format!("/admin/accounts/{}", percent_encode(id)),
                query: Vec::new(),
                refuse: refuse_grant,
                describe: |_| ChangePreview::default(),
            }),
            submit: "Grant",
            fields: &["id", "credits", "note"],
        })
    },
};

/// Returns the request body of a grant.
fn grant(request: &ConsoleRequest, account: &str) -> Value {
    let given = |name: &str| request.form_or_query_value(name).trim();
    let mut body = fields_json(request, &["id", "note"]);
    if let Some(members) = body.as_object_mut() {
        if !given("credits").is_empty() {
            members.insert("credits".to_owned(), normalize_amount(given("credits"), request.language).into());
        }
        members.insert("account".to_owned(), account.into());
    }
    body
}

/// Returns the refusal of an amount that cannot be granted, with the sentence of the admin API, so that the question
/// is not about an invalid amount.
fn refuse_grant(request: &ConsoleRequest, _: &Value) -> Option<ApiError> {
    let invalid = |message: &str| Some(ApiError::invalid("credits", message.to_owned()));
    let text = json_member_text(&grant(request, ""), "credits");
    if text.is_empty() {
        return invalid("Give either credits or kwh.");
    }
    match Decimal::from_str_exact(&text) {
        Ok(amount) if amount.is_zero() => {
            invalid("credits has to be more than 0; use a correction to take back a grant.")
        }
        Ok(amount) if amount > Decimal::ZERO && amount.normalize().scale() <= DECIMALS => None,
        _ => invalid(&format!("credits has to be a number of 0 or more, with at most {DECIMALS} decimals.")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_question_is_about_a_valid_amount_only() {
        for (credits, expected) in [
            ("12.5", None),
            ("0.000001", None),
            ("", Some("Give either")),
            ("0", Some("more than 0")),
            ("-1", Some("0 or more")),
            ("0.0000001", Some("at most 6 decimals")),
            ("many", Some("at most 6 decimals")),
        ] {
            let mut request = ConsoleRequest::default();
            request.form.push(("credits".to_owned(), credits.to_owned()));
            let refused = refuse_grant(&request, &json!({})).map(|refusal| refusal.message.to_string());
            assert_eq!(refused.is_some(), expected.is_some(), "{credits}: {refused:?}");
            assert!(refused.unwrap_or_default().contains(expected.unwrap_or_default()), "{credits}");
        }
    }
}
