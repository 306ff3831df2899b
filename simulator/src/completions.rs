//! Text completions in the format of vLLM: prompts as texts or token ids, echo, and log probabilities of the prompt and
//! of the answer. Token ids are shown as `<id>`.

use super::answer::{SimulatedAnswer, SimulatedFinish, answers};
use super::chat::CREATED;
use super::parsed_request::constraint::{constrained_format, response_format};
use super::parsed_request::{AnswerFormat, ParsedRequest, RequestError, split_suffix};
use super::prompt::PromptSize;
use super::shaping::{AnswerOptions, EventKind, StreamEvent};
use super::text::{fold_hash, split_words};
use serde_json::{Map, Value, json};

/// Maximum number of tokens of an answer if the request sets none, as in vLLM.
const MAX_TOKENS: usize = 16;

/// Request for text completions.
#[derive(Debug, Default)]
pub(super) struct CompletionRequest {
    /// Model name without its suffix.
    pub model: String,
    /// Suffix of the model name: the part after its first `#`.
    pub suffix: Option<String>,
    /// True if the answer is a stream.
    pub stream: bool,
    usage: bool,
    prompts: Vec<Vec<String>>,
    n: usize,
    max_tokens: Option<usize>,
    /// True if each answer continues until `max_tokens`.
    ignore_eos: bool,
    echo: bool,
    logprobs: Option<usize>,
    stops: Vec<String>,
    seed: u64,
    form: AnswerFormat,
}

/// Tokens of one choice.
pub(super) struct CompletionChoice {
    prompt: Vec<String>,
    answer: SimulatedAnswer,
}

impl CompletionChoice {
    /// Returns the number of generated tokens.
    pub(super) fn tokens(&self) -> u64 {
        self.answer.token_count()
    }
}

impl CompletionRequest {
    /// Parses a request.
    pub(super) fn read(body: &[u8]) -> Result<Self, RequestError> {
        let body: Value = serde_json::from_slice(body)?;
        let missing = |field: &'static str| RequestError {
            message: format!("Field required: {field}"),
            field: Some(field),
        };
        let number = |name: &str| body.get(name).and_then(Value::as_u64);
        let small = |name: &str| number(name).and_then(|number| usize::try_from(number).ok());
        let named = body.get("model").and_then(Value::as_str);
        let prompts = match body.get("prompt").ok_or_else(|| missing("prompt"))? {
            Value::Array(all) if all.iter().all(|one| !one.is_number()) => all.iter().map(tokens).collect(),
            one => vec![tokens(one)],
        };
        let stops = match body.get("stop") {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(many)) => {
                many.iter().filter_map(|stop| Some(stop.as_str()?.to_owned())).collect()
            }
            _ => Vec::new(),
        };
        let (model, suffix) = split_suffix(named.ok_or_else(|| missing("model"))?);
        Ok(Self {
            model,
            suffix,
            stream: body.get("stream") == Some(&Value::Bool(true)),
            usage: body.pointer("/stream_options/include_usage") == Some(&Value::Bool(true)),
            prompts,
            n: small("n").unwrap_or(1).clamp(1, 128),
            max_tokens: small("max_tokens"),
            ignore_eos: false,
            echo: body.get("echo") == Some(&Value::Bool(true)),
            logprobs: number("logprobs").and_then(|top| usize::try_from(top.min(20)).ok()),
            stops,
            seed: number("seed").unwrap_or(0),
            form: constrained_format(response_format(body.get("response_format")), |name| body.get(name))?,
        })
    }

    /// Sets the length of each answer in tokens; a smaller `max_tokens` of the request still limits it.
    pub(super) fn set_length(&mut self, tokens: usize) {
        self.max_tokens = Some(tokens.min(self.max_tokens.unwrap_or(usize::MAX)));
        self.ignore_eos = true;
    }

    /// Returns the choices of all prompts, in order.
    pub(super) fn choices(&self, name: &str, seed: u64) -> Vec<CompletionChoice> {
        let of = |prompt: &Vec<String>| {
            let text = prompt.concat();
            let ask = ParsedRequest {
                n: self.n,
                max_tokens: Some(self.max_tokens.unwrap_or(MAX_TOKENS)),
                ignore_eos: self.ignore_eos,
                stops: self.stops.clone(),
                seed: self.seed,
                asked: text.clone(),
                parallel: true,
                form: self.form.clone(),
                prompt: PromptSize { hash: fold_hash(0, text.as_bytes()), ..PromptSize::default() },
                ..ParsedRequest::default()
            };
            let made = answers(&ask, name, seed);
            made.into_iter()
                .map(|answer| CompletionChoice { prompt: prompt.clone(), answer })
                .collect::<Vec<_>>()
        };
        self.prompts.iter().flat_map(of).collect()
    }

    fn usage(&self, texts: &[CompletionChoice]) -> Value {
        let prompt: usize = self.prompts.iter().map(Vec::len).sum();
        let completion: u64 = texts.iter().map(CompletionChoice::tokens).sum();
        json!({
            "prompt_tokens": prompt, "completion_tokens": completion,
            "total_tokens": prompt as u64 + completion,
        })
    }

    fn start(&self) -> String {
        let model = json!(self.model);
        format!(
            "{{\"id\":\"cmpl-simulated\",\"object\":\"text_completion\",\"created\":{CREATED},\"model\":{model}"
        )
    }

    /// Writes an unstreamed answer.
    pub(super) fn write_plain(&self, texts: &[CompletionChoice], options: AnswerOptions) -> String {
        let choice = |(index, text): (usize, &CompletionChoice)| {
            let echoed = if self.echo { text.prompt.as_slice() } else { &[] };
            let tokens: Vec<&String> = echoed.iter().chain(&text.answer.text).collect();
            let whole: String = tokens.iter().map(|token| token.as_str()).collect();
            json!({
                "index": index, "text": whole, "logprobs": self.logprobs(&tokens, self.echo),
                "finish_reason": finish(&text.answer, options), "stop_reason": null, "prompt_logprobs": null,
            })
        };
        let choices: Vec<Value> = texts.iter().enumerate().map(choice).collect();
        let usage = if options.usage { self.usage(texts) } else { Value::Null };
        format!("{},\"choices\":{},\"usage\":{usage}}}", self.start(), json!(choices))
    }

    /// Writes the answer as events: tokens, finish reasons, and the usage if the request asks for it.
    pub(super) fn write_stream(
        &self,
        texts: &[CompletionChoice],
        options: AnswerOptions,
    ) -> Vec<StreamEvent> {
        let mut events = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            let mut event = |text: &str, logprobs: Value, finish: Value, number: usize, kind| {
                let choice =
                    json!({ "index": index, "text": text, "logprobs": logprobs, "finish_reason": finish });
                let body = format!("{},\"choices\":[{choice}]}}", self.start());
                let tokens = u32::try_from(number).unwrap_or(u32::MAX);
                events.push(StreamEvent { name: None, body, tokens, kind });
            };
            let echoed = if self.echo { text.prompt.as_slice() } else { &[] };
            for (number, token) in echoed.iter().chain(&text.answer.text).enumerate() {
                let logprobs = self.logprobs(&[token], self.echo && number == 0);
                event(token, logprobs, Value::Null, number + 1, EventKind::Content);
            }
            let end = finish(&text.answer, options);
            event("", Value::Null, end, text.answer.text.len(), EventKind::Finish);
        }
        let tokens = events.last().map_or(0, |event| event.tokens);
        if self.usage && options.usage {
            let body = format!("{},\"choices\":[],\"usage\":{}}}", self.start(), self.usage(texts));
            events.push(StreamEvent { name: None, body, tokens, kind: EventKind::Usage });
        }
        events.push(StreamEvent { name: None, body: "[DONE]".to_owned(), tokens, kind: EventKind::Done });
        events
    }

    /// Returns invented log probabilities; the first token of a prompt has none.
    fn logprobs(&self, tokens: &[&String], begins_prompt: bool) -> Value {
        let Some(top) = self.logprobs else { return Value::Null };
        let likely = |token: &str| -0.01 * f64::from(u32::try_from(token.len() % 64).unwrap_or(0)) - 0.01;
        let known = |at: usize| at > 0 || !begins_prompt;
        let (mut offset, mut offsets) = (0, Vec::new());
        let (mut probabilities, mut alternatives) = (Vec::new(), Vec::new());
        for (at, token) in tokens.iter().enumerate() {
            offsets.push(offset);
            offset += token.chars().count();
            probabilities.push(if known(at) { json!(likely(token)) } else { Value::Null });
            let mut others = Map::from_iter([(token.as_str().to_owned(), json!(likely(token)))]);
            for rank in 1..top {
                let less = f64::from(u32::try_from(rank).unwrap_or(0));
                others.insert(format!(" simulated{rank}"), json!(likely(token) - less));
            }
            alternatives.push(if known(at) { Value::Object(others) } else { Value::Null });
        }
        json!({
            "tokens": tokens, "token_logprobs": probabilities, "top_logprobs": alternatives,
            "text_offset": offsets,
        })
    }
}

/// Returns the tokens of a prompt: the words of a text, or one token for each token id.
fn tokens(prompt: &Value) -> Vec<String> {
    match prompt {
        Value::Array(ids) => ids.iter().map(|id| format!("<{id}>")).collect(),
        text => split_words(text.as_str().unwrap_or_default()),
    }
}

fn finish(answer: &SimulatedAnswer, options: AnswerOptions) -> Value {
    match answer.finish {
        _ if !options.finish => Value::Null,
        SimulatedFinish::Length => json!("length"),
        SimulatedFinish::Stop | SimulatedFinish::Sequence(_) | SimulatedFinish::Calls => json!("stop"),
    }
}
