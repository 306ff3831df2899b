//! Tests of the configuration as operators write it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bounds;
mod bucket;
mod defaults;
mod every_key;
mod forms;
mod including;
mod mistakes;
mod pem;
mod plausibility;
mod proven;
mod remedies;
mod secrets;

use super::{Diagnostic, Diagnostics, LoadedConfig, ResolveEnv, load_text};

/// Loads a text in an environment that has one variable, `KEY`.
fn load(text: &str) -> Result<LoadedConfig, Diagnostics> {
    let env = |name: &str| (name == "KEY").then(|| "sk-provider-1".to_owned());
    load_text("penstock.toml", text, ResolveEnv { env: &env })
}

/// Returns a valid configuration: one model at one provider, with additional lines for each block.
fn with(top: &str, model: &str, provider: &str, offer: &str) -> String {
    let parameters = match model.contains("supported_parameters") {
        true => "",
        false => r#"supported_parameters = ["stream", "temperature"]"#,
    };
    format!(
        r#"
{top}
[[providers]]
id = "p1"
operator = "P"
country = "FR"
city = "Paris"
base_url = "https://api.example.eu/v1"
pue = 1.2
{provider}
[[providers.offers]]
model = "m1"
{offer}
[[models]]
id = "m1"
kind = "chat"
context_length = 8192
{parameters}
price = {{ input = 0.1, output = 0.2 }}
{model}
"#
    )
}

fn mistakes(text: &str) -> Vec<Diagnostic> {
    match load(text) {
        Ok(_) => Vec::new(),
        Err(report) => report.mistakes,
    }
}

/// Returns the mistake of a text that must have exactly one.
fn mistake(text: &str) -> Diagnostic {
    let mut all = mistakes(text);
    assert_eq!(all.len(), 1, "{all:#?}");
    all.remove(0)
}

/// Asserts that a text has exactly one mistake, with this key, and that its reason and its correction contain these
/// words.
#[track_caller]
fn tells(text: &str, key: &str, why: &str, fix: &str) {
    let found = mistake(text);
    assert_eq!(found.key, key, "{found}");
    assert!(found.reason.contains(why), "{found}");
    assert!(found.remedy.contains(fix), "{found}");
}
