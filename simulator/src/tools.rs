//! Calls of tools: when a request gets some, and with which arguments.

use super::schema;
use super::text::{Draw, crumbs};
use serde_json::Value;

/// Most calls in one answer.
const MOST: usize = 8;

/// A tool that a request declares.
#[derive(Clone, Debug)]
pub(super) struct Tool {
    /// Its name.
    pub name: String,
    /// Schema of its arguments.
    pub schema: Value,
}

/// What a request says about the use of its tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Choice {
    /// The words of the prompt decide.
    #[default]
    Auto,
    /// None is called.
    None,
    /// One is called.
    Required,
    /// This one is called.
    Named(String),
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Invocation {
    /// Its id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Arguments as JSON text, cut into tokens.
    pub arguments: Vec<String>,
}

/// The calls of an answer. With [`Choice::Auto`] a tool is called if the last words of the user contain
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
