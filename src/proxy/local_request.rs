//! Request that a page of the console sends with the rights of a key, but without a socket and without the secret of
//! the key. It passes the same phases as the request of a client: scopes and limits of the key, reservation, failover,
//! and charge.

use super::quote::{self, RequestQuote};
use super::{GatewayProxy, InProcessSession};
use crate::auth::key_cache::Principal;
use crate::state::AppState;
use crate::telemetry::AccessRecord;
use bytes::Bytes;
use parking_lot::Mutex;
use penstock_core::{ApiError, ErrorCode};
use pingora_core::apps::HttpServerApp;
use rust_decimal::Decimal;
use std::io::{ErrorKind, Result};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Path of chat requests in the API.
const CHAT_PATH: &str = "/v1/chat/completions";
/// Maximum size of a response in bytes. A longer response ends the request, as if the client disconnected.
const MAX_RESPONSE_BYTES: usize = 1 << 20;

/// Message for a request that was cancelled because it took too long.
const TOO_LONG: &str = "The answer took too long, so the request was cancelled; nothing was charged.";

/// Request of a console page, with its key and the response that has been received so far.
pub struct PlaygroundRequest {
    principal: Arc<Principal>,
    cancel: CancellationToken,
    response: Mutex<PlaygroundResponse>,
}

/// Response to a request of a console page.
#[derive(Debug, Default)]
pub struct PlaygroundResponse {
    /// HTTP status; 0 if the request ended without a response.
    pub status: u16,
    /// Body, as a client of the API would have received it.
    pub body: Vec<u8>,
    /// Charge in EUR, if there is one.
    pub eur: Option<Decimal>,
    /// Id of the provider that answered.
    pub provider: Option<Box<str>>,
}

impl PlaygroundRequest {
    /// Creates a request with the rights of this principal; `cancel` ends it as if its client disconnected.
    pub(super) fn new(principal: Arc<Principal>, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(Self { principal, cancel, response: Mutex::default() })
    }

    /// Returns the principal of the key with whose rights the page sends the request.
    #[must_use]
    pub const fn principal(&self) -> &Arc<Principal> {
        &self.principal
    }

    /// Waits until the user has closed the page.
    pub(super) async fn wait_until_closed(&self) {
        self.cancel.cancelled().await;
    }

    /// Adds a piece of the response.
    ///
    /// # Errors
    /// Returns an error if the response is too long.
    pub(super) fn push(&self, piece: &[u8]) -> Result<()> {
        let body = &mut self.response.lock().body;
        if body.len() + piece.len() > MAX_RESPONSE_BYTES {
            return Err(ErrorKind::FileTooLarge.into());
        }
        body.extend_from_slice(piece);
        Ok(())
    }

    /// Copies the status, charge and provider from the record of the ended exchange.
    pub(super) fn copy_access_record(&self, record: &AccessRecord) {
        let mut response = self.response.lock();
        response.status = record.status;
        response.eur = record.charge.as_ref().map(|charge| charge.eur);
        response.provider.clone_from(&record.provider);
    }

    fn take_response(&self) -> PlaygroundResponse {
        std::mem::take(&mut self.response.lock())
    }
}

/// Executor of the requests that pages of the console send.
#[derive(Clone)]
pub struct PlaygroundRequestExecutor {
    app: Weak<AppState>,
    proxy: GatewayProxy,
}

impl PlaygroundRequestExecutor {
    /// Creates the executor for the console of this process.
    #[must_use]
    pub fn new(app: &Arc<AppState>, proxy: &GatewayProxy) -> Self {
        Self { app: Arc::downgrade(app), proxy: proxy.clone() }
    }

    /// Sends a chat request and waits for its response. If the returned future is dropped, or if `within` has passed,
    /// the request ends as if its client disconnected.
    ///
    /// # Errors
    /// Returns 503 during shutdown or if there is no response within the time, and 401 if the key is no longer valid. A
    /// refusal of the gateway is a response.
    pub async fn send_chat(
        &self,
        principal: Arc<Principal>,
        body: Bytes,
        within: Duration,
    ) -> std::result::Result<PlaygroundResponse, ApiError> {
        let app = self.app.upgrade().ok_or_else(|| ApiError::new(ErrorCode::Unavailable))?;
        let cancel = CancellationToken::new();
        let _cancelled_on_drop = cancel.clone().drop_guard();
        let local = PlaygroundRequest::new(principal.clone(), cancel.clone());
        let session = InProcessSession::for_playground(local.clone(), CHAT_PATH, body);
        let session = session.map_err(|_| ApiError::new(ErrorCode::Internal))?;
        let (proxy, owner) = (self.proxy.clone(), app.clone());
        // The exchange runs in its own task, so that it ends with its record and its charge even if this future is
        // dropped.
        let mut task = tokio::spawn(async move {
            let _in_flight = owner.track_exchange();
            let (_stop, stopping) = watch::channel(false);
            proxy.process_new_http(session, &stopping).await;
        });
        let in_time = timeout(within, &mut task).await.is_ok();
        if !in_time {
            cancel.cancel();
            task.await.ok();
        }
        let response = local.take_response();
        if response.status != 0 && !response.body.is_empty() {
            return Ok(response);
        }
        Err(match () {
            () if !in_time => ApiError::with_message(ErrorCode::Unavailable, TOO_LONG),
            () if !principal.is_valid_at(app.clock.unix_seconds()) => ApiError::new(ErrorCode::InvalidKey),
            () => ApiError::new(ErrorCode::Internal),
        })
    }

    /// Returns the expected and the highest price of a chat request, and its expected footprint; sends nothing.
    ///
    /// # Errors
    /// Returns the refusal that the request would get before its limits and its reservation.
    pub async fn quote_chat(
        &self,
        principal: Arc<Principal>,
        body: Bytes,
    ) -> std::result::Result<RequestQuote, ApiError> {
        let app = self.app.upgrade().ok_or_else(|| ApiError::new(ErrorCode::Unavailable))?;
        let local = PlaygroundRequest::new(principal, CancellationToken::new());
        quote::compute_quote(&app, local, CHAT_PATH, body).await
    }
}
