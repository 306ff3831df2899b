//! JSON scanner with its own stack, so that nesting needs no recursion.

use super::number::number;
use super::string::string;
use super::{Broken, Kind, Node};

/// Limits of the document structure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Maximum nesting depth of objects and arrays.
    pub(crate) depth: usize,
    /// Maximum number of recorded keys and values.
    pub(crate) nodes: usize,
}

/// True for members whose content the gateway does not read: JSON schemas, arguments, metadata. Their content is
/// validated, and recorded as one value.
#[inline]
fn is_opaque(name: &[u8]) -> bool {
    // The length is compared first, because this runs for each key.
    match name.len() {
        5 => name == b"input",
        6 => name == b"schema",
        8 => name == b"metadata",
        10 => name == b"parameters",
        12 => name == b"input_schema",
        20 => name == b"chat_template_kwargs",
        _ => false,
    }
}

/// Object or array that has not ended.
#[derive(Clone, Copy)]
struct Open {
    node: usize,
    object: bool,
    opaque: bool,
}

struct Scan<'b> {
    bytes: &'b [u8],
    at: usize,
    bounds: Bounds,
    open: Vec<Open>,
    nodes: Vec<Node>,
    /// True if the next value belongs to an opaque member.
    veiled: bool,
}

/// Validates the document. On failure, the nodes recorded so far show the position.
pub(crate) fn scan(bytes: &[u8], bounds: Bounds) -> Result<Vec<Node>, (Broken, Vec<Node>)> {
    let mut scan = Scan {
        bytes,
        at: 0,
        bounds,
        open: Vec::with_capacity(16),
        nodes: Vec::with_capacity((bytes.len() / 16).clamp(16, 1024)),
        veiled: false,
    };
    match scan.document() {
        Ok(()) => Ok(scan.nodes),
        Err(broken) => Err((broken, scan.nodes)),
    }
}

impl Scan<'_> {
    fn document(&mut self) -> Result<(), Broken> {
        loop {
            let mut complete = self.value()?;
            while complete {
                let Some(&open) = self.open.last() else { return self.nothing_more() };
                complete = self.after(open)?;
            }
        }
    }

    /// Skips white space and returns the next byte.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            match self.bytes.get(self.at) {
                Some(b' ' | b'\n' | b'\t' | b'\r') => self.at += 1,
                other => return other.copied(),
            }
        }
    }

    /// Reads a value, or the start of an object or array that is not empty. Returns true if the value is complete.
    fn value(&mut self) -> Result<bool, Broken> {
        let Some(first) = self.peek() else { return Err(self.broken("the end instead of a value")) };
        let from = self.at;
        let veiled = std::mem::take(&mut self.veiled);
        let kind = match first {
            b'"' => {
                self.string()?;
                return Ok(true);
            }
            b'{' => return self.enter(true, veiled),
            b'[' => return self.enter(false, veiled),
            b'-' | b'0'..=b'9' => {
                self.at = number(self.bytes, from)?;
                Kind::Number
            }
            b't' => self.word(b"true", Kind::True)?,
            b'f' => self.word(b"false", Kind::False)?,
            b'n' => self.word(b"null", Kind::Null)?,
            _ => return Err(self.broken("an invalid value")),
        };
        self.record(kind, from)?;
        Ok(true)
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<Kind, Broken> {
        if !self.bytes.get(self.at..).unwrap_or_default().starts_with(word) {
            return Err(self.broken("an invalid value"));
        }
        self.at += word.len();
        Ok(kind)
    }

    /// Reads a string whose opening quote is at the cursor.
    fn string(&mut self) -> Result<(), Broken> {
        let from = self.at;
        let ended = string(self.bytes, from + 1)?;
        self.at = ended.quote + 1;
        self.record(if ended.escaped { Kind::Escaped } else { Kind::String }, from)
    }

    fn enter(&mut self, object: bool, veiled: bool) -> Result<bool, Broken> {
        if self.open.len() >= self.bounds.depth {
            return Err(self.broken("objects and arrays nested deeper than allowed"));
        }
        let opaque_within = self.open.last().is_some_and(|open| open.opaque);
        let node = self.nodes.len();
        self.record(if object { Kind::Object } else { Kind::Array }, self.at)?;
        let opaque = opaque_within || veiled;
        self.open.push(Open { node, object, opaque });
        self.at += 1;
        let close = if object { b'}' } else { b']' };
        if self.peek() == Some(close) {
            self.leave();
            return Ok(true);
        }
        if object {
            self.key()?;
        }
        Ok(false)
    }

    /// Reads the comma and the start of the next entry, or the end of `open`, after a complete value.
    fn after(&mut self, open: Open) -> Result<bool, Broken> {
        match (self.peek(), open.object) {
            (Some(b','), true) => {
                self.at += 1;
                self.key()?;
                Ok(false)
            }
            (Some(b','), false) => {
                self.at += 1;
                Ok(false)
            }
            (Some(b'}'), true) | (Some(b']'), false) => {
                self.leave();
                Ok(true)
            }
            (None, _) => Err(self.broken("the end before everything is closed")),
            (Some(_), true) => Err(self.broken("neither a comma nor the end of the object")),
            (Some(_), false) => Err(self.broken("neither a comma nor the end of the array")),
        }
    }

    fn leave(&mut self) {
        self.at += 1;
        let Some(open) = self.open.pop() else { return };
        // Content of an opaque value is not recorded: only the end of its own node is set.
        if self.open.last().is_some_and(|outer| outer.opaque) {
            return;
        }
        let next = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(open.node) {
            node.end = self.at as u32;
            node.next = next as u32;
        }
    }

    /// Reads a key and its colon.
    fn key(&mut self) -> Result<(), Broken> {
        match self.peek() {
            Some(b'"') => {}
            None => return Err(self.broken("the end instead of a key")),
            Some(_) => return Err(self.broken("something else instead of a key")),
        }
        let from = self.at;
        self.string()?;
        let name = self.bytes.get(from + 1..self.at - 1).unwrap_or_default();
        // A top-level `input` is the input of an embedding; a nested one has the arguments of a tool.
        self.veiled = is_opaque(name) && !(self.open.len() == 1 && name == b"input");
        if self.peek() != Some(b':') {
            return Err(self.broken("a key without a colon"));
        }
        self.at += 1;
        Ok(())
    }

    fn nothing_more(&mut self) -> Result<(), Broken> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.broken("more bytes after the end of the document")),
        }
    }

    /// Records a value that ends at the cursor (the end of objects and arrays is set later).
    #[inline]
    fn record(&mut self, kind: Kind, from: usize) -> Result<(), Broken> {
        if self.open.last().is_some_and(|open| open.opaque) {
            return Ok(());
        }
        if self.nodes.len() >= self.bounds.nodes {
            return Err(self.broken("more values than allowed"));
        }
        let next = self.nodes.len() + 1;
        self.nodes.push(Node { start: from as u32, end: self.at as u32, next: next as u32, kind });
        Ok(())
    }

    fn broken(&self, what: &'static str) -> Broken {
        Broken::new(self.at, what)
    }
}
