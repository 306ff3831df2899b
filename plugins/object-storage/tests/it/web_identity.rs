//! Temporary access keys of a security token service, for a token in a file.

use crate::hostile::tls_server;
use crate::seaweedfs::{ACCESS_KEY, SeaweedServer, options};
use crate::{contents, one_server, read_all, temporary_file};
use penstock_object_storage::{
    Bucket, BucketCredentials, BucketError, BucketOptions, ContentStore, WebIdentity,
};
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};

const ROLE: &str = "arn:aws:iam::123456789012:role/penstock";

/// Answer of the token service.
#[derive(Clone, Copy)]
enum Answer {
    /// Access key of the store, which expires after `lifetime` seconds.
    Key { lifetime: i64 },
    /// Refusal with status 403.
    Refusal,
    /// Refusal of a token that has expired, with this error code.
    Expired(&'static str),
    /// Answer with status 200 that has no key.
    Nonsense,
}

/// Starts a token service; returns its port and the queries that it received.
fn token_service(answer: Answer) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let queries = Arc::new(Mutex::new(Vec::new()));
    let received = queries.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, answer, &received);
        }
    });
    (port, queries)
}

fn serve(mut stream: TcpStream, answer: Answer, received: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut request = String::new();
    reader.read_line(&mut request).unwrap();
    let mut line = String::new();
    while line != "\r\n" {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0);
    }
    received.lock().unwrap().push(request);
    let (status, body) = match answer {
        Answer::Key { lifetime } => (200, key_response(lifetime)),
        Answer::Refusal => {
            (403, "<Error><Code>AccessDenied</Code><Message>hush</Message></Error>".to_owned())
        }
        Answer::Expired(code) => (400, format!("<Error><Code>{code}</Code><Message>hush</Message></Error>")),
        Answer::Nonsense => (200, "<html>hush</html>".to_owned()),
    };
    let head =
        format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(head.as_bytes()).unwrap();
}

fn key_response(lifetime: i64) -> String {
    let [id, secret] = ACCESS_KEY;
    let expiration = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(lifetime);
    format!(
        "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
         <AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken></SessionToken>\
         <Expiration>{expiration}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>\
         </AssumeRoleWithWebIdentityResponse>"
    )
}

fn identity_options(store: u16, service: u16, token_file: &Path) -> BucketOptions {
    let identity = WebIdentity {
        token_file: token_file.to_owned(),
        role: ROLE.to_owned(),
        endpoint: format!("http://127.0.0.1:{service}"),
    };
    let credentials = BucketCredentials::WebIdentity(identity);
    BucketOptions { credentials, ..options(&format!("http://127.0.0.1:{store}"), "identity") }
}

#[test]
fn a_token_is_exchanged_for_a_key_and_read_again_when_the_key_expires() {
    let _one = one_server();
    let store = SeaweedServer::start();
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "first-token").unwrap();

    // A key that is valid for an hour is used for all requests: the token is exchanged once.
    let (service, queries) = token_service(Answer::Key { lifetime: 3_600 });
    let bucket = Bucket::new(&identity_options(store.port, service, &token)).unwrap();
    bucket.probe().unwrap();
    bucket.create_from_file("a/object", temporary_file(&contents(100_000, 3))).unwrap();
    assert_eq!(read_all(&*bucket.open("a/object").unwrap()).unwrap(), contents(100_000, 3));
    let query = queries.lock().unwrap().concat();
    assert_eq!(query.matches("POST /").count(), 1, "{query}");
    for part in
        ["Action=AssumeRoleWithWebIdentity", "WebIdentityToken=first-token", "RoleSessionName=penstock"]
    {
        assert!(query.contains(part), "{query}");
    }
    assert!(query.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fpenstock"), "{query}");

    // An expired key is replaced by a new exchange, for which the token is read from the file again.
    let (service, queries) = token_service(Answer::Key { lifetime: -1 });
    let bucket = Bucket::new(&identity_options(store.port, service, &token)).unwrap();
    bucket.open("a/object").unwrap();
    std::fs::write(&token, "second-token").unwrap();
    bucket.open("a/object").unwrap();
    let queries = queries.lock().unwrap();
    assert!(queries.first().unwrap().contains("first-token"), "{queries:?}");
    assert!(queries.last().unwrap().contains("second-token"), "{queries:?}");
}

#[test]
fn a_failing_exchange_is_named_without_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "hush-token").unwrap();
    let missing = folder.path().join("missing");
    // The last field is true if a later retry may succeed. This includes an expired token, because another service
    // renews the token.
    let cases = [
        (Answer::Refusal, &token, "status 403, AccessDenied", false),
        (Answer::Nonsense, &token, "not of a security token service", false),
        (Answer::Refusal, &missing, "token cannot be read", true),
        (Answer::Expired("ExpiredToken"), &token, "status 400, ExpiredToken", true),
        (Answer::Expired("ExpiredTokenException"), &token, "status 400, ExpiredTokenException", true),
    ];
    for (answer, file, expected, is_unreachable) in cases {
        let (service, _) = token_service(answer);
        let bucket = Bucket::new(&identity_options(service, service, file)).unwrap();
        let error = bucket.open("a/object").unwrap_err();
        let cause = BucketError::from_io_error(&error).unwrap();
        assert_eq!(cause.is_unreachable(), is_unreachable, "{cause}");
        let cause = cause.to_string();
        assert!(cause.contains(expected), "{cause}");
        assert!(!cause.contains("hush") && !cause.contains("127.0.0.1"), "{cause}");
    }
    // A token service that cannot be reached is a temporary error.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut options = identity_options(port, port, &token);
    options.timeouts.retry_period = std::time::Duration::ZERO;
    let error = Bucket::new(&options).unwrap().open("a/object").unwrap_err();
    assert!(BucketError::from_io_error(&error).unwrap().is_unreachable(), "{error}");
}

#[test]
fn a_token_service_with_tls_is_verified_although_the_store_has_none() {
    let folder = tempfile::tempdir().unwrap();
    let (token, ca_file) = (folder.path().join("token"), folder.path().join("ca.pem"));
    std::fs::write(&token, "a token").unwrap();
    let (port, root) = tls_server();
    std::fs::write(&ca_file, root).unwrap();
    let identity = WebIdentity {
        token_file: token,
        role: ROLE.to_owned(),
        endpoint: format!("https://localhost:{port}"),
    };
    let options = BucketOptions {
        credentials: BucketCredentials::WebIdentity(identity),
        ca_file: Some(ca_file.clone()),
        ..options("http://127.0.0.1:1", "identity")
    };
    // The server of this address uses TLS, but it is not a token service.
    let error = Bucket::new(&options).unwrap().open("a/object").unwrap_err();
    assert!(error.to_string().contains("not of a security token service"), "{error}");
    let (_, other_root) = tls_server();
    std::fs::write(&ca_file, other_root).unwrap();
    let mut untrusting = options.clone();
    untrusting.timeouts.retry_period = std::time::Duration::ZERO;
    let error = Bucket::new(&untrusting).unwrap().open("a/object").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
}
