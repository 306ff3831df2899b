//! Detection of errors in chunks without the member `error`: proxies, vendors and older engines use other members.

use crate::json_cursor;

/// Members of a chunk that may describe an error.
#[derive(Default)]
pub(super) struct ErrorMembers {
    /// True if the chunk has a member that only errors have, with a value that is not empty.
    has_error: bool,
    /// True if the chunk has a message that is not empty. Errors and notices may have one.
    has_message: bool,
    /// True if `code`, `status`, `statusCode` or `status_code` (the last of them) states a success; `None` without such
    /// a member.
    is_success: Option<bool>,
    /// True if one of these four members is a number of 400 or above: `code`, `status`, `statusCode`, `status_code`.
    has_error_status: bool,
}

impl ErrorMembers {
    /// Records a member of the chunk.
    pub(super) fn record_member(&mut self, name: &str, value: &[u8]) {
        match name {
            "errors" | "error_code" | "error_type" | "error_message" | "error_msg" | "detail" => {
                self.has_error |= is_truthy(value);
            }
            "message" | "msg" => self.has_message |= is_truthy(value),
            "code" | "status" | "statusCode" | "status_code" => self.record_code(value),
            _ => {}
        }
    }

    fn record_code(&mut self, value: &[u8]) {
        let word = json_cursor::parse_string(value).unwrap_or_else(|| String::from_utf8_lossy(value));
        let number: Option<u64> = word.parse().ok();
        self.has_error_status |= number.is_some_and(|number| number >= 400);
        let is_success = matches!(number, Some(0 | 200..=299))
            || matches!(&*word.to_ascii_lowercase(), "" | "null" | "ok" | "success");
        self.is_success = Some(is_success);
    }

    /// Returns true if a chunk without choices that has these members is an error.
    pub(super) fn is_error(&self) -> bool {
        self.has_error || self.has_error_status || (self.has_message && self.is_success != Some(true))
    }
}

/// Returns true if the value of MiniMax's member `base_resp` states an error. Such a chunk may have choices too.
pub(super) fn is_base_resp_error(value: &[u8]) -> bool {
    let code = json_cursor::member_value(value, "status_code");
    code.is_some_and(|code| json_cursor::parse_integer(code) != Some(0_u64))
}

/// Returns true for a value other than `null`, `false`, 0 and empty ones.
pub(super) fn is_truthy(value: &[u8]) -> bool {
    !matches!(value, b"null" | b"false" | b"0" | b"\"\"" | b"[]" | b"{}")
}
