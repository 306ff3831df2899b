//! Simulated tool calls: their conditions and their arguments.

use super::schema;
use super::text::{Draw, crumbs};
use serde_json::Value;

/// Limit on the calls in one answer.
const MOST: usize = 8;

/// Tool declared by a request.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    /// Name of the tool.
    pub name: String,
    /// Schema of its arguments.
    pub schema: Value,
}

/// Tool choice of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Choice {
    /// Words of the prompt decide.
    #[default]
    Auto,
    /// No tool is called.
    None,
    /// One tool is called.
    Required,
    /// Named tool is called.
    Named(String),
}

/// Tool call of an answer.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments as JSON text, cut into tokens.
    pub arguments: Vec<String>,
}

/// Returns the tool calls of an answer. With [`Choice::Auto`] a tool is called if the last words of the user contain
/// "use the tool" (the tool that is named there, else the first), all of them for "use the tools".
pub(super) fn calls(
    tools: &[Tool],
    choice: &Choice,
    parallel: bool,
    asked: &str,
    draw: &mut Draw,
) -> Vec<Invocation> {
    let asked = asked.to_lowercase();
    let all = asked.contains("use the tools") && parallel;
    let mentioned = || tools.iter().find(|tool| asked.contains(&tool.name.to_lowercase()));
    let one = match choice {
        Choice::None => None,
        Choice::Named(name) => tools.iter().find(|tool| tool.name == *name),
        Choice::Required => mentioned().or(tools.first()),
        Choice::Auto if asked.contains("use the tool") => mentioned().or(tools.first()),
        Choice::Auto => None,
    };
    let chosen: Vec<&Tool> = match one {
        None => Vec::new(),
        Some(_) if all && !matches!(choice, Choice::Named(_)) => tools.iter().take(MOST).collect(),
        Some(tool) => vec![tool],
    };
    chosen.into_iter().map(|tool| invoke(tool, draw)).collect()
}

fn invoke(tool: &Tool, draw: &mut Draw) -> Invocation {
    let arguments = match schema::example(&tool.schema) {
        Value::Object(object) => Value::Object(object).to_string(),
        _ => "{}".to_owned(),
    };
    Invocation {
        id: format!("call_{:016x}", draw.next()),
        name: tool.name.clone(),
        arguments: crumbs(&arguments),
    }
}
