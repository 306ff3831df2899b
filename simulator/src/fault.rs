//! What a simulated provider can do wrong, and how it is written in JSON.

use serde::Deserialize;
use serde_json::Value;

/// One way to answer otherwise than a good provider. In JSON the name is the member `fault`, in snake
/// case: `{"fault":"stall","after":3}`. `after` counts tokens; a plain answer breaks in its middle.
///
/// Faults that answer by themselves (a status, a refusal …) come before those that shape a good answer.
/// What waits ([`Silent`](Fault::Silent), [`Stall`](Fault::Stall)) does so until the client leaves or
/// [`Control::release`](super::Control::release) is called.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "fault", rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// An error answer.
    Status {
        /// Its status.
        #[serde(default = "internal_error")]
        status: u16,
        /// Value of `Retry-After`: seconds, or a date.
        #[serde(default)]
        retry_after: Option<Later>,
        /// Its body; `None`: the engine's usual one.
        #[serde(default)]
        body: Option<String>,
    },
    /// Reads the request and closes without a byte.
    CutBeforeHead {},
    /// Sends the head and closes.
    CutAfterHead {},
    /// Reads the request and sends nothing.
    Silent {},
    /// Sends the first token later by so many milliseconds.
    SlowFirstToken {
        /// Milliseconds.
        ms: u64,
    },
    /// Sends a stream's head at once, then so many tokens, then nothing.
    Stall {
        /// Tokens before.
        #[serde(default)]
        after: u32,
    },
    /// Closes in the middle.
    Cut {
        /// Tokens before.
        #[serde(default)]
        after: u32,
    },
    /// Puts an event in that is broken JSON.
    Malformed {
        /// Tokens before.
        #[serde(default)]
        after: u32,
    },
    /// Ends a good answer with an error event, the status being 200.
    ErrorEvent {
        /// Tokens before.
        #[serde(default)]
        after: u32,
        /// The error's sentence.
        #[serde(default = "in_band")]
        message: String,
    },
    /// Leaves `[DONE]` or `message_stop` out.
    NoDone {},
    /// Leaves the usage out.
    NoUsage {},
    /// Leaves the reason of the end out.
    NoFinish {},
    /// Compresses although nobody asked for it.
    Gzip {},
    /// Ends lines with CRLF.
    Crlf {},
    /// Puts comments between events.
    Comments {},
    /// Sends so many bytes at a time.
    Split {
        /// Bytes, at least 1.
        #[serde(default = "one")]
        bytes: usize,
    },
    /// Sends so many events at a time.
    Merge {
        /// Events, at least 1.
        #[serde(default = "many")]
        events: usize,
    },
    /// Refuses the content, status 400.
    Refusal {
        /// Whose words.
        #[serde(default)]
        shape: Shape,
    },
    /// Says that the prompt is longer than the context window, status 400.
    Overflow {
        /// Whose words.
        #[serde(default)]
        shape: Shape,
    },
    /// Sends another content type with a good answer.
    ContentType {
        /// The header's value.
        value: String,
    },
    /// Sends an HTML page, as a proxy in front of a provider does.
    Html {
        /// Its status.
        #[serde(default = "bad_gateway")]
        status: u16,
    },
    /// Sends the head a byte at a time (HTTP/1.1).
    DripHead {
        /// Milliseconds between two bytes.
        ms: u64,
    },
    /// Puts a content event of so many bytes in front of the others.
    Huge {
        /// Bytes of its text.
        bytes: usize,
    },
    /// Tells measured energy.
    Energy {
        /// Whose form.
        #[serde(default)]
        shape: Energy,
        /// How much, in joules.
        #[serde(default = "joules")]
        joules: f64,
    },
    /// Sends reasoning as `reasoning`, as vLLM does now, instead of `reasoning_content`.
    ReasoningField {},
    /// Repeats a tool's name, its id and null fields in every piece of a call.
    RepeatedToolFields {},
}

/// A `Retry-After`: a number of seconds or any text.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Later {
    /// Seconds.
    Seconds(u64),
    /// As written.
    Text(String),
}

/// Whose words an error is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// vLLM.
    #[default]
    Vllm,
    /// llama.cpp's server.
    LlamaCpp,
    /// The chat completions vendor's, which many imitate.
    Generic,
    /// The messages vendor's.
    Messages,
}

/// Whose form measured energy is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Energy {
    /// Member `impact`, in watt-milliseconds.
    #[default]
    Greenpt,
    /// Comment `: energy {…}` in streams, member `energy` in plain answers.
    Neuralwatt,
    /// Member `energy` everywhere.
    Root,
}

impl Fault {
    /// An error answer of this status with the engine's usual body.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self::Status { status, retry_after: None, body: None }
    }

    /// Reads a fault from its JSON object.
    ///
    /// # Errors
    /// One sentence: an unknown name, an unknown member, a wrong type.
    pub fn read(value: Value) -> Result<Self, String> {
        serde_json::from_value(value).map_err(|error| format!("This fault cannot be read: {error}."))
    }
}

fn internal_error() -> u16 {
    500
}
fn bad_gateway() -> u16 {
    502
}
fn one() -> usize {
    1
}
fn many() -> usize {
    8
}
fn joules() -> f64 {
    40.433
}
fn in_band() -> String {
    "The simulated engine broke in mid-answer.".to_owned()
}
