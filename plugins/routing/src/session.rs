//! Session of a request: identified by the client, or else derived from the beginning of the conversation.

use crate::affinity::{SessionKey, stable_hash};
use penstock_core::{BodyMember, InferenceRequest, InferenceTask};
use penstock_json_scan::json::{self, ObjectMemberEvent};
use std::ops::{ControlFlow, Range};

/// Headers by which clients identify a conversation, in lower case and in the order of precedence.
///
/// Headers that change with each request (`x-client-request-id`, `x-conversation-request-id`) are not among them.
pub const SESSION_HEADERS: &[&str] = &[
    // Session header of Claude Code.
    "x-claude-code-session-id",
    // Session headers of Codex and pi; earlier versions send the form with an underscore.
    "session-id",
    "session_id",
    // Session header of opencode, pi, Cloudflare Workers AI and Fireworks.
    "x-session-affinity",
    // Session headers of opencode and of OpenRouter's clients.
    "x-session-id",
    "x-opencode-session",
    // Session headers of Qwen Code, CodeBuddy and earlier versions of Codex.
    "x-qwen-code-session-id",
    "x-conversation-id",
    "conversation_id",
    // Observability headers that many applications set.
    "x-litellm-session-id",
    "helicone-session-id",
];

/// Members of `metadata` that identify a conversation.
const METADATA_NAMES: [&[u8]; 3] = [b"session_id", b"conversation_id", b"thread_id"];
/// Members that come before the messages in the model's prompt.
const INSTRUCTION_NAMES: [&str; 2] = ["system", "instructions"];
/// Members with the messages.
const MESSAGES_NAMES: [&str; 2] = ["messages", "input"];

/// Maximum number of bytes hashed at the start and at the end of a text; the length of the text is hashed too.
const MAX_HASHED: usize = 2048;
/// Maximum length of a session identifier from a header or member, in bytes; the rest of a longer one is ignored.
const MAX_NAME: usize = 1024;

/// Sources of session identifiers. They are hashed with the identifier, so that equal identifiers from different
/// sources are different sessions.
mod source {
    /// Identifier from the member `prompt_cache_key`.
    pub(super) const CACHE_KEY_TAG: u64 = 1;
    /// Identifier from one of the [`SESSION_HEADERS`](super::SESSION_HEADERS).
    pub(super) const HEADER_TAG: u64 = 3;
    /// Identifier from the member `metadata` or from the top-level member `session_id`.
    pub(super) const METADATA_TAG: u64 = 4;
    /// User id of a conversation that is identified by its beginning.
    pub(super) const USER_TAG: u64 = 5;
    /// Hash of the system prompt and the first messages.
    pub(super) const CONVERSATION_START_TAG: u64 = 6;
}

/// Session that a request belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSession {
    /// Hash that identifies the session on every gateway.
    pub key: SessionKey,
    /// True if the session is identified by the beginning of the conversation, and the request contains only this
    /// beginning: so no provider has cached an answer of the model yet.
    pub is_first_turn: bool,
}

/// Returns the session that a request belongs to; `None` for a request without a prefix that could be cached, and for
/// a conversation that cannot be distinguished from others.
///
/// `scope` is the id of the account: equal identifiers of two accounts are two sessions. `headers` are the fields of
/// the request, with names in lower case.
///
/// The first of these that exists identifies the session: `prompt_cache_key`, [`SESSION_HEADERS`], a session in
/// `metadata` or in the member `session_id`. Without them, the session is identified by a hash of the system prompt and
/// the messages up to the first one of the user, together with `metadata.user_id` if that exists. Without a message of
/// the user, `metadata.user_id` alone identifies it. `previous_response_id` is not used, because it differs from turn
/// to turn; the beginning of the stored conversation stays the same.
#[must_use]
pub fn request_session<'h>(
    scope: &str,
    request: &InferenceRequest,
    headers: impl Iterator<Item = (&'h str, &'h [u8])>,
) -> Option<RequestSession> {
    if !matches!(request.task, InferenceTask::Chat) {
        return None;
    }
    let scope = stable_hash(0, scope.as_bytes());
    let named = |source: u64, name: &[u8]| {
        let name = name.get(..MAX_NAME).unwrap_or(name);
        Some(RequestSession { key: SessionKey(stable_hash(scope ^ source, name)), is_first_turn: false })
    };
    if let Some(key) = string_member(request, "prompt_cache_key") {
        return named(source::CACHE_KEY_TAG, key);
    }
    if let Some(value) = session_header(headers) {
        return named(source::HEADER_TAG, value);
    }
    let (session, user) = metadata(request);
    if let Some(session) = session.or_else(|| string_member(request, "session_id")) {
        return named(source::METADATA_TAG, session);
    }
    let user = user.and_then(|user| named(source::USER_TAG, user));
    let Some((beginning, is_first_turn)) = hash_beginning(request) else { return user };
    let beginning = beginning.to_le_bytes();
    let session = match user {
        Some(user) => RequestSession { key: SessionKey(stable_hash(user.key.0, &beginning)), ..user },
        None => named(source::CONVERSATION_START_TAG, &beginning)?,
    };
    Some(RequestSession { is_first_turn, ..session })
}

/// Returns the value of the first of [`SESSION_HEADERS`] that is present and not empty. One pass over the header fields
/// costs less than a lookup for each name.
fn session_header<'h>(headers: impl Iterator<Item = (&'h str, &'h [u8])>) -> Option<&'h [u8]> {
    let mut first: Option<(usize, &[u8])> = None;
    for (name, value) in headers {
        let Some(rank) = SESSION_HEADERS.iter().position(|known| *known == name) else { continue };
        if !value.is_empty() && first.is_none_or(|(best, _)| rank < best) {
            first = Some((rank, value));
        }
    }
    first.map(|(_, value)| value)
}

/// Returns the content of a top-level string as written in the JSON, with escapes; `None` if the member is absent,
/// empty or not a string.
fn string_member<'r>(request: &'r InferenceRequest, name: &str) -> Option<&'r [u8]> {
    session_member(request, name).and_then(string_content)
}

/// Returns a member of the body, or of the responses request from which the body was converted.
fn session_member<'r>(request: &'r InferenceRequest, name: &str) -> Option<&'r [u8]> {
    let converted = || request.responses.as_ref().and_then(|details| details.session.get(name));
    request.member_value(name).or_else(converted)
}

fn string_content(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"").filter(|content| !content.is_empty())
}

/// Returns the session and the user in `metadata`, each `None` if absent. Claude Code writes the session into
/// `user_id`: a value that contains "session" counts as the session. Any other value is only a user, who may have
/// several conversations.
fn metadata(request: &InferenceRequest) -> (Option<&[u8]>, Option<&[u8]>) {
    let Some(metadata) = session_member(request, "metadata") else { return (None, None) };
    let mut members = json::members(metadata);
    let (mut session, mut user) = (None, None);
    while let Some((name, value)) = members.next_raw() {
        if METADATA_NAMES.contains(&name) {
            session = session.or_else(|| string_content(value));
        } else if name == b"user_id" {
            user = string_content(value);
        }
    }
    match user {
        Some(user) if session.is_none() && user.windows(b"session".len()).any(|word| word == b"session") => {
            (Some(user), None)
        }
        user => (session, user),
    }
}

/// Returns a hash of the instructions and of all messages up to the first message of the user, and true if that message
/// is the last one; `None` without such a message.
fn hash_beginning(request: &InferenceRequest) -> Option<(u64, bool)> {
    let value_of = |name: &&str| Some((request.member_value(name)?, request.members.get(name)?));
    let instructions = INSTRUCTION_NAMES.iter().find_map(value_of);
    let start = instructions.map_or(0, |(value, member)| hash_content(0, value, member));
    let (messages, member) = MESSAGES_NAMES.iter().find_map(value_of)?;
    if string_content(messages).is_some() {
        return Some((hash_content(start, messages, member), true));
    }
    let (mut hash, mut is_user, mut found) = (start, false, None);
    let followed = json::visit_array_object_members(messages, known_strings(member), b"content", |event| {
        if let Some(hash) = found {
            return ControlFlow::Break((hash, false));
        }
        match event {
            ObjectMemberEvent::Member(b"role", value) => is_user = value == b"\"user\"",
            ObjectMemberEvent::Member(b"content", value) => hash = hash_ends(hash, value),
            ObjectMemberEvent::NestedMember(key, value) => hash = hash_part_member(hash, key, value),
            ObjectMemberEvent::Member(..) => {}
            ObjectMemberEvent::End => found = is_user.then_some(hash),
        }
        ControlFlow::Continue(())
    });
    followed.or(found.map(|hash| (hash, true)))
}

/// Returns the ranges of the member's long strings, relative to its value.
fn known_strings(member: &BodyMember) -> impl Iterator<Item = Range<usize>> {
    let start = member.value_range.start;
    let inside =
        move |range: &Range<usize>| Some(range.start.checked_sub(start)?..range.end.checked_sub(start)?);
    member.long_strings.iter().filter_map(inside)
}

/// Returns the hash of a text, or of the parts of a content.
fn hash_content(seed: u64, content: &[u8], member: &BodyMember) -> u64 {
    if content.first() != Some(&b'[') {
        return hash_ends(seed, content);
    }
    let mut hash = seed;
    let _: Option<()> = json::visit_array_object_members(content, known_strings(member), b"", |event| {
        if let ObjectMemberEvent::Member(key, value) = event {
            hash = hash_part_member(hash, key, value);
        }
        ControlFlow::Continue(())
    });
    hash
}

/// Returns the hash of a member of a content part. `cache_control` does not count, because clients move it from message
/// to message as a conversation grows. `type` does not count either, so a text has the same hash whether it is a
/// string or the only part of a list.
fn hash_part_member(seed: u64, key: &[u8], value: &[u8]) -> u64 {
    if matches!(key, b"type" | b"cache_control") { seed } else { hash_ends(seed, value) }
}

fn hash_ends(seed: u64, text: &[u8]) -> u64 {
    let first = text.get(..MAX_HASHED).unwrap_or(text);
    let last = text.get(text.len().saturating_sub(MAX_HASHED).max(first.len())..).unwrap_or_default();
    stable_hash(stable_hash(seed ^ text.len() as u64, first), last)
}
