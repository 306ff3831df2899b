//! Tokenizers: the model's own files are read and compiled here, so that a broken one is found before a request uses
//! it.

use super::super::raw;
use super::super::settings::Tokenizer;
use super::super::suggest;
use super::Proof;
use super::key_path::Spot;
use penstock_tokens::{Counter, Images};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Built-in tokenizers.
const BUILTIN: [&str; 2] = ["gpt-oss", "o200k_harmony"];

impl Proof<'_> {
    /// Loads the tokenizer of a model.
    pub fn tokenizer(&mut self, raw: &raw::Tokenizer, spot: &Spot<'_>) -> Option<Tokenizer> {
        let images = match &raw.images {
            Some(rule) => self.images(rule, &spot.key("images")).map(Some),
            None => Some(None),
        };
        let counter = match (&raw.file, &raw.builtin) {
            (Some(file), None) => self.own(file, raw, spot)?,
            (None, Some(name)) => self.builtin(name, &spot.key("builtin"))?,
            _ => {
                let fix = "Write either `file` (with `chat_template` or `config`) or `builtin`.";
                self.wrong(spot, "A tokenizer has exactly one source.", fix);
                return None;
            }
        };
        let counter = match images? {
            Some(images) => counter.with_images(images),
            None => counter,
        };
        Some(Tokenizer(Arc::new(counter)))
    }

    fn own(&mut self, file: &str, raw: &raw::Tokenizer, spot: &Spot<'_>) -> Option<Counter> {
        let tokenizer = self.bytes(file, &spot.key("file"));
        let mut whole = true;
        let mut optional = |written: &Option<String>, key: &str| {
            let bytes = written.as_ref().map(|written| self.bytes(written, &spot.key(key)));
            whole &= bytes.as_ref().is_none_or(Option::is_some);
            bytes.flatten()
        };
        let template = optional(&raw.chat_template, "chat_template");
        let config = optional(&raw.config, "config");
        let tokenizer = tokenizer.filter(|_| whole)?;
        let template = match template.map(String::from_utf8) {
            Some(Err(_)) => {
                self.wrong(&spot.key("chat_template"), "The file is not UTF-8.", "");
                return None;
            }
            Some(Ok(text)) => Some(text),
            None => None,
        };
        match Counter::from_files(&tokenizer, template.as_deref(), config.as_deref()) {
            Ok(counter) => Some(counter),
            Err(error) => {
                self.wrong(
                    spot,
                    format!("These files cannot be used: {error}."),
                    "Leave `tokenizer` out to have counts estimated.",
                );
                None
            }
        }
    }

    fn builtin(&mut self, name: &str, spot: &Spot<'_>) -> Option<Counter> {
        if BUILTIN.contains(&name) {
            return Some(Counter::o200k_harmony());
        }
        let meant = suggest::nearest(name, BUILTIN);
        let fix = meant.map_or_else(
            || format!("Write one of {}, or `file` with the model's tokenizer.json.", BUILTIN.join(", ")),
            |meant| format!("Did you mean \"{meant}\"?"),
        );
        self.wrong(spot, "The gateway has no built-in tokenizer of this name.", fix);
        None
    }

    fn images(&mut self, rule: &Map<String, Value>, spot: &Spot<'_>) -> Option<Images> {
        match rule_for_images(rule.clone()) {
            Ok(images) => Some(images),
            Err(error) => {
                let fix = "Write something like `{ rule = \"patches\", px = 28, min = 4, max = 16384 }`.";
                self.wrong(spot, format!("It is not a rule for images: {error}."), fix);
                None
            }
        }
    }
}

/// Parses a rule for images. serde cannot both flatten and refuse unknown members, so the members that all rules share
/// are removed first.
fn rule_for_images(mut members: Map<String, Value>) -> Result<Images, serde_json::Error> {
    let placeholder = members.remove("placeholder").map(serde_json::from_value).transpose()?;
    let unknown = members.remove("unknown").map(serde_json::from_value).transpose()?;
    let rule = serde_json::from_value(Value::Object(members))?;
    Ok(Images { rule, placeholder, unknown })
}
