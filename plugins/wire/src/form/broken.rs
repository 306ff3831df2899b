//! Why bytes are no form, and how a client is told.

use penstock_contract::{Code, Refusal};

/// Why it is no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A part's head that cannot be read, or has no name.
    Head,
    /// A part's head of more than [`super::MOST_HEAD`] bytes.
    HeadTooLong,
    /// More than [`super::MOST_PARTS`] parts.
    TooManyParts,
    /// Something else behind a delimiter than a line's end or the form's.
    Delimiter,
    /// It ends before its closing delimiter.
    Truncated,
}

impl Broken {
    /// The refusal; `part` names the part that was being read, if its name may be repeated.
    #[must_use]
    pub fn refusal(self, part: Option<&str>) -> Refusal {
        let sentence = match (self, part) {
            (Self::Truncated, Some(part)) => {
                let message = format!("{part}: expected the whole part, but it ends too early.");
                return Refusal::invalid(part, message);
            }
            (Self::Head, _) => "expected content-disposition: form-data with a name in the head of each part",
            (Self::HeadTooLong, _) => "expected shorter heads of its parts",
            (Self::TooManyParts, _) => "expected fewer parts",
            (Self::Delimiter, _) => "expected its parts to be delimited as the content type says",
            (Self::Truncated, None) => "expected its closing delimiter, but it ends before",
        };
        Refusal::because(Code::InvalidRequest, format!("The form: {sentence}.")).at("body")
    }
}
