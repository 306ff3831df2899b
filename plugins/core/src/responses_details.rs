//! Parts of a responses request that its chat form cannot express, and that are needed to write the answer.

use bytes::Bytes;

/// Display of reasoning in an answer of the responses dialect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningDisplay {
    /// Content of the reasoning item (`reasoning_text`).
    #[default]
    Content,
    /// Summary of the reasoning item (`summary_text`), for clients that request summaries. It contains the complete
    /// reasoning, because open models write no separate summary.
    Summary,
}

/// Tool that the provider knows as a function of another name or form: a custom tool, or a tool in a namespace. Its
/// calls are converted back for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappedTool {
    /// Name of the function that the provider is given.
    pub function_name: Box<str>,
    /// Name of the tool in its namespace.
    pub name: Box<str>,
    /// Namespace of the tool, if it has one.
    pub namespace: Option<Box<str>>,
    /// True for a custom tool: its input is text, which the provider writes as the member [`MappedTool::INPUT_MEMBER`].
    pub is_custom: bool,
}

impl MappedTool {
    /// Member of the arguments that holds the input of a custom tool.
    pub const INPUT_MEMBER: &str = "input";
}

/// Parts of a request of the responses dialect that its chat form lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponsesDetails {
    /// Members of the request that the response object repeats: JSON members without enclosing braces.
    pub repeated_members: Bytes,
    /// Custom tools, and tools in a namespace.
    pub tools: Vec<MappedTool>,
    /// Display of reasoning.
    pub reasoning: ReasoningDisplay,
    /// True if reasoning items carry their text in `encrypted_content` too.
    pub seals_reasoning: bool,
    /// Input to store together with the answer; `None` if the response is not stored.
    pub stored_input: Option<StoredInput>,
    /// True if the request is for a background response.
    pub in_background: bool,
    /// Names of members that the client sent as in the chat form, although this dialect has other names for them.
    pub foreign_members: Vec<&'static str>,
    /// For each message of the assistant in the chat form, the messages of the conversation that it joins.
    pub earlier_messages: Vec<Vec<EarlierMessage>>,
    /// Members that may name the session of the request.
    pub session: SessionMembers,
}

/// Message of an earlier answer in a conversation of the responses dialect. The chat form joins those of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierMessage {
    /// Phase that the client states.
    pub phase: Option<&'static str>,
    /// Bytes of the text as the body of a JSON string.
    pub bytes: usize,
}

impl EarlierMessage {
    /// Text between joined messages, as the body of a JSON string.
    pub const SEPARATOR: &str = r"\n\n";
}

/// Members of a responses request that may name its session, as JSON values. The chat form has none of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionMembers {
    /// `prompt_cache_key` of the request.
    pub prompt_cache_key: Option<Box<[u8]>>,
    /// `metadata` of the request.
    pub metadata: Option<Box<[u8]>>,
}

impl SessionMembers {
    /// Returns the value of a member; `None` if the request does not have it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        match name {
            "prompt_cache_key" => self.prompt_cache_key.as_deref(),
            "metadata" => self.metadata.as_deref(),
            _ => None,
        }
    }
}

/// Input of a response that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredInput {
    /// Items of the conversation that the request continues: the elements of a JSON array, without brackets.
    pub previous_items: Bytes,
    /// `input` of the request: a string or an array.
    pub input: Bytes,
}

/// Access of one request to stored responses: permission to store its own, and the conversation that it continues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredResponseAccess {
    /// Permission to store the response, which decides on the effect of `store` and `background`.
    pub access: ResponseStorePermission,
    /// Conversation to which `previous_response_id` refers.
    pub previous: PreviousResponse,
}

/// Permission of a request to store its response, which decides on the effect of `store` and `background`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponseStorePermission {
    /// API key without stored responses: `store` has no effect, and `background` is refused.
    #[default]
    NotAllowed,
    /// Line of a batch: `store` has no effect, because the response is in the results of the batch.
    BatchLine,
    /// Request of a key that may store responses.
    Allowed,
    /// Execution of a background response that was accepted before. The task that executes it stores the response.
    BackgroundRun,
}

/// Conversation to which `previous_response_id` of a request refers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PreviousResponse {
    /// API key that may not store responses.
    #[default]
    NotAllowed,
    /// Id that belongs to no stored response.
    NotFound,
    /// Id of a background response that has not ended.
    Unanswered,
    /// Id of a response that ended without an answer: it failed or was cancelled.
    EndedUnanswered,
    /// Items of the conversation: the elements of a JSON array, without brackets.
    Items(Bytes),
}

impl ResponsesDetails {
    /// Returns the custom or namespaced tool behind the name of a function.
    #[must_use]
    pub fn mapped_tool(&self, function_name: &str) -> Option<&MappedTool> {
        self.tools.iter().find(|tool| *tool.function_name == *function_name)
    }
}
