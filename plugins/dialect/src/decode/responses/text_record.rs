//! Record of the text that was emitted for a part, for the comparison with its complete text.

/// Maximum bytes of stored arguments. Longer arguments are compared only by their fingerprint.
const MAX_ARGUMENTS_BYTES: usize = 1 << 20;

/// Record of emitted text.
///
/// Text is compared by fingerprints, so that it need not be stored. Only arguments are stored too.
#[derive(Debug)]
pub(super) struct TextRecord {
    /// Length in bytes.
    len: usize,
    exact: Fingerprint,
    /// Number of bytes without white space.
    letter_count: usize,
    /// Fingerprint of the text without white space.
    letters: Fingerprint,
    /// Argument text so far; `None` for other texts and above [`MAX_ARGUMENTS_BYTES`].
    arguments: Option<String>,
}

/// Result of comparing a complete text with the text that was emitted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FinalTextComparison<'a> {
    /// Equal, apart from white space and the notation of JSON arguments: all of the text was emitted.
    Emitted,
    /// Rest of the complete text, which begins with the emitted text.
    Continues(&'a str),
    /// Different: the emitted text is not a prefix of the complete text.
    Contradicts,
}

impl TextRecord {
    /// Creates the record of an empty text.
    pub(super) fn new(stores_arguments: bool) -> Self {
        Self {
            len: 0,
            exact: Fingerprint::EMPTY,
            letter_count: 0,
            letters: Fingerprint::EMPTY,
            arguments: stores_arguments.then(String::new),
        }
    }

    /// Returns the stored arguments; `None` for other texts and for arguments that are too long.
    pub(super) fn arguments(&self) -> Option<&str> {
        self.arguments.as_deref()
    }

    /// Appends emitted text. Updates `stored_bytes`: adds the bytes that are stored of the text, and subtracts bytes
    /// that are no longer stored.
    pub(super) fn append(&mut self, text: &str, stored_bytes: &mut usize) {
        self.len += text.len();
        self.exact = text.bytes().fold(self.exact, Fingerprint::then);
        for letter in letters(text) {
            self.letter_count += 1;
            self.letters = self.letters.then(letter);
        }
        if self.len > MAX_ARGUMENTS_BYTES {
            let removed = self.arguments.take().map_or(0, |arguments| arguments.len());
            *stored_bytes = stored_bytes.saturating_sub(removed);
        }
        if let Some(arguments) = &mut self.arguments {
            arguments.push_str(text);
            *stored_bytes += text.len();
        }
    }

    /// Compares the complete text with the emitted text. Differences in white space, and in the notation of JSON
    /// arguments, are ignored, because some engines format the text of the end event differently.
    pub(super) fn compare<'a>(&self, whole: &'a str) -> FinalTextComparison<'a> {
        match compare_all([self], whole) {
            FinalTextComparison::Contradicts if self.is_same_object(whole) => FinalTextComparison::Emitted,
            compared => compared,
        }
    }

    /// Returns true if the text and `whole` are arguments with the same JSON value.
    fn is_same_object(&self, whole: &str) -> bool {
        let parse = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
        let own =
            self.arguments.as_deref().filter(|_| whole.len() <= 2 * MAX_ARGUMENTS_BYTES).and_then(parse);
        own.is_some() && own == parse(whole)
    }
}

/// Compares a complete text with consecutive emitted texts. Differences in white space are ignored.
pub(super) fn compare_all<'a, 'r>(
    emitted: impl IntoIterator<Item = &'r TextRecord, IntoIter: Clone>,
    whole: &'a str,
) -> FinalTextComparison<'a> {
    let emitted = emitted.into_iter();
    let exact = emitted.clone().map(|record| (record.len, record.exact));
    if let Some(rest) = strip_texts(whole.as_bytes(), exact)
        && let Some(rest) = whole.get(whole.len() - rest.len()..)
    {
        return if rest.is_empty() {
            FinalTextComparison::Emitted
        } else {
            FinalTextComparison::Continues(rest)
        };
    }
    let letters: Vec<u8> = letters(whole).collect();
    let of_letters = emitted.map(|record| (record.letter_count, record.letters));
    match strip_texts(&letters, of_letters) {
        Some([]) => FinalTextComparison::Emitted,
        _ => FinalTextComparison::Contradicts,
    }
}

/// Returns the rest of `whole` after these texts, given by length and fingerprint; `None` if it does not begin with
/// them.
fn strip_texts(whole: &[u8], mut texts: impl Iterator<Item = (usize, Fingerprint)>) -> Option<&[u8]> {
    texts.try_fold(whole, |rest, (len, fingerprint)| {
        let (start, rest) = rest.split_at_checked(len)?;
        (Fingerprint::of(start.iter().copied()) == fingerprint).then_some(rest)
    })
}

/// Returns the bytes of a text without ASCII white space.
fn letters(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace())
}

/// 64-bit FNV-1a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint(u64);

impl Fingerprint {
    const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    fn then(self, byte: u8) -> Self {
        Self((self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    pub(super) fn of(bytes: impl Iterator<Item = u8>) -> Self {
        bytes.fold(Self::EMPTY, Self::then)
    }
}
