//! Differences between two configurations: keys with their old and new values. Secrets are shown as `***`.

use super::settings::{Provider, Settings};
use super::tree::ConfigTree;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum length of a value in a change, in characters; a longer one is cut.
const MAX_SHOWN_CHARS: usize = 120;
/// Replacement for a secret.
const SECRET: &str = "***";

/// Configuration with all its defaults as JSON text; secrets are included as references only.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigDocument(Arc<[u8]>);

impl ConfigDocument {
    /// Wraps a JSON text.
    pub fn new(text: Vec<u8>) -> Self {
        Self(text.into())
    }

    /// Returns the document with line breaks and indentation.
    #[must_use]
    pub fn pretty_text(&self) -> String {
        let value: serde_json::Value = serde_json::from_slice(&self.0).unwrap_or_default();
        serde_json::to_string_pretty(&value).unwrap_or_default()
    }

    fn parse(&self) -> ConfigTree<'_> {
        serde_json::from_slice(&self.0).unwrap_or(ConfigTree::Null)
    }
}

impl std::fmt::Debug for ConfigDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// A key whose value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Path of the key, such as `models.llama.price.input`.
    pub key: String,
    /// Old value; `None` if it was not set.
    pub old: Option<String>,
    /// New value; `None` if it is not set.
    pub new: Option<String>,
}

impl ConfigChange {
    /// Returns true for addresses of providers, which must not be logged.
    #[must_use]
    pub fn is_provider_address(&self) -> bool {
        is_provider_address_key(&self.key)
    }
}

/// Returns true if the value of a key is the address of a provider. The key may be an element of a list.
pub fn is_provider_address_key(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or(key);
    let name = name.split('[').next().unwrap_or(name);
    ["base_url", "image_hosts"].contains(&name)
}

/// Returns the keys whose values differ, in the order of the new document. Keys that were removed from a table come
/// after the other keys of the table. Secrets whose text changed although their reference is the same come last.
#[must_use]
pub fn diff_settings(old: &Settings, new: &Settings) -> Vec<ConfigChange> {
    let mut found = Vec::new();
    if old.document != new.document {
        let (before, after) = (old.document.parse(), new.document.parse());
        diff_values("", Some(&before), Some(&after), &mut found);
    }
    push_rotated_secrets(old, new, &mut found);
    found
}

/// Adds the keys of secrets whose text changed although their reference is the same: those of providers, of the
/// OpenID client and of the key digests. The secrets of the database and of the bucket are left out, because they are
/// restart-only settings.
fn push_rotated_secrets(old: &Settings, new: &Settings, found: &mut Vec<ConfigChange>) {
    let mut note = |key: String| {
        if !found.iter().any(|change| change.key == key) {
            let secret = || Some(SECRET.to_owned());
            found.push(ConfigChange { key, old: secret(), new: secret() });
        }
    };
    let before: BTreeMap<&str, &Provider> = old.providers.iter().map(|one| (&*one.id, &**one)).collect();
    for provider in &new.providers {
        let Some(known) = before.get(&*provider.id) else { continue };
        if known.api_key.is_some() && provider.api_key.is_some() && known.api_key != provider.api_key {
            note(format!("providers.{}.api_key", provider.id));
        }
        for (name, value) in &provider.headers {
            if known.headers.iter().any(|(other, old)| other == name && old != value) {
                note(format!("providers.{}.headers.{name}", provider.id));
            }
        }
    }
    let client_secret = |settings: &Settings| settings.console.openid.as_ref()?.client_secret.clone();
    if let (Some(known), Some(secret)) = (client_secret(old), client_secret(new))
        && known != secret
    {
        note("console.oidc.client_secret".to_owned());
    }
    if let (Some(known), Some(pepper)) = (&old.storage.pepper, &new.storage.pepper)
        && known != pepper
    {
        note("storage.pepper".to_owned());
    }
}

fn diff_values(
    path: &str,
    old: Option<&ConfigTree<'_>>,
    new: Option<&ConfigTree<'_>>,
    found: &mut Vec<ConfigChange>,
) {
    match (old, new) {
        (Some(ConfigTree::Table(before)), Some(ConfigTree::Table(after)))
            if !is_secret_reference(path, old, new) =>
        {
            diff_members(path, &object_members(before), &object_members(after), found);
        }
        (Some(ConfigTree::List(before)), Some(ConfigTree::List(after))) => {
            match (named_elements(before), named_elements(after)) {
                (Some(before), Some(after)) => diff_members(path, &before, &after, found),
                _ => found.push(redacted_change(path, old, new)),
            }
        }
        _ => found.push(redacted_change(path, old, new)),
    }
}

type NamedValues<'t, 'd> = Vec<(Cow<'t, str>, &'t ConfigTree<'d>)>;

/// Compares members of the same name. Usually both lists have the same names in the same order.
fn diff_members(
    path: &str,
    old: &NamedValues<'_, '_>,
    new: &NamedValues<'_, '_>,
    found: &mut Vec<ConfigChange>,
) {
    let mut compare = |name: &str, old: Option<&ConfigTree<'_>>, new: Option<&ConfigTree<'_>>| {
        if old != new {
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            diff_values(&path, old, new, found);
        }
    };
    if old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.0 == new.0) {
        for ((name, before), (_, after)) in old.iter().zip(new) {
            compare(name, Some(before), Some(after));
        }
        return;
    }
    let before: BTreeMap<&str, &ConfigTree<'_>> = old.iter().map(|(name, value)| (&**name, *value)).collect();
    let names: BTreeSet<&str> = new.iter().map(|(name, _)| &**name).collect();
    for (name, value) in new {
        compare(name, before.get(&**name).copied(), Some(value));
    }
    for (name, value) in old.iter().filter(|(name, _)| !names.contains(&**name)) {
        compare(name, Some(value), None);
    }
}

fn object_members<'t, 'd>(table: &'t [(Cow<'d, str>, ConfigTree<'d>)]) -> NamedValues<'t, 'd> {
    table.iter().map(|(name, value)| (Cow::Borrowed(&**name), value)).collect()
}

/// Returns the elements of a list of blocks with their names; `None` if an element has no name, or if two elements have
/// the same name.
fn named_elements<'t, 'd>(list: &'t [ConfigTree<'d>]) -> Option<NamedValues<'t, 'd>> {
    let name = |block: &'t ConfigTree<'d>| {
        let text = |key: &str| block.get(key).and_then(ConfigTree::text);
        match (text("id"), text("model"), text("name").or_else(|| text("from"))) {
            (Some(id), _, _) => Some(Cow::Borrowed(id)),
            (None, Some(model), Some(name)) => Some(Cow::Owned(format!("{model}[{name}]"))),
            (None, model, name) => model.or(name).map(Cow::Borrowed),
        }
    };
    let all: NamedValues<'_, '_> =
        list.iter().map(|block| Some((name(block)?, block))).collect::<Option<_>>()?;
    let distinct: BTreeSet<&str> = all.iter().map(|(name, _)| &**name).collect();
    (distinct.len() == all.len()).then_some(all)
}

/// Returns true if the value is a reference to a secret, which is compared as one value.
fn is_secret_reference(path: &str, old: Option<&ConfigTree<'_>>, new: Option<&ConfigTree<'_>>) -> bool {
    let reference = |table: Option<&ConfigTree<'_>>| matches!(table, Some(ConfigTree::Table(members)) if matches!(&**members, [(name, _)] if name == "env" || name == "file"));
    is_secret_path(path) || (reference(old) && reference(new))
}

fn is_secret_path(path: &str) -> bool {
    let last = path.rsplit('.').next().unwrap_or(path);
    ["api_key", "pepper"].contains(&last) || path.contains(".headers.")
}

fn redacted_change(path: &str, old: Option<&ConfigTree<'_>>, new: Option<&ConfigTree<'_>>) -> ConfigChange {
    let shown =
        |value: &ConfigTree<'_>| if is_secret_path(path) { SECRET.to_owned() } else { format_value(value) };
    ConfigChange { key: path.to_owned(), old: old.map(shown), new: new.map(shown) }
}

/// Formats a value for people. The content of a block is left out, since it may contain secrets.
fn format_value(value: &ConfigTree<'_>) -> String {
    let text = match value {
        ConfigTree::Table(_) => "{…}".to_owned(),
        ConfigTree::List(list) if list.iter().any(|one| matches!(one, ConfigTree::Table(_))) => {
            format!("[{} blocks]", list.len())
        }
        other => serde_json::to_string(other).unwrap_or_default(),
    };
    if text.chars().count() <= MAX_SHOWN_CHARS {
        return text;
    }
    text.chars().take(MAX_SHOWN_CHARS).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{ResolveEnv, load_text};
    use super::*;

    const BASE: &str = r#"
[routing]
attempts = 4
[[models]]
id = "m"
kind = "chat"
context_length = 1000
price = { input = 1.0, output = 2.0 }
[[providers]]
id = "p"
operator = "P"
country = "FR"
city = "Paris"
base_url = "https://a.example.eu/v1"
api_key = { env = "KEY" }
headers = { x-team = "blue" }
[[providers.offers]]
model = "m"
"#;

    fn settings(text: &str, key: &str) -> Settings {
        let env = |_: &str| Some(key.to_owned());
        load_text("test.toml", text, ResolveEnv { env: &env }).unwrap().settings
    }

    fn describe(change: &ConfigChange) -> String {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".to_owned());
        format!("{} {} {}", change.key, side(&change.old), side(&change.new))
    }

    fn between(old: &Settings, new: &Settings) -> Vec<String> {
        diff_settings(old, new).iter().map(describe).collect()
    }

    #[test]
    fn a_change_has_its_key_and_both_values() {
        let base = settings(BASE, "one");
        assert_eq!(between(&base, &base), Vec::<String>::new());
        for (from, to, expected) in [
            ("attempts = 4", "attempts = 3", "routing.attempts 4 3"),
            ("input = 1.0", "input = 1.5", "models.m.price.input \"1\" \"1.5\""),
            ("[routing]", "[limits]\nhead = \"48KiB\"\n[routing]", "limits.head"),
            ("{ x-team = \"blue\" }", "{ x-team = \"red\" }", "providers.p.headers.x-team *** ***"),
            ("{ env = \"KEY\" }", "{ env = \"OTHER\" }", "providers.p.api_key *** ***"),
            ("model = \"m\"\n", "model = \"m\"\nname = \"theirs\"\n", "providers.p.offers"),
            ("id = \"p\"", "id = \"q\"", "providers.q - {…}"),
        ] {
            let changed = between(&base, &settings(&BASE.replacen(from, to, 1), "one"));
            assert!(changed.iter().any(|change| change.starts_with(expected)), "{to}: {changed:?}");
            assert!(
                !changed.iter().any(|change| change.contains("blue") || change.contains("OTHER")),
                "{changed:?}"
            );
        }
        assert_eq!(between(&base, &settings(&BASE.replace("id = \"p\"", "id = \"q\""), "one")).len(), 2);
    }

    #[test]
    fn a_secret_that_changed_behind_its_reference_is_listed_and_not_shown() {
        let (base, rotated) = (settings(BASE, "one"), settings(BASE, "two"));
        assert_eq!(base.version, rotated.version);
        assert_eq!(between(&base, &rotated), ["providers.p.api_key *** ***"]);
        let both = settings(&BASE.replace("KEY", "OTHER"), "two");
        assert_eq!(between(&base, &both), ["providers.p.api_key *** ***"], "once");
    }

    #[test]
    fn an_address_of_a_provider_is_marked_and_a_long_value_is_cut() {
        let base = settings(BASE, "one");
        let moved = settings(&BASE.replace("a.example.eu", "b.example.eu"), "one");
        let changed = diff_settings(&base, &moved);
        assert!(changed.len() == 1 && changed.iter().all(ConfigChange::is_provider_address), "{changed:?}");
        let long = format!("description = \"{}\"\nkind", "é".repeat(500));
        let changed = diff_settings(&base, &settings(&BASE.replacen("kind", &long, 1), "one"));
        assert!(
            changed.iter().all(|change| change.new.as_ref().unwrap().chars().count() == MAX_SHOWN_CHARS + 1)
        );
    }
}
