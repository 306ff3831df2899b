//! `penstock users`: persons who may sign in to the console.

use super::ConfigArgs;
use super::backend::{AdminBackend, ExpectedStore};
use super::client::gateway_access;
use super::listing::{Listing, OutputArgs};
use super::output::{print_stderr, print_stdout};
use super::password_prompt::read_password;
use super::status::{response_rows, table_cell};
use crate::config::GatewayAccess;
use crate::time::format::format_rfc3339;
use clap::{Args, Subcommand, ValueEnum};
use http::Method;
use penstock_core::percent;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct UsersArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    #[command(subcommand)]
    command: UsersCommand,
}

#[derive(Debug, Subcommand)]
enum UsersCommand {
    /// Creates a user whose password is read from standard input
    Add(UserArgs),
    /// Prints a link with which a person chooses a password; creates the user if there is none of this name
    ///
    /// The link is valid once and for 72 hours. An existing user keeps role and account.
    Invite(UserArgs),
    /// Lists the users
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Disables a user and ends all sessions of the user
    Disable {
        /// Name of the user
        name: String,
    },
    /// Enables a disabled user
    Enable {
        /// Name of the user
        name: String,
    },
}

#[derive(Debug, Args)]
struct UserArgs {
    /// Name to sign in with
    name: String,
    /// Role, which decides what the console shows and allows
    #[arg(long, value_enum, default_value_t = RoleName::Viewer)]
    role: RoleName,
    /// Account whose dashboard the user sees, for the role account
    #[arg(long, required_if_eq("role", "account"))]
    account: Option<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// Everything, including the users
    Admin,
    /// Providers, configuration, batches, files and the audit log
    Operator,
    /// Accounts, balances, grants, corrections, invoices and the carbon report
    Finance,
    /// Pages of operators except money, read only
    Viewer,
    /// The dashboard of one account
    Account,
}

impl RoleName {
    const fn name(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Finance => "finance",
            Self::Viewer => "viewer",
            Self::Account => "account",
        }
    }
}

impl UserArgs {
    /// Returns the request body of a new user.
    fn new_user(&self) -> Value {
        let mut body = json!({ "name": self.name, "role": self.role.name() });
        if let (Some(account), Some(members)) = (&self.account, body.as_object_mut()) {
            members.insert("account".to_owned(), account.as_str().into());
        }
        body
    }
}

/// Runs `penstock users`.
pub fn run(users: &UsersArgs) -> Result<(), String> {
    let reach = gateway_access(&users.reached.source()?)?;
    let expected = match users.command {
        UsersCommand::Add(_) | UsersCommand::Invite(_) => ExpectedStore::ExistingOrNew,
        _ => ExpectedStore::Existing,
    };
    let backend = AdminBackend::connect(&reach, expected)?;
    match &users.command {
        UsersCommand::Add(user) => {
            let password = read_password()
                .map_err(|error| format!("The password cannot be read from standard input: {error}."))?;
            let mut body = user.new_user();
            if let Some(members) = body.as_object_mut() {
                members.insert("password".to_owned(), password.into());
            }
            backend.send(&Method::POST, "/admin/users", &[], Some(&body))?;
            print_stdout(&format!("The user {} may sign in.\n", user.name))
        }
        UsersCommand::Invite(user) => invite(user, &reach, &backend),
        UsersCommand::List { output } => {
            let answer = backend.send(&Method::GET, "/admin/users", &[], None)?;
            let rows = response_rows(&answer).iter().map(|row| {
                let created = row.get("created").and_then(Value::as_u64).map(format_rfc3339);
                let cell = |name: &str| table_cell(row, name);
                vec![cell("name"), cell("role"), cell("account"), cell("state"), created.unwrap_or_default()]
            });
            let listing = Listing::new(&["NAME", "ROLE", "ACCOUNT", "STATE", "CREATED"]).with_rows(rows);
            output.print(&listing, || answer.clone())
        }
        UsersCommand::Disable { name } => set_disabled(&backend, name, "true"),
        UsersCommand::Enable { name } => set_disabled(&backend, name, "false"),
    }
}

/// Invites a user, and prints the link.
fn invite(user: &UserArgs, reach: &GatewayAccess, backend: &AdminBackend) -> Result<(), String> {
    let known = backend.send(&Method::GET, "/admin/users", &[], None)?;
    let rows = response_rows(&known);
    let existing = rows.iter().find(|row| table_cell(row, "name") == user.name);
    let role = existing.map_or_else(|| user.role.name().to_owned(), |row| table_cell(row, "role"));
    // The site is determined first: if that fails, no invitation is created, which would invalidate an earlier one.
    let site = invitation_site(&role, reach)?;
    let invited = if existing.is_some() {
        backend.send(&Method::POST, &user_path(&user.name, "/invite"), &[], Some(&json!({})))?
    } else {
        backend.send(&Method::POST, "/admin/users", &[], Some(&user.new_user()))?
    };
    print_stderr("Valid once, for 72 hours:\n");
    print_stdout(&format!("{site}/invitation/{}\n", table_cell(&invited, "invitation")))
}

/// Returns the URL of the site at which a person with this role chooses a password.
///
/// # Errors
/// Returns an error for the role account if the dashboard is off.
fn invitation_site(role: &str, reach: &GatewayAccess) -> Result<String, String> {
    if role != RoleName::Account.name() {
        return Ok(format!("{}/console", reach.operators));
    }
    let base = reach.dashboard.as_deref().ok_or_else(|| {
        "The user may sign in once the dashboard is on: write its address in console.listen.".to_owned()
    })?;
    Ok(format!("{base}/dashboard"))
}

fn set_disabled(backend: &AdminBackend, name: &str, disabled: &str) -> Result<(), String> {
    let body = json!({ "disabled": disabled });
    let user = backend.send(&Method::PATCH, &user_path(name, ""), &[], Some(&body))?;
    print_stdout(&format!("{}: {}\n", table_cell(&user, "name"), table_cell(&user, "state")))
}

fn user_path(name: &str, rest: &str) -> String {
    format!("/admin/users/{}{rest}", percent::encode(name, percent::PATH_SEGMENT))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::ConfigSource;

    fn reach(lines: &str) -> GatewayAccess {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("penstock.toml");
        std::fs::write(&path, lines).unwrap();
        ConfigSource::File(path).gateway_access().unwrap()
    }

    #[test]
    fn an_invitation_links_to_a_site_that_answers() {
        let site = |role: &str, lines: &str| invitation_site(role, &reach(lines));
        let console = |lines: &str| site("viewer", lines).unwrap();
        let dashboard = |lines: &str| site("account", lines).unwrap();
        assert!(site("account", "").unwrap_err().contains("console.listen"));
        assert_eq!(console("[listen]\nadmin = \"127.0.0.1:9\""), "http://127.0.0.1:9/console");
        let named = console("[listen]\nadmin = \"0.0.0.0:9\"\nhosts = [\"admin.example.eu\"]");
        assert_eq!(named, "http://admin.example.eu:9/console");
        assert!(!console("[listen]\nadmin = \"[::]:9\"").contains("::"));
        let oidc = "issuer = \"https://l.example.eu\"\nclient_id = \"p\"";
        let operators = format!("[console.oidc]\n{oidc}\noperators_url = \"https://ops.example.eu/\"");
        assert_eq!(console(&operators), "https://ops.example.eu/console");
        let listen = |address: &str, more: &str| format!("[console]\nlisten = {address:?}\n{more}");
        let tls = "[console.tls]\ncertificate = \"c\"\nkey = \"k\"";
        assert_eq!(dashboard(&listen("10.0.0.1:8", tls)), "https://10.0.0.1:8/dashboard");
        let hosts = "hosts = [\"a.example.eu\", \"b.example.eu\"]";
        assert_eq!(dashboard(&listen("0.0.0.0:8", hosts)), "http://a.example.eu:8/dashboard");
        let public = "public_url = \"https://account.example.eu/\"";
        assert_eq!(dashboard(&listen("0.0.0.0:8", public)), "https://account.example.eu/dashboard");
    }
}
