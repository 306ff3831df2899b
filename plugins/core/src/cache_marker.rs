//! Markers of the prompt cache in requests of the chat form.

use crate::traits::AttemptTarget;
use crate::{AdjustableMember, InferenceRequest};

/// Marker (`cache_control`) that a chat client sets after a part of the prompt. Providers of the messages dialect cache
/// the prompt up to the marker; other providers do not get it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheMarker {
    /// Part of the prompt that the marker follows.
    pub position: CachePosition,
    /// Lifetime of the cache entry; `None` for the default of the provider.
    pub ttl: Option<CacheTtl>,
}

/// Part of a prompt that a marker follows. The indices are those of the request with its edits applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePosition {
    /// Tool with this index.
    Tool(usize),
    /// Part of the content of a message, by the indices of the message and of the part.
    Part(usize, usize),
    /// Message with this index.
    Message(usize),
    /// Whole request: the provider itself selects the last part that it can cache.
    Request,
}

/// Lifetime of an entry of the prompt cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTtl {
    /// Five minutes.
    FiveMinutes,
    /// One hour.
    OneHour,
}

impl CacheMarker {
    /// Maximum number of markers in a request of the messages dialect.
    pub const MAX_COUNT: usize = 4;

    /// Returns the value of `cache_control` in the messages dialect.
    #[must_use]
    pub const fn messages_value(self) -> &'static str {
        match self.ttl {
            None => r#"{"type":"ephemeral"}"#,
            Some(CacheTtl::FiveMinutes) => r#"{"type":"ephemeral","ttl":"5m"}"#,
            Some(CacheTtl::OneHour) => r#"{"type":"ephemeral","ttl":"1h"}"#,
        }
    }

    /// Returns the markers of a request that a provider of the messages dialect gets; empty if it has rejected them.
    #[must_use]
    pub fn for_target<'a>(ask: &'a InferenceRequest, target: &AttemptTarget<'_>) -> &'a [Self] {
        if target.allows_member(AdjustableMember::CacheControl) { &ask.cache_markers } else { &[] }
    }
}
