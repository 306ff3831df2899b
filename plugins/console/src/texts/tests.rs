//! Tests only: every text of the code and of the templates is in the table, in each language with the same
//! placeholders.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use super::{BY_ENGLISH, TABLES, Translation};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Literals that look like prose but are not shown on pages, such as texts for operators' logs.
const EXCEPTIONS: &[&str] = &[
    // Names in cryptography, in the code and of units.
    "LiveStream",
    "console sign-in 1",
    "flash {form_token} {message}",
    "Wh",
    "g CO₂e",
    "g CO₂e/EUR",
    "ESRS E1-6 scope 3 category 1",
    "FileDownload({})",
    // Header of a download.
    "private, no-store",
    // Author in the audit log.
    "{} from {address}",
    // Attributes and parts of paths.
    "M{} {bottom}V{}",
    "M{index} {}h0",
    "{gap}{before}.5,{y} {index}.5,{y}",
    "{gap}-.5,{y} .5,{y}",
    "t CO₂e",
    "kg CO₂e",
    "mg CO₂e",
    // Reasons of attributes.
    "a chart has few bars",
    "bounded above",
    "clamped before",
    // Reasons in the log why an OpenID provider could not be read.
    "an error status",
    "no complete answer in time",
    "no connection, or an untrusted certificate",
    "the answer is too large",
    "the connection broke off",
    // Refusals with a value in them: the table of refusals has their translations.
    "from: the period has too many entries for one file; expected fewer days or one account",
    "The name {name} belongs to another user of this gateway; ask an administrator for an invitation.",
    "The role {} may not do this; an administrator can change the role.",
    "There were too many attempts to sign in; try again in {seconds} s.",
    "You are the user {} already; sign in without the invitation.",
    "max_tokens: expected a whole number from 1 to {MAX_TOKENS}.",
    "prompt: expected 1 to {MAX_PROMPT_BYTES} bytes of text.",
    // Formats of a name with its id, and of a day with its time.
    "{name} ({id})",
    "{rounded} ({exact})",
    "{year}-{month}-{date} {time} UTC",
    "{date}.{month}.{year}, {time} UTC",
    "{date}/{month}/{year} {time} UTC",
    "Expected {expected}",
    "{name}: {text} can mean thousands or decimals; write {whole}{decimals} or {whole},{decimals}.",
    "The role ",
    "Give either credits or kwh.",
    "credits has to be more than 0; use a correction to take back a grant.",
    "credits has to be a number of 0 or more, with at most {DECIMALS} decimals.",
    "key: expected a key of this account.",
    "name: expected a name",
    "scopes: expected at least one scope",
    "text: expected at most {} KiB of text",
    "The form has more than {MAX_FORM_FIELDS} fields, so nothing was changed.",
    "The form is larger than {kib} KiB, so it was not read and nothing was changed.",
    "The invoice {} of this account has days of this period too.",
    "The invoice of this period was issued before, as {}.",
    "from: expected the first day of the period, such as 2026-11-01",
    "to: expected the last day of the period, such as 2026-11-30",
    "to: expected a day that ended at least an hour ago, so that all charges are recorded",
    "key: several keys have this name; expected the id of one of them",
    "key: too many keys to search for a name; expected the id of the key",
    "An invoice needs a seller: write `seller` in [invoice] of the configuration.",
    "models: {name} is an alias and matches nothing; write {id}.",
    "models: {name} matches no model of the catalogue.",
    // Refusals of the parameters of a CSV.
    "decimal: expected another character than the separator",
    "separator: expected `,`, `;` or `tab`",
];

fn rows() -> impl Iterator<Item = &'static Translation> {
    TABLES.into_iter().flatten()
}

/// Placeholders of a text, in order of their numbers.
fn placeholders(text: &str) -> BTreeSet<&str> {
    text.split('{').skip(1).map(|rest| rest.split('}').next().unwrap()).collect()
}

#[test]
fn every_text_has_the_same_placeholders_in_each_language() {
    let mut known = BTreeSet::new();
    for row in rows() {
        let (english, german, french) = *row;
        assert!(known.insert(english), "{english} is there twice");
        for text in [german, french] {
            assert!(!text.trim().is_empty(), "{english}");
            assert_eq!(placeholders(text), placeholders(english), "{text}");
        }
    }
    assert!(known.len() > 300);
}

#[test]
fn every_refusal_has_texts_with_values_of_its_sentence() {
    let mut known = BTreeSet::new();
    for (sentence, english, german, french) in super::refusals::TRANSLATIONS {
        assert!(known.insert(sentence), "{sentence} is there twice");
        for text in [english, german, french] {
            assert!(
                !text.trim().is_empty() && placeholders(text).is_subset(&placeholders(sentence)),
                "{text}"
            );
            assert_eq!(placeholders(text), placeholders(english), "{text}");
        }
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}

/// String literals of Rust code, without those of its tests and comments. A line break that is escaped is left out.
fn literals(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let code = code.split("#[cfg(test)]\npub(super) mod tests {").next().unwrap();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n").replace("'\"'", "");
    let mut found = Vec::new();
    let mut rest = code.as_str();
    while let Some(start) = rest.find('"') {
        rest = &rest[start + 1..];
        let mut literal = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => match chars.next().unwrap().1 {
                    '\n' => {
                        let skipped = chars.as_str().chars().take_while(|mark| mark.is_whitespace()).count();
                        chars.nth(skipped.saturating_sub(1));
                    }
                    escaped => literal.push(escaped),
                },
                (_, plain) => literal.push(plain),
            }
        };
        rest = &rest[end + 1..];
        found.push(literal);
    }
    found
}

/// Returns true for a literal for readers: it begins with a capital letter, or has two words.
fn is_prose(literal: &str) -> bool {
    let mut chars = literal.chars();
    let is_name =
        chars.next().is_some_and(char::is_uppercase) && chars.next().is_some_and(char::is_lowercase);
    let words: Vec<&str> = literal.split(' ').collect();
    let is_word = |word: &str| word.chars().any(char::is_alphabetic) && !word.contains(['=', ':', '\'', '/']);
    let has_two = words.windows(2).any(|pair| is_word(pair[0]) && is_word(pair[1]));
    is_name || has_two
}

/// Prose of these files that is not in the table.
fn missing(folder: &Path) -> Vec<String> {
    let mut missing = Vec::new();
    let mut checked = 0;
    for path in files(folder) {
        let name = path.to_string_lossy().into_owned();
        let is_code = path.extension().is_some_and(|kind| kind == "rs");
        let of_tests = name.ends_with("tests.rs") || name.contains("/texts/");
        // Not checked: `language.rs` has the name of each language in that language.
        if !is_code || of_tests || name.ends_with("language.rs") {
            continue;
        }
        for literal in literals(&fs::read_to_string(&path).unwrap()).iter().filter(|text| is_prose(text)) {
            checked += 1;
            if !BY_ENGLISH.contains_key(literal.as_str()) && !EXCEPTIONS.contains(&literal.as_str()) {
                missing.push(format!("{name}: {literal}"));
            }
        }
    }
    assert!(checked > 40, "the texts of {} were found", folder.display());
    missing
}

#[test]
fn every_text_of_the_code_is_in_the_table() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in ["src", "../../src/console"] {
        let missing = missing(&own.join(folder));
        assert!(missing.is_empty(), "without a row in plugins/console/src/texts: {missing:#?}");
    }
}

/// Files with the names of states and outcomes that pages show.
const NAMES: &[&str] = &[
    "../core/src/upstream_error.rs",
    "../usage/src/cell.rs",
    "../batch/src/state.rs",
    "../storage/src/files.rs",
    "../storage/src/users.rs",
    "../../src/telemetry/access_record.rs",
    "../../src/admin/status.rs",
];

#[test]
fn every_name_of_a_state_is_in_the_table() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut checked = 0;
    for file in NAMES {
        let code = fs::read_to_string(own.join(file)).unwrap();
        let code = code.split("#[cfg(test)]").next().unwrap();
        for name in code.split("=> \"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            if name.bytes().all(|byte| byte.is_ascii_lowercase() || b"_ ".contains(&byte)) {
                checked += 1;
                assert!(BY_ENGLISH.contains_key(name), "{name} of {file}");
            }
        }
    }
    assert!(checked >= 40, "{checked}");
}

/// Checks that the table has the problems that the status reports and the overview shows. Problems with placeholders
/// are not checked.
#[test]
fn every_problem_of_the_status_is_in_the_table() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut checked = 0;
    for file in ["../../src/admin/status.rs", "../../src/state/fleet.rs"] {
        for literal in literals(&fs::read_to_string(own.join(file)).unwrap()) {
            let is_problem = literal.starts_with(char::is_lowercase) && is_prose(&literal);
            if is_problem && !literal.contains('{') {
                checked += 1;
                assert!(BY_ENGLISH.contains_key(literal.as_str()), "{literal} of {file}");
            }
        }
    }
    assert!(checked >= 9, "{checked}");
}

#[test]
fn no_template_has_prose_of_its_own() {
    for path in files(&Path::new(env!("CARGO_MANIFEST_DIR")).join("templates")) {
        let template = fs::read_to_string(&path).unwrap();
        for text in template.split("say(\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!(BY_ENGLISH.contains_key(text), "{text} of {}", path.display());
        }
        let mut plain = String::new();
        let mut rest = template.as_str();
        // Collects the text outside of tags, expressions and blocks.
        while let Some(start) = rest.find(['<', '{']) {
            plain.push_str(&rest[..start]);
            let end = match &rest[start..start + 2] {
                "{{" => "}}",
                "{%" => "%}",
                _ => ">",
            };
            let inside = &rest[start..];
            // The end of a tag is searched for after the expressions in the tag, because they may contain `>`.
            let mut from = 0;
            if end == ">" {
                while let Some(open) = inside[from..].find('{') {
                    let closed = inside[from..].find('>').unwrap();
                    if closed < open {
                        break;
                    }
                    let close = if inside[from + open..].starts_with("{{") { "}}" } else { "%}" };
                    from += open + inside[from + open..].find(close).unwrap() + 2;
                }
                for attribute in ["title=\"", "aria-label=\"", "placeholder=\"", "alt=\""] {
                    let tag = &inside[..from + inside[from..].find(end).unwrap()];
                    if let Some((_, value)) = tag.split_once(attribute) {
                        assert!(value.starts_with("{{"), "{attribute} of {tag}");
                    }
                }
            }
            rest = &inside[from + inside[from..].find(end).unwrap() + end.len()..];
        }
        plain.push_str(rest);
        let words = plain.split_whitespace().filter(|word| word.chars().any(char::is_alphabetic));
        let words: Vec<&str> = words.collect();
        let allowed: &[&str] = if path.ends_with("page.html") { &["Penstock", "Penstock"] } else { &[] };
        assert_eq!(words, allowed, "{}", path.display());
    }
}
