//! TOML document as a tree: every value has its file and line, and numbers keep their literal text.

use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// Location in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLocation {
    /// File name as the operator wrote it.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: usize,
    /// Position in its list as written, from 0; `None` outside of a list.
    pub element: Option<usize>,
}

/// Value with its location.
#[derive(Clone, Debug)]
pub struct SpannedValue {
    /// Location of the value.
    pub location: FileLocation,
    /// TOML value.
    pub value: Value,
}

/// Value in a TOML document. A number is stored as its literal text.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string.
    Text(String),
    /// An integer as decimal digits; other radixes are converted.
    Integer(String),
    /// A float.
    Float(String),
    /// A boolean.
    Bool(bool),
    /// A date or time, which no key accepts.
    Date(String),
    /// An array.
    List(Vec<SpannedValue>),
    /// A table, in document order.
    Table(Vec<(String, SpannedValue)>),
}

impl SpannedValue {
    /// Builds the tree of values of a parsed TOML document.
    pub fn from_table(file: &Arc<str>, text: &str, table: &DeTable<'_>) -> Self {
        let lines = LineIndex { file, starts: line_starts(text) };
        Self { location: lines.location_at(0), value: Value::Table(lines.members(table)) }
    }

    /// Returns the member of a table with this key; `None` for any other value.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.members().iter().find(|(name, _)| name == key).map(|(_, node)| node)
    }

    /// Returns the members of a table; empty for any other value.
    pub fn members(&self) -> &[(String, Self)] {
        if let Value::Table(members) = &self.value { members } else { &[] }
    }

    /// Returns the elements of a list; empty for any other value.
    pub fn elements(&self) -> &[Self] {
        if let Value::List(elements) = &self.value { elements } else { &[] }
    }

    /// Returns the text of a string; `None` for any other value.
    pub fn text(&self) -> Option<&str> {
        if let Value::Text(text) = &self.value { Some(text) } else { None }
    }

    /// Returns the literal text of a number or of a string; `None` for any other value.
    pub fn literal(&self) -> Option<&str> {
        match &self.value {
            Value::Text(text) | Value::Integer(text) | Value::Float(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the type of the value as a message names it: `a string`, `an array`, and so on.
    pub const fn type_name(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "a string",
            Value::Integer(_) => "an integer",
            Value::Float(_) => "a number",
            Value::Bool(_) => "a boolean",
            Value::Date(_) => "a date",
            Value::List(_) => "an array",
            Value::Table(_) => "a table",
        }
    }

    /// Formats the value as in a TOML file; a long one is cut. A text that may be a URL with a name, a password or a
    /// query is not shown.
    pub fn preview(&self) -> String {
        let text = match &self.value {
            Value::Text(text) if may_contain_secret(text) => "***".to_owned(),
            Value::Text(text) => format!("{text:?}"),
            Value::Integer(text) | Value::Float(text) | Value::Date(text) => text.clone(),
            Value::Bool(yes) => yes.to_string(),
            Value::List(elements) => {
                let inner: Vec<String> = elements.iter().take(4).map(Self::preview).collect();
                format!("[{}{}]", inner.join(", "), if elements.len() > 4 { ", …" } else { "" })
            }
            Value::Table(_) => "{ … }".to_owned(),
        };
        if text.chars().count() <= 80 { text } else { text.chars().take(77).collect::<String>() + "…" }
    }
}

/// Returns true for a text that may be a URL with a name, a password or a query, also without a scheme or a path.
fn may_contain_secret(text: &str) -> bool {
    text.contains(['@', '?'])
}

struct LineIndex<'a> {
    file: &'a Arc<str>,
    starts: Vec<usize>,
}

/// Returns the offsets at which the lines of a text begin, except for the first line.
fn line_starts(text: &str) -> Vec<usize> {
    text.bytes().zip(1..).filter(|(byte, _)| *byte == b'\n').map(|(_, next)| next).collect()
}

impl LineIndex<'_> {
    fn location_at(&self, offset: usize) -> FileLocation {
        let line = self.starts.partition_point(|start| *start <= offset) + 1;
        FileLocation { file: Arc::clone(self.file), line, element: None }
    }

    fn members(&self, table: &DeTable<'_>) -> Vec<(String, SpannedValue)> {
        let node = |key: usize, value: &DeValue<'_>| SpannedValue {
            location: self.location_at(key),
            value: self.value(value),
        };
        table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), node(key.span().start, value.get_ref())))
            .collect()
    }

    fn value(&self, value: &DeValue<'_>) -> Value {
        match value {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) if number.radix() == 10 => Value::Integer(number.as_str().to_owned()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_or_else(
                |_| Value::Integer(number.to_string()),
                |value| Value::Integer(value.to_string()),
            ),
            DeValue::Float(number) => Value::Float(number.as_str().to_owned()),
            DeValue::Boolean(yes) => Value::Bool(*yes),
            DeValue::Datetime(date) => Value::Date(date.to_string()),
            DeValue::Array(array) => Value::List(
                array
                    .iter()
                    .enumerate()
                    .map(|(index, element)| SpannedValue {
                        location: FileLocation {
                            element: Some(index),
                            ..self.location_at(element.span().start)
                        },
                        value: self.value(element.get_ref()),
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Value::Table(self.members(table)),
        }
    }
}
