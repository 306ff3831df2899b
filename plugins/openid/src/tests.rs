//! Tests with keys that are generated for each test.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use crate::*;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

const NOW: u64 = 1_790_000_000;

fn expected() -> ExpectedClaims<'static> {
    ExpectedClaims { issuer: "https://login.example.eu", client_id: "penstock", nonce: "n-1", now: NOW }
}

fn claims() -> Value {
    json!({
        "iss": "https://login.example.eu", "aud": "penstock", "sub": "248289761001", "nonce": "n-1",
        "exp": NOW + 300, "iat": NOW, "roles": ["penstock-admin"],
    })
}

fn encode(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

struct Signer(EcdsaKeyPair);

impl Signer {
    fn new() -> Self {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pair.as_ref(), &random).unwrap())
    }

    fn key(&self, id: &str) -> Value {
        let point = self.0.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id, "x": x, "y": y})
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encode(header), encode(claims));
        let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn keys(list: &[Value]) -> KeySet {
    KeySet::parse(json!({ "keys": list }).to_string().as_bytes()).unwrap()
}

fn header() -> Value {
    json!({"alg": "ES256", "kid": "a"})
}

#[test]
fn a_good_token_gives_its_person_and_claims() {
    let signer = Signer::new();
    let set = keys(&[json!({"kty": "unheard-of"}), Signer::new().key("b"), signer.key("a")]);
    let token = verify_id_token(&signer.sign(&header(), &claims()), &set, &expected()).unwrap();
    assert_eq!(token.subject, "248289761001");
    assert_eq!(claim_texts(&token.claims, "roles"), ["penstock-admin"]);
    // A token without a key id is tried with every key.
    let token = signer.sign(&json!({"alg": "ES256"}), &claims());
    assert!(verify_id_token(&token, &set, &expected()).is_ok());
}

#[test]
fn each_broken_rule_is_named() {
    let signer = Signer::new();
    let set = keys(&[signer.key("a")]);
    let with = |name: &str, value: Value| {
        let mut changed = claims();
        match value {
            Value::Null => drop(changed.as_object_mut().unwrap().remove(name)),
            value => changed[name] = value,
        }
        verify_id_token(&signer.sign(&header(), &changed), &set, &expected()).map(|_| ())
    };
    for (name, value, error) in [
        ("iss", json!("https://evil.example"), OpenIdError::Issuer),
        ("iss", json!(["https://login.example.eu", "https://evil.example"]), OpenIdError::Issuer),
        ("iss", Value::Null, OpenIdError::Issuer),
        ("aud", json!("other"), OpenIdError::Audience),
        ("aud", json!([]), OpenIdError::Audience),
        ("aud", json!(["penstock", "other"]), OpenIdError::Audience),
        ("aud", Value::Null, OpenIdError::Audience),
        ("azp", json!("other"), OpenIdError::Audience),
        ("azp", json!(7), OpenIdError::Audience),
        ("exp", json!(NOW - 60), OpenIdError::OutsideValidity),
        ("exp", json!("tomorrow"), OpenIdError::OutsideValidity),
        ("exp", json!(-1), OpenIdError::OutsideValidity),
        ("exp", Value::Null, OpenIdError::OutsideValidity),
        ("iat", json!(NOW + 61), OpenIdError::OutsideValidity),
        ("iat", Value::Null, OpenIdError::OutsideValidity),
        ("nbf", json!(NOW + 61), OpenIdError::OutsideValidity),
        ("nbf", json!({}), OpenIdError::OutsideValidity),
        ("nonce", json!("n-2"), OpenIdError::Nonce),
        ("nonce", json!(""), OpenIdError::Nonce),
        ("nonce", Value::Null, OpenIdError::Nonce),
        ("sub", json!(""), OpenIdError::Subject),
        ("sub", json!(7), OpenIdError::Subject),
        ("sub", json!("x".repeat(256)), OpenIdError::Subject),
        ("sub", Value::Null, OpenIdError::Subject),
    ] {
        assert_eq!(with(name, value.clone()), Err(error), "{name}: {value}");
    }
    for (name, value) in [
        ("exp", json!(NOW - 59)),
        ("exp", json!(u64::MAX)),
        ("exp", json!(NOW as f64 + 10.5)),
        ("aud", json!(["penstock"])),
        ("azp", json!("penstock")),
        ("nbf", json!(NOW)),
    ] {
        assert_eq!(with(name, value.clone()), Ok(()), "{name}: {value}");
    }
}

#[test]
fn an_unsigned_or_foreign_token_is_refused() {
    let (signer, other) = (Signer::new(), Signer::new());
    let set = keys(&[signer.key("a"), json!({"kty": "oct", "kid": "s", "k": "c2VjcmV0"})]);
    let verify = |token: &str| verify_id_token(token, &set, &expected()).map(|_| ());
    let unsigned = format!("{}.{}.", encode(&json!({"alg": "none"})), encode(&claims()));
    assert_eq!(verify(&unsigned), Err(OpenIdError::MalformedToken));
    let shared = signer.sign(&json!({"alg": "HS256", "kid": "s"}), &claims());
    assert_eq!(verify(&shared), Err(OpenIdError::MalformedToken));
    let critical =
        signer.sign(&json!({"alg": "ES256", "kid": "a", "crit": ["b64"], "b64": false}), &claims());
    assert_eq!(verify(&critical), Err(OpenIdError::MalformedToken));
    assert_eq!(verify(&other.sign(&header(), &claims())), Err(OpenIdError::Signature));
    let unknown = json!({"alg": "ES256", "kid": "z"});
    assert_eq!(verify(&signer.sign(&unknown, &claims())), Err(OpenIdError::UnknownKey));
    // The header states an algorithm that does not fit the key.
    assert!(verify(&signer.sign(&json!({"alg": "RS256", "kid": "a"}), &claims())).is_err());
    assert!(verify(&signer.sign(&json!({"alg": "ES384", "kid": "a"}), &claims())).is_err());
    let good = signer.sign(&header(), &claims());
    for cut in 0..good.len() {
        assert!(verify(&good[..cut]).is_err(), "{cut}");
    }
    let mut bytes = good.clone().into_bytes();
    for at in (0..bytes.len()).step_by(7).filter(|at| good.as_bytes()[*at] != b'.') {
        let original = bytes[at];
        bytes[at] = if original == b'A' { b'B' } else { b'A' };
        assert!(verify(std::str::from_utf8(&bytes).unwrap()).is_err(), "{at}");
        bytes[at] = original;
    }
    let mut large = claims();
    large["roles"] = json!("x".repeat(70_000));
    assert_eq!(verify(&signer.sign(&header(), &large)), Err(OpenIdError::MalformedToken));
    for text in ["", ".", "..", "a.b.c", "\u{0}.\u{0}.\u{0}", "é.é.é"] {
        assert!(verify(text).is_err(), "{text:?}");
    }
}

#[test]
fn ed25519_tokens_are_verified() {
    let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(pair.as_ref()).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let set = keys(&[json!({"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": x})]);
    let message = format!("{}.{}", encode(&json!({"alg": "EdDSA", "kid": "e"})), encode(&claims()));
    let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(pair.sign(message.as_bytes())));
    assert!(verify_id_token(&token, &set, &expected()).is_ok());
    let invalid_set = keys(&[json!({"kty": "OKP", "crv": "Ed25519", "kid": "e", "x": "AA"})]);
    assert_eq!(verify_id_token(&token, &invalid_set, &expected()).map(|_| ()), Err(OpenIdError::Signature));
}

#[test]
fn a_key_set_leaves_out_what_it_cannot_use() {
    for bad in ["", "[]", "{}", "{\"keys\": 1}", "\u{0}"] {
        assert!(KeySet::parse(bad.as_bytes()).is_err(), "{bad}");
    }
    let signer = Signer::new();
    let mut encrypting = signer.key("enc");
    encrypting["use"] = json!("enc");
    let mut broken = signer.key("broken");
    broken["x"] = json!("!");
    let set = keys(&[encrypting, broken, json!(null), signer.key("a")]);
    assert!(set.has_key(Some("a")) && set.has_key(None));
    assert!(!set.has_key(Some("enc")) && !set.has_key(Some("broken")));
    let many: Vec<Value> = (0..200).map(|n| signer.key(&n.to_string())).collect();
    let set = keys(&many);
    assert!(set.has_key(Some("63")) && !set.has_key(Some("64")));
}

fn document() -> Value {
    json!({
        "issuer": "https://login.example.eu",
        "authorization_endpoint": "https://login.example.eu/authorize?tenant=1",
        "token_endpoint": "https://login.example.eu/token",
        "jwks_uri": "https://keys.example.eu/keys",
    })
}

#[test]
fn a_discovery_document_is_of_its_issuer_and_has_https_endpoints() {
    let parse =
        |document: &Value, issuer: &str| ProviderMetadata::parse(document.to_string().as_bytes(), issuer);
    let issuer = "https://login.example.eu";
    let found = parse(&document(), issuer).unwrap();
    assert_eq!((found.secret_method, found.sends_issuer), (ClientSecretMethod::Basic, false));
    assert_eq!(parse(&document(), "https://other.example.eu"), Err(OpenIdError::DiscoveredIssuer));
    let with = |name: &str, value: Value| {
        let mut changed = document();
        changed[name] = value;
        parse(&changed, issuer)
    };
    assert_eq!(
        with("token_endpoint", json!("http://login.example.eu/token")),
        Err(OpenIdError::InsecureEndpoint)
    );
    for bad in [
        "",
        "https://",
        "https:///x",
        "ftp://x",
        "https://a@b/",
        "https://a/ b",
        "https://a/#b",
        "javascript:x",
    ] {
        assert_eq!(with("authorization_endpoint", json!(bad)), Err(OpenIdError::InsecureEndpoint), "{bad}");
    }
    assert_eq!(with("jwks_uri", json!(1)), Err(OpenIdError::Discovery));
    assert_eq!(with("end_session_endpoint", json!("x")), Err(OpenIdError::InsecureEndpoint));
    let posted = with("token_endpoint_auth_methods_supported", json!(["client_secret_post"])).unwrap();
    assert_eq!(posted.secret_method, ClientSecretMethod::Post);
    assert_eq!(ProviderMetadata::parse(b"<html>", issuer), Err(OpenIdError::Discovery));
    assert_eq!(discovery_url("https://a.eu/x/"), "https://a.eu/x/.well-known/openid-configuration");
}

#[test]
fn requests_have_the_encoded_values() {
    // Example of RFC 7636, appendix B.
    let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
    assert_eq!(code_challenge(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    let scopes = [Box::from("openid"), Box::from("profile")];
    let request = AuthorizationRequest {
        client_id: "pen stock",
        redirect_uri: "https://account.example.eu/dashboard/sign-in/openid/return",
        scopes: &scopes,
        state: "s",
        nonce: "n",
        verifier,
    };
    let url = request.url("https://login.example.eu/authorize?tenant=1");
    assert_eq!(
        url,
        "https://login.example.eu/authorize?tenant=1&response_type=code&client_id=pen%20stock\
         &redirect_uri=https%3A%2F%2Faccount.example.eu%2Fdashboard%2Fsign-in%2Fopenid%2Freturn\
         &scope=openid%20profile&state=s&nonce=n&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM\
         &code_challenge_method=S256"
    );
    let mut token = TokenRequest {
        client_id: "id",
        client_secret: Some("a:b&c"),
        secret_method: ClientSecretMethod::Basic,
        code: "c&d",
        redirect_uri: "https://x/",
        verifier: "v",
    };
    let body = "grant_type=authorization_code&code=c%26d&redirect_uri=https%3A%2F%2Fx%2F&code_verifier=v";
    assert_eq!(token.body(), body);
    assert_eq!(token.authorization_header().unwrap(), "Basic aWQ6YSUzQWIlMjZj");
    token.secret_method = ClientSecretMethod::Post;
    assert_eq!(
        (token.body(), token.authorization_header()),
        (format!("{body}&client_id=id&client_secret=a%3Ab%26c"), None)
    );
    token.client_secret = None;
    assert_eq!((token.body(), token.authorization_header()), (format!("{body}&client_id=id"), None));
}

#[test]
fn claims_are_texts_lists_and_members() {
    let claims = json!({
        "groups": ["a", 1, "b"], "role": "c", "realm_access": {"roles": ["d"]}, "urn:x.y": "e", "none": {},
    });
    for (path, texts) in [
        ("groups", vec!["a", "b"]),
        ("role", vec!["c"]),
        ("realm_access.roles", vec!["d"]),
        ("urn:x.y", vec!["e"]),
        ("none", vec![]),
        ("missing.too", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(claim_texts(&claims, path), texts, "{path}");
    }
}
