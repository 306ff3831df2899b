//! Validation of a pasted configuration, and its difference to the running one.

use super::actions::{CONFIGURATION_PATH, notice_block};
use crate::config::{ResolveEnv, diff_settings, load_text};
use crate::console::answer::{ConsoleAnswer, refused_form_blocks};
use crate::console::pages::{self, forbidden_role_error};
use crate::console::request::ConsoleRequest;
use crate::console::session::{ActiveSession, run_blocking};
use crate::console::{Console, ConsoleBackend};
use penstock_console::pages::{check_configuration_form, configuration_changes_table};
use penstock_console::{Block, NoticeKind, Text};
use penstock_core::{ApiError, ErrorCode};
use penstock_storage::users::UserRole::{Admin, Operator};
use serde_json::{Value, json};

/// Maximum size of a pasted configuration, in bytes. The help text of the form field states the same size.
const MAX_TEXT_BYTES: usize = 512 * 1024;
/// Maximum number of notices of one kind: mistakes, warnings or included files.
const MAX_NOTICES: usize = 100;

/// Validates a pasted configuration and compares it with the running one. The form still shows the pasted text.
///
/// # Errors
/// Returns 403 if the role may not do this.
pub async fn check_configuration(
    console: &Console,
    backend: &dyn ConsoleBackend,
    request: &ConsoleRequest,
    active: &ActiveSession,
) -> Result<ConsoleAnswer, ApiError> {
    if ![Admin, Operator].contains(&active.user.role) {
        return Err(forbidden_role_error(active.user.role));
    }
    let mut form = check_configuration_form();
    let text = request.form_field("text").to_owned();
    let (status, blocks) = if text.len() > MAX_TEXT_BYTES {
        let message = format!("text: expected at most {} KiB of text", MAX_TEXT_BYTES / 1024);
        let refusal = ApiError::with_message(ErrorCode::TooLarge, message).with_param("text");
        form.restore_values(&request.form, Some(("text", &*refusal.message)));
        (refusal.code.spec().status, refused_form_blocks(form, &refusal))
    } else {
        let live = console.app.config_snapshot();
        let (status, mut blocks) = run_blocking(move || Ok(check_text(&text, &live.settings))).await?;
        form.restore_values(&request.form, None);
        blocks.push(Block::Form(form));
        (status, blocks)
    };
    pages::render_page(console, backend, request, active, CONFIGURATION_PATH, status, blocks).await
}

/// Returns the HTTP status and the blocks for a pasted configuration: the difference to the running settings, or the
/// mistakes.
fn check_text(text: &str, running: &crate::config::Settings) -> (u16, Vec<Block>) {
    let loaded = match load_text("pasted", text, ResolveEnv { env: &|name| std::env::var(name).ok() }) {
        Ok(loaded) => loaded,
        Err(report) => {
            let mistakes = report.mistakes.iter();
            let mut blocks =
                notices(mistakes.map(|mistake| Block::Notice(NoticeKind::Error, mistake.to_string().into())));
            blocks.extend(notices(included_files(text).into_iter().map(include_notice)));
            return (400, blocks);
        }
    };
    let changes = diff_settings(running, &loaded.settings);
    let changes: Vec<Value> = changes
        .iter()
        .map(|change| json!({ "key": change.key, "old": change.old, "new": change.new }))
        .collect();
    let mut blocks = vec![notice_block("The configuration is valid. Compared with the running one:".into())];
    blocks.extend(notices(included_files(text).into_iter().map(include_notice)));
    blocks.push(Block::Table(configuration_changes_table(&json!({ "changes": changes }))));
    let warnings = loaded.warnings.iter();
    let warnings = warnings.map(|warning| Block::Notice(NoticeKind::Warning, warning.to_string().into()));
    blocks.extend(notices(warnings));
    (200, blocks)
}

/// Returns the first notices and, if there are more, a notice with the number of further ones.
fn notices(mut all: impl ExactSizeIterator<Item = Block>) -> Vec<Block> {
    let mut shown: Vec<Block> = all.by_ref().take(MAX_NOTICES).collect();
    if all.len() > 0 {
        let text = Text::with_values("{0} more are not shown.", [all.len().to_string().into()]);
        shown.push(Block::Notice(NoticeKind::Warning, text));
    }
    shown
}

/// Returns the files that a pasted text includes. They are not read, since a pasted text has no folder.
fn included_files(text: &str) -> Vec<String> {
    let parsed = text.parse::<toml::Table>().unwrap_or_default();
    let files = parsed.get("include").and_then(toml::Value::as_array).into_iter().flatten();
    files.filter_map(|file| file.as_str().map(str::to_owned)).collect()
}

fn include_notice(file: String) -> Block {
    let text = "The text includes {0}, which was not read here: the result is that of the pasted text alone. To check all \
                files together, run `penstock check` where they are.";
    Block::Notice(NoticeKind::Warning, Text::with_values(text, [file.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn included_files_are_named() {
        let text = "include = [\"providers.d/*.toml\", \"more.toml\", 7]\n[listen]\n";
        assert_eq!(included_files(text), ["providers.d/*.toml", "more.toml"]);
        let many = format!("include = [{}]", "\"a\",".repeat(130_000));
        let shown = notices(included_files(&many).into_iter().map(include_notice));
        assert_eq!(shown.len(), MAX_NOTICES + 1);
        assert!(format!("{:?}", shown.last()).contains("129900"), "{:?}", shown.last());
        assert_eq!(notices(included_files("include = [\"a\"]").into_iter().map(include_notice)).len(), 1);
        for text in ["", "include = 1", "include = [", "[include]\na = 1\n"] {
            assert!(included_files(text).is_empty(), "{text}");
        }
    }
}
