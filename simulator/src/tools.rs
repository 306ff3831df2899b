//! Simulated tool calls: their conditions and their arguments.

use super::schema;
use super::text::{SeededRng, split_chunks};
use serde_json::Value;

/// Maximum number of calls in one answer.
const MOST: usize = 8;

/// Tool declared by a request.
#[derive(Clone, Debug)]
pub(super) struct DeclaredTool {
    /// Name of the tool.
    pub name: String,
    /// Schema of its arguments.
    pub schema: Value,
}

/// Tool choice of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum ToolChoice {
    /// Words of the prompt decide.
    #[default]
    Auto,
    /// No tool is called.
    None,
    /// At least one tool is called.
    Required,
    /// Named tool is called.
    Named(String),
}

/// Tool call of an answer.
#[derive(Clone, Debug)]
pub(super) struct ToolInvocation {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text, cut into tokens.
    pub arguments: Vec<String>,
}

/// Returns the tool calls of an answer. With [`ToolChoice::Auto`], tools are called if the last message of the user
/// contains "use the tool" or "use the tools". The first phrase calls the tool that the message names, or else the
/// first tool. The second phrase calls all tools, at most eight, if the request allows parallel calls; with
/// [`ToolChoice::Required`] it has the same effect.
pub(super) fn tool_calls(
    tools: &[DeclaredTool],
    choice: &ToolChoice,
    parallel: bool,
    asked: &str,
    draw: &mut SeededRng,
) -> Vec<ToolInvocation> {
    let asked = asked.to_lowercase();
    let all = asked.contains("use the tools") && parallel;
    let mentioned = || tools.iter().find(|tool| asked.contains(&tool.name.to_lowercase()));
    let one = match choice {
        ToolChoice::None => None,
        ToolChoice::Named(name) => tools.iter().find(|tool| tool.name == *name),
        ToolChoice::Required => mentioned().or(tools.first()),
        ToolChoice::Auto if asked.contains("use the tool") => mentioned().or(tools.first()),
        ToolChoice::Auto => None,
    };
    let chosen: Vec<&DeclaredTool> = match one {
        None => Vec::new(),
        Some(_) if all && !matches!(choice, ToolChoice::Named(_)) => tools.iter().take(MOST).collect(),
        Some(tool) => vec![tool],
    };
    chosen.into_iter().map(|tool| invoke(tool, draw)).collect()
}

fn invoke(tool: &DeclaredTool, draw: &mut SeededRng) -> ToolInvocation {
    let arguments = match schema::example(&tool.schema) {
        Value::Object(object) => Value::Object(object).to_string(),
        _ => "{}".to_owned(),
    };
    ToolInvocation {
        id: format!("call_{:016x}", draw.next()),
        name: tool.name.clone(),
        arguments: split_chunks(&arguments),
    }
}
