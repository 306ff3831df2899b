//! Names of serialized members. Stored rows, ledger entries, messages between processes and API bodies keep their members
//! when the code is renamed: `serialized_members.txt` lists them, and a change of the list is a change of a format.
//!
//! `PENSTOCK_BLESS=1` writes the list again. A member may be added; one that disappears needs an alias.

use crate::tidy::sources;
use std::fmt::Write;
use std::path::PathBuf;

/// Returns the attribute that begins at the line, joined to one line, and the index of the next line.
fn attribute(lines: &[&str], start: usize) -> (String, usize) {
    let (mut text, mut next) = (String::new(), start);
    loop {
        text.push_str(lines[next].trim());
        next += 1;
        if text.matches('[').count() == text.matches(']').count() {
            return (text, next);
        }
    }
}

/// Returns the value of `name = "value"` in an attribute.
fn argument<'a>(attributes: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = attributes.split_once(&format!("{name} = \""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// Returns the name of the field or variant that a line begins.
fn member_name(line: &str, is_struct: bool) -> Option<&str> {
    let visible = line.strip_prefix("pub").map_or(line, |rest| match rest.strip_prefix('(') {
        Some(scope) => scope.split_once(") ").map_or(rest, |(_, rest)| rest),
        None => rest.trim_start(),
    });
    let visible = visible.trim_start_matches("r#");
    let end = visible.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(visible.len());
    let (name, rest) = visible.split_at(end);
    let is_member = match is_struct {
        true => rest.starts_with(": "),
        false => name.starts_with(char::is_uppercase),
    };
    is_member.then_some(name)
}

/// Returns a line for each type in a file that is serialized with serde: its name, `rename_all`, and its members.
fn serialized_types(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut found, mut at) = (Vec::new(), 0);
    let mut attributes = String::new();
    while at < lines.len() && lines[at] != "mod tests {" {
        let line = lines[at];
        if line.starts_with("#[") {
            let (one, next) = attribute(&lines, at);
            (attributes, at) = (attributes + &one, next);
            continue;
        }
        at += 1;
        let words: Vec<&str> = line.split_whitespace().filter(|word| !word.starts_with("pub")).collect();
        let derives = attributes.contains("Serialize") || attributes.contains("Deserialize");
        if let (true, true, [kind @ ("struct" | "enum"), name, ..]) =
            (derives, line.ends_with('{'), &words[..])
        {
            let name = name.split(['<', '{']).next().unwrap_or_default();
            let mut row = format!("{name}:");
            if let Some(style) = argument(&attributes, "rename_all") {
                write!(row, " ({style})").unwrap();
            }
            let mut of_member = String::new();
            while lines[at] != "}" {
                let line = lines[at].strip_prefix("    ").unwrap_or(lines[at]);
                if line.starts_with("#[") {
                    let (one, next) = attribute(&lines, at);
                    (of_member, at) = (of_member + &one, next);
                    continue;
                }
                if let Some(member) = member_name(line, *kind == "struct") {
                    write!(row, " {}", argument(&of_member, "rename").unwrap_or(member)).unwrap();
                    of_member.clear();
                }
                at += 1;
            }
            found.push(row);
        }
        if !line.starts_with("//") {
            attributes.clear();
        }
    }
    found
}

#[test]
fn serialized_members_keep_their_names() {
    let mut rows: Vec<String> = sources(&["src", "plugins"])
        .iter()
        .filter(|(path, _)| !path.to_string_lossy().contains("test"))
        .flat_map(|(_, text)| serialized_types(text))
        .collect();
    rows.sort_unstable();
    assert!(
        rows.iter().any(|row| row.starts_with("EntryLine: seq at act ")),
        "the types were found: {rows:?}"
    );
    let listed = rows.join("\n") + "\n";
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/serialized_members.txt");
    if std::env::var_os("PENSTOCK_BLESS").is_some() {
        return std::fs::write(&path, listed).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    let changed = |one: &str, other: &str| -> Vec<String> {
        one.lines().filter(|row| !other.lines().any(|known| known == *row)).map(str::to_owned).collect()
    };
    let (gone, new) = (changed(&known, &listed), changed(&listed, &known));
    assert!(
        gone.is_empty() && new.is_empty(),
        "members changed; see serialized_members.rs\n{gone:#?}\n{new:#?}"
    );
}
