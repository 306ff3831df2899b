//! Scripted OpenID provider: discovery, keys and tokens over real sockets, signed with its own key.

use super::certificates::TestCertificate;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use penstock_core::percent;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// Answer of the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenScript {
    Good,
    OtherNonce,
    OtherAudience,
    OtherIssuer,
    Expired,
    Unsigned,
    OtherKey,
    NoToken,
    Huge,
    Status(u16),
    Broken,
}

/// Authorization request of a browser, which a later token request uses.
#[derive(Clone, Debug)]
struct Grant {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

struct Script {
    issuer: String,
    claims: Value,
    tokens: TokenScript,
    key: (String, EcdsaKeyPair),
    codes: HashMap<String, Grant>,
    now: u64,
}

/// Provider.
pub struct OpenIdServer {
    pub address: SocketAddr,
    pub issuer: String,
    script: Arc<Mutex<Script>>,
    accepting: JoinHandle<()>,
}

impl Drop for OpenIdServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

fn new_key() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).unwrap()
}

impl OpenIdServer {
    pub async fn start() -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), None).await
    }

    /// Starts the provider with TLS under its own root certificate.
    pub async fn start_tls(certified: &TestCertificate) -> Self {
        Self::serve(TcpListener::bind("127.0.0.1:0").await.unwrap(), Some(certified.acceptor())).await
    }

    async fn serve(listener: TcpListener, tls: Option<TlsAcceptor>) -> Self {
        let address = listener.local_addr().unwrap();
        let issuer = format!("{}://{address}/realm", if tls.is_some() { "https" } else { "http" });
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let script = Arc::new(Mutex::new(Script {
            issuer: issuer.clone(),
            claims: json!({}),
            tokens: TokenScript::Good,
            key: ("first".to_owned(), new_key()),
            codes: HashMap::new(),
            now,
        }));
        let shared = script.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (script, tls) = (shared.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(socket, &script).await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(socket).await else { return };
                            answer(stream, &script).await;
                        }
                    }
                });
            }
        });
        Self { address, issuer, script, accepting }
    }

    /// `[console.oidc]` of a gateway.
    pub fn settings(&self) -> String {
        format!(
            "[console.oidc]\nissuer = \"{}\"\nclient_id = \"penstock\"\nclient_secret = {{ env = \"SECRET\" }}\n\
             name = \"Example ID\"\naccount_claim = \"account\"\n",
            self.issuer
        )
    }

    /// Sets the claims of the next user, in addition to the claims that every token has.
    pub fn person(&self, claims: Value) {
        self.script.lock().claims = claims;
    }

    pub fn script(&self, tokens: TokenScript) {
        self.script.lock().tokens = tokens;
    }

    /// Signs with another key from now on.
    pub fn rotate(&self, id: &str) {
        self.script.lock().key = (id.to_owned(), new_key());
    }

    /// Signs a user in at the page to which the gateway redirected; returns the path of the next redirect.
    pub fn authorize(&self, location: &str) -> String {
        let (page, query) = location.split_once('?').unwrap();
        assert_eq!(page, format!("{}/authorize", self.issuer));
        let pairs: HashMap<&str, String> = percent::query_parameters(query)
            .map(|(name, value)| (name, percent::decode_form(value).unwrap().into_owned()))
            .collect();
        assert_eq!(pairs["response_type"], "code");
        assert_eq!((&*pairs["client_id"], &*pairs["code_challenge_method"]), ("penstock", "S256"));
        assert_eq!(pairs["scope"], "openid profile email");
        assert!(pairs["state"].len() >= 43 && pairs["nonce"].len() >= 43 && pairs["state"] != pairs["nonce"]);
        let grant = Grant {
            nonce: pairs["nonce"].clone(),
            challenge: pairs["code_challenge"].clone(),
            redirect_uri: pairs["redirect_uri"].clone(),
        };
        let mut script = self.script.lock();
        let code = format!("code-{}", script.codes.len());
        let after_host = grant.redirect_uri.splitn(4, '/').nth(3).unwrap();
        let path = format!("/{after_host}?code={code}&state={}", pairs["state"]);
        script.codes.insert(code, grant);
        path
    }
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, script: &Mutex<Script>) {
    let Some((head, body)) = read_request(&mut stream).await else { return };
    let (status, body) = script.lock().answer(&head, &body);
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    if status == 0 {
        return;
    }
    stream.write_all(head.as_bytes()).await.ok();
    stream.write_all(body.as_bytes()).await.ok();
    stream.shutdown().await.ok();
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<(String, String)> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let lower = head.to_ascii_lowercase();
            let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

impl Script {
    fn answer(&mut self, head: &str, body: &str) -> (u16, String) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        match target {
            "/realm/.well-known/openid-configuration" => (200, self.discovery().to_string()),
            "/realm/keys" => (200, json!({ "keys": [{"kty": "odd"}, self.public_key()] }).to_string()),
            "/realm/token" => self.token(head, body),
            _ => (404, String::new()),
        }
    }

    fn discovery(&self) -> Value {
        let at = |path: &str| format!("{}/{path}", self.issuer);
        json!({
            "issuer": self.issuer,
            "authorization_endpoint": at("authorize"),
            "token_endpoint": at("token"),
            "jwks_uri": at("keys"),
            "end_session_endpoint": at("logout"),
        })
    }

    fn public_key(&self) -> Value {
        let point = self.key.1.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.key.0, "x": x, "y": y})
    }

    fn token(&mut self, head: &str, body: &str) -> (u16, String) {
        match self.tokens {
            TokenScript::Huge => return (200, format!("{{\"id_token\": \"{}\"}}", "x".repeat(1 << 20))),
            TokenScript::Status(status) => return (status, "<html>not today</html>".to_owned()),
            TokenScript::Broken => return (0, String::new()),
            TokenScript::NoToken => return (200, json!({"access_token": "a"}).to_string()),
            _ => {}
        }
        let basic = format!("Basic {}", STANDARD.encode("penstock:value%20of%20SECRET"));
        assert!(
            head.lines().any(|line| line.eq_ignore_ascii_case(&format!("authorization: {basic}"))),
            "{head}"
        );
        let form: HashMap<&str, String> = percent::query_parameters(body)
            .map(|(name, value)| (name, percent::decode_form(value).unwrap().into_owned()))
            .collect();
        let refused = || (400, json!({"error": "invalid_grant"}).to_string());
        let Some(grant) = self.codes.remove(&form["code"]) else { return refused() };
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(form["code_verifier"].as_bytes()));
        if challenge != grant.challenge || form["redirect_uri"] != grant.redirect_uri {
            return refused();
        }
        let token = self.id_token(&grant);
        (200, json!({"access_token": "a", "token_type": "Bearer", "id_token": token}).to_string())
    }

    fn id_token(&self, grant: &Grant) -> String {
        let mut claims = json!({
            "iss": self.issuer, "aud": "penstock", "nonce": grant.nonce, "iat": self.now, "exp": self.now + 300,
        });
        for (name, value) in self.claims.as_object().unwrap() {
            claims[name] = value.clone();
        }
        match self.tokens {
            TokenScript::OtherNonce => claims["nonce"] = json!("of another sign-in"),
            TokenScript::OtherAudience => claims["aud"] = json!("another application"),
            TokenScript::OtherIssuer => claims["iss"] = json!("https://evil.example"),
            TokenScript::Expired => claims["exp"] = json!(self.now - 3_600),
            _ => {}
        }
        let algorithm = if self.tokens == TokenScript::Unsigned { "none" } else { "ES256" };
        let header = json!({"alg": algorithm, "kid": self.key.0});
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encode(&header), encode(&claims));
        let other = new_key();
        let key = if self.tokens == TokenScript::OtherKey { &other } else { &self.key.1 };
        let signature = key.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}
