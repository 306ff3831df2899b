//! `penstock audit`: changes of accounts and keys, with time and author.

use super::Reached;
use super::backend::Way;
use super::client::reach;
use super::listing::{Listing, OutputArgs, OutputFormat};
use super::output::out;
use super::status::cell;
use crate::time::format::rfc3339;
use clap::Args;
use http::Method;
use serde_json::{Value, json};

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct Audit {
    #[command(flatten)]
    reached: Reached,
    /// Only changes of this account or key
    #[arg(long, value_name = "ID")]
    target: Option<String>,
    #[command(flatten)]
    output: OutputArgs,
    /// Verify the log's hash chain instead, and end with 1 if an entry does not match it
    #[arg(long, conflicts_with_all = ["target", "json", "format"])]
    verify: bool,
}

/// Runs the command.
pub fn run(audit: &Audit) -> Result<(), String> {
    let way = Way::to(&reach(&audit.reached.source()?)?)?;
    if audit.verify {
        let found = way.ask(&Method::GET, "/admin/audit/verify", &[], None)?;
        if found.get("good") == Some(&Value::Bool(true)) {
            return out(&format!("The hash chain of all {} entries is intact.\n", cell(&found, "entries")));
        }
        return Err(format!(
            "Entry {} of the audit log does not fit the hash chain.",
            cell(&found, "first_bad")
        ));
    }
    let target = audit.target.as_deref().map(|target| ("target", target));
    let all = way.every("/admin/audit", &target.into_iter().collect::<Vec<_>>())?;
    let table = audit.output.format() == OutputFormat::Table;
    if let (Some(target), true) = (&audit.target, all.is_empty() && table) {
        return out(&format!(
            "No changes of {target} are recorded, neither of an account nor of a key with this id.\n"
        ));
    }
    let rows = all.iter().map(|entry| {
        let at = entry.get("at").and_then(Value::as_u64).map(rfc3339).unwrap_or_default();
        let cell = |name: &str| cell(entry, name);
        vec![cell("number"), at, cell("who"), cell("what"), cell("target"), cell("change")]
    });
    let listing = Listing::new(&["NO", "WHEN", "WHO", "WHAT", "TARGET", "CHANGE"]).with_rows(rows);
    audit.output.print(&listing, || json!({ "data": all }))
}
