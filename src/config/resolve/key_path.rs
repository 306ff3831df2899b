//! A spot in a document: a path, and the value there if it is written.

use super::super::check::segment;
use super::super::diagnostic::Mistake;
use super::super::spanned_toml::{Node, Value};
use std::path::{Path, PathBuf};

/// A key's path, its value if it stands there, and the nearest thing that does.
#[derive(Clone)]
pub struct Spot<'a> {
    path: String,
    near: &'a Node,
    node: Option<&'a Node>,
}

impl<'a> Spot<'a> {
    /// The document.
    pub const fn top(root: &'a Node) -> Self {
        Self { path: String::new(), near: root, node: Some(root) }
    }

    /// A member of a table.
    pub fn key(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        let node = self.node.and_then(|node| node.get(key));
        Self { path, near: node.unwrap_or(self.near), node }
    }

    /// An element of a list.
    pub fn at(&self, index: usize) -> Self {
        let node = self.node.and_then(|node| node.elements().get(index));
        let path = match node {
            Some(element) => format!("{}{}", self.path, segment(element, index)),
            None => format!("{}[{index}]", self.path),
        };
        Self { path, near: node.unwrap_or(self.near), node }
    }

    /// Its path.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// `file:line` of it.
    pub fn place(&self) -> String {
        format!("{}:{}", self.near.place.file, self.near.place.line)
    }

    /// A path as it is written there: relative to the file it stands in.
    pub fn file(&self, written: &str) -> PathBuf {
        let from = self.near.place.file.to_string();
        Path::new(&from).parent().unwrap_or(Path::new("")).join(written)
    }

    /// The value as it is written; nothing of a whole block.
    pub fn written(&self) -> Option<String> {
        self.node.filter(|node| !matches!(node.value, Value::Table(_))).map(Node::written)
    }

    /// What is wrong here.
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
