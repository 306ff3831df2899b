//! Forms of the console.

use super::{exact_text, percent_encode, text};
use crate::block::{Block, Cell, Field, FieldKind, Form, NoticeKind, Table};
use crate::format::html_length;
use crate::language::Language;
use crate::text::Text;
use serde_json::Value;

/// Form to sign in to the pages below `root`.
#[must_use]
pub fn sign_in_form(root: &str) -> Form {
    Form::new(format!("{root}sign-in"), "Sign in", "Sign in")
        .with_field(Field::new("name", "Name").required().with_autocomplete("username"))
        .with_field(
            Field::new("password", "Password")
                .with_kind(FieldKind::Password)
                .required()
                .with_autocomplete("current-password"),
        )
}

/// Form with which an invited person chooses a password.
#[must_use]
pub fn accept_invitation_form(root: &str, token: &str) -> Form {
    let field = |name, label| {
        Field::new(name, label).with_kind(FieldKind::Password).required().with_autocomplete("new-password")
    };
    Form::new(format!("{root}invitation/{}", percent_encode(token)), "Choose a password", "Save and sign in")
        .with_field(field("password", "Password").with_help("12 characters or more."))
        .with_field(field("again", "The same password again"))
}

/// Maximum size of the models to choose from, in bytes of HTML; if they are larger, a form has a text field for the
/// id of a model instead.
const MAX_OPTION_BYTES: usize = 12_000;

/// Field that selects one of the models, given by their ids and names.
pub(super) fn model_choice_field(models: &[(String, String)]) -> Field {
    let size = |(id, name): &(String, String)| 40 + html_length(id) + html_length(name);
    let field = Field::new("model", "Model");
    if models.iter().map(size).sum::<usize>() > MAX_OPTION_BYTES {
        return field.required().with_help("Id of a model.");
    }
    let first = models.first().map(|(id, _)| id.clone()).unwrap_or_default();
    let options = models.iter().map(|(id, name)| (id.clone(), Text::Data(name.clone())));
    field.with_kind(FieldKind::Choice(options.collect())).with_value(first)
}

/// Form for a new account.
#[must_use]
pub fn new_account_form() -> Form {
    Form::new("/console/accounts", "New account", "Create")
        .with_field(
            Field::new("id", "Id")
                .required()
                .with_help("1 to 64 letters, digits, `.`, `_` or `-`; it never changes."),
        )
        .with_field(Field::new("name", "Name"))
}

/// Form that creates a key; the form is sent to `path`.
#[must_use]
pub fn new_key_form(path: &str) -> Form {
    Form::new(path, "New key", "Create")
        .with_field(Field::new("name", "Name").required().with_help("Describes where the key is used."))
        .with_field(
            Field::new("scopes", "Scopes")
                .required()
                .with_value("inference.*")
                .with_help("Names with commas between them, such as inference.chat, account.read."),
        )
        .with_field(Field::new("models", "Models").with_help("Ids with commas between them; empty for all."))
        .with_field(Field::new("requests_per_minute", "Requests per minute").with_help("Empty for no limit."))
        .with_field(Field::new("tokens_per_minute", "Tokens per minute").with_help("Empty for no limit."))
        .with_field(Field::new("concurrent", "Concurrent requests").with_help("Empty for no limit."))
        .with_field(Field::new("budget_per_day", "Credits per day").with_help("Empty for no limit."))
        .with_field(Field::new("budget_per_month", "Credits per month").with_help("Empty for no limit."))
        .with_field(
            Field::new("last_day", "Last day, UTC")
                .with_kind(FieldKind::Date)
                .with_help("Empty if it does not expire."),
        )
}

/// Form that filters a list of keys by a part of their names or ids; it is sent to the page `path`.
#[must_use]
pub fn key_filter_form(path: &str, wanted: &str) -> Form {
    let form = Form::new(path, "Find keys", "Find")
        .with_field(Field::new("filter", "Part of the name or of the id").with_value(wanted));
    Form { is_query: true, ..form }
}

/// Form for a grant to an account. `id` is the unique id of the grant, so that the form has an effect only once,
/// however often it is sent.
#[must_use]
pub fn grant_form(account: &str, id: &str) -> Form {
    Form::new(format!("/console/accounts/{}/grant", percent_encode(account)), "Grant credits", "Grant")
        .with_field(Field::hidden("id", id))
        .with_field(Field::new("credits", "Credits").required().with_help("At most six decimals."))
        .with_field(Field::new("note", "Reason").with_help("Recorded in the ledger."))
}

/// Form that corrects a charge or a grant of an account. `id` is the unique id of the correction, so that the form has
/// an effect only once.
#[must_use]
pub fn correction_form(account: &str, id: &str) -> Form {
    let wallets = FieldKind::choice(&[("credits", "Credits"), ("kwh", "Energy, kWh")]);
    Form::new(format!("/console/accounts/{}/correct", percent_encode(account)), "Correct an entry", "Correct")
        .with_field(Field::hidden("id", id))
        .with_field(
            Field::new("entry", "Number of the entry")
                .required()
                .with_help("A charge or a grant of this account, as the export of the ledger lists it."),
        )
        .with_field(
            Field::new("credits", "Amount instead")
                .required()
                .with_help("Replaces the amount of the entry: a lower charge or a higher grant adds to the balance, and the reverse takes back. 0 cancels it."),
        )
        .with_field(Field::new("wallet", "Unit").with_kind(wallets).with_value("credits"))
        .with_field(Field::new("note", "Reason").with_help("Recorded in the ledger."))
}

/// Amounts before and after a correction, with a warning if it raises the amount.
#[must_use]
pub fn correction_blocks(preview: &Value) -> Vec<Block> {
    let unit = if text(preview, "wallet") == "energy" { "kWh" } else { "credits" };
    let is_charge = text(preview, "what") == "settle";
    let row = |name: &'static str, member: &str| {
        vec![Cell::text(name), Cell::number(exact_text(preview, member, unit))]
    };
    let table = Table {
        title: if is_charge { "Charge".into() } else { "Grant".into() },
        headings: vec!["Amount", "Value"],
        rows: vec![row("Before", "previous"), row("After", "new"), row("Difference", "difference")],
        ..Table::default()
    };
    let warning = match (preview.get("is_increase") == Some(&Value::Bool(true)), is_charge) {
        (false, _) => None,
        (true, true) => Some("The new amount is above that of the charge: the account pays more."),
        (true, false) => Some("The new amount is above that of the grant: the account receives more."),
    };
    let warning = warning.map(|text| Block::Notice(NoticeKind::Warning, text.into()));
    warning.into_iter().chain([Block::Table(table)]).collect()
}

/// Returns a field with a limit of an account or a key, as the person writes it in this language; empty for no limit.
pub(super) fn limit_field(
    owner: &Value,
    language: Language,
    name: &'static str,
    label: &'static str,
) -> Field {
    let limit = owner.get("limits").filter(|limits| limits.get(name).is_some_and(|limit| !limit.is_null()));
    let value =
        limit.map(|limits| text(limits, name).replace('.', language.decimal_mark().encode_utf8(&mut [0; 4])));
    Field::new(name, label).with_value(value.unwrap_or_default())
}

/// Form that changes the name and the limits of an account, with amounts as the language writes them.
#[must_use]
pub fn edit_account_form(account: &Value, language: Language) -> Form {
    let field = |name, label| limit_field(account, language, name, label);
    let name = account.get("name").and_then(Value::as_str).unwrap_or_default();
    let path = format!("/console/accounts/{}/change", percent_encode(&text(account, "id")));
    Form::new(path, "Name and limits", "Save")
        .with_field(Field::hidden("version", object_version(account)))
        .with_field(Field::new("name", "Name").with_value(name).with_help("The id if empty."))
        .with_field(field("requests_per_minute", "Requests per minute").with_help("Empty for no limit."))
        .with_field(field("tokens_per_minute", "Tokens per minute"))
        .with_field(field("concurrent", "Concurrent requests"))
        .with_field(field("budget_per_day", "Credits per day"))
        .with_field(field("budget_per_month", "Credits per month"))
}

/// Returns the version of an object that a form changes; empty without one.
pub(super) fn object_version(object: &Value) -> &str {
    object.get("version").and_then(Value::as_str).unwrap_or_default()
}

/// Form that suspends an active account, or resumes a suspended one.
#[must_use]
pub fn account_state_form(account: &Value) -> Form {
    let path = format!("/console/accounts/{}", percent_encode(&text(account, "id")));
    if text(account, "state") == "suspended" {
        return Form::new(format!("{path}/resume"), "Resume the account", "Resume");
    }
    let form = Form::new(format!("{path}/suspend"), "Suspend the account", "Suspend");
    Form { is_irreversible: true, ..form }
}

/// Roles of console users, each with its displayed name. Account holders cannot get them.
const CONSOLE_ROLES: [(&str, &str); 4] =
    [("viewer", "Viewer"), ("operator", "Operator"), ("finance", "Finance"), ("admin", "Administrator")];
/// Role of a user of an account.
const HOLDER_ROLE: (&str, &str) = ("account", "Account holder");

/// Form that changes the role of a user.
#[must_use]
pub fn user_role_form(user: &Value) -> Form {
    let (name, role) = (text(user, "name"), text(user, "role"));
    let roles: &[(&str, &'static str)] = match &*role {
        "account" => &[HOLDER_ROLE],
        _ => &CONSOLE_ROLES,
    };
    Form::new(format!("/console/users/{}/role", percent_encode(&name)), "Change the role", "Save")
        .with_field(Field::hidden("version", object_version(user)))
        .with_field(
            Field::new("role", "Role")
                .with_kind(FieldKind::choice(roles))
                .with_value(role)
                .with_help("All sessions of the user end; the role applies at the next sign-in."),
        )
}

/// Form that invites a user.
#[must_use]
pub fn invite_user_form() -> Form {
    let [viewer, operator, finance, admin] = CONSOLE_ROLES;
    let roles = [viewer, operator, finance, admin, HOLDER_ROLE];
    Form::new("/console/users", "Invite a user", "Invite")
        .with_field(Field::new("name", "Name").required().with_help("Letters, digits, `.`, `_`, `-` or `@`."))
        .with_field(Field::new("role", "Role").with_kind(FieldKind::choice(&roles)).with_value("viewer").with_help(
            "Viewer: reads what operators see, no money. Operator: providers, configuration, batches, files. Finance: accounts, balances, grants. Administrator: everything, and the users. Account holder: the dashboard of one account.",
        ))
        .with_field(Field::new("account", "Account").with_help("Of an account holder; empty for other roles."))
}

/// Form that validates a pasted configuration.
#[must_use]
pub fn check_configuration_form() -> Form {
    Form::new("/console/configuration/check", "Validate a configuration", "Validate").with_field(
        Field::new("text", "Configuration, TOML")
            .with_kind(FieldKind::Lines)
            .with_help("Nothing is changed. At most 512 KiB. Included files are not read; other files and variables that the text refers to are read as at a start."),
    )
}

/// Form that reloads the configuration.
#[must_use]
pub fn reload_form() -> Form {
    Form::new("/console/configuration/reload", "Reload the configuration from its files", "Reload")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn errors(form: &Form) -> Vec<(&'static str, String)> {
        let shown = form.fields.iter().filter(|field| !field.error.is_empty());
        shown.map(|field| (field.name, field.error.render(crate::Language::English).into_owned())).collect()
    }

    #[test]
    fn a_form_of_a_changed_object_shows_the_stored_values_and_takes_over_the_version() {
        let user = |role: &str, version: &str| json!({ "name": "eve", "role": role, "version": version });
        let sent = [("version", "one"), ("role", "viewer")].map(|(name, value)| (name.into(), value.into()));
        let mut refused = user_role_form(&user("viewer", ""));
        refused.restore_values(&sent, Some(("version", "The user was changed.")));
        assert!(refused.has_version_conflict() && refused.error_count() == 0, "a hidden field marks nothing");
        refused.show_stored_values(&user_role_form(&user("finance", "two")));
        let expected = "The stored version has Finance here now.";
        assert_eq!(errors(&refused), [("role", expected.to_owned())]);
        assert!(refused.fields.iter().any(|field| field.name == "version" && field.value == "two"));
        assert!(refused.fields.iter().any(|field| field.name == "role" && field.value == "viewer"));
    }

    #[test]
    fn another_refusal_of_a_form_is_no_conflict() {
        let sent = [("name", "eve"), ("account", "acme")].map(|(name, value)| (name.into(), value.into()));
        let mut refused = invite_user_form();
        refused.restore_values(&sent, Some(("name", "There is a user of this name already.")));
        assert!(refused.error_count() == 1 && !refused.has_version_conflict());
        assert_eq!(errors(&refused), [("name", "There is a user with this name already.".to_owned())]);
    }

    #[test]
    fn the_form_of_an_account_has_its_version() {
        let form = edit_account_form(&json!({ "id": "acme", "version": "v1" }), Language::English);
        assert!(form.fields.iter().any(|field| field.name == "version" && field.value == "v1"));
    }

    #[test]
    fn limits_have_the_decimal_mark_of_the_language() {
        let limits =
            json!({ "requests_per_minute": 1_000, "budget_per_day": "0.125", "budget_per_month": null });
        let account = json!({ "id": "acme", "limits": limits });
        for (language, budget) in
            [(Language::English, "0.125"), (Language::German, "0,125"), (Language::French, "0,125")]
        {
            let key = super::super::edit_key_form(&account, "/", language);
            for form in [edit_account_form(&account, language), key] {
                let value =
                    |name| form.fields.iter().find(|field| field.name == name).map(|field| &*field.value);
                assert_eq!(value("requests_per_minute"), Some("1000"));
                assert_eq!(value("tokens_per_minute"), Some(""));
                assert_eq!((value("budget_per_day"), value("budget_per_month")), (Some(budget), Some("")));
            }
        }
    }
}
