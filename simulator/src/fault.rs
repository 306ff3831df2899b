//! Faults of a simulated provider, and their JSON format.

use serde::Deserialize;
use serde_json::Value;

/// Deviation from a good answer. In JSON, the member `fault` has the name in snake case: `{"fault":"stall","after":3}`.
/// `after` is the number of tokens before the fault in a stream. In an answer that is not streamed, `after` has no
/// effect: the fault occurs in the middle of the body, except for [`ErrorEvent`](SimulatedFault::ErrorEvent), which
/// replaces the body.
///
/// Faults that replace the answer (a status, a refusal …) take precedence over those that change a good answer. Faults
/// that wait ([`Silent`](SimulatedFault::Silent), [`Stall`](SimulatedFault::Stall)) do so until the client disconnects or
/// [`SimulatorControl::release`](super::SimulatorControl::release) is called.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case", deny_unknown_fields)]
pub enum SimulatedFault {
    /// Error answer.
    Status {
        /// Status code.
        #[serde(default = "internal_error")]
        status: u16,
        /// Value of `Retry-After`: seconds, or a date.
        #[serde(default)]
        retry_after: Option<RetryAfterValue>,
        /// Body; if `None`, the usual body of the engine.
        #[serde(default)]
        body: Option<String>,
    },
    /// Reads the request, and closes the connection without sending a byte.
    CutBeforeHead {},
    /// Sends the head and closes.
    CutAfterHead {},
    /// Reads the request and sends nothing.
    Silent {},
    /// Delays the first token.
    SlowFirstToken {
        /// Delay in milliseconds.
        ms: u64,
    },
    /// Sends the head of a stream at once, then a number of tokens, and then nothing more.
    Stall {
        /// Number of tokens before the stall.
        #[serde(default)]
        after: u32,
    },
    /// Closes the connection in the middle of the answer.
    Cut {
        /// Number of tokens before the close.
        #[serde(default)]
        after: u32,
    },
    /// Inserts an event with invalid JSON into a stream; cuts off the second half of an answer that is not streamed.
    Malformed {
        /// Number of tokens before the event.
        #[serde(default)]
        after: u32,
    },
    /// Ends a stream with an error event, or replaces the body of an answer that is not streamed by an error, although
    /// the status is 200.
    ErrorEvent {
        /// Number of tokens before the event.
        #[serde(default)]
        after: u32,
        /// Error message.
        #[serde(default = "default_error_message")]
        message: String,
    },
    /// Omits `[DONE]` or `message_stop`.
    NoDone {},
    /// Omits the usage.
    NoUsage {},
    /// Omits the finish reason.
    NoFinish {},
    /// Compresses the answer although the request does not accept it.
    Gzip {},
    /// Ends lines with CRLF.
    Crlf {},
    /// Inserts comments between events.
    Comments {},
    /// Sends the body in writes of this many bytes.
    Split {
        /// Number of bytes, at least 1.
        #[serde(default = "default_split_bytes")]
        bytes: usize,
    },
    /// Sends this many events in one write.
    Merge {
        /// Number of events, at least 1.
        #[serde(default = "default_merge_events")]
        events: usize,
    },
    /// Refuses the content, status 400.
    Refusal {
        /// Format of the error.
        #[serde(default)]
        shape: ErrorShape,
    },
    /// Reports that the prompt is longer than the context window, status 400.
    Overflow {
        /// Format of the error.
        #[serde(default)]
        shape: ErrorShape,
    },
    /// Sends another content type.
    ContentType {
        /// Value of the header.
        value: String,
    },
    /// Sends an HTML page, as a proxy in front of a provider does.
    Html {
        /// Status code.
        #[serde(default = "bad_gateway")]
        status: u16,
    },
    /// Sends the head one byte at a time (HTTP/1.1).
    DripHead {
        /// Milliseconds between two bytes.
        ms: u64,
    },
    /// Inserts an event with a text of this size before the first event with text.
    Huge {
        /// Bytes of its text.
        bytes: usize,
    },
    /// Reports measured energy.
    Energy {
        /// Format of the report.
        #[serde(default)]
        shape: EnergyShape,
        /// Energy in joules.
        #[serde(default = "joules")]
        joules: f64,
    },
    /// Sends reasoning as `reasoning`, as current vLLM does, instead of `reasoning_content`.
    ReasoningField {},
    /// Repeats a tool's name, its id and null fields in every piece of a call.
    RepeatedToolFields {},
}

/// Value of `Retry-After`: a number of seconds or any text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum RetryAfterValue {
    /// Seconds.
    Seconds(u64),
    /// Literal text.
    Text(String),
}

/// Format of an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorShape {
    /// vLLM.
    #[default]
    Vllm,
    /// llama.cpp's server.
    LlamaCpp,
    /// Format of the vendor that defined the chat completions dialect, which many others use too.
    Generic,
    /// Format of the messages vendor.
    Messages,
}

/// Format of measured energy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EnergyShape {
    /// Member `impact`, in watt-milliseconds.
    #[default]
    Greenpt,
    /// Comment `: energy {…}` in streams, member `energy` in plain answers.
    Neuralwatt,
    /// Member `energy` everywhere.
    Root,
}

impl SimulatedFault {
    /// Creates an error answer with this status and the engine's usual body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Status { status, retry_after: None, body: None }
    }

    /// Reads a fault from its JSON object.
    ///
    /// # Errors
    /// Returns one sentence about an unknown name, an unknown member or a wrong type.
    pub fn from_json(value: Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|error| format!("This fault cannot be read: {error}."))
    }
}

fn internal_error() -> u16 {
    500
}
fn bad_gateway() -> u16 {
    502
}
fn default_split_bytes() -> usize {
    1
}
fn default_merge_events() -> usize {
    8
}
fn joules() -> f64 {
    40.433
}
fn default_error_message() -> String {
    "The simulated engine broke in mid-answer.".to_owned()
}
