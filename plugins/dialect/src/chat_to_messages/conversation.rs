//! Conversion of chat messages to turns of user and assistant in the messages dialect.
//!
//! Tool messages and the user message after them become one user turn, results first. System texts at the beginning
//! become the system prompt. Later ones stay at their position if the provider accepts that; otherwise they join the
//! user turn at that position, marked as not from the user. If the users of a conversation have different names, each
//! gets turns of its own whose text begins with the name; the same applies to assistants. System texts of different
//! authors begin with their names too. Each tool call needs a result in the next user turn, or the request is refused.

use super::content_blocks::{
    BlockContent, MessageMarkers, OutputBlock, append_blocks, append_text, set_cache_marker,
    take_cache_marker, write_content,
};
use super::parsed_message::ParsedMessage;
use crate::body_builder::BodyBuilder;
use crate::json_cursor::JsonCursor;
use crate::repeated_call_ids::RepeatedCallIds;
use crate::speakers::{has_several_authors, has_several_names, is_same_name};
use crate::unanswered_tool_calls::UnansweredToolCalls;
use penstock_core::{AdjustableMember, ApiError, AttemptTarget, CacheMarker, OfferCapabilities};

#[derive(Clone, Copy, PartialEq, Eq)]
enum OutputRole {
    User,
    Assistant,
    System,
}

struct OutputMessage<'a> {
    role: OutputRole,
    /// Name of the speaker (`name` of the message), as the body of a JSON string without quotes.
    name: Option<&'a [u8]>,
    /// Tool results, which go before the blocks.
    tool_results: Vec<OutputBlock<'a>>,
    blocks: Vec<OutputBlock<'a>>,
}

impl<'a> OutputMessage<'a> {
    /// Writes the speaker's name before the first text. A user turn without text gets a text with the name.
    fn prefix_name(&mut self) {
        let Some(name) = self.name else { return };
        let is_text = |block: &&mut OutputBlock<'_>| {
            matches!(block.content, BlockContent::Text(_) | BlockContent::NamedText { .. })
        };
        match self.blocks.iter_mut().find(is_text) {
            Some(block) => {
                if let BlockContent::Text(text) = block.content {
                    block.content = BlockContent::NamedText { name, text };
                }
            }
            // An assistant message that has only tool calls gets no text block with the name of its author.
            None if self.role == OutputRole::Assistant => {}
            None => self.blocks.insert(0, BlockContent::NamedText { name, text: b"" }.into()),
        }
    }

    fn merge_tool_results(&mut self) {
        if !self.tool_results.is_empty() {
            self.tool_results.append(&mut self.blocks);
            self.blocks = std::mem::take(&mut self.tool_results);
        }
    }
}

/// Conversation of a chat request, converted to turns of the messages dialect.
pub(super) struct MessagesConversation<'a> {
    abilities: &'a OfferCapabilities,
    replays_reasoning: bool,
    system_prompt: Vec<OutputBlock<'a>>,
    messages: Vec<OutputMessage<'a>>,
    /// Name of each system message with content.
    system_names: Vec<Option<&'a [u8]>>,
    /// Tool calls without a result so far, with their paths.
    unanswered_calls: UnansweredToolCalls<'a, String>,
    call_ids: RepeatedCallIds<'a>,
    /// Id of the call that the next message of the legacy role `function` answers.
    function_call_id: &'a [u8],
}

impl<'a> MessagesConversation<'a> {
    /// Parses `messages`; `markers` are the markers of the prompt cache that the provider gets.
    ///
    /// # Errors
    /// Returns an error with the path of a value that cannot be translated.
    pub(super) fn parse(
        messages: &'a [u8],
        markers: &[CacheMarker],
        target: &AttemptTarget<'a>,
    ) -> Result<Self, ApiError> {
        let mut turns = Self {
            abilities: target.capabilities,
            replays_reasoning: target.reasoning_replay_member().is_some()
                && target.allows_member(AdjustableMember::Signature)
                && target.allows_member(AdjustableMember::Thinking),
            system_prompt: Vec::new(),
            messages: Vec::new(),
            system_names: Vec::new(),
            unanswered_calls: UnansweredToolCalls::default(),
            call_ids: RepeatedCallIds::default(),
            function_call_id: b"call_function",
        };
        JsonCursor::new(messages).visit_elements(|index, message| {
            let markers = MessageMarkers::new(markers, index);
            turns.add_message(index, &ParsedMessage::parse(message), markers)
        })?;
        turns.check_all_answered()?;
        for role in [OutputRole::User, OutputRole::Assistant] {
            if has_several_names(turns.messages.iter().filter(|turn| turn.role == role).map(|turn| turn.name))
            {
                let speaks = |turn: &&mut OutputMessage<'a>| turn.role == role;
                turns.messages.iter_mut().filter(speaks).for_each(OutputMessage::prefix_name);
            }
        }
        if !has_several_authors(turns.system_names.iter().copied()) {
            let turns_with_system = turns.messages.iter_mut().flat_map(|turn| &mut turn.blocks);
            turns.system_prompt.iter_mut().chain(turns_with_system).for_each(OutputBlock::remove_author);
        }
        turns.messages.iter_mut().for_each(OutputMessage::merge_tool_results);
        if turns.messages.is_empty() {
            return Err(ApiError::invalid("messages", "There must be at least one message with content."));
        }
        Ok(turns)
    }

    /// Appends the delivered text of the answer, which the provider must continue, to the last turn of the assistant.
    pub(super) fn append_delivered_text(&mut self, delivered: &str) {
        self.blocks_for_role(OutputRole::Assistant)
            .push(BlockContent::Generated(delivered.to_owned()).into());
    }

    /// Writes `"system":…,"messages":…`.
    pub(super) fn write(&self, out: &mut BodyBuilder<'_>) {
        if !self.system_prompt.is_empty() {
            out.push_str(r#""system":"#);
            write_content(&self.system_prompt, out);
            out.push_byte(b',');
        }
        out.push_str(r#""messages":["#);
        for (at, turn) in self.messages.iter().enumerate() {
            out.push_str(if at == 0 { r#"{"role":""# } else { r#",{"role":""# });
            out.push_str(match turn.role {
                OutputRole::User => "user",
                OutputRole::Assistant => "assistant",
                OutputRole::System => "system",
            });
            out.push_str(r#"","content":"#);
            write_content(&turn.blocks, out);
            out.push_byte(b'}');
        }
        out.push_byte(b']');
    }

    /// Returns the blocks of the last turn if it has this role, or of a new turn.
    fn blocks_for_role(&mut self, role: OutputRole) -> &mut Vec<OutputBlock<'a>> {
        if self.messages.last().is_none_or(|turn| turn.role != role) {
            self.messages.push(OutputMessage {
                role,
                name: None,
                tool_results: Vec::new(),
                blocks: Vec::new(),
            });
        }
        let last = self.messages.len() - 1;
        match self.messages.get_mut(last) {
            Some(turn) => &mut turn.blocks,
            None => &mut self.system_prompt,
        }
    }

    fn add_message(
        &mut self,
        index: usize,
        message: &ParsedMessage<'a>,
        markers: MessageMarkers<'_>,
    ) -> Result<(), ApiError> {
        let at = format!("messages[{index}].content");
        let mut blocks = Vec::new();
        match &*message.role {
            "system" | "developer" => {
                append_blocks(message.content, markers, &at, &mut blocks)?;
                set_cache_marker(&mut blocks, markers.of_message());
                self.system(message.name, blocks);
            }
            "user" => {
                append_blocks(message.content, markers, &at, &mut blocks)?;
                set_cache_marker(&mut blocks, markers.of_message());
                self.add_speech(OutputRole::User, message.name, blocks);
            }
            "assistant" => {
                let thought =
                    message.reasoning.filter(|thought| self.replays_reasoning && !thought.is_empty());
                blocks.extend(thought.map(|thought| OutputBlock::from(BlockContent::Thinking(thought))));
                append_blocks(message.content, markers, &at, &mut blocks)?;
                append_text(message.refusal.unwrap_or_default(), &mut blocks);
                if !blocks.is_empty() || message.has_calls() {
                    self.check_assistant_message()?;
                }
                // A tool call and its result must be in consecutive turns. If the last turn has an unanswered call,
                // this message continues that turn.
                let is_open = !self.unanswered_calls.is_empty();
                self.add_tool_calls(index, message, &mut blocks)?;
                set_cache_marker(&mut blocks, markers.of_message());
                if is_open {
                    self.name_other_speaker(message.name, &mut blocks);
                    self.add_blocks(OutputRole::Assistant, blocks);
                } else {
                    self.add_speech(OutputRole::Assistant, message.name, blocks);
                }
            }
            "tool" | "function" => {
                let id = message.tool_call_id.unwrap_or(self.function_call_id);
                if !self.unanswered_calls.remove_answered(id) {
                    return Err(unmatched_result_error(index));
                }
                append_blocks(message.content, markers, &at, &mut blocks)?;
                let repetition = self.call_ids.add_result(id);
                // Blocks inside a result have no markers, so the result itself gets the last one.
                let marker = markers.of_message().or(take_cache_marker(&mut blocks));
                let result = BlockContent::ToolResult { id, repetition, content: blocks };
                self.add_tool_result(OutputBlock::new(result, marker));
            }
            _ => return Err(ApiError::invalid(format!("messages[{index}].role"), "This role is not known.")),
        }
        Ok(())
    }

    /// Adds blocks of a speaker to the last turn, or to a new turn if the last is of another speaker.
    fn add_speech(&mut self, role: OutputRole, name: Option<&'a [u8]>, mut blocks: Vec<OutputBlock<'a>>) {
        if blocks.is_empty() {
            return;
        }
        let speaks = |turn: &&mut OutputMessage<'a>| {
            turn.role == role && (turn.blocks.is_empty() || is_same_name(turn.name, name))
        };
        match self.messages.last_mut().filter(speaks) {
            Some(turn) => {
                turn.name = name;
                turn.blocks.append(&mut blocks);
            }
            None => {
                self.messages.push(OutputMessage { role, name, tool_results: Vec::new(), blocks });
            }
        }
    }

    /// Writes the name of a speaker before the first text, if the last turn is of a speaker with another name.
    fn name_other_speaker(&self, name: Option<&'a [u8]>, blocks: &mut [OutputBlock<'a>]) {
        let last = self.messages.last().and_then(|turn| turn.name);
        let Some(name) = name.filter(|name| last.is_some_and(|last| !is_same_name(Some(last), Some(name))))
        else {
            return;
        };
        if let Some(block) = blocks.iter_mut().find(|block| matches!(block.content, BlockContent::Text(_)))
            && let BlockContent::Text(text) = block.content
        {
            block.content = BlockContent::NamedText { name, text };
        }
    }

    fn add_blocks(&mut self, role: OutputRole, mut blocks: Vec<OutputBlock<'a>>) {
        if !blocks.is_empty() {
            self.blocks_for_role(role).append(&mut blocks);
        }
    }

    /// Adds a tool result after the other results of the user turn and before its other blocks.
    fn add_tool_result(&mut self, result: OutputBlock<'a>) {
        self.blocks_for_role(OutputRole::User);
        if let Some(turn) = self.messages.last_mut() {
            turn.tool_results.push(result);
        }
    }

    fn system(&mut self, name: Option<&'a [u8]>, mut blocks: Vec<OutputBlock<'a>>) {
        if !blocks.is_empty() {
            self.system_names.push(name);
        }
        let mut author = name;
        for block in &mut blocks {
            if let BlockContent::Text(text) = block.content {
                block.content = BlockContent::SystemText { author: author.take(), text };
            }
        }
        if self.messages.is_empty() {
            self.system_prompt.extend(blocks);
        } else if self.abilities.system_anywhere && self.unanswered_calls.is_empty() {
            self.add_blocks(OutputRole::System, blocks);
        } else {
            for block in &mut blocks {
                if let BlockContent::SystemText { author, text } = block.content {
                    block.content = BlockContent::FoldedSystem { author, text };
                }
            }
            self.add_blocks(OutputRole::User, blocks);
        }
    }

    /// Checks that all tool calls are answered when an assistant turn begins, unless it continues the previous one.
    fn check_assistant_message(&self) -> Result<(), ApiError> {
        match self.messages.last() {
            Some(turn) if turn.role == OutputRole::Assistant => Ok(()),
            _ => self.check_all_answered(),
        }
    }

    fn check_all_answered(&self) -> Result<(), ApiError> {
        match self.unanswered_calls.first_unanswered_position() {
            None => Ok(()),
            Some(at) => Err(ApiError::invalid(
                at.as_str(),
                "With this model's provider each tool call needs a result with its id before the assistant's \
                 next message.",
            )),
        }
    }

    fn add_unanswered_call(&mut self, id: &'a [u8], path: impl Fn() -> String) -> Result<(), ApiError> {
        if self.unanswered_calls.add_call(id, path()) {
            return Ok(());
        }
        let why = "With this model's provider each tool call of a turn needs an id of its own.";
        Err(ApiError::invalid(format!("{}.id", path()), why))
    }

    fn add_tool_calls(
        &mut self,
        index: usize,
        message: &ParsedMessage<'a>,
        blocks: &mut Vec<OutputBlock<'a>>,
    ) -> Result<(), ApiError> {
        for (position, call) in message.tool_calls.iter().enumerate() {
            let id = call.id.ok_or_else(|| {
                let at = format!("messages[{index}].tool_calls[{position}].id");
                ApiError::invalid(at, "A tool call needs a string `id`.")
            })?;
            let at = || format!("messages[{index}].tool_calls[{position}].function");
            let repetition = self.call_ids.add_call(id, index);
            blocks.push(call.function.to_tool_use((id, repetition), at)?);
            self.add_unanswered_call(id, || format!("messages[{index}].tool_calls[{position}]"))?;
        }
        if let Some(function) = &message.function_call {
            self.function_call_id = b"call_function";
            let repetition = self.call_ids.add_call(self.function_call_id, index);
            let id = (self.function_call_id, repetition);
            blocks.push(function.to_tool_use(id, || format!("messages[{index}].function_call"))?);
            self.add_unanswered_call(self.function_call_id, || format!("messages[{index}].function_call"))?;
        }
        Ok(())
    }
}

fn unmatched_result_error(index: usize) -> ApiError {
    ApiError::invalid(
        format!("messages[{index}].tool_call_id"),
        "With this model's provider a result needs a tool call with its id in the assistant's turn before it, \
         each answered once.",
    )
}
