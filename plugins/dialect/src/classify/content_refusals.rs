//! Refusals of content, in the words of different hosts.

use super::error_signals::ErrorSignals;

/// Codes and phrases about refused content, in lower case, by the host or the engine that writes them. A code counts
/// with any prefix and suffix, such as `InputTextSensitiveContentDetected.SevereViolation`.
const CONTENT_REFUSAL_PHRASES: &[&str] = &[
    // OpenAI
    "bio_policy",
    "cyber_policy",
    "content_policy",
    "content policy",
    "misalignment_policy",
    "moderation",
    "safety system",
    "was flagged",
    // Azure
    "content_filter",
    "content management policy",
    "responsibleaipolicyviolation",
    // Anthropic
    "content filtering policy",
    // Amazon Bedrock
    "blocked by our content filter",
    // xAI
    "content violates usage guidelines",
    "safety_check_type_",
    // DeepSeek
    "content exists risk",
    // Moonshot
    "was considered high risk",
    // Zhipu
    "unsafe or sensitive content",
    "\u{4e0d}\u{5b89}\u{5168}\u{6216}\u{654f}\u{611f}\u{5185}\u{5bb9}",
    // Alibaba
    "datainspectionfailed",
    "data_inspection_failed",
    "data may contain inappropriate content",
    // Volcengine
    "sensitivecontentdetected",
    "textriskdetection",
    "imageriskdetection",
    "text may contain sensitive information",
    "image may contain sensitive information",
    // Tencent
    "textillegaldetected",
    "imageillegaldetected",
    "\u{5ba1}\u{6838}\u{4e0d}\u{901a}\u{8fc7}",
    "\u{5ba1}\u{6838}\u{672a}\u{901a}\u{8fc7}",
    // MiniMax
    "input new_sensitive",
    "output new_sensitive",
    // StepFun
    "censorship_blocked",
    // Hosts of image models
    "nsfw content detected",
    "nsfw content was detected",
    "content was moderated",
];
/// Phrases about a content check that could not run. The content was then not refused.
const CONTENT_CHECK_OUTAGE_PHRASES: &[&str] = &[
    "unavailable",
    "timed out",
    "timeout",
    "backend error",
    "internal error",
    "overload",
    "could not be reached",
    "failed to connect",
];

impl ErrorSignals {
    /// Returns true if the provider refuses the content; false if the provider could not run its content check.
    pub(super) fn is_content_refused(&self) -> bool {
        self.contains_any(CONTENT_REFUSAL_PHRASES) && !self.contains_any(CONTENT_CHECK_OUTAGE_PHRASES)
    }
}
