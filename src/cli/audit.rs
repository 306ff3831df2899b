//! `penstock audit`: changes in the audit log, with time and author, and verification of the log.

use super::ConfigArgs;
use super::backend::{AdminBackend, ExpectedStore};
use super::client::gateway_access;
use super::listing::{Listing, OutputArgs, OutputFormat};
use super::output::print_stdout;
use super::status::table_cell;
use crate::time::format::format_rfc3339;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct AuditArgs {
    #[command(flatten)]
    reached: ConfigArgs,
    /// Only changes of this account, key, user, batch, file, invoice or credit note
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Verify the hash chain of the log instead, and end with 1 if an entry does not match it
    #[arg(long, conflicts_with_all = ["target", "json", "format"])]
    verify: bool,
}

/// Runs `penstock audit`.
pub fn run(audit: &AuditArgs) -> Result<(), String> {
    let backend = AdminBackend::connect(&gateway_access(&audit.reached.source()?)?, ExpectedStore::Existing)?;
    if audit.verify {
        let found = backend.send(&Method::GET, "/admin/audit/verify", &[], None)?;
        if found.get("good") == Some(&Value::Bool(true)) {
            return print_stdout(&format!(
                "The hash chain of all {} entries is intact.\n",
                table_cell(&found, "entries")
            ));
        }
        return Err(format!(
            "Entry {} of the audit log does not fit the hash chain.",
            table_cell(&found, "first_bad")
        ));
    }
    let target = audit.target.as_deref().map(|target| ("target", target));
    let all = backend.read_all_rows("/admin/audit", &target.into_iter().collect::<Vec<_>>())?;
    let table = audit.output.output_format() == OutputFormat::Table;
    if let (Some(target), true) = (&audit.target, all.is_empty() && table) {
        return print_stdout(&format!(
            "No changes of {target} are recorded. A target is the id of an account, key, user, batch, file, invoice or \
             credit note.\n"
        ));
    }
    let rows = all.iter().map(|entry| {
        let at = entry.get("at").and_then(Value::as_u64).map(format_rfc3339).unwrap_or_default();
        let cell = |name: &str| table_cell(entry, name);
        vec![cell("number"), at, cell("who"), cell("what"), cell("target"), cell("change")]
    });
    let listing = Listing::new(&["NO", "WHEN", "WHO", "WHAT", "TARGET", "CHANGE"]).with_rows(rows);
    audit.output.print(&listing, || json!({ "data": all }))
}
