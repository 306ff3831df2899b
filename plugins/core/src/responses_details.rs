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

/// Tool that is sent to the provider as a function with another name or other parameters: a custom tool, or a tool in a
/// namespace. Calls of the function are converted back for the client.
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
    pub chat_named_members: Vec<&'static str>,
    /// For each message of the assistant in the chat form, the messages of the conversation that were joined to form
    /// it.
    pub earlier_messages: Vec<Vec<EarlierAnswerMessage>>,
    /// For each message of the chat form, the parts of the request from which it was written.
    pub message_origins: Vec<ChatMessageOrigin>,
    /// Members that may identify the session of the request.
    pub session: SessionHints,
}

/// Part of a responses request from which a message or a tool call of the chat form was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponsesRequestPart {
    /// `instructions`.
    Instructions,
    /// Item of the conversation to which `previous_response_id` refers.
    Previous,
    /// `input` that is a string.
    Text,
    /// Item of `input`, by its index.
    Item(u32),
}

impl ResponsesRequestPart {
    /// Returns the client's path of a member of the item; `member` begins with a dot, or is empty for the item itself.
    fn member_path(self, member: &str) -> String {
        match self {
            Self::Instructions => "instructions".to_owned(),
            Self::Previous => "previous_response_id".to_owned(),
            Self::Text => "input".to_owned(),
            Self::Item(index) => format!("input[{index}]{member}"),
        }
    }
}

/// Parts of a responses request from which a message of the chat form was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatMessageOrigin {
    /// Item from which the content comes; the first item, if several items were joined to form the message.
    pub content: ResponsesRequestPart,
    /// True if the item is the output of a tool.
    pub is_output: bool,
    /// Item of each tool call.
    pub calls: Vec<ResponsesRequestPart>,
}

impl ChatMessageOrigin {
    /// Returns the client's path of a member of the message, such as `.content[1].type`.
    fn member_path(&self, member: &str) -> String {
        if let Some((position, member)) =
            member.strip_prefix(".tool_calls[").and_then(|rest| rest.split_once(']'))
        {
            let call = position.parse().ok().and_then(|position: usize| self.calls.get(position));
            let member = match member {
                ".id" => ".call_id",
                ".function.name" => ".name",
                ".function.arguments" => ".arguments",
                _ => "",
            };
            return call.unwrap_or(&self.content).member_path(member);
        }
        match member.strip_prefix(".content") {
            Some(rest) if self.is_output => self.content.member_path(&format!(".output{rest}")),
            Some(_) => self.content.member_path(member),
            None if member == ".tool_call_id" => self.content.member_path(".call_id"),
            None => self.content.member_path(""),
        }
    }
}

/// Message of an earlier answer in a conversation of the responses dialect. In the chat form, all messages of one
/// answer are joined to a single message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlierAnswerMessage {
    /// Value of `phase` in the message, such as `commentary`; `None` if the client sent none.
    pub phase: Option<&'static str>,
    /// Length of the text in bytes, as in a JSON string: with escapes, without quotes.
    pub bytes: usize,
}

impl EarlierAnswerMessage {
    /// Text between joined messages, as in a JSON string: with escapes, without quotes.
    pub const SEPARATOR: &str = r"\n\n";
}

/// Members of a responses request that may identify its session, as JSON values. They are kept here because the chat
/// form of the body does not contain them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionHints {
    /// `prompt_cache_key` of the request.
    pub prompt_cache_key: Option<Box<[u8]>>,
    /// `metadata` of the request.
    pub metadata: Option<Box<[u8]>>,
}

impl SessionHints {
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
    pub store_permission: ResponseStorePermission,
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
    /// Returns the client's path of a member of the chat form inside `messages` or `tools`; `None` for other members.
    #[must_use]
    pub fn client_param_path(&self, path: &str) -> Option<String> {
        if let Some((index, member)) = path.strip_prefix("messages[").and_then(|rest| rest.split_once(']')) {
            let index: usize = index.parse().ok()?;
            return self.message_origins.get(index).map(|origin| origin.member_path(member));
        }
        let (index, member) = path.strip_prefix("tools[")?.split_once(']')?;
        // With namespaces, the index of a tool in the chat form is not its index in the client's request. The path
        // then names only `tools`.
        if self.tools.iter().any(|tool| tool.namespace.is_some()) {
            return Some("tools".to_owned());
        }
        Some(format!("tools[{index}]{}", member.strip_prefix(".function").unwrap_or(member)))
    }

    /// Returns the custom or namespaced tool behind the name of a function.
    #[must_use]
    pub fn mapped_tool(&self, function_name: &str) -> Option<&MappedTool> {
        self.tools.iter().find(|tool| *tool.function_name == *function_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_the_chat_form_are_named_as_the_client_wrote_them() {
        let origin = |content, is_output, calls| ChatMessageOrigin { content, is_output, calls };
        let message_origins = vec![
            origin(ResponsesRequestPart::Instructions, false, Vec::new()),
            origin(ResponsesRequestPart::Previous, false, Vec::new()),
            origin(
                ResponsesRequestPart::Item(1),
                false,
                vec![ResponsesRequestPart::Item(2), ResponsesRequestPart::Item(4)],
            ),
            origin(ResponsesRequestPart::Item(5), true, Vec::new()),
            origin(ResponsesRequestPart::Text, false, Vec::new()),
        ];
        let mut details = ResponsesDetails { message_origins, ..ResponsesDetails::default() };
        for (path, expected) in [
            ("messages[0].content", Some("instructions")),
            ("messages[1].content[3].type", Some("previous_response_id")),
            ("messages[2].content[0].type", Some("input[1].content[0].type")),
            ("messages[2].tool_calls[0].id", Some("input[2].call_id")),
            ("messages[2].tool_calls[1].function.arguments", Some("input[4].arguments")),
            ("messages[2].tool_calls[1].function.name", Some("input[4].name")),
            ("messages[2].tool_calls[1]", Some("input[4]")),
            ("messages[2].tool_calls[9].id", Some("input[1].call_id")),
            ("messages[2].role", Some("input[1]")),
            ("messages[3].content[1].image_url", Some("input[5].output[1].image_url")),
            ("messages[3].tool_call_id", Some("input[5].call_id")),
            ("messages[4].content", Some("input")),
            ("tools[1].function.parameters", Some("tools[1].parameters")),
            ("tools[1].type", Some("tools[1].type")),
            ("messages[5].content", None),
            ("messages[x].content", None),
            ("messages[99999999999999999999].content", None),
            ("messages", None),
            ("tools", None),
            ("temperature", None),
        ] {
            assert_eq!(details.client_param_path(path).as_deref(), expected, "{path}");
        }
        details.tools.push(MappedTool {
            function_name: "a__b".into(),
            name: "b".into(),
            namespace: Some("a".into()),
            is_custom: false,
        });
        assert_eq!(details.client_param_path("tools[1].function.parameters").as_deref(), Some("tools"));
    }
}
