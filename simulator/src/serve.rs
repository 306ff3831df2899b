//! Processing of one request from its parsing to its outcome.

use super::answer::answers;
use super::ask::{Ask, Wrong};
use super::control::{Control, Outcome};
use super::fault::{Fault, Later};
use super::head::Request;
use super::line::Line;
use super::pace::Pace;
use super::play::play;
use super::prompt::{Memory, tokens};
use super::route::Route;
use super::rule::Suffix;
use super::script::{Before, Script};
use super::shaping::{self, Voice};
use super::{Options, chat, drawing, hearing, messages, refuse, vectors};
use serde_json::{Value, json};
use std::time::Duration;

/// Simulated tokens of an image, for its pace.
const DRAWN: u32 = 40;

/// Simulated provider without its socket.
pub(super) struct Provider {
    options: Options,
    memory: Memory,
    /// Handle on the faults and counters.
    pub control: Control,
}

impl Provider {
    pub(super) fn new(options: Options, control: Control) -> Self {
        Self { options, memory: Memory::default(), control }
    }

    /// Answers a request and returns its outcome.
    pub(super) async fn serve<L: Line>(&self, request: Request, line: &mut L) -> Outcome {
        let route = Route::of(&request.method, request.route());
        if route == Route::Control {
            return play(self.controlled(&request), line, Pace::new(Duration::ZERO, 0.0), &self.control)
                .await;
        }
        let mut open = self.control.begin(&request, route.generates());
        let mut script = self.script(route, &request);
        script.head.headers.push(("server", "penstock-simulated".to_owned()));
        script.head.headers.push(("x-simulated", "true".to_owned()));
        open.outcome = play(script, line, self.control.current_pace(), &self.control).await;
        open.outcome
    }

    fn controlled(&self, request: &Request) -> Script {
        let done = match request.method.as_str() {
            "GET" => Ok(()),
            "DELETE" => {
                self.control.clear();
                Ok(())
            }
            "POST" => serde_json::from_slice(&request.body)
                .map_err(|error| format!("The order is no JSON: {error}."))
                .and_then(|order| self.control.order(order)),
            _ => Err("GET, POST and DELETE are understood.".to_owned()),
        };
        match done {
            Ok(()) => Script::json(200, &self.control.report()),
            Err(error) => Script::json(400, &json!({ "error": error })),
        }
    }

    fn script(&self, route: Route, request: &Request) -> Script {
        match route {
            Route::Images | Route::Transcriptions => return self.media(route, request),
            Route::Embeddings | Route::Rerank => return self.vectors(route, request),
            _ => {}
        }
        let asked = match route {
            Route::Chat => Some(Ask::chat(&request.body, &self.memory)),
            Route::Messages => Some(Ask::messages(&request.body, &self.memory, false)),
            // Requests that only count tokens do not enter the prompt cache.
            Route::CountTokens => Some(Ask::messages(&request.body, &Memory::default(), true)),
            _ => None,
        };
        let model = asked.as_ref().and_then(|asked| asked.as_ref().ok()).map_or("", |ask| ask.model.as_str());
        let mut faults = self.control.faults(request.route(), route.generates(), model);
        let good = match asked {
            Some(Ok(mut ask)) => match self.take_suffix(&mut ask, &mut faults) {
                Ok(()) => self.generated(route, &ask, &faults),
                Err(message) => refused(route, &Wrong { message, field: Some("model") }),
            },
            Some(Err(wrong)) => refused(route, &wrong),
            None => self.told(route, request),
        };
        let script = faults.iter().find_map(|fault| instead(fault, route)).unwrap_or(good);
        shaping::break_up(script, &faults)
    }

    /// Answers image and transcription requests, with the same faults as all others.
    fn media(&self, route: Route, request: &Request) -> Script {
        let header = |name: &str| request.headers.get(name).and_then(|value| value.to_str().ok());
        let made = if route == Route::Images {
            let wish = drawing::read(&request.body);
            wish.map(|wish| {
                let host = header("host").unwrap_or_default();
                (wish.model.clone(), DRAWN, Ok(wish.answer(self.options.seed, host)))
            })
        } else {
            let heard = hearing::read(header("content-type").unwrap_or_default(), &request.body);
            heard.map(|heard| {
                let told = heard.answer(&self.options.name, self.options.seed);
                (heard.model.clone(), heard.tokens(), told)
            })
        };
        let named = made.as_ref().map_or("", |(model, ..)| model.as_str());
        let (model, suffix) =
            named.split_once('#').map_or((named, None), |(model, suffix)| (model, Some(suffix)));
        let mut faults = self.control.faults(request.route(), true, model);
        match suffix.map_or_else(|| Ok(Suffix::default()), Suffix::read) {
            Ok(suffix) => faults.extend(suffix.faults),
            Err(message) => return refused(route, &Wrong { message, field: Some("model") }),
        }
        let good = match made {
            Err(wrong) => refused(route, &wrong),
            Ok((_, tokens, Ok(answer))) => shaping::plain(answer.to_string(), tokens, &faults, false),
            Ok((_, _, Err(text))) => Script::plain(200, "text/plain; charset=utf-8", text),
        };
        let script = faults.iter().find_map(|fault| instead(fault, route)).unwrap_or(good);
        shaping::break_up(script, &faults)
    }

    /// Answers embedding and rerank requests.
    fn vectors(&self, route: Route, request: &Request) -> Script {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let model = body.get("model").and_then(Value::as_str).unwrap_or_default();
        let faults = self.control.faults(request.route(), route.generates(), model);
        let usage = Voice::of(&faults).usage;
        let made = match route {
            Route::Rerank => vectors::rerank(&body, usage),
            _ => vectors::embeddings(&body, usage),
        };
        let window = self.options.context_length;
        let good = match made {
            Ok(made) if made.longest > window => {
                Script::json(400, &refuse::overflow(super::Shape::Vllm, made.longest, window))
            }
            Ok(made) => {
                let mut script = shaping::plain(made.body.to_string(), 1, &faults, false);
                if made.header {
                    script.head.headers.push(("x-compute-tokens", made.tokens.to_string()));
                }
                script
            }
            Err(wrong) => refused(route, &wrong),
        };
        shaping::break_up(faults.iter().find_map(|fault| instead(fault, route)).unwrap_or(good), &faults)
    }

    fn take_suffix(&self, ask: &mut Ask, faults: &mut Vec<Fault>) -> Result<(), String> {
        let suffix = ask.suffix.as_deref().map_or_else(|| Ok(Suffix::default()), Suffix::read)?;
        faults.extend(suffix.faults);
        if let Some(tokens) = suffix.tokens {
            ask.most = Some(tokens.min(ask.most.unwrap_or(usize::MAX)));
            ask.endless = true;
        }
        Ok(())
    }

    fn generated(&self, route: Route, ask: &Ask, faults: &[Fault]) -> Script {
        let (prompt, window) = (ask.prompt.tokens, self.options.context_length);
        if route == Route::CountTokens {
            return Script::json(200, &json!({ "input_tokens": prompt }));
        }
        let native = route == Route::Messages;
        let shape = if native { super::Shape::Messages } else { super::Shape::Vllm };
        if prompt >= window {
            return Script::json(400, &refuse::overflow(shape, prompt, window));
        }
        let most = ask.most.unwrap_or(0) as u64;
        if !native && prompt.saturating_add(most) > window {
            return Script::json(400, &refuse::no_room(prompt, most, window));
        }
        let voice = Voice::of(faults);
        let made = answers(ask, &self.options.name, self.options.seed);
        let longest = made.iter().map(super::answer::Answer::tokens).max().unwrap_or(0);
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        match (native, made.first()) {
            (true, Some(one)) if ask.stream => {
                shaping::stream(messages::stream(ask, one, voice), faults, true)
            }
            (true, Some(one)) => shaping::plain(messages::plain(ask, one, voice), longest, faults, true),
            _ if ask.stream => shaping::stream(chat::stream(ask, &made, voice), faults, false),
            _ => shaping::plain(chat::plain(ask, &made, voice), longest, faults, false),
        }
    }

    /// Answers requests without a prompt.
    fn told(&self, route: Route, request: &Request) -> Script {
        match route {
            Route::Models => Script::json(200, &self.models()),
            Route::Image => match drawing::at(request.route()) {
                Some(image) => Script::plain(200, "image/png", image),
                None => Script::json(404, &json!({ "detail": "Not Found" })),
            },
            Route::Health => Script::plain(200, "text/plain", ""),
            Route::Tokenize => self.tokenized(request),
            Route::WrongMethod => Script::json(405, &json!({ "detail": "Method Not Allowed" })),
            _ => Script::json(404, &json!({ "detail": "Not Found" })),
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
    fn tokenized(&self, request: &Request) -> Script {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
        let count = match body.get("prompt").and_then(Value::as_str) {
            Some(prompt) => Ok(tokens(prompt)),
            None => Ask::chat(&request.body, &Memory::default()).map(|ask| ask.prompt.tokens),
        };
        match count {
            Ok(count) => Script::json(
                200,
                &json!({
                    "count": count, "max_model_len": self.options.context_length,
                    "tokens": (0..count).collect::<Vec<_>>(), "token_strs": null,
                }),
            ),
            Err(wrong) => refused(Route::Tokenize, &wrong),
        }
    }
}

fn refused(route: Route, wrong: &Wrong) -> Script {
    Script::json(400, &refuse::wrong(route.native(), wrong))
}

/// Returns the answer of a fault that replaces the good answer.
fn instead(fault: &Fault, route: Route) -> Option<Script> {
    let before = |before| Some(Script { before, ..Script::plain(200, "text/plain", "") });
    match fault {
        Fault::CutBeforeHead {} => before(Before::Cut),
        Fault::Silent {} => before(Before::Hold),
        Fault::Status { status, retry_after, body } => {
            let usual = || refuse::status(route.native(), *status).to_string();
            let body = body.clone().unwrap_or_else(usual);
            let mut script = Script::plain(*status, "application/json", body);
            if let Some(later) = retry_after {
                let value = match later {
                    Later::Seconds(seconds) => seconds.to_string(),
                    Later::Text(text) => text.clone(),
                };
                script.head.headers.push(("retry-after", value));
            }
            Some(script)
        }
        Fault::Refusal { shape } => Some(Script::json(400, &refuse::refusal(*shape))),
        Fault::Overflow { shape } => Some(Script::json(400, &refuse::overflow(*shape, 200_001, 131_072))),
        Fault::Html { status } => {
            let page =
                format!("<html><head><title>{status} simulated</title></head><body>Bad</body></html>\n");
            Some(Script::plain(*status, "text/html", page))
        }
        _ => None,
    }
}
