//! Errors of a multipart form, and their messages for clients.

use penstock_core::{ApiError, ErrorCode};

/// Reason why bytes are not a valid multipart form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MultipartError {
    /// Part head that is invalid or has no name.
    InvalidHead,
    /// Part head of more than [`super::MAX_PART_HEAD_BYTES`] bytes.
    HeadTooLong,
    /// Form that has more than [`super::MAX_PARTS`] parts.
    TooManyParts,
    /// Invalid bytes after a delimiter, instead of a line end or the end of the form.
    InvalidDelimiter,
    /// End of the body before the closing delimiter.
    Truncated,
}

impl MultipartError {
    /// Returns the API error for the client; `part` is the name of the current part, if an error message may contain
    /// it.
    #[must_use]
    pub fn to_api_error(self, part: Option<&str>) -> ApiError {
        let sentence = match (self, part) {
            (Self::Truncated, Some(part)) => {
                let message = format!("{part}: expected the whole part, but it ends too early.");
                return ApiError::invalid(part, message);
            }
            (Self::InvalidHead, _) => {
                "expected content-disposition: form-data with a name in the head of each part"
            }
            (Self::HeadTooLong, _) => "expected shorter heads of its parts",
            (Self::TooManyParts, _) => "expected fewer parts",
            (Self::InvalidDelimiter, _) => {
                "expected its parts to be delimited by the boundary of the content type"
            }
            (Self::Truncated, None) => "expected its closing delimiter, but it ends before",
        };
        ApiError::with_message(ErrorCode::InvalidRequest, format!("The form: {sentence}.")).with_param("body")
    }
}
