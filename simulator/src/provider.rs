//! Processing of one request from its parsing to its outcome.

use super::answer::answers;
use super::completions::{CompletionChoice, CompletionRequest};
use super::control::{PlaybackOutcome, SimulatorControl};
use super::fault::{RetryAfterValue, SimulatedFault};
use super::http_request::HttpRequest;
use super::parsed_request::{ParsedRequest, RequestError, named_model, split_suffix};
use super::playback::play;
use super::prompt::{PrefixCache, token_count};
use super::response_writer::ResponseWriter;
use super::route::{SimulatedDialect, SimulatorRoute};
use super::rule::ModelSuffix;
use super::script::{HeadAction, ResponseScript};
use super::shaping::{self, AnswerOptions};
use super::token_pacing::TokenPacing;
use super::{
    SimulatorOptions, chat, error_body, image, messages, metered, responses, transcription, vectors,
};
use serde_json::{Value, json};
use std::time::Duration;

/// Number of tokens whose generation takes as long as a simulated image.
const IMAGE_TOKENS: u32 = 40;

/// Simulated provider without its socket.
pub(super) struct SimulatedProvider {
    options: SimulatorOptions,
    memory: PrefixCache,
    /// Handle to set faults and read counters.
    pub control: SimulatorControl,
}

impl SimulatedProvider {
    pub(super) fn new(options: SimulatorOptions, control: SimulatorControl) -> Self {
        Self { options, memory: PrefixCache::default(), control }
    }

    /// Answers a request and returns its outcome.
    pub(super) async fn serve<L: ResponseWriter>(
        &self,
        request: HttpRequest,
        line: &mut L,
    ) -> PlaybackOutcome {
        let route = SimulatorRoute::from_request(&request.method, request.path_only());
        if route == SimulatorRoute::Control {
            return play(
                self.answer_control(&request),
                line,
                TokenPacing::new(Duration::ZERO, 0.0),
                &self.control,
            )
            .await;
        }
        let mut open = self.control.begin_call(&request, route.generates());
        let mut script = self.script(route, &request);
        script.head.headers.push(("server", "penstock-simulated".to_owned()));
        script.head.headers.push(("x-simulated", "true".to_owned()));
        open.outcome = play(script, line, self.control.current_pace(), &self.control).await;
        open.outcome
    }

    fn answer_control(&self, request: &HttpRequest) -> ResponseScript {
        let done = match request.method.as_str() {
            "GET" => Ok(()),
            "DELETE" => {
                self.control.clear_rules();
                Ok(())
            }
            "POST" => serde_json::from_slice(&request.body)
                .map_err(|error| format!("The order is no JSON: {error}."))
                .and_then(|order| self.control.execute_command(order)),
            _ => Err("GET, POST and DELETE are understood.".to_owned()),
        };
        match done {
            Ok(()) => ResponseScript::json(200, &self.control.report()),
            Err(error) => ResponseScript::json(400, &json!({ "error": error })),
        }
    }

    fn script(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        match route {
            SimulatorRoute::Images | SimulatorRoute::Transcriptions => return self.media(route, request),
            SimulatorRoute::Embeddings | SimulatorRoute::Rerank => return self.vectors(route, request),
            SimulatorRoute::Completions => return self.completions(route, request),
            SimulatorRoute::Speech | SimulatorRoute::Moderations => return self.metered(route, request),
            _ => {}
        }
        let asked = match route {
            SimulatorRoute::Chat => Some(ParsedRequest::chat(&request.body, &self.memory)),
            SimulatorRoute::Messages => Some(ParsedRequest::messages(&request.body, &self.memory, false)),
            SimulatorRoute::Responses => Some(ParsedRequest::responses(&request.body, &self.memory)),
            // Requests that only count tokens use an empty cache of their own, so their prompts are not stored.
            SimulatorRoute::CountTokens => {
                Some(ParsedRequest::messages(&request.body, &PrefixCache::default(), true))
            }
            _ => None,
        };
        let (model, suffix) = match (&asked, route) {
            (Some(Ok(ask)), _) => (ask.model.clone(), ask.suffix.clone()),
            (Some(Err(_)), _) | (None, SimulatorRoute::Tokenize) => split_suffix(&named_model(&request.body)),
            (None, _) => (String::new(), None),
        };
        let (faults, length) = self.take_faults(route, request, &model, suffix.as_deref());
        let good = match (asked, length) {
            (Some(Err(error)), _) | (_, Err(error)) => bad_request(route, &error),
            (Some(Ok(mut ask)), Ok(length)) => {
                if let Some(tokens) = length {
                    ask.set_length(tokens);
                }
                self.generated(route, &ask, &faults)
            }
            (None, Ok(_)) => self.answer_without_prompt(route, request),
        };
        with_faults(good, route, &faults)
    }

    /// Takes the faults of a call: those of the matching rules, and those in the suffix of the model's name. Also
    /// returns the length of the answer that the suffix sets, or the mistake in the suffix.
    fn take_faults(
        &self,
        route: SimulatorRoute,
        request: &HttpRequest,
        model: &str,
        suffix: Option<&str>,
    ) -> (Vec<SimulatedFault>, Result<Option<usize>, RequestError>) {
        let mut faults = self.control.take_faults(request.path_only(), route.generates(), model);
        let length = match suffix.map_or_else(|| Ok(ModelSuffix::default()), ModelSuffix::parse) {
            Ok(suffix) => {
                faults.extend(suffix.faults);
                Ok(suffix.tokens)
            }
            Err(message) => Err(RequestError { message, field: Some("model") }),
        };
        (faults, length)
    }

    /// Answers image and transcription requests; the same faults apply as to all other requests.
    fn media(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let made = if route == SimulatorRoute::Images {
            let wish = image::read(&request.body);
            wish.map(|wish| {
                let host = header("host").unwrap_or_default();
                (wish.model.clone(), IMAGE_TOKENS, Ok(wish.answer(self.options.seed, host)))
            })
        } else {
            let task = transcription::read(header("content-type").unwrap_or_default(), &request.body);
            task.map(|task| {
                let result = task.answer(&self.options.name, self.options.seed);
                (task.model.clone(), task.tokens(), result)
            })
        };
        let named = made.as_ref().map_or_else(|_| named_model(&request.body), |(model, ..)| model.clone());
        let (model, suffix) = split_suffix(&named);
        let (faults, length) = self.take_faults(route, request, &model, suffix.as_deref());
        let good = match length.and(made) {
            Err(error) => bad_request(route, &error),
            Ok((_, tokens, Ok(answer))) => {
                shaping::plain(answer.to_string(), tokens, &faults, SimulatedDialect::Chat)
            }
            Ok((_, _, Err(text))) => ResponseScript::plain(200, "text/plain; charset=utf-8", text),
        };
        with_faults(good, route, &faults)
    }

    /// Answers requests for speech and moderation.
    fn metered(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        let (model, suffix) = split_suffix(&named_model(&request.body));
        let (faults, length) = self.take_faults(route, request, &model, suffix.as_deref());
        let usage = AnswerOptions::from_faults(&faults).usage;
        let made = length.and_then(|_| match route {
            SimulatorRoute::Speech => metered::speech(&request.body),
            _ => metered::moderation(&request.body, usage)
                .map(|answer| shaping::plain(answer.to_string(), 0, &faults, SimulatedDialect::Chat)),
        });
        let good = made.unwrap_or_else(|error| bad_request(route, &error));
        with_faults(good, route, &faults)
    }

    /// Answers text completions.
    fn completions(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        let asked = CompletionRequest::read(&request.body);
        let (model, suffix) = match &asked {
            Ok(asked) => (asked.model.clone(), asked.suffix.clone()),
            Err(_) => split_suffix(&named_model(&request.body)),
        };
        let (faults, length) = self.take_faults(route, request, &model, suffix.as_deref());
        let good = match (asked, length) {
            (Err(error), _) | (_, Err(error)) => bad_request(route, &error),
            (Ok(mut asked), Ok(length)) => {
                if let Some(tokens) = length {
                    asked.set_length(tokens);
                }
                self.completed(&asked, &faults)
            }
        };
        with_faults(good, route, &faults)
    }

    fn completed(&self, asked: &CompletionRequest, faults: &[SimulatedFault]) -> ResponseScript {
        let options = AnswerOptions::from_faults(faults);
        let texts = asked.choices(&self.options.name, self.options.seed);
        if asked.stream {
            return shaping::stream(asked.write_stream(&texts, options), faults, SimulatedDialect::Chat);
        }
        let longest = texts.iter().map(CompletionChoice::tokens).max().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        shaping::plain(asked.write_plain(&texts, options), longest, faults, SimulatedDialect::Chat)
    }

    /// Answers embedding and rerank requests.
    fn vectors(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        let mut body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let (model, suffix) = split_suffix(body.get("model").and_then(Value::as_str).unwrap_or_default());
        if let Some(name) = body.get_mut("model").filter(|name| name.is_string()) {
            *name = model.as_str().into();
        }
        let (faults, length) = self.take_faults(route, request, &model, suffix.as_deref());
        let usage = AnswerOptions::from_faults(&faults).usage;
        let made = length.and_then(|_| match route {
            SimulatorRoute::Rerank => vectors::rerank(&body, usage),
            _ => vectors::embeddings(&body, usage),
        });
        let window = self.options.context_length;
        let good = match made {
            Ok(made) if made.longest > window => ResponseScript::json(
                400,
                &error_body::prompt_too_long(super::ErrorShape::Vllm, made.longest, window),
            ),
            Ok(made) => {
                let mut script = shaping::plain(made.body.to_string(), 1, &faults, SimulatedDialect::Chat);
                if made.header {
                    script.head.headers.push(("x-compute-tokens", made.tokens.to_string()));
                }
                script
            }
            Err(error) => bad_request(route, &error),
        };
        with_faults(good, route, &faults)
    }

    fn generated(
        &self,
        route: SimulatorRoute,
        ask: &ParsedRequest,
        faults: &[SimulatedFault],
    ) -> ResponseScript {
        let (prompt, window) = (ask.prompt.tokens, self.options.context_length);
        if route == SimulatorRoute::CountTokens {
            return ResponseScript::json(200, &json!({ "input_tokens": prompt }));
        }
        let dialect = route.dialect();
        let native = dialect == SimulatedDialect::Messages;
        let shape = match dialect {
            SimulatedDialect::Messages => super::ErrorShape::Messages,
            SimulatedDialect::Responses => super::ErrorShape::Generic,
            SimulatedDialect::Chat => super::ErrorShape::Vllm,
        };
        if prompt >= window {
            return ResponseScript::json(400, &error_body::prompt_too_long(shape, prompt, window));
        }
        let most = ask.max_tokens.unwrap_or(0) as u64;
        if !native && prompt.saturating_add(most) > window {
            return ResponseScript::json(400, &error_body::window_exceeded(prompt, most, window));
        }
        let options = AnswerOptions::from_faults(faults);
        let made = answers(ask, &self.options.name, self.options.seed);
        let longest = made.iter().map(super::answer::SimulatedAnswer::token_count).max().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        if ask.stream {
            let events = match (dialect, made.first()) {
                (SimulatedDialect::Messages, Some(one)) => messages::write_stream(ask, one, options),
                (SimulatedDialect::Responses, Some(one)) => responses::write_stream(ask, one, options),
                _ => chat::write_stream(ask, &made, options),
            };
            return shaping::stream(events, faults, dialect);
        }
        let body = match (dialect, made.first()) {
            (SimulatedDialect::Messages, Some(one)) => messages::write_plain(ask, one, options),
            (SimulatedDialect::Responses, Some(one)) => responses::write_plain(ask, one, options),
            _ => chat::write_plain(ask, &made, options),
        };
        shaping::plain(body, longest, faults, dialect)
    }

    /// Answers requests without a prompt.
    fn answer_without_prompt(&self, route: SimulatorRoute, request: &HttpRequest) -> ResponseScript {
        match route {
            SimulatorRoute::Models => ResponseScript::json(200, &self.models()),
            SimulatorRoute::Image => match image::image_at(request.path_only()) {
                Some(image) => ResponseScript::plain(200, "image/png", image),
                None => ResponseScript::json(404, &json!({ "detail": "Not Found" })),
            },
            SimulatorRoute::Health => ResponseScript::plain(200, "text/plain", ""),
            SimulatorRoute::Tokenize => self.tokenized(request),
            SimulatorRoute::MethodNotAllowed => {
                ResponseScript::json(405, &json!({ "detail": "Method Not Allowed" }))
            }
            _ => ResponseScript::json(404, &json!({ "detail": "Not Found" })),
        }
    }

    fn models(&self) -> Value {
        let names = if self.options.models.is_empty() {
            vec!["simulated".to_owned()]
        } else {
            self.options.models.clone()
        };
        let one = |name: &String| {
            json!({
                "id": name, "object": "model", "created": chat::CREATED, "owned_by": "simulated", "root": name,
                "parent": null, "max_model_len": self.options.context_length, "permission": [],
            })
        };
        json!({ "object": "list", "data": names.iter().map(one).collect::<Vec<_>>() })
    }

    /// Answers vLLM's `/tokenize` for a prompt or a conversation.
    fn tokenized(&self, request: &HttpRequest) -> ResponseScript {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let count = match body.get("prompt").and_then(Value::as_str) {
            Some(prompt) => Ok(token_count(prompt)),
            None => ParsedRequest::chat(&request.body, &PrefixCache::default()).map(|ask| ask.prompt.tokens),
        };
        match count {
            Ok(count) => ResponseScript::json(
                200,
                &json!({
                    "count": count, "max_model_len": self.options.context_length,
                    "tokens": (0..count).collect::<Vec<_>>(), "token_strs": null,
                }),
            ),
            Err(error) => bad_request(SimulatorRoute::Tokenize, &error),
        }
    }
}

fn bad_request(route: SimulatorRoute, error: &RequestError) -> ResponseScript {
    ResponseScript::json(400, &error_body::invalid_request(route.is_messages(), error))
}

/// Returns the good answer with the faults that change its bytes, or the answer that a fault sends in its place.
fn with_faults(good: ResponseScript, route: SimulatorRoute, faults: &[SimulatedFault]) -> ResponseScript {
    let script = faults.iter().find_map(|fault| replacement(fault, route)).unwrap_or(good);
    shaping::apply_byte_faults(script, faults)
}

/// Returns the answer that a fault sends in place of the good answer; `None` if the fault does not replace the
/// answer.
fn replacement(fault: &SimulatedFault, route: SimulatorRoute) -> Option<ResponseScript> {
    let before = |before| Some(ResponseScript { before, ..ResponseScript::plain(200, "text/plain", "") });
    match fault {
        SimulatedFault::CutBeforeHead {} => before(HeadAction::Cut),
        SimulatedFault::Silent {} => before(HeadAction::Hold),
        SimulatedFault::Status { status, retry_after, body } => {
            let usual = || error_body::status_error(route.is_messages(), *status).to_string();
            let body = body.clone().unwrap_or_else(usual);
            let mut script = ResponseScript::plain(*status, "application/json", body);
            if let Some(later) = retry_after {
                let value = match later {
                    RetryAfterValue::Seconds(seconds) => seconds.to_string(),
                    RetryAfterValue::Text(text) => text.clone(),
                };
                script.head.headers.push(("retry-after", value));
            }
            Some(script)
        }
        SimulatedFault::Refusal { shape } => {
            Some(ResponseScript::json(400, &error_body::content_refused(*shape)))
        }
        SimulatedFault::Overflow { shape } => {
            Some(ResponseScript::json(400, &error_body::prompt_too_long(*shape, 200_001, 131_072)))
        }
        SimulatedFault::Html { status } => {
            let page =
                format!("<html><head><title>{status} simulated</title></head><body>Bad</body></html>\n");
            Some(ResponseScript::plain(*status, "text/html", page))
        }
        _ => None,
    }
}
