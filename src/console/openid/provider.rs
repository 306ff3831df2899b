//! Discovery document and keys of the OpenID provider, read when they are needed, and the exchange of a code.

use super::fetch::{FetchAnswer, FetchError, ProviderClient};
use crate::config::settings::OpenIdSettings;
use penstock_openid::{
    ExpectedClaims, IdToken, KeySet, OpenIdError, ProviderMetadata, TokenRequest, discovery_url,
    unverified_key_id, verify_id_token,
};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Age after which the discovery document and the keys are read again.
const MAX_AGE: Duration = Duration::from_secs(3_600);
/// Minimum interval between two reads of the keys because of a token with an unknown key.
const KEY_INTERVAL: Duration = Duration::from_secs(10);
/// Time for which a failure to read the documents is cached, so that visitors do not each wait for a failing attempt.
const FAILURE_AGE: Duration = Duration::from_secs(1);

/// Failure of a request to the OpenID provider during a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenIdProviderError {
    /// No usable response arrived.
    Fetch(FetchError),
    /// The provider answered with an error status.
    Status,
    /// The response or the token is not acceptable.
    OpenId(OpenIdError),
}

impl From<FetchError> for OpenIdProviderError {
    fn from(error: FetchError) -> Self {
        Self::Fetch(error)
    }
}

impl From<OpenIdError> for OpenIdProviderError {
    fn from(error: OpenIdError) -> Self {
        Self::OpenId(error)
    }
}

/// OpenID provider of one configuration, with its cached documents.
pub struct OpenIdProvider {
    settings: OpenIdSettings,
    client: ProviderClient,
    known: Mutex<ProviderCache>,
}

/// Documents of a provider, and the last failure to read them with its time of the steady clock.
#[derive(Default)]
struct ProviderCache {
    known: Option<KnownProvider>,
    failure: Option<(Duration, OpenIdProviderError)>,
}

/// Published documents of a provider, the time at which they were read, and the time at which the keys were last read
/// because of an unknown key; times of the steady clock.
#[derive(Clone)]
struct KnownProvider {
    metadata: Arc<ProviderMetadata>,
    keys: Arc<KeySet>,
    read: Duration,
    keys_read: Option<Duration>,
}

impl OpenIdProvider {
    /// Creates a provider; its documents are read when they are needed.
    pub fn new(settings: &OpenIdSettings) -> Self {
        let client = ProviderClient::new(settings);
        Self { settings: settings.clone(), client, known: Mutex::default() }
    }

    /// Returns true if the provider has these settings.
    pub fn matches_settings(&self, settings: &OpenIdSettings) -> bool {
        self.settings == *settings
    }

    /// Returns true if the provider can be asked: its CA certificates were read.
    pub const fn is_usable(&self) -> bool {
        self.client.is_usable()
    }

    /// Returns the endpoints of the provider; they are read again after an hour. `now` is the time of the steady clock.
    ///
    /// # Errors
    /// Returns the failure to read the endpoints, if no earlier read succeeded.
    pub async fn metadata(&self, now: Duration) -> Result<Arc<ProviderMetadata>, OpenIdProviderError> {
        Ok(self.known(now, None).await?.metadata)
    }

    /// Returns the documents; reads the keys again if none of them has this `key_id`, which is `Some(None)` for a token
    /// without a key id and `None` if no key is needed. Only one request at a time reads the documents, the
    /// others wait for it.
    async fn known(
        &self,
        now: Duration,
        key_id: Option<Option<&str>>,
    ) -> Result<KnownProvider, OpenIdProviderError> {
        let mut cache = self.known.lock().await;
        let current = cache.known.clone().filter(|known| now.saturating_sub(known.read) < MAX_AGE);
        let fresh = match current {
            None => self.read_again(now, &mut cache).await?,
            Some(current) => current,
        };
        let lacks_key = key_id.is_some_and(|id| !fresh.keys.has_key(id));
        let may_read = fresh.keys_read.is_none_or(|read| now.saturating_sub(read) >= KEY_INTERVAL);
        let fresh = if lacks_key && may_read {
            let read = self.read_keys(&fresh.metadata).await;
            let fresh = KnownProvider { keys_read: Some(now), ..fresh };
            match read {
                Ok(keys) => KnownProvider { keys, ..fresh },
                Err(failure) => {
                    cache.known = Some(fresh);
                    return Err(failure);
                }
            }
        } else {
            fresh
        };
        cache.known = Some(fresh.clone());
        Ok(fresh)
    }

    /// Reads all documents. If that fails, those that were read before remain in use.
    async fn read_again(
        &self,
        now: Duration,
        cache: &mut ProviderCache,
    ) -> Result<KnownProvider, OpenIdProviderError> {
        let recent = cache.failure.filter(|(at, _)| now.saturating_sub(*at) < FAILURE_AGE);
        let begun = Instant::now();
        let failure = match recent {
            Some((_, failure)) => failure,
            None => match self.read(now).await {
                Ok(read) => {
                    cache.failure = None;
                    return Ok(read);
                }
                Err(failure) => failure,
            },
        };
        if recent.is_none() {
            // The age counts from the end of the attempt, for which other visitors have waited.
            cache.failure = Some((now + begun.elapsed(), failure));
        }
        cache.known.clone().ok_or(failure)
    }

    async fn read(&self, now: Duration) -> Result<KnownProvider, OpenIdProviderError> {
        let answer = self.client.get(&discovery_url(&self.settings.issuer)).await?;
        let metadata = ProviderMetadata::parse(&good_body(answer)?, &self.settings.issuer)?;
        let keys = self.read_keys(&metadata).await?;
        Ok(KnownProvider { metadata: Arc::new(metadata), keys, read: now, keys_read: None })
    }

    async fn read_keys(&self, metadata: &ProviderMetadata) -> Result<Arc<KeySet>, OpenIdProviderError> {
        let answer = self.client.get(&metadata.jwks_uri).await?;
        Ok(Arc::new(KeySet::parse(&good_body(answer)?)?))
    }

    /// Exchanges a code for an ID token, and verifies the token. `now` is the time of the steady clock, `unix` the time
    /// of day in Unix seconds.
    ///
    /// # Errors
    /// Returns the failure of the provider, or the rule that its token breaks.
    pub async fn exchange_code(
        &self,
        code: &str,
        request: &CodeExchangeParameters<'_>,
        now: Duration,
        unix: u64,
    ) -> Result<IdToken, OpenIdProviderError> {
        let metadata = self.metadata(now).await?;
        let token = TokenRequest {
            client_id: &self.settings.client_id,
            client_secret: self.settings.client_secret.as_ref().map(|secret| secret.reveal()),
            secret_method: metadata.secret_method,
            code,
            redirect_uri: request.redirect_uri,
            verifier: request.verifier,
        };
        let authorization = token.authorization_header();
        let answer =
            self.client.post(&metadata.token_endpoint, authorization.as_deref(), &token.body()).await?;
        let id_token = parse_token_answer(&answer)?;
        let key = unverified_key_id(&id_token)?;
        let known = self.known(now, Some(key.as_deref())).await?;
        let expected = ExpectedClaims {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: request.nonce,
            now: unix,
        };
        Ok(verify_id_token(&id_token, &known.keys, &expected)?)
    }
}

/// Values of the authorization request that the response has to match.
#[derive(Clone, Copy, Debug)]
pub struct CodeExchangeParameters<'a> {
    /// URL to which the provider sent the browser back.
    pub redirect_uri: &'a str,
    /// PKCE code verifier of the sign-in.
    pub verifier: &'a str,
    /// Nonce that the ID token must contain.
    pub nonce: &'a str,
}

fn good_body(answer: FetchAnswer) -> Result<Vec<u8>, OpenIdProviderError> {
    if answer.status == 200 { Ok(answer.body) } else { Err(OpenIdProviderError::Status) }
}

fn parse_token_answer(answer: &FetchAnswer) -> Result<String, OpenIdProviderError> {
    let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    match (answer.status, text("error")) {
        (200, _) => Ok(text("id_token").ok_or(OpenIdError::MissingIdToken)?.to_owned()),
        (400, Some("invalid_grant")) => Err(OpenIdError::Code.into()),
        _ => Err(OpenIdProviderError::Status),
    }
}
