//! The second listener: metrics, health, status for anyone who can reach it;
//! accounts, keys and reloads for whoever has the admin token. Loopback by default.

pub mod accounts;
mod audit;
pub mod credits;
pub mod desk;
mod enrich;
pub mod fields;
pub mod keys;
mod members;
pub mod openapi;
pub mod orders;
pub mod routes;
mod status;
pub mod unmatched;
mod wrong;

use crate::caller::Caller;
use crate::config::Mistake;
use crate::endpoint::parameters;
use crate::gateway::Source;
use crate::house::House;
use crate::observe::log;
use crate::reply::head::Head;
use crate::request_id::RequestId;
use crate::server::Bound;
use crate::session::Session;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use desk::{Asked, Done, Effect};
use http::{Method, header};
use penstock_contract::{Code, Dialect, Refusal};
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use routes::Operation;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use subtle::ConstantTimeEq;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Deadline of a request head and of its body.
const PATIENCE: Duration = Duration::from_secs(10);
/// Largest body of an admin request.
const BODY: usize = 64 * 1024;

/// Serves the admin listener until `stop`.
pub fn serve(
    bound: Bound,
    house: &Arc<House>,
    source: Source,
    stop: watch::Receiver<bool>,
) -> JoinHandle<()> {
    crate::server::serve(
        bound,
        "admin",
        Admin { house: house.clone(), source, wrong: wrong::Tokens::default() },
        stop,
    )
}

/// What a reload swapped in.
pub struct Reloaded {
    version: String,
    /// What of it counts from the next start only.
    waiting: Vec<&'static str>,
    /// What is odd about it.
    warnings: Vec<Mistake>,
}

/// Swaps in the configuration as it is written now, or keeps the old one.
///
/// # Errors
/// Every mistake of the new one.
pub async fn reload(house: &Arc<House>, source: &Source) -> Result<Reloaded, String> {
    let (fresh, kept) = (source.clone(), house.clone());
    let runtime = tokio::runtime::Handle::current();
    let swap = move || {
        let mut warnings = Vec::new();
        let read = || {
            let loaded = fresh()?;
            warnings = loaded.warnings;
            Ok(loaded.settings)
        };
        kept.reload(read, &runtime).map(|()| warnings)
    };
    let swapped =
        tokio::task::spawn_blocking(swap).await.unwrap_or_else(|_| Err("The reload ended early.".to_owned()));
    house.metrics.reloaded(swapped.is_ok());
    match swapped {
        Ok(warnings) => {
            let live = house.live();
            log::set(live.settings.log);
            let version = live.settings.version.0.to_string();
            log::event(log::info(), "reloaded", &[("config", &version)]);
            let waiting = house.fixed.waiting(&live.settings);
            if !waiting.is_empty() {
                log::event(log::warn(), "reload_waits_for_start", &[("what", &waiting.join(", "))]);
            }
            warnings.iter().for_each(warn);
            Ok(Reloaded { version, waiting, warnings })
        }
        Err(mistakes) => {
            log::event(log::error(), "reload_refused", &[("why", &mistakes)]);
            Err(mistakes)
        }
    }
}

/// The event of something odd.
fn warn(warning: &Mistake) {
    let Mistake { file, line, key, why, fix, .. } = warning;
    let line = line.map(|line| line.to_string()).unwrap_or_default();
    let members = [("file", file.as_str()), ("line", &line), ("key", key), ("why", why), ("fix", fix)];
    log::event(log::warn(), "config_warning", &members);
}

struct Admin {
    house: Arc<House>,
    source: Source,
    wrong: wrong::Tokens,
}

/// The header in which a client says on whose behalf it asks, for the audit log.
pub const ACTOR: &str = "x-penstock-actor";
/// Longest such name.
const ACTOR_BYTES: usize = 64;

/// An answer: status, content type, body.
struct Answer(u16, &'static str, Vec<u8>);

const JSON: &str = "application/json";
const JSON_LINES: &str = "application/jsonl";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

#[async_trait]
impl HttpServerApp for Admin {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        timeout(PATIENCE, session.read_request()).await.ok()?.ok()?.then_some(())?;
        session.set_keepalive(None);
        let _served = Served::new(&self.house);
        let id = RequestId::random();
        let answer = self.answer(&mut session).await;
        let mut session = Session::Library(Box::new(session), None);
        let caller = &mut Caller::Connection(&mut session);
        match answer {
            Ok(Answer(status, kind, body)) => {
                Head::new(status, &id).whole(caller, kind, vec![Bytes::from(body)]).await.ok();
            }
            Err(refusal) => {
                crate::reply::refuse(caller, Dialect::Chat, &id, &refusal, None, false).await.ok();
            }
        }
        if let Session::Library(session, _) = session {
            session.finish().await.ok();
        }
        None
    }
}

/// An administrator that is being served: the store is not handed over meanwhile.
struct Served<'a>(&'a House);

impl<'a> Served<'a> {
    fn new(house: &'a House) -> Self {
        house.desks.fetch_add(1, Ordering::AcqRel);
        Self(house)
    }
}

impl Drop for Served<'_> {
    fn drop(&mut self) {
        self.0.desks.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Admin {
    async fn answer(&self, session: &mut ServerSession) -> Result<Answer, Refusal> {
        let head = session.req_header();
        let (method, path) = (head.method.clone(), head.uri.path().to_owned());
        match (&method, path.as_str()) {
            (&Method::GET, "/metrics") => Ok(Answer(200, METRICS, self.house.metrics.text(&self.house))),
            (&Method::GET, "/healthz") => Ok(Answer(200, TEXT, b"ok\n".to_vec())),
            (&Method::GET, "/readyz") => Ok(self.ready()),
            (&Method::GET, "/admin/openapi.json") => Ok(written(200, &openapi::document())),
            (&Method::GET, "/status") => Ok(written(200, &status::status(&self.house))),
            _ => {
                self.authorise(session)?;
                self.administer(session, &method, &path).await
            }
        }
    }

    /// Ready means that requests are taken: not draining, and a store that works. What else is wrong is said, and no
    /// reason to send them elsewhere.
    fn ready(&self) -> Answer {
        let (status, text) = match (status::not_ready(&self.house), status::degraded(&self.house)) {
            (Some(why), _) => (503, format!("{why}\n")),
            (None, Some(why)) => (200, format!("ready, but {why}\n")),
            (None, None) => (200, "ready\n".to_owned()),
        };
        Answer(status, TEXT, text.into_bytes())
    }

    /// The admin token, compared in constant time. Wrong ones have a rate limit of their own; the right one
    /// is never kept waiting by them.
    fn authorise(&self, session: &ServerSession) -> Result<(), Refusal> {
        let given = session.get_header_bytes(header::AUTHORIZATION);
        if bears(given, &self.house.vault.admin_token) {
            return Ok(());
        }
        Err(self.wrong.refusal(self.house.clock.now()))
    }

    async fn administer(
        &self,
        session: &mut ServerSession,
        method: &Method,
        path: &str,
    ) -> Result<Answer, Refusal> {
        let (operation, id) = routes::find(method, path)?;
        let house = &self.house;
        if house.has_left() {
            let message = "Another process is taking over; ask again.";
            return Err(Refusal::because(Code::Unavailable, message).retry_after(1));
        }
        match operation {
            Operation::Reload => match reload(house, &self.source).await {
                Ok(Reloaded { version, waiting, warnings }) => {
                    let warnings: Vec<String> = warnings.iter().map(ToString::to_string).collect();
                    let answer = json!({ "config": version, "next_start": waiting, "warnings": warnings });
                    Ok(written(200, &answer))
                }
                Err(mistakes) => Err(Refusal::because(Code::InvalidRequest, mistakes)),
            },
            Operation::ListModels => Ok(written(200, &status::models(house))),
            Operation::ListProviders => Ok(written(200, &status::providers(house))),
            Operation::ListUnmatched => {
                let house = house.clone();
                let found = tokio::task::spawn_blocking(move || unmatched::list(&house, &house.vault));
                Ok(written(200, &found.await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal)))?))
            }
            _ if credits::is_one(operation) => {
                let (who, query) = (who(session), query(session));
                let asked = Asked { id, query, body: body(session).await?, who, now: house.clock.unix() };
                match credits::answer(&house.vault, &house.ledger, operation, &asked).await? {
                    credits::Told::Json(status, value) => Ok(written(status, &value)),
                    credits::Told::Lines(lines) => Ok(Answer(200, JSON_LINES, lines)),
                }
            }
            _ => {
                let (who, query) = (who(session), query(session));
                let body = body(session).await?;
                let asked = Asked { id, query, body, who, now: house.clock.unix() };
                let done = done_in(house, operation, asked).await?;
                Ok(written(done.status, &done.answer))
            }
        }
    }
}

/// Does what is asked of accounts and keys, and lets the keyring know, one
/// request after another: what is in memory is always what was written last.
///
/// # Errors
/// What is wrong with the request, or with the store.
pub async fn done_in(house: &Arc<House>, operation: Operation, asked: Asked) -> Result<Done, Refusal> {
    let house = house.clone();
    let work = move || {
        let mut done = {
            let _turn = house.desk.lock();
            let done = desk::perform(&house.vault, operation, &asked)?;
            match &done.effect {
                Effect::None => {}
                Effect::Key(key, account) => {
                    if let Some(account) = account {
                        house.keyring.set_account(account);
                        house.account_changed(&account.id);
                    }
                    house.keyring.set_key(key);
                    house.key_changed(&key.id);
                }
                Effect::Account(account) => {
                    house.keyring.set_account(account);
                    house.account_changed(&account.id);
                }
            }
            done
        };
        enrich::enrich(&house, &mut done.answer);
        let warnings = unmatched::after_change(&house, &house.vault, &done.effect);
        if let Some(members) = done.answer.as_object_mut().filter(|_| !warnings.is_empty()) {
            members.insert("warnings".to_owned(), warnings.into());
        }
        Ok(done)
    };
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(Refusal::new(Code::Internal)))
}

/// Whether an authorization bears this token. None bears the empty one.
fn bears(authorization: &[u8], token: &str) -> bool {
    let given = authorization.strip_prefix(b"Bearer ").filter(|given| !given.is_empty());
    given.is_some_and(|given| given.ct_eq(token.as_bytes()).into())
}

/// Who asks, as far as the listener can tell: a name that they give themselves, and their address.
fn who(session: &ServerSession) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b"\"\\<>".contains(byte);
    let given = session.get_header_bytes(ACTOR);
    let name = std::str::from_utf8(given)
        .ok()
        .filter(|name| !name.is_empty() && name.len() <= ACTOR_BYTES && name.as_bytes().iter().all(plain));
    let address = session.client_addr().map(ToString::to_string).unwrap_or_default();
    format!("{} from {address}", name.unwrap_or("admin"))
}

/// The query's names and values, decoded.
fn query(session: &ServerSession) -> Vec<(String, String)> {
    let query = session.req_header().uri.query().unwrap_or_default();
    parameters(query).map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn written(status: u16, value: &Value) -> Answer {
    let mut body = serde_json::to_vec_pretty(value).unwrap_or_default();
    body.push(b'\n');
    Answer(status, JSON, body)
}

/// The JSON object of an admin request; an empty body is an empty object.
async fn body(session: &mut ServerSession) -> Result<Value, Refusal> {
    let read = async {
        let mut body = BytesMut::new();
        let cut = |_| Refusal::because(Code::InvalidRequest, "The body ended before its length.");
        while let Some(piece) = session.read_request_body().await.map_err(cut)? {
            if body.len() + piece.len() > BODY {
                return Err(Refusal::new(Code::TooLarge));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body.freeze())
    };
    let body = timeout(PATIENCE, read).await.map_err(|_| Refusal::new(Code::RequestTimeout))??;
    if body.is_empty() {
        return Ok(json!({}));
    }
    serde_json::from_slice(&body)
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| Refusal::because(Code::InvalidRequest, "The body has to be a JSON object."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_token_and_an_empty_one_open_nothing() {
        for token in ["", "0123456789abcdef0123456789abcdef"] {
            for nothing in ["", "Bearer", "Bearer ", "Basic ", token] {
                assert!(!bears(nothing.as_bytes(), token), "{nothing:?} for {token:?}");
            }
        }
        assert!(bears(b"Bearer s3cret", "s3cret"));
        assert!(!bears(b"Bearer s3cre", "s3cret"));
    }
}
