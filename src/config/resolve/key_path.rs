//! Path in a document, with its value if there is one.

use super::super::check::segment;
use super::super::diagnostic::Mistake;
use super::super::spanned_toml::{Node, Value};
use std::path::{Path, PathBuf};

/// Path of a key, its value if there is one, and the closest existing node.
#[derive(Clone)]
pub struct Spot<'a> {
    path: String,
    near: &'a Node,
    node: Option<&'a Node>,
}

impl<'a> Spot<'a> {
    /// Root of the document.
    pub const fn top(root: &'a Node) -> Self {
        Self { path: String::new(), near: root, node: Some(root) }
    }

    /// Path of a table member.
    pub fn key(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let node = self.node.and_then(|node| node.get(key));
        Self { path, near: node.unwrap_or(self.near), node }
    }

    /// Path of a list element.
    pub fn at(&self, index: usize) -> Self {
        let node = self.node.and_then(|node| node.elements().get(index));
        let path = match node {
            Some(element) => format!("{}{}", self.path, segment(element, index)),
            None => format!("{}[{index}]", self.path),
        };
        Self { path, near: node.unwrap_or(self.near), node }
    }

    /// Path as text.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Location as `file:line`.
    pub fn place(&self) -> String {
        format!("{}:{}", self.near.place.file, self.near.place.line)
    }

    /// Resolves a file path relative to the configuration file that contains it.
    pub fn file(&self, written: &str) -> PathBuf {
        let from = self.near.place.file.to_string();
        Path::new(&from).parent().unwrap_or(Path::new("")).join(written)
    }

    /// Formats the value as written; `None` for a table.
    pub fn written(&self) -> Option<String> {
        self.node.filter(|node| !matches!(node.value, Value::Table(_))).map(Node::written)
    }

    /// Creates a mistake at this path.
    pub fn mistake(&self, value: Option<String>, why: String, fix: String) -> Mistake {
        let place = &self.near.place;
        Mistake {
            file: place.file.to_string(),
            line: Some(place.line),
            key: self.path.clone(),
            value,
            why,
            fix,
        }
    }
}
