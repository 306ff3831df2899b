//! The second listener: metrics, health, status for anyone who can reach it;
//! keys and reloads for whoever has the admin token. Loopback by default.

pub mod keys;
mod status;

use crate::gateway::Source;
use crate::house::House;
use crate::observe::log;
use crate::reply::Head;
use crate::request_id::RequestId;
use crate::server::Bound;
use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use http::{Method, header};
use penstock_contract::{Code, Refusal};
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use serde_json::{Value, json};
use std::sync::Arc;
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
    crate::server::serve(bound, "admin", Admin { house: house.clone(), source }, stop)
}

/// Swaps in the configuration as it is written now, or keeps the old one.
///
/// # Errors
/// Every mistake of the new one.
pub async fn reload(house: &Arc<House>, source: &Source) -> Result<String, String> {
    let (fresh, kept) = (source.clone(), house.clone());
    let swapped = tokio::task::spawn_blocking(move || kept.reload(fresh()?))
        .await
        .unwrap_or_else(|_| Err("The reload ended early.".to_owned()));
    house.metrics.reloaded(swapped.is_ok());
    match swapped {
        Ok(()) => {
            crate::worker::resolve(house).await;
            let version = house.live().settings.version.0.to_string();
            log::event(log::info(), "reloaded", &[("config", &version)]);
            Ok(version)
        }
        Err(mistakes) => {
            log::event(log::error(), "reload_refused", &[("why", &mistakes)]);
            Err(mistakes)
        }
    }
}

struct Admin {
    house: Arc<House>,
    source: Source,
}

/// An answer: status, content type, body.
struct Answer(u16, &'static str, Vec<u8>);

const JSON: &str = "application/json";
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
        let id = RequestId::random();
        let Answer(status, kind, body) = match self.answer(&mut session).await {
            Ok(answer) => answer,
            Err(refusal) => {
                let body = penstock_wire::error::chat_envelope(&refusal, id.as_str());
                Answer(refusal.row().status, JSON, body)
            }
        };
        let head = Head::new(status, &id).ok()?;
        head.whole(&mut session, kind, vec![Bytes::from(body)]).await.ok();
        session.finish().await.ok();
        None
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
            (&Method::GET, "/status") => Ok(written(200, &status::status(&self.house))),
            _ => {
                self.authorise(session)?;
                self.administer(session, &method, &path).await
            }
        }
    }

    /// Ready means that a request would be served: not draining, a store that
    /// works, and an offer that may be asked.
    fn ready(&self) -> Answer {
        match status::not_ready(&self.house) {
            None => Answer(200, TEXT, b"ready\n".to_vec()),
            Some(why) => Answer(503, TEXT, format!("{why}\n").into_bytes()),
        }
    }

    /// The admin token, compared in constant time.
    fn authorise(&self, session: &ServerSession) -> Result<(), Refusal> {
        let given = session.get_header_bytes(header::AUTHORIZATION);
        let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
        if bool::from(given.ct_eq(self.house.vault.admin_token.as_bytes())) {
            return Ok(());
        }
        let message =
            "The admin token is missing or wrong; it stands in the file admin.token of the storage folder.";
        Err(Refusal::because(Code::InvalidKey, message))
    }

    async fn administer(
        &self,
        session: &mut ServerSession,
        method: &Method,
        path: &str,
    ) -> Result<Answer, Refusal> {
        let revoked = path.strip_prefix("/admin/keys/").and_then(|rest| rest.strip_suffix("/revoke"));
        match (method, path, revoked) {
            (&Method::GET, "/admin/keys", _) => Ok(written(200, &keys::list(&self.house).await?)),
            (&Method::POST, "/admin/keys", _) => {
                let asked = body(session).await?;
                Ok(written(201, &keys::create(&self.house, &asked).await?))
            }
            (&Method::POST, _, Some(id)) => Ok(written(200, &keys::revoke(&self.house, id).await?)),
            (&Method::POST, "/admin/reload", _) => match reload(&self.house, &self.source).await {
                Ok(version) => Ok(written(200, &json!({ "config": version }))),
                Err(mistakes) => Err(Refusal::because(Code::InvalidRequest, mistakes)),
            },
            (&Method::GET, "/admin/models", _) => Ok(written(200, &status::models(&self.house))),
            (&Method::GET, "/admin/providers", _) => Ok(written(200, &status::providers(&self.house))),
            _ => Err(Refusal::new(Code::NotFound)),
        }
    }
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
        while let Ok(Some(piece)) = session.read_request_body().await {
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
