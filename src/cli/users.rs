//! `penstock users`: persons who may sign in to the console.

use super::ConfigArgs;
use super::backend::AdminBackend;
use super::client::admin_target;
use super::listing::{Listing, OutputArgs};
use super::output::{print_stderr, print_stdout};
use super::status::{response_rows, table_cell};
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

/// Runs the command.
pub fn run(users: &UsersArgs) -> Result<(), String> {
    let reach = admin_target(&users.reached.source()?)?;
    let backend = AdminBackend::connect(&reach)?;
    match &users.command {
        UsersCommand::Add(user) => {
            let mut password = String::new();
            std::io::stdin()
                .read_line(&mut password)
                .map_err(|error| format!("The password cannot be read from standard input: {error}."))?;
            let password = password.trim_end_matches(['\r', '\n']);
            let mut body = user.new_user();
            if let Some(members) = body.as_object_mut() {
                members.insert("password".to_owned(), password.into());
            }
            backend.send(&Method::POST, "/admin/users", &[], Some(&body))?;
            print_stdout(&format!("The user {} may sign in.\n", user.name))
        }
        UsersCommand::Invite(user) => {
            if matches!(user.role, RoleName::Account) {
                dashboard_invitation_url(reach.dashboard.as_deref(), "")?;
            }
            let known = backend.send(&Method::GET, "/admin/users", &[], None)?;
            let exists = response_rows(&known).iter().any(|row| table_cell(row, "name") == user.name);
            let invited = if exists {
                backend.send(&Method::POST, &user_path(&user.name, "/invite"), &[], Some(&json!({})))?
            } else {
                backend.send(&Method::POST, "/admin/users", &[], Some(&user.new_user()))?
            };
            print_stderr("Valid once, for 72 hours:\n");
            let token = table_cell(&invited, "invitation");
            let url = if table_cell(&invited, "role") == "account" {
                dashboard_invitation_url(reach.dashboard.as_deref(), &token)?
            } else {
                invitation_url(&reach.admin.to_string(), &token)
            };
            print_stdout(&format!("{url}\n"))
        }
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

fn set_disabled(backend: &AdminBackend, name: &str, disabled: &str) -> Result<(), String> {
    let body = json!({ "disabled": disabled });
    let user = backend.send(&Method::PATCH, &user_path(name, ""), &[], Some(&body))?;
    print_stdout(&format!("{}: {}\n", table_cell(&user, "name"), table_cell(&user, "state")))
}

fn user_path(name: &str, rest: &str) -> String {
    format!("/admin/users/{}{rest}", percent::encode(name, percent::PATH_SEGMENT))
}

/// Returns the link to the operators' console with which an invited person chooses a password. `admin` is the address
/// of the admin listener.
#[must_use]
pub fn invitation_url(admin: &str, token: &str) -> String {
    format!("http://{admin}/console/invitation/{token}")
}

/// Returns the link to the dashboard with which an invited user of an account chooses a password.
fn dashboard_invitation_url(dashboard: Option<&str>, token: &str) -> Result<String, String> {
    let base = dashboard.ok_or_else(|| {
        "The user may sign in once the dashboard is on: write its address in console.listen.".to_owned()
    })?;
    Ok(format!("{base}/dashboard/invitation/{token}"))
}
