//! Vectors of one answer: located and, if the form differs, converted in the same pass.

use crate::cursor::Cursor;
use crate::floats;
use bytes::Bytes;
use penstock_wire::{figures, json};
use std::ops::Range;

/// Limit on the bytes that are reserved in advance.
const MOST_AHEAD: usize = 64 << 20;

/// Form of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Array of numbers.
    Floats,
    /// Base64 string.
    Base64,
}

/// Location of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// Range in the provider's own bytes.
    Given(Range<usize>),
    /// Range in the converted bytes.
    Made(Range<usize>),
}

/// Parsed item of the provider's list.
#[derive(Debug)]
struct Item {
    place: Place,
    index: Option<usize>,
    /// True if its object has all members that the client expects.
    complete: bool,
}

/// Vectors of one answer, in the order of its inputs.
#[derive(Debug)]
pub(super) struct Vectors {
    given: Bytes,
    made: Bytes,
    items: Vec<Place>,
    dimensions: usize,
    /// Range of the provider's array, if it can be sent unchanged.
    untouched: Option<Range<usize>>,
}

/// Reader that parses vectors one after the other.
pub(super) struct Reader {
    wanted: Wanted,
    items: Vec<Item>,
    made: Vec<u8>,
    scratch: Vec<u8>,
    dimensions: Option<usize>,
    expected: usize,
}

impl Reader {
    /// Creates a reader for about `expected` vectors.
    pub(super) fn new(wanted: Wanted, expected: usize) -> Self {
        Self {
            wanted,
            expected,
            items: Vec::with_capacity(expected),
            made: Vec::new(),
            scratch: Vec::new(),
            dimensions: None,
        }
    }

    /// Takes a bare vector.
    pub(super) fn vector(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let place = self.place(cursor)?;
        self.items.push(Item { place, index: None, complete: false });
        Some(())
    }

    /// Takes `{"object":"embedding","index":…,"embedding":…}`.
    pub(super) fn item(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let (mut place, mut index, mut named) = (None, None, false);
        cursor.object(|key, cursor| {
            match key {
                "embedding" if place.is_none() => place = Some(self.place(cursor)?),
                "index" => index = Some(usize::try_from(figures::whole_number(cursor.bytes()?)?).ok()?),
                "object" => named = json::is_string(cursor.bytes()?, "embedding"),
                _ => {
                    cursor.value()?;
                }
            }
            Some(())
        })?;
        let complete = named && index == Some(self.items.len());
        self.items.push(Item { place: place?, index, complete });
        Some(())
    }

    /// Takes one vector, and converts it if it has another form.
    fn place(&mut self, cursor: &mut Cursor<'_>) -> Option<Place> {
        let at = cursor.at();
        let (taken, count, made) = match (cursor.peek()?, self.wanted) {
            (b'[', Wanted::Floats) => {
                let (taken, count) = floats::measure(cursor.rest())?;
                (taken, count, false)
            }
            (b'[', Wanted::Base64) => {
                self.scratch.clear();
                (floats::read(cursor.rest(), &mut self.scratch)?, self.scratch.len() / 4, true)
            }
            (b'"', _) => {
                let taken = penstock_wire::json::string_end(cursor.rest(), 0)?;
                let inside = cursor.rest().get(1..taken - 1)?;
                self.scratch.clear();
                (taken, floats::decode(inside, &mut self.scratch)?, self.wanted == Wanted::Floats)
            }
            _ => return None,
        };
        if count == 0 || *self.dimensions.get_or_insert(count) != count {
            return None;
        }
        cursor.skip(taken);
        if !made {
            return Some(Place::Given(at..at + taken));
        }
        let start = self.made.len();
        match self.wanted {
            Wanted::Floats => floats::write(&self.scratch, &mut self.made)?,
            Wanted::Base64 => floats::encode(&self.scratch, &mut self.made)?,
        }
        if start == 0 {
            // The others will take about as much; growing by doubling would copy them all.
            let one = self.made.len() + self.made.len() / 16;
            self.made.reserve(one.saturating_mul(self.expected.saturating_sub(1)).min(MOST_AHEAD));
        }
        Some(Place::Made(start..self.made.len()))
    }

    /// Returns all vectors in the order of the inputs. `array` is the range of the provider's list of items.
    ///
    /// `None` if indices are missing, repeated or out of range.
    pub(super) fn finish(self, given: Bytes, array: Range<usize>) -> Option<Vectors> {
        let count = self.items.len();
        let untouched = self
            .items
            .iter()
            .all(|item| item.complete && matches!(item.place, Place::Given(_)))
            .then_some(array);
        // Without indices, the vectors are in the order of the inputs.
        let numbered = self.items.iter().any(|item| item.index.is_some());
        let mut places: Vec<Option<Place>> = vec![None; count];
        for (position, item) in self.items.into_iter().enumerate() {
            let index = if numbered { item.index? } else { position };
            let place = places.get_mut(index)?;
            if place.replace(item.place).is_some() {
                return None;
            }
        }
        Some(Vectors {
            given,
            made: Bytes::from(self.made),
            items: places.into_iter().collect::<Option<_>>()?,
            dimensions: self.dimensions?,
            untouched,
        })
    }
}

impl Vectors {
    /// Returns the number of vectors.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the length of each vector, if there is any.
    pub(super) fn dimensions(&self) -> Option<usize> {
        (self.dimensions > 0).then_some(self.dimensions)
    }

    fn slice(&self, place: &Place) -> Bytes {
        match place {
            Place::Given(range) => self.given.slice(range.clone()),
            Place::Made(range) => self.made.slice(range.clone()),
        }
    }
}

/// Writes the client's list of all vectors.
pub(super) fn write(parts: Vec<Vectors>, out: &mut Vec<Bytes>) {
    if let [Vectors { given, untouched: Some(array), .. }] = parts.as_slice() {
        return out.push(given.slice(array.clone()));
    }
    // The small texts between the vectors share one buffer.
    let mut between = Vec::with_capacity(64 * parts.iter().map(Vectors::len).sum::<usize>() + 2);
    let mut pieces: Vec<(Range<usize>, Bytes)> = Vec::new();
    for (index, (part, place)) in
        parts.iter().flat_map(|part| part.items.iter().map(move |place| (part, place))).enumerate()
    {
        let start = between.len();
        let before = if index == 0 { "[" } else { "}," };
        between.extend_from_slice(before.as_bytes());
        between
            .extend_from_slice(format!(r#"{{"object":"embedding","index":{index},"embedding":"#).as_bytes());
        pieces.push((start..between.len(), part.slice(place)));
    }
    let between = Bytes::from(between);
    for (range, vector) in pieces {
        out.push(between.slice(range));
        out.push(vector);
    }
    out.push(Bytes::from_static(b"}]"));
}
