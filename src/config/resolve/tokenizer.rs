//! Tokenizers. The model's own files are read and compiled here, so that a broken file is found before a request uses
//! it.

use super::super::raw;
use super::super::settings::ExactTokenizer;
use super::super::suggest;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_tokens::{ImageTokenSettings, TokenCounter};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Names of the built-in tokenizers.
const BUILTIN: [&str; 2] = ["gpt-oss", "o200k_harmony"];

impl SettingsResolver<'_> {
    /// Loads the tokenizer of a model; `None` after a mistake.
    pub fn resolve_tokenizer(
        &mut self,
        raw: &raw::TokenizerConfig,
        spot: &KeyPath<'_>,
    ) -> Option<ExactTokenizer> {
        let images = match &raw.images {
            Some(rule) => self.resolve_image_rule(rule, &spot.child("images")).map(Some),
            None => Some(None),
        };
        let counter = match (&raw.file, &raw.builtin) {
            (Some(file), None) => self.load_tokenizer_files(file, raw, spot)?,
            (None, Some(name)) => self.load_builtin_tokenizer(name, &spot.child("builtin"))?,
            _ => {
                let fix = "Write either `file` (with `chat_template` or `config`) or `builtin`.";
                self.report_mistake(spot, "A tokenizer has exactly one source.", fix);
                return None;
            }
        };
        let counter = match images? {
            Some(images) => counter.with_images(images),
            None => counter,
        };
        Some(ExactTokenizer(Arc::new(counter)))
    }

    fn load_tokenizer_files(
        &mut self,
        file: &str,
        raw: &raw::TokenizerConfig,
        spot: &KeyPath<'_>,
    ) -> Option<TokenCounter> {
        let tokenizer = self.read_tokenizer_file(file, &spot.child("file"));
        let mut whole = true;
        let mut optional = |written: &Option<String>, key: &str| {
            let bytes = written.as_ref().map(|written| self.read_tokenizer_file(written, &spot.child(key)));
            whole &= bytes.as_ref().is_none_or(Option::is_some);
            bytes.flatten()
        };
        let template = optional(&raw.chat_template, "chat_template");
        let config = optional(&raw.config, "config");
        let tokenizer = tokenizer.filter(|_| whole)?;
        let template = match template.map(String::from_utf8) {
            Some(Err(_)) => {
                self.report_mistake(
                    &spot.child("chat_template"),
                    "The file is not UTF-8.",
                    "Save the template as UTF-8 text.",
                );
                return None;
            }
            Some(Ok(text)) => Some(text),
            None => None,
        };
        match TokenCounter::from_files(&tokenizer, template.as_deref(), config.as_deref()) {
            Ok(counter) => Some(counter),
            Err(error) => {
                self.report_mistake(
                    spot,
                    format!("These files cannot be used: {error}."),
                    "Leave `tokenizer` out to have counts estimated.",
                );
                None
            }
        }
    }

    fn load_builtin_tokenizer(&mut self, name: &str, spot: &KeyPath<'_>) -> Option<TokenCounter> {
        if BUILTIN.contains(&name) {
            return Some(TokenCounter::o200k_harmony());
        }
        let meant = suggest::most_similar(name, BUILTIN);
        let fix = meant.map_or_else(
            || format!("Write one of {}, or `file` with the model's tokenizer.json.", BUILTIN.join(", ")),
            |meant| format!("Did you mean \"{meant}\"?"),
        );
        self.report_mistake(spot, "The gateway has no built-in tokenizer of this name.", fix);
        None
    }

    fn resolve_image_rule(
        &mut self,
        rule: &Map<String, Value>,
        spot: &KeyPath<'_>,
    ) -> Option<ImageTokenSettings> {
        match parse_image_rule(rule.clone()) {
            Ok(images) => Some(images),
            Err(error) => {
                let fix = "Write something like `{ rule = \"patches\", px = 28, min = 4, max = 16384 }`.";
                self.report_mistake(spot, format!("It is not a rule for images: {error}."), fix);
                None
            }
        }
    }
}

/// Parses a rule for images. serde cannot both flatten and refuse unknown members, so the members that all rules share
/// are removed first.
fn parse_image_rule(mut members: Map<String, Value>) -> Result<ImageTokenSettings, serde_json::Error> {
    let placeholder = members.remove("placeholder").map(serde_json::from_value).transpose()?;
    let unknown = members.remove("unknown").map(serde_json::from_value).transpose()?;
    let rule = serde_json::from_value(Value::Object(members))?;
    Ok(ImageTokenSettings { rule, placeholder, unknown })
}
