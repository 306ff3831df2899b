//! Presets: only sampling parameters, and only values that a request may set.

use super::super::raw;
use super::super::settings::JsonFields;
use super::super::suggest;
use super::SettingsResolver;
use super::key_path::KeyPath;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Parameters that a preset may set.
const SAMPLING: [&str; 11] = [
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "reasoning_effort",
    "verbosity",
    "chat_template_kwargs",
];

impl SettingsResolver<'_> {
    /// Resolves the parameters of each preset that has some; `None` after a mistake.
    pub fn resolve_presets(
        &mut self,
        raw: &raw::PresetsConfig,
        spot: &KeyPath<'_>,
    ) -> Option<BTreeMap<Box<str>, JsonFields>> {
        let mut found = BTreeMap::new();
        let mut whole = true;
        for (name, preset) in [("reasoning", &raw.reasoning), ("non_reasoning", &raw.non_reasoning)] {
            whole &= self.check_sampling(preset, &spot.child(name));
            if !preset.is_empty() {
                let member =
                    |(name, value): (&String, &Value)| (name.as_str().into(), value.to_string().into());
                found.insert(name.into(), preset.iter().map(member).collect());
            }
        }
        whole.then_some(found)
    }

    fn check_sampling(&mut self, preset: &Map<String, Value>, spot: &KeyPath<'_>) -> bool {
        let mut whole = true;
        for name in preset.keys().filter(|name| !SAMPLING.contains(&name.as_str())) {
            whole = false;
            let fix = suggest::most_similar(name, SAMPLING).map_or_else(
                || format!("It may set {}.", SAMPLING.join(", ")),
                |meant| format!("Did you mean `{meant}`?"),
            );
            self.report_mistake(&spot.child(name), "A preset fills in sampling parameters only.", fix);
        }
        for (name, value) in preset.iter().filter(|(name, _)| SAMPLING.contains(&name.as_str())) {
            if let Some(why) = refusal_reason(name, value) {
                whole = false;
                self.report_mistake(&spot.child(name), why, "Write a value that a request may set.");
            }
        }
        whole
    }
}

/// Returns the reason why a request with this member would be refused; `None` if it would be accepted. Presets are
/// applied after requests are validated, so their values must be checked when the configuration is read.
fn refusal_reason(name: &str, value: &Value) -> Option<String> {
    let mut body = json!({ "model": "m", "messages": [{ "role": "user", "content": "" }] });
    body.as_object_mut()?.insert(name.to_owned(), value.clone());
    let limits = penstock_request_validation::RequestLimits::default();
    penstock_request_validation::validate_chat_request(body.to_string().into(), &limits)
        .err()
        .map(|refusal| refusal.message.into_owned())
}
