//! Reader of a configuration file and its included files as one tree. Lists of the files are joined, tables are merged;
//! a key that is in two files is a mistake.

use super::diagnostic::Diagnostic;
use super::spanned_toml::{FileLocation, SpannedValue, Value};
use penstock_regular_file::{describe_io_error, read_limited, read_text_file};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use toml::de::DeTable;

/// Maximum size of a configuration file, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Maximum number of files of a configuration.
const MAX_FILES: usize = 1_000;

/// Reads a file and all its included files as one tree; `None` if the file itself cannot be read or parsed, which is
/// added to `mistakes`.
pub fn read_config(path: &Path, mistakes: &mut Vec<Diagnostic>) -> Option<SpannedValue> {
    let mut reading = ConfigReader { mistakes, seen: Vec::new() };
    reading.read_file(path, None)
}

/// Parses a text; `None` if it has syntax errors, which are added to `mistakes` with `name` as the file name.
pub fn parse_text(name: &str, text: &str, mistakes: &mut Vec<Diagnostic>) -> Option<SpannedValue> {
    parse(&Arc::from(name), text, mistakes)
}

struct ConfigReader<'a> {
    mistakes: &'a mut Vec<Diagnostic>,
    seen: Vec<PathBuf>,
}

impl ConfigReader<'_> {
    fn read_file(&mut self, path: &Path, include_element: Option<&SpannedValue>) -> Option<SpannedValue> {
        let name: Arc<str> = path.to_string_lossy().into();
        let canonical = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        if self.seen.contains(&canonical) {
            return None;
        }
        self.seen.push(canonical);
        if self.seen.len() > MAX_FILES {
            self.report(
                include_element,
                &name,
                &format!("More than {MAX_FILES} files are included."),
                "Put several blocks into one file.",
            );
            return None;
        }
        // The file named on the command line may be a pipe, such as that of a shell's process substitution.
        let read = if include_element.is_some() {
            read_text_file(path, MAX_FILE_BYTES)
        } else {
            read_root_file(path)
        };
        let text = match read {
            Ok(text) => text,
            Err(why) => {
                let fix = include_element
                    .map_or("", |_| "Make the file readable for the gateway's user, or take it out.");
                self.report(include_element, &name, &format!("The file cannot be read: {why}."), fix);
                return None;
            }
        };
        let mut root = parse(&name, &text, self.mistakes)?;
        let included = take_include_key(&mut root);
        for element in included.as_ref().map(SpannedValue::elements).unwrap_or_default() {
            for path in self.included_paths(path, element) {
                if let Some(other) = self.read_file(&path, Some(element)) {
                    merge_tables(&mut root, other, "", self.mistakes);
                }
            }
        }
        if let Some(include) = included {
            let value = Value::Table(vec![("include".to_owned(), include)]);
            merge_tables(
                &mut root,
                SpannedValue { location: FileLocation { file: name, line: 1, element: None }, value },
                "",
                self.mistakes,
            );
        }
        Some(root)
    }

    /// Returns the files that match a pattern, sorted by name. The pattern is relative to the folder of the file
    /// `from`. Only its last part may contain `*`. Without `*`, the path is returned even if there is no such file.
    fn included_paths(&mut self, from: &Path, element: &SpannedValue) -> Vec<PathBuf> {
        let Some(pattern) = element.text() else { return Vec::new() };
        let whole = from.parent().unwrap_or(Path::new("")).join(pattern);
        let last = whole.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !last.contains('*') {
            return vec![whole];
        }
        let folder = whole.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(why) => {
                let why = format!("The folder cannot be read: {why}.");
                self.report(
                    Some(element),
                    &folder.to_string_lossy(),
                    &why,
                    "Make the folder, or take the pattern out.",
                );
                return Vec::new();
            }
        };
        let names =
            entries.flatten().filter(|entry| matches_wildcard(&last, &entry.file_name().to_string_lossy()));
        let mut found: Vec<PathBuf> = names.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        found.sort();
        found
    }

    fn report(&mut self, include_element: Option<&SpannedValue>, name: &str, why: &str, fix: &str) {
        let (file, line, key, value) = match include_element {
            Some(node) => (
                node.location.file.to_string(),
                Some(node.location.line),
                "include",
                Some(format!("{name:?}")),
            ),
            None => (name.to_owned(), None, "", None),
        };
        self.mistakes.push(Diagnostic {
            file,
            line,
            key: key.to_owned(),
            value,
            reason: why.to_owned(),
            remedy: fix.to_owned(),
        });
    }
}

/// Reads the file named on the command line. Any kind of file is accepted, such as a pipe, but its size is limited.
fn read_root_file(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| describe_io_error(&error))?;
    let bytes = read_limited(&file, MAX_FILE_BYTES)?;
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())
}

/// Parses a text. If it has syntax errors, reports all of them and returns `None`.
fn parse(name: &Arc<str>, text: &str, mistakes: &mut Vec<Diagnostic>) -> Option<SpannedValue> {
    let (table, errors) = DeTable::parse_recoverable(text);
    for error in &errors {
        let line = error.span().map(|span| text.get(..span.start).unwrap_or(text).matches('\n').count() + 1);
        let repeated =
            error.span().and_then(|span| text.get(span)).filter(|_| error.message() == "duplicate key");
        let (key, remedy) = match repeated {
            Some(key) => (key, "The key is in this table already: keep one of the two."),
            None => (
                "",
                "Write keys as `key = value` and strings in double quotes; a block starts with `[[providers]]`.",
            ),
        };
        mistakes.push(Diagnostic {
            file: name.to_string(),
            line,
            key: key.trim().to_owned(),
            value: None,
            reason: format!("This is not TOML: {}.", error.message().replace('\n', ", ")),
            remedy: remedy.to_owned(),
        });
    }
    errors.is_empty().then(|| SpannedValue::from_table(name, text, table.get_ref()))
}

fn take_include_key(root: &mut SpannedValue) -> Option<SpannedValue> {
    let Value::Table(members) = &mut root.value else { return None };
    let at = members.iter().position(|(name, _)| name == "include")?;
    Some(members.remove(at).1)
}

fn merge_tables(into: &mut SpannedValue, from: SpannedValue, path: &str, mistakes: &mut Vec<Diagnostic>) {
    let Value::Table(theirs) = from.value else { return };
    for (name, node) in theirs {
        let key = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let Value::Table(ours) = &mut into.value else { return };
        let Some((_, mine)) = ours.iter_mut().find(|(known, _)| *known == name) else {
            ours.push((name, node));
            continue;
        };
        match (&mut mine.value, node.value) {
            (Value::List(mine), Value::List(more)) => {
                let first = mine.len();
                mine.extend(more.into_iter().enumerate().map(|(index, node)| SpannedValue {
                    location: FileLocation { element: Some(first + index), ..node.location },
                    ..node
                }));
            }
            (Value::Table(_), value @ Value::Table(_)) => {
                merge_tables(mine, SpannedValue { location: node.location, value }, &key, mistakes);
            }
            (_, value) => mistakes.push(duplicate_key(
                &key,
                &mine.location,
                &SpannedValue { location: node.location, value },
            )),
        }
    }
}

fn duplicate_key(key: &str, first: &FileLocation, second: &SpannedValue) -> Diagnostic {
    Diagnostic {
        file: second.location.file.to_string(),
        line: Some(second.location.line),
        key: key.to_owned(),
        value: None,
        reason: format!("It is already set in {}:{}.", first.file, first.line),
        remedy: "Keep one of the two.".to_owned(),
    }
}

/// Returns true if a name matches a pattern in which `*` stands for any text.
fn matches_wildcard(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}
