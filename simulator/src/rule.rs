//! Conditions of faults: rules of the control endpoint, or the suffix of a model's name.

use super::fault::SimulatedFault;
use serde_json::{Map, Value, json};

/// Faults with a condition. A rule with [`times`](FaultRule::times) applies to that many calls; several such rules
/// apply one after the other. A rule without it is permanent.
#[derive(Clone, Debug, PartialEq)]
pub struct FaultRule {
    /// Faults that occur together.
    pub faults: Vec<SimulatedFault>,
    /// Number of calls to which the rule applies; `None` for all.
    pub times: Option<u32>,
    /// Number of matching calls that are skipped first.
    pub skip: u32,
    /// Interval between the matching calls to which the rule applies; 1 for every call, 2 for every second one.
    pub every: u32,
    /// End that the path of the request must have; `None` for all paths that generate output, `*` for all paths.
    pub path: Option<String>,
    /// Name of the model without its suffix; `None` for any model.
    pub model: Option<String>,
    /// Number of matching calls so far.
    seen: u32,
    /// Number of calls to which the rule has been applied.
    used: u32,
}

impl From<SimulatedFault> for FaultRule {
    fn from(fault: SimulatedFault) -> Self {
        Self::new(vec![fault])
    }
}

impl FaultRule {
    /// Creates a permanent rule for all calls that generate output.
    #[must_use]
    pub fn new(faults: Vec<SimulatedFault>) -> Self {
        Self { faults, times: None, skip: 0, every: 1, path: None, model: None, seen: 0, used: 0 }
    }

    /// Limits the rule to a number of calls.
    #[must_use]
    pub fn times(self, times: u32) -> Self {
        Self { times: Some(times), ..self }
    }

    /// Skips a number of calls first.
    #[must_use]
    pub fn skip(self, skip: u32) -> Self {
        Self { skip, ..self }
    }

    /// Applies the rule to the first of every `every` matching calls, after those that are skipped; 1 for all calls.
    #[must_use]
    pub fn every(self, every: u32) -> Self {
        Self { every, ..self }
    }

    /// Limits the rule to requests whose path ends with this text.
    #[must_use]
    pub fn path(self, path: &str) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    /// Limits the rule to this model.
    #[must_use]
    pub fn model(self, model: &str) -> Self {
        Self { model: Some(model.to_owned()), ..self }
    }

    /// Reads a rule from JSON: the members of a fault, and `times`, `skip`, `every`, `path`, `model`, `also` (further
    /// faults). `{"fault":"flap",…}` stands for an error status on every second call.
    ///
    /// # Errors
    /// Returns one sentence on the mistake.
    pub fn from_json(value: Value) -> Result<Self, String> {
        let Value::Object(mut object) = value else {
            return Err("A rule is an object with a member `fault`.".to_owned());
        };
        let mut rule = Self::new(Vec::new());
        rule.times = number(&mut object, "times")?;
        rule.skip = number(&mut object, "skip")?.unwrap_or(0);
        rule.every = number(&mut object, "every")?.unwrap_or(1).max(1);
        rule.path = text(&mut object, "path")?;
        rule.model = text(&mut object, "model")?;
        let also = match object.remove("also") {
            None => Vec::new(),
            Some(Value::Array(also)) => also,
            Some(_) => return Err("`also` is a list of faults.".to_owned()),
        };
        if object.get("fault").and_then(Value::as_str) == Some("flap") {
            object.insert("fault".to_owned(), json!("status"));
            object.entry("status").or_insert(json!(503));
            rule.every = rule.every.max(2);
        }
        rule.faults.push(SimulatedFault::from_json(Value::Object(object))?);
        for more in also {
            rule.faults.push(SimulatedFault::from_json(more)?);
        }
        Ok(rule)
    }

    /// Returns true if the rule is permanent.
    pub(super) fn is_permanent(&self) -> bool {
        self.times.is_none()
    }

    /// Returns true if the rule has been applied to as many calls as it has `times`.
    pub(super) fn is_exhausted(&self) -> bool {
        self.times.is_some_and(|times| self.used >= times)
    }

    /// Counts a matching call; returns true if the rule affects it.
    pub(super) fn matches_call(&mut self, path: &str, generates: bool, model: &str) -> bool {
        let here = match self.path.as_deref() {
            None => generates,
            Some("*") => true,
            Some(end) => path.ends_with(end),
        };
        if !here || self.model.as_deref().is_some_and(|name| name != model) || self.is_exhausted() {
            return false;
        }
        self.seen = self.seen.saturating_add(1);
        let Some(index) = self.seen.checked_sub(self.skip.saturating_add(1)) else { return false };
        let takes = index.is_multiple_of(self.every.max(1));
        self.used = self.used.saturating_add(u32::from(takes));
        takes
    }
}

/// Suffix of a model name, after its first `#`, such as `fault=stall&after=3#fault=crlf`. For load tests `tokens=500`
/// sets the length of the answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ModelSuffix {
    /// Faults of this call.
    pub faults: Vec<SimulatedFault>,
    /// Length of the answer in tokens.
    pub tokens: Option<usize>,
}

impl ModelSuffix {
    /// Reads the suffix, without its first `#`.
    pub(super) fn parse(suffix: &str) -> Result<Self, String> {
        let mut all = Self::default();
        for part in suffix.split('#') {
            let mut object = Map::new();
            for pair in part.split('&') {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                // Numbers and booleans are parsed as JSON; any other value is a text.
                let value = serde_json::from_str(value).ok().filter(|value: &Value| !value.is_object());
                let text = || json!(pair.split_once('=').map_or("", |(_, text)| text));
                object.insert(name.to_owned(), value.unwrap_or_else(text));
            }
            match object.remove("tokens").and_then(|tokens| tokens.as_u64()) {
                Some(tokens) => all.tokens = usize::try_from(tokens).ok(),
                None => all.faults.push(SimulatedFault::from_json(Value::Object(object))?),
            }
        }
        Ok(all)
    }
}

fn number(object: &mut Map<String, Value>, name: &str) -> Result<Option<u32>, String> {
    match object.remove(name) {
        None => Ok(None),
        Some(value) => {
            let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
            number.map(Some).ok_or_else(|| format!("`{name}` is a whole number."))
        }
    }
}

fn text(object: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match object.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` is a text.")),
    }
}
