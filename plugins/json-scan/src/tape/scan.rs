//! JSON scanner with its own stack, so that nesting needs no recursion.

use super::number::number_end;
use super::string::string_end;
use super::{JsonError, JsonErrorKind, TapeNode, ValueKind};

/// Limits of the document structure.
#[derive(Clone, Copy, Debug)]
pub struct StructureLimits {
    /// Maximum nesting depth of objects and arrays.
    pub depth: usize,
    /// Maximum number of recorded keys and values.
    pub nodes: usize,
}

/// Object or array that has not ended.
#[derive(Clone, Copy)]
struct OpenContainer {
    node: usize,
    object: bool,
    opaque: bool,
}

struct JsonScanner<'b, F> {
    bytes: &'b [u8],
    is_opaque: F,
    at: usize,
    bounds: StructureLimits,
    open: Vec<OpenContainer>,
    nodes: Vec<TapeNode>,
    /// True if the next value belongs to an opaque member.
    is_value_opaque: bool,
}

/// Validates the document and records its keys and values as nodes, in the order of their first byte.
///
/// `is_opaque` receives the raw name of a member and the depth of its object, 1 for the outermost one. The value of an
/// opaque member is validated, and recorded as one node without children.
///
/// # Errors
/// Returns the first error, and the nodes recorded so far, which show the value that contains the error.
pub fn scan(
    bytes: &[u8],
    bounds: StructureLimits,
    is_opaque: impl Fn(&[u8], usize) -> bool,
) -> Result<Vec<TapeNode>, (JsonError, Vec<TapeNode>)> {
    let mut scan = JsonScanner {
        bytes,
        is_opaque,
        at: 0,
        bounds,
        open: Vec::with_capacity(16),
        nodes: Vec::with_capacity((bytes.len() / 16).clamp(16, 1024)),
        is_value_opaque: false,
    };
    match scan.document() {
        Ok(()) => Ok(scan.nodes),
        Err(broken) => Err((broken, scan.nodes)),
    }
}

impl<F: Fn(&[u8], usize) -> bool> JsonScanner<'_, F> {
    fn document(&mut self) -> Result<(), JsonError> {
        loop {
            let mut complete = self.value()?;
            while complete {
                let Some(&open) = self.open.last() else { return self.expect_end() };
                complete = self.continue_container(open)?;
            }
        }
    }

    /// Skips white space and returns the next byte; `None` at the end.
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
    fn value(&mut self) -> Result<bool, JsonError> {
        let Some(first) = self.peek() else { return Err(self.error("the end instead of a value")) };
        let from = self.at;
        let veiled = std::mem::take(&mut self.is_value_opaque);
        let kind = match first {
            b'"' => {
                self.string()?;
                return Ok(true);
            }
            b'{' => return self.open_container(true, veiled),
            b'[' => return self.open_container(false, veiled),
            b'-' | b'0'..=b'9' => {
                self.at = number_end(self.bytes, from)?;
                ValueKind::Number
            }
            b't' => self.literal(b"true", ValueKind::True)?,
            b'f' => self.literal(b"false", ValueKind::False)?,
            b'n' => self.literal(b"null", ValueKind::Null)?,
            _ => return Err(self.error("an invalid value")),
        };
        self.record_node(kind, from)?;
        Ok(true)
    }

    fn literal(&mut self, word: &[u8], kind: ValueKind) -> Result<ValueKind, JsonError> {
        if !self.bytes.get(self.at..).unwrap_or_default().starts_with(word) {
            return Err(self.error("an invalid value"));
        }
        self.at += word.len();
        Ok(kind)
    }

    /// Reads a string whose opening quote is at the cursor.
    fn string(&mut self) -> Result<(), JsonError> {
        let from = self.at;
        let ended = string_end(self.bytes, from + 1)?;
        self.at = ended.quote + 1;
        self.record_node(if ended.escaped { ValueKind::EscapedString } else { ValueKind::String }, from)?;
        if ended.base64_from < ended.quote
            && let Some(node) = self.nodes.last_mut().filter(|node| node.start as usize == from)
        {
            node.base64_from = u16::try_from(ended.base64_from - from - 1).unwrap_or(0);
        }
        Ok(())
    }

    fn open_container(&mut self, object: bool, veiled: bool) -> Result<bool, JsonError> {
        if self.open.len() >= self.bounds.depth {
            return Err(
                self.limit_error(JsonErrorKind::TooDeep, "objects and arrays nested deeper than allowed")
            );
        }
        let opaque_within = self.open.last().is_some_and(|open| open.opaque);
        let node = self.nodes.len();
        self.record_node(if object { ValueKind::Object } else { ValueKind::Array }, self.at)?;
        let opaque = opaque_within || veiled;
        self.open.push(OpenContainer { node, object, opaque });
        self.at += 1;
        let close = if object { b'}' } else { b']' };
        if self.peek() == Some(close) {
            self.close_container();
            return Ok(true);
        }
        if object {
            self.key()?;
        }
        Ok(false)
    }

    /// Reads the comma and the start of the next entry, or the end of `open`, after a complete value.
    fn continue_container(&mut self, open: OpenContainer) -> Result<bool, JsonError> {
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
                self.close_container();
                Ok(true)
            }
            (None, _) => Err(self.error("the end before everything is closed")),
            (Some(_), true) => Err(self.error("neither a comma nor the end of the object")),
            (Some(_), false) => Err(self.error("neither a comma nor the end of the array")),
        }
    }

    fn close_container(&mut self) {
        self.at += 1;
        let Some(open) = self.open.pop() else { return };
        // Values inside an opaque value have no nodes; only the node of the opaque value itself gets an end.
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
    fn key(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            Some(b'"') => {}
            None => return Err(self.error("the end instead of a key")),
            Some(_) => return Err(self.error("something else instead of a key")),
        }
        let from = self.at;
        self.string()?;
        let name = self.bytes.get(from + 1..self.at - 1).unwrap_or_default();
        self.is_value_opaque = (self.is_opaque)(name, self.open.len());
        if self.peek() != Some(b':') {
            return Err(self.error("a key without a colon"));
        }
        self.at += 1;
        Ok(())
    }

    fn expect_end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("more bytes after the end of the document")),
        }
    }

    /// Records a value that ends at the cursor (the end of objects and arrays is set later).
    #[inline]
    fn record_node(&mut self, kind: ValueKind, from: usize) -> Result<(), JsonError> {
        if self.open.last().is_some_and(|open| open.opaque) {
            return Ok(());
        }
        if self.nodes.len() >= self.bounds.nodes {
            return Err(self.limit_error(JsonErrorKind::TooManyValues, "more values than allowed"));
        }
        let next = self.nodes.len() + 1;
        let (start, end, next) = (from as u32, self.at as u32, next as u32);
        self.nodes.push(TapeNode { start, end, next, kind, base64_from: 0 });
        Ok(())
    }

    fn error(&self, message: &'static str) -> JsonError {
        JsonError::syntax(self.at, message)
    }

    const fn limit_error(&self, kind: JsonErrorKind, reason: &'static str) -> JsonError {
        JsonError { offset: self.at, kind, reason }
    }
}
