//! Request whose error is classified.

use crate::json_cursor;
use std::borrow::Cow;

/// Request whose error is classified. The classification ignores text of the request that the error repeats. The
/// length of the request shows whether an error about the context window can be true.
#[derive(Clone, Copy, Debug)]
pub struct FailedRequest<'r> {
    /// Body that the provider received, as [`join_sent_body`] returns it.
    pub sent: &'r [u8],
    /// Body that the client sent: the error for the client names paths in this body.
    pub client: &'r [u8],
    /// Upper bound of the tokens of the input; `u64::MAX` if it is unknown.
    pub max_input_tokens: u64,
}

impl<'r, B: AsRef<[u8]> + ?Sized> From<&'r B> for FailedRequest<'r> {
    /// Creates a request that was sent as the client wrote it, with an unknown number of tokens.
    fn from(body: &'r B) -> Self {
        Self { sent: body.as_ref(), client: body.as_ref(), max_input_tokens: u64::MAX }
    }
}

impl FailedRequest<'_> {
    /// Returns true if the input, together with the requested answer, may have more tokens than this window, or if the
    /// window is 0, which means unknown.
    pub(super) fn may_exceed_window(&self, window: u64) -> bool {
        let names = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let output = names.iter().filter_map(|name| {
            let value = json_cursor::member_value(self.sent, name)?;
            std::str::from_utf8(value).ok()?.parse::<u64>().ok()
        });
        window == 0 || self.max_input_tokens.saturating_add(output.max().unwrap_or_default()) > window
    }
}

/// Joins the chunks of a request body. A body that is not JSON, such as a form, becomes a JSON string, so that its text
/// is compared with the error too.
#[must_use]
pub fn join_sent_body(chunks: &[bytes::Bytes], is_json: bool) -> Cow<'_, [u8]> {
    match chunks {
        [only] if is_json => Cow::Borrowed(only),
        chunks if is_json => Cow::Owned(chunks.concat()),
        chunks => {
            let text = String::from_utf8_lossy(&chunks.concat()).into_owned();
            Cow::Owned(serde_json::Value::String(text).to_string().into_bytes())
        }
    }
}
