//! Content of a request in either dialect: the texts of the assistant and of all other roles, the tool calls with
//! their arguments, the tool names. A translation must have the same content.
//!
//! Allowed losses: reasoning; empty texts; a billing header among the blocks of a system prompt; white space at the
//! end of the assistant's last text; characters of a tool name that the other dialect does not allow; content that is
//! neither text nor call, such as images and the calls of another vendor's server tools. Texts in the middle of the
//! conversation may move within the user's side, but never to the assistant's side, where texts keep their order.

use penstock_core::Dialect;
use serde_json::Value;

/// Start of the billing block that a coding agent adds to a system prompt.
const BILLING: &str = "x-anthropic-billing-header";

/// Name of a tool; for a tool call also its arguments, which are `None` if they are not JSON.
type Tool = (String, Option<Value>);

/// Content of one request.
#[derive(Debug, Default)]
pub struct Spoken {
    /// Texts of the assistant, in order.
    assistant: Vec<String>,
    /// Texts of all other roles.
    others: Vec<String>,
    calls: Vec<Tool>,
    tools: Vec<Tool>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Collects the texts of a content, which is a string or a list of parts.
fn texts(content: &Value, into: &mut Vec<String>) {
    into.extend(content.as_str().map(str::to_owned));
    for part in list(content) {
        match part["type"].as_str() {
            Some("input_text" | "output_text") => into.push(text(&part["text"])),
            Some("text") if part["refusal"].is_null() => into.push(text(&part["text"])),
            Some("refusal") if part["text"].is_null() => into.push(text(&part["refusal"])),
            Some("tool_result") => texts(&part["content"], into),
            _ => {}
        }
    }
}

impl Spoken {
    /// Reads a request of this dialect.
    #[must_use]
    pub fn read(dialect: Dialect, body: &Value) -> Self {
        let mut spoken = Self::default();
        if dialect == Dialect::Messages {
            texts(&body["system"], &mut spoken.others);
        }
        if body["system"].is_array() {
            spoken.others.retain(|text| !text.starts_with(BILLING));
        }
        if dialect == Dialect::Responses {
            spoken.others.extend(body["instructions"].as_str().map(str::to_owned));
            list(&body["input"]).iter().for_each(|item| spoken.item(item));
        }
        for message in list(&body["messages"]) {
            spoken.message(dialect, message);
        }
        for tool in list(&body["tools"]) {
            let tool = if dialect == Dialect::Chat { &tool["function"] } else { tool };
            spoken.tools.push((text(&tool["name"]), None));
        }
        if dialect == Dialect::Chat {
            let functions = list(&body["functions"]).iter();
            spoken.tools.extend(functions.map(|function| (text(&function["name"]), None)));
        }
        spoken
    }

    /// Reads one input item of the responses dialect.
    fn item(&mut self, item: &Value) {
        match (item["type"].as_str(), item["role"].as_str()) {
            (Some("function_call"), _) => {
                self.calls.push((text(&item["name"]), arguments_of(&item["arguments"])));
            }
            (Some("function_call_output"), _) => texts(&item["output"], &mut self.others),
            (_, Some("assistant")) => texts(&item["content"], &mut self.assistant),
            (_, Some(_)) => texts(&item["content"], &mut self.others),
            _ => {}
        }
    }

    fn message(&mut self, dialect: Dialect, message: &Value) {
        let mut content = Vec::new();
        texts(&message["content"], &mut content);
        match message["role"].as_str() {
            Some("assistant") => {
                self.assistant.append(&mut content);
                let refusal = message["refusal"].as_str().filter(|_| dialect == Dialect::Chat);
                self.assistant.extend(refusal.map(str::to_owned));
                self.call(dialect, message);
            }
            Some("system") if dialect == Dialect::Messages && message["content"].is_array() => {
                self.others.extend(content.into_iter().filter(|text| !text.starts_with(BILLING)));
            }
            _ => self.others.append(&mut content),
        }
    }

    fn call(&mut self, dialect: Dialect, message: &Value) {
        if dialect == Dialect::Messages {
            let calls = list(&message["content"]).iter().filter(|block| block["type"] == "tool_use");
            let input = |block: &Value| Some(object_or_empty(block["input"].clone()));
            self.calls.extend(calls.map(|block| (text(&block["name"]), input(block))));
            return;
        }
        let calls = list(&message["tool_calls"]).iter().map(|call| &call["function"]);
        for call in calls.chain(message.get("function_call").filter(|call| call.is_object())) {
            self.calls.push((text(&call["name"]), arguments_of(&call["arguments"])));
        }
    }

    /// Asserts that a translation has all content of this request; panics with the missing content.
    pub fn assert_in(&self, sent: &Self) {
        let (assistant, others) = (sent.assistant.concat(), sent.others.concat());
        let mut rest = assistant.as_str();
        for text in &self.assistant {
            // The translation may trim the assistant's last text, so a text is also searched without its trailing white
            // space.
            let found = rest.find(text).map(|at| (at, text.len()));
            let trimmed = text.trim_end();
            let found = found.or_else(|| rest.find(trimmed).map(|at| (at, trimmed.len())));
            let Some((at, length)) = found else {
                panic!("the assistant no longer says {text:?} in its place: {assistant:?}")
            };
            rest = &rest[at + length..];
        }
        // The translation to the messages dialect omits texts of white space alone.
        for text in self.others.iter().filter(|text| !text.trim().is_empty()) {
            assert!(others.contains(text), "{text:?} is not in {others:?}");
        }
        alike(&self.calls, &sent.calls);
        alike(&self.tools, &sent.tools);
    }
}

/// Parses the arguments of a call, which are a string with JSON; an empty string and `null` count as an empty object.
fn arguments_of(value: &Value) -> Option<Value> {
    let arguments = text(value);
    let arguments = if arguments.trim().is_empty() { "{}" } else { &arguments };
    serde_json::from_str(arguments).ok().map(object_or_empty)
}

fn object_or_empty(arguments: Value) -> Value {
    if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments }
}

/// Asserts that the tools are the same in the same order. Names that one of the dialects does not allow may differ.
fn alike(asked: &[Tool], sent: &[Tool]) {
    assert_eq!(asked.len(), sent.len(), "{asked:?} became {sent:?}");
    for ((name, arguments), (called, given)) in asked.iter().zip(sent) {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
        let fits = (1..=64).contains(&name.len()) && name.chars().all(plain);
        assert!(name == called || !fits, "{name:?} became {called:?}");
        assert_eq!(arguments, given, "{name:?}");
    }
}
