//! Tool names in the form that a provider accepts, and the names that the client declared.
//!
//! Names that a messages or responses provider refuses are replaced by their end and their hash. Chat providers get the
//! names of chat and responses clients unchanged, because engines of that dialect accept any character; only long names
//! of messages clients are shortened for them. Answers get the declared names back.

use crate::event::EscapedText;
use crate::json_cursor;
use crate::messages_to_chat::ids;
use bytes::Bytes;
use penstock_core::function_name::{MAX_FUNCTION_NAME_BYTES, is_function_name_byte, replace_function_name};
use penstock_core::{Dialect, InferenceRequest};
use penstock_json_scan::json;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// Maximum length of a tool name at messages providers, in bytes.
const MAX_MESSAGES_NAME_BYTES: usize = 128;

/// Returns a tool name (body of a JSON string) that a provider of the messages or responses dialect accepts: letters,
/// digits, `_` and `-`, up to the length limit of the dialect. A name in another form is replaced.
pub(crate) fn portable_tool_name(provider: Dialect, name: &[u8]) -> Cow<'_, [u8]> {
    let most = if provider == Dialect::Messages { MAX_MESSAGES_NAME_BYTES } else { MAX_FUNCTION_NAME_BYTES };
    let is_accepted = |name: &[u8]| name.len() <= most && name.iter().copied().all(is_function_name_byte);
    if is_accepted(name) {
        return Cow::Borrowed(name);
    }
    match json::unescape_lossy(name) {
        Some(decoded) if is_accepted(decoded.as_bytes()) => Cow::Owned(decoded.into_owned().into_bytes()),
        Some(decoded) => Cow::Owned(replace_function_name(&decoded).into_bytes()),
        None => Cow::Borrowed(name),
    }
}

/// Declared tool names that some provider does not accept, and their replacements for the provider that answers.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredToolNames {
    client: Dialect,
    body: Bytes,
    /// Ranges of `tools` and `functions` in the body, until the names are read.
    unread: [Range<usize>; 2],
    /// Names as the client declared them, without JSON escapes.
    names: Vec<String>,
    /// Index in `names` of each name that the provider got in another form, by the form that it got.
    replacements: HashMap<String, usize>,
}

impl DeclaredToolNames {
    /// Creates the names of a request. They are read by the first call of [`DeclaredToolNames::set_provider`] for a
    /// provider that may get other names; before, no name counts as replaced.
    pub(crate) fn new(ask: &InferenceRequest) -> Self {
        let range = |name| ask.members.get(name).map(|member| member.value_range.clone()).unwrap_or_default();
        Self {
            client: ask.dialect,
            body: ask.body.clone(),
            unread: [range("tools"), range("functions")],
            names: Vec::new(),
            replacements: HashMap::new(),
        }
    }

    /// Reads the names, unless they were read before.
    fn read_names(&mut self) {
        let lists = std::mem::take(&mut self.unread);
        if lists.iter().all(Range::is_empty) {
            return;
        }
        let tools = lists
            .iter()
            .flat_map(|range| json_cursor::elements(self.body.get(range.clone()).unwrap_or_default()));
        let name = |tool| {
            let function = json_cursor::member_value(tool, "function").unwrap_or(tool);
            let name = json_cursor::string_body(json_cursor::member_value(function, "name")?)?;
            let Cow::Owned(_) = portable_tool_name(Dialect::Responses, name) else { return None };
            json::unescape_lossy(name).map(Cow::into_owned)
        };
        self.names = tools.filter_map(name).collect();
    }

    /// Sets the dialect of the provider that answers.
    pub(crate) fn set_provider(&mut self, provider: Dialect) {
        self.replacements.clear();
        if !may_replace(self.client, provider) {
            return;
        }
        self.read_names();
        for (index, name) in self.names.iter().enumerate() {
            let sent = sent_name(self.client, provider, name);
            if sent != *name {
                self.replacements.insert(sent, index);
            }
        }
    }

    /// Returns the declared name of a tool in an answer; the same name if it was not replaced.
    pub(crate) fn original_name(&self, name: EscapedText) -> EscapedText {
        if self.replacements.is_empty() {
            return name;
        }
        let index = self.replacements.get(&*name.decoded());
        let declared = index.and_then(|index| self.names.get(*index));
        declared.map(|declared| EscapedText::new(declared)).unwrap_or(name)
    }
}

/// Returns true if a provider may get other names than the client declared.
fn may_replace(client: Dialect, provider: Dialect) -> bool {
    match provider {
        Dialect::Messages => client != Dialect::Messages,
        Dialect::Chat => client == Dialect::Messages,
        _ => true,
    }
}

/// Returns the name that a provider of a dialect for which [`may_replace`] is true gets for a declared name.
fn sent_name(client: Dialect, provider: Dialect, declared: &str) -> String {
    let escaped = EscapedText::new(declared);
    let sent = match (client, provider) {
        (Dialect::Messages, Dialect::Chat) => ids::shorten_tool_name(escaped.escaped()),
        _ => portable_tool_name(provider, escaped.escaped()),
    };
    // A name that is sent unchanged has JSON escapes, and others have none.
    json::unescape_lossy(&sent).map(Cow::into_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_have_the_form_of_the_dialect() {
        let name = |provider, name: &str| {
            String::from_utf8(portable_tool_name(provider, name.as_bytes()).into_owned()).unwrap()
        };
        let (of_64, of_65, of_128, of_129) =
            ("a".repeat(64), "a".repeat(65), "a".repeat(128), "a".repeat(129));
        for (provider, kept, replaced) in [
            (Dialect::Messages, [&*of_64, &of_128, "a-b_C9"], [&*of_129, "server.tool", "caf\u{e9}"]),
            (Dialect::Responses, [&of_64, "a", "a-b_C9"], [&of_65, "server.tool", "a b"]),
        ] {
            for accepted in kept {
                assert_eq!(name(provider, accepted), accepted);
            }
            for odd in replaced {
                let sent = name(provider, odd);
                assert!(sent.len() <= 64 && sent.bytes().all(is_function_name_byte), "{odd}: {sent}");
            }
        }
        assert_eq!(name(Dialect::Messages, r"\u0061b"), "ab");
        assert_eq!(name(Dialect::Messages, r"a\u002eb"), name(Dialect::Messages, "a.b"));
        assert_eq!(name(Dialect::Messages, ""), "");
    }
}
