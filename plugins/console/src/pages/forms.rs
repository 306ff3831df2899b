//! Forms of the console.

use super::encode;
use crate::block::{Field, FieldKind, Form};

/// Form to sign in.
#[must_use]
pub fn sign_in_form() -> Form {
    Form::new("/console/sign-in", "Sign in", "Sign in")
        .with(Field::new("name", "Name").required().autocomplete("username"))
        .with(
            Field::new("password", "Password")
                .kind(FieldKind::Password)
                .required()
                .autocomplete("current-password"),
        )
}

/// Form with which an invited person chooses a password.
#[must_use]
pub fn invitation_form(token: &str) -> Form {
    let field = |name, label| {
        Field::new(name, label).kind(FieldKind::Password).required().autocomplete("new-password")
    };
    Form::new(format!("/console/invitation/{}", encode(token)), "Choose a password", "Save and sign in")
        .with(field("password", "Password").help("12 characters or more."))
        .with(field("again", "The same password again"))
}

/// Form for a new account.
#[must_use]
pub fn account_form() -> Form {
    Form::new("/console/accounts", "New account", "Create")
        .with(
            Field::new("id", "Id")
                .required()
                .help("1 to 64 letters, digits, `.`, `_` or `-`; it never changes."),
        )
        .with(Field::new("name", "Name"))
}

/// Form for a new key of an account.
#[must_use]
pub fn key_form(account: &str) -> Form {
    Form::new(format!("/console/accounts/{}/keys", encode(account)), "New key", "Create")
        .with(Field::new("name", "Name").required().help("Describes where the key is used."))
        .with(
            Field::new("scopes", "Scopes")
                .value("inference.*")
                .help("Names with commas between them, such as inference.chat, account.read."),
        )
        .with(Field::new("requests_per_minute", "Requests per minute").help("Empty for no limit."))
        .with(Field::new("budget_per_month", "Credits per month").help("Empty for no limit."))
}

/// Form for a grant to an account. `id` is unique, so that the form has one effect however often it is sent.
#[must_use]
pub fn grant_form(account: &str, id: &str) -> Form {
    Form::new(format!("/console/accounts/{}/grant", encode(account)), "Grant credits", "Grant")
        .with(Field::hidden("id", id))
        .with(Field::new("credits", "Credits").required().help("At most six decimals."))
        .with(Field::new("note", "Reason").help("Recorded in the ledger."))
}

/// Form that invites a user.
#[must_use]
pub fn user_form() -> Form {
    let roles = vec![
        ("viewer", "Viewer: reads what operators see, no money"),
        ("operator", "Operator: providers, configuration, batches, files"),
        ("finance", "Finance: accounts, balances, grants"),
        ("admin", "Administrator: everything, and the users"),
    ];
    Form::new("/console/users", "Invite a user", "Invite")
        .with(Field::new("name", "Name").required().help("Letters, digits, `.`, `_`, `-` or `@`."))
        .with(Field::new("role", "Role").kind(FieldKind::Choice(roles)).value("viewer"))
}

/// Form that validates a pasted configuration.
#[must_use]
pub fn check_form() -> Form {
    Form::new("/console/configuration/check", "Validate a configuration", "Validate").with(
        Field::new("text", "Configuration, TOML")
            .kind(FieldKind::Lines)
            .help("Nothing is changed. Files and variables that it refers to are read as at a start."),
    )
}

/// Form that reloads the configuration.
#[must_use]
pub fn reload_form() -> Form {
    Form::new("/console/configuration/reload", "Reload the configuration from its files", "Reload")
}
