//! Vectors of one answer: located and, if the form differs, converted in the same pass.

use crate::cursor::AnswerJsonCursor;
use crate::floats;
use crate::json_text;
use bytes::Bytes;
use penstock_json_scan::json;
use std::ops::Range;

/// Maximum capacity that is reserved in advance for converted vectors, in bytes.
const MAX_RESERVED_BYTES: usize = 64 << 20;

/// Encoding of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VectorEncoding {
    /// Array of numbers.
    Floats,
    /// Base64 string.
    Base64,
}

/// Location of the bytes of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum VectorLocation {
    /// Byte range in the provider's response body.
    Provider(Range<usize>),
    /// Byte range in the buffer of converted vectors.
    Converted(Range<usize>),
}

/// Parsed element of the provider's list of vectors.
#[derive(Debug)]
struct VectorItem {
    location: VectorLocation,
    index: Option<usize>,
    /// True if the provider's object can be sent unchanged: it has exactly the members that the client expects, and
    /// its `index` is its position in the list. Further members could be JSON that strict parsers refuse.
    complete: bool,
}

/// Vectors of one answer, in the order of its inputs.
#[derive(Debug)]
pub(super) struct AnswerVectors {
    provider_body: Bytes,
    converted: Bytes,
    items: Vec<VectorLocation>,
    dimensions: usize,
    /// Range of the provider's list of vectors, if it can be sent unchanged.
    untouched: Option<Range<usize>>,
}

/// Reader of the successive vectors in a provider's answer.
pub(super) struct VectorReader {
    form: VectorEncoding,
    items: Vec<VectorItem>,
    converted: Vec<u8>,
    scratch: Vec<u8>,
    dimensions: Option<usize>,
    expected: usize,
}

impl VectorReader {
    /// Creates a reader of `expected` vectors.
    pub(super) fn new(form: VectorEncoding, expected: usize) -> Self {
        Self {
            form,
            expected,
            items: Vec::with_capacity(expected),
            converted: Vec::new(),
            scratch: Vec::new(),
            dimensions: None,
        }
    }

    /// Reads a vector that is not inside an object; `None` if it is invalid, or its length differs from that of the
    /// other vectors.
    pub(super) fn read_bare_vector(&mut self, cursor: &mut AnswerJsonCursor<'_>) -> Option<()> {
        let location = self.read_vector(cursor)?;
        self.items.push(VectorItem { location, index: None, complete: false });
        Some(())
    }

    /// Reads an object `{"object":"embedding","index":…,"embedding":…}`; `None` if it is invalid, or its vector has
    /// another length than the other vectors.
    pub(super) fn read_item(&mut self, cursor: &mut AnswerJsonCursor<'_>) -> Option<()> {
        let (mut location, mut index, mut named, mut is_plain) = (None, None, false, true);
        cursor.read_object(|key, cursor| {
            match key {
                // Parsers disagree on which of two vectors or indices counts.
                "embedding" if location.is_some() => return None,
                "index" if index.is_some() => return None,
                "embedding" => location = Some(self.read_vector(cursor)?),
                "index" => index = Some(json_text::parse_index(cursor.read_value_bytes()?)?),
                "object" if !named => {
                    named = json::json_string_equals(cursor.read_value_bytes()?, "embedding")
                }
                _ => {
                    is_plain = false;
                    cursor.read_value_range()?;
                }
            }
            Some(())
        })?;
        let complete = is_plain && named && index == Some(self.items.len());
        self.items.push(VectorItem { location: location?, index, complete });
        Some(())
    }

    /// Reads one vector, and converts it if the client requests another form; `None` if it is invalid or empty, or its
    /// length differs from that of the other vectors.
    fn read_vector(&mut self, cursor: &mut AnswerJsonCursor<'_>) -> Option<VectorLocation> {
        let at = cursor.position();
        let (taken, count, made) = match (cursor.peek()?, self.form) {
            (b'[', VectorEncoding::Floats) => {
                let (taken, count) = floats::measure_array(cursor.rest())?;
                (taken, count, false)
            }
            (b'[', VectorEncoding::Base64) => {
                self.scratch.clear();
                (floats::read_array(cursor.rest(), &mut self.scratch)?, self.scratch.len() / 4, true)
            }
            (b'"', _) => {
                let taken = penstock_json_scan::json::string_end(cursor.rest(), 0)?;
                let inside = cursor.rest().get(1..taken - 1)?;
                self.scratch.clear();
                (
                    taken,
                    floats::decode_base64(inside, &mut self.scratch)?,
                    self.form == VectorEncoding::Floats,
                )
            }
            _ => return None,
        };
        if count == 0 || *self.dimensions.get_or_insert(count) != count {
            return None;
        }
        cursor.skip(taken);
        if !made {
            return Some(VectorLocation::Provider(at..at + taken));
        }
        let start = self.converted.len();
        match self.form {
            VectorEncoding::Floats => floats::write_array(&self.scratch, &mut self.converted)?,
            VectorEncoding::Base64 => floats::encode_base64(&self.scratch, &mut self.converted)?,
        }
        if start == 0 {
            // The other vectors need about as much space as the first. Without a reservation, each growth of the buffer
            // would copy all of them.
            let one = self.converted.len() + self.converted.len() / 16;
            self.converted
                .reserve(one.saturating_mul(self.expected.saturating_sub(1)).min(MAX_RESERVED_BYTES));
        }
        Some(VectorLocation::Converted(start..self.converted.len()))
    }

    /// Returns all vectors in the order of the inputs. `body` is the provider's response body, and `array` is the
    /// range of the list of items in it.
    ///
    /// `None` for another number of vectors than expected, and if indices are missing, repeated or out of range.
    pub(super) fn finish(self, body: Bytes, array: Range<usize>) -> Option<AnswerVectors> {
        let count = self.items.len();
        if count != self.expected {
            return None;
        }
        let untouched = self
            .items
            .iter()
            .all(|item| item.complete && matches!(item.location, VectorLocation::Provider(_)))
            .then_some(array);
        // Without indices, the vectors are in the order of the inputs.
        let numbered = self.items.iter().any(|item| item.index.is_some());
        let mut slots: Vec<Option<VectorLocation>> = vec![None; count];
        for (position, item) in self.items.into_iter().enumerate() {
            let index = if numbered { item.index? } else { position };
            let slot = slots.get_mut(index)?;
            if slot.replace(item.location).is_some() {
                return None;
            }
        }
        Some(AnswerVectors {
            provider_body: body,
            converted: Bytes::from(self.converted),
            items: slots.into_iter().collect::<Option<_>>()?,
            dimensions: self.dimensions?,
            untouched,
        })
    }
}

impl AnswerVectors {
    /// Returns the number of vectors.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the length of each vector, if there is any.
    pub(super) fn dimensions(&self) -> Option<usize> {
        (self.dimensions > 0).then_some(self.dimensions)
    }

    fn slice(&self, location: &VectorLocation) -> Bytes {
        match location {
            VectorLocation::Provider(range) => self.provider_body.slice(range.clone()),
            VectorLocation::Converted(range) => self.converted.slice(range.clone()),
        }
    }
}

/// Writes the client's list of all vectors.
pub(super) fn write_vectors(parts: Vec<AnswerVectors>, out: &mut Vec<Bytes>) {
    if let [AnswerVectors { provider_body: given, untouched: Some(array), .. }] = parts.as_slice() {
        return out.push(given.slice(array.clone()));
    }
    // The short texts between the vectors share one buffer.
    let mut between = Vec::with_capacity(64 * parts.iter().map(AnswerVectors::len).sum::<usize>() + 2);
    let mut pieces: Vec<(Range<usize>, Bytes)> = Vec::new();
    for (index, (part, location)) in
        parts.iter().flat_map(|part| part.items.iter().map(move |location| (part, location))).enumerate()
    {
        let start = between.len();
        let before = if index == 0 { "[" } else { "}," };
        between.extend_from_slice(before.as_bytes());
        between
            .extend_from_slice(format!(r#"{{"object":"embedding","index":{index},"embedding":"#).as_bytes());
        pieces.push((start..between.len(), part.slice(location)));
    }
    let between = Bytes::from(between);
    for (range, vector) in pieces {
        out.push(between.slice(range));
        out.push(vector);
    }
    out.push(Bytes::from_static(b"}]"));
}
