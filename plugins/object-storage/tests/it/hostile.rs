//! Servers that stall, fail, or ignore conditions; and TLS.

use crate::seaweedfs::options;
use crate::server::{ACCEPTED, BadServer, Behaviour, CONDITION, read_request};
use crate::{contents, read, temporary_file};
use bytes::Bytes;
use penstock_object_storage::{
    Bucket, BucketError, BucketOptions, BucketTimeouts, ContentStore, ProbeError, UPLOAD_PART_BYTES,
};
use std::io::{BufReader, ErrorKind, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned, crypto};

const LIMIT: Duration = Duration::from_millis(300);

fn quick_options(port: u16) -> BucketOptions {
    let timeouts =
        BucketTimeouts { connect: LIMIT, request: LIMIT, upload: LIMIT, retry_period: Duration::ZERO };
    BucketOptions { timeouts, ..options(&format!("http://127.0.0.1:{port}"), "") }
}

#[test]
fn a_store_that_ignores_conditions_is_refused() {
    let server = BadServer::start(Behaviour::IgnoresConditions);
    let refused = Bucket::new(&quick_options(server.port)).unwrap().probe().unwrap_err();
    let ProbeError::Unsuitable(why) = refused else { panic!("{refused}") };
    assert!(why.contains("If-None-Match") && why.ends_with('.'), "{why}");
}

#[test]
fn a_store_that_stalls_is_unreachable_in_time() {
    for behaviour in [Behaviour::Stalls, Behaviour::StallsInBody, Behaviour::Endless] {
        let server = BadServer::start(behaviour);
        let bucket = Bucket::new(&quick_options(server.port)).unwrap();
        let start = Instant::now();
        let error = bucket.open("a").unwrap_err();
        assert!(BucketError::from_io_error(&error).unwrap().is_unreachable(), "{behaviour:?}: {error}");
        assert!(start.elapsed() < 10 * LIMIT, "{behaviour:?}");
        let start = Instant::now();
        let error = bucket.create_from_file("b", temporary_file(&contents(1_000, 1))).unwrap_err();
        assert!(BucketError::from_io_error(&error).unwrap().is_unreachable(), "{behaviour:?}: {error}");
        assert!(start.elapsed() < LIMIT, "no second wait within a second");
    }
}

#[test]
fn a_failing_store_is_unreachable_and_a_refusing_one_says_why() {
    let cases = [
        (Behaviour::Fails(500), true),
        (Behaviour::Fails(503), true),
        (Behaviour::Fails(429), true),
        (Behaviour::EndsEarly, true),
        (Behaviour::Garbage, true),
        (Behaviour::Fails(400), false),
        (Behaviour::Fails(403), false),
        (Behaviour::Fails(401), false),
        (Behaviour::Fails(301), false),
        (Behaviour::Fails(501), false),
        (Behaviour::LacksBucket, false),
    ];
    for (behaviour, is_unreachable) in cases {
        let server = BadServer::start(behaviour);
        let bucket = Bucket::new(&quick_options(server.port)).unwrap();
        let error = bucket.open("a").unwrap_err();
        let cause = BucketError::from_io_error(&error).unwrap();
        assert_eq!(cause.is_unreachable(), is_unreachable, "{behaviour:?}: {cause:?}");
        assert!(!error.to_string().contains("secret") && !error.to_string().contains("127.0.0.1"), "{error}");
        let probed = Bucket::new(&quick_options(server.port)).unwrap().probe().unwrap_err();
        assert!(probed.to_string().ends_with('.') && !probed.to_string().contains("secret"), "{probed}");
    }
}

#[test]
fn a_response_that_is_shorter_than_its_range_is_another_object_only_without_a_tag() {
    for has_tag in [true, false] {
        let server = BadServer::start(Behaviour::ShortRanges { has_tag });
        let object = Bucket::new(&quick_options(server.port)).unwrap().open("a").unwrap();
        assert_eq!(object.length().unwrap(), 100_000);
        let error = object.read_exact_at(&mut [0; 1_000], 0).unwrap_err();
        let error = BucketError::from_io_error(&error).unwrap();
        assert_eq!(error.is_unreachable(), has_tag, "{error}");
        assert_eq!(*error == BucketError::Replaced, !has_tag, "{error}");
    }
}

#[test]
fn a_conflict_counts_as_an_object_only_if_there_is_one() {
    for (exists, size) in [
        (false, 10),
        (true, 10),
        (false, UPLOAD_PART_BYTES as usize + 1),
        (true, UPLOAD_PART_BYTES as usize + 1),
    ] {
        let server = BadServer::start(Behaviour::Conflicts { exists });
        let bucket = Bucket::new(&quick_options(server.port)).unwrap();
        let refused = bucket.create_from_file("a", temporary_file(&contents(size, 1))).unwrap_err();
        let expected = if exists { ErrorKind::AlreadyExists } else { ErrorKind::HostUnreachable };
        assert_eq!(refused.kind(), expected, "{size}");
        let lines = server.lines.lock().unwrap().clone();
        let aborts = lines.iter().filter(|line| line.starts_with("DELETE ")).count();
        assert_eq!(aborts, usize::from(size > 10), "{lines:?}");
        let refused = bucket.replace_from_file("a", temporary_file(&contents(size, 1))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::HostUnreachable, "{size}");
        assert!(bucket.is_available(), "the store answers");
    }
}

#[test]
fn a_call_reads_a_limited_number_of_objects_of_other_programs() {
    let server = BadServer::start(Behaviour::ListsOthers);
    let page = Bucket::new(&quick_options(server.port)).unwrap().list("files", None).unwrap();
    assert_eq!(page.objects.iter().map(|object| &*object.name).collect::<Vec<_>>(), ["files/z"]);
    assert!(!page.more);
    let lines = server.lines.lock().unwrap().clone();
    let starts = lines.iter().filter(|line| !line.contains("continuation-token=")).count();
    assert_eq!((starts, lines.len()), (2, 12), "{lines:?}");
}

#[test]
fn a_failed_read_is_sent_again_and_a_closed_port_is_unreachable() {
    let server = BadServer::start(Behaviour::Fails(500));
    let mut again = quick_options(server.port);
    again.timeouts.retry_period = Duration::from_secs(30);
    assert!(Bucket::new(&again).unwrap().open("a").is_err());
    assert_eq!(server.requests.load(Ordering::SeqCst), 4, "three times more");
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = Bucket::new(&quick_options(port)).unwrap().probe().unwrap_err();
    assert!(matches!(refused, ProbeError::Unreachable(_)), "{refused}");
    assert!(!refused.to_string().contains(&port.to_string()), "{refused}");
}

#[test]
fn a_store_that_does_not_list_uploads_refuses_and_one_that_fails_is_unreachable() {
    for (status, is_unreachable) in [(501, false), (405, false), (403, false), (500, true), (503, true)] {
        let server = BadServer::start(Behaviour::Fails(status));
        let bucket = Bucket::new(&quick_options(server.port)).unwrap();
        let error = bucket.list_incomplete_uploads("files").unwrap_err();
        assert_eq!(BucketError::from_io_error(&error).unwrap().is_unreachable(), is_unreachable, "{status}");
        assert_eq!(error.kind() == ErrorKind::PermissionDenied, !is_unreachable, "{status}: {error}");
    }
}

#[test]
fn the_age_of_an_object_is_by_the_clock_of_the_store() {
    let age = |has_date| {
        let server = BadServer::start(Behaviour::Lists { has_date });
        let page = Bucket::new(&quick_options(server.port)).unwrap().list("files", None).unwrap();
        assert_eq!((page.objects.len(), page.objects[0].length), (1, 7));
        page.objects[0].age
    };
    let dated = age(true);
    assert!(dated >= Duration::from_secs(600) && dated < Duration::from_secs(660), "{dated:?}");
    assert_eq!(age(false), Duration::ZERO, "nothing is old if the store does not tell its time");
}

#[test]
fn a_store_without_bulk_deletion_is_asked_once_and_then_for_each_object() {
    let server = BadServer::start(Behaviour::LacksBulkDeletion);
    let bucket = Bucket::new(&quick_options(server.port)).unwrap();
    let names = |numbers: std::ops::Range<usize>| numbers.map(|n| format!("files/{n}")).collect::<Vec<_>>();
    bucket.delete_objects(&names(0..3)).unwrap();
    bucket.delete_objects(&names(3..5)).unwrap();
    let lines = server.lines.lock().unwrap().clone();
    let count = |method: &str| lines.iter().filter(|line| line.starts_with(method)).count();
    assert_eq!((count("POST "), count("DELETE ")), (1, 5), "{lines:?}");
    let unnamed = bucket.delete_objects(&["../a".to_owned(), "files/5".to_owned()]).unwrap_err();
    assert_eq!(unnamed.kind(), ErrorKind::InvalidInput);
    assert!(server.lines.lock().unwrap().last().unwrap().contains("files/5"), "the others are deleted");
}

#[test]
fn an_invalid_name_does_not_keep_the_other_objects_from_deletion() {
    let server = BadServer::start(Behaviour::DeletesInBulk);
    let bucket = Bucket::new(&quick_options(server.port)).unwrap();
    let mut names: Vec<String> = (0..20).map(|number| format!("files/{number}")).collect();
    names.insert(7, "files/of another program".to_owned());
    assert_eq!(bucket.delete_objects(&names).unwrap_err().kind(), ErrorKind::InvalidInput);
    let posts = || server.lines.lock().unwrap().iter().filter(|line| line.starts_with("POST ")).count();
    assert_eq!(posts(), 1);
    names.remove(7);
    bucket.delete_objects(&names).unwrap();
    assert_eq!(posts(), 2);
}

#[test]
fn an_empty_object_can_be_opened() {
    let server = BadServer::start(Behaviour::HasEmptyObject);
    let object = Bucket::new(&quick_options(server.port)).unwrap().open("a").unwrap();
    assert_eq!(object.length().unwrap(), 0);
    assert_eq!(read(&*object, 0, 0).unwrap().len(), 0);
    assert_eq!(read(&*object, 0, 1).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn an_upload_in_parts_replaces_no_object_that_was_created_meanwhile() {
    let bytes = contents(UPLOAD_PART_BYTES as usize + 1, 1);
    for (is_overtaken, knows_condition) in [(false, true), (true, true), (false, false)] {
        let server = BadServer::start(Behaviour::TakesParts { is_overtaken, knows_condition });
        let bucket = Bucket::new(&quick_options(server.port)).unwrap();
        let created = bucket.create_from_file("a", temporary_file(&bytes));
        assert_eq!(
            created.map_err(|error| error.kind()).err(),
            is_overtaken.then_some(ErrorKind::AlreadyExists)
        );
        let lines = server.lines.lock().unwrap().clone();
        let completions: Vec<bool> = lines
            .iter()
            .filter(|line| line.starts_with("POST ") && line.contains("uploadId="))
            .map(|line| line.ends_with(CONDITION))
            .collect();
        let expected: &[bool] = if knows_condition { &[true] } else { &[true, false] };
        assert_eq!(completions, expected, "{lines:?}");
        let aborts = lines.iter().filter(|line| line.starts_with("DELETE ")).count();
        assert_eq!(aborts, usize::from(is_overtaken), "the parts of an upload without an object take space");
        bucket.replace_from_file("a", temporary_file(&bytes)).unwrap();
        let last = server.lines.lock().unwrap().last().unwrap().clone();
        assert!(last.contains("uploadId=") && !last.ends_with(CONDITION), "{last}");
    }
}

#[test]
fn a_certificate_has_to_be_of_the_given_root() {
    let folder = tempfile::tempdir().unwrap();
    let (port, root) = tls_server();
    let ca_file = folder.path().join("ca.pem");
    std::fs::write(&ca_file, root).unwrap();
    let secure = BucketOptions { endpoint: format!("https://localhost:{port}"), ..quick_options(port) };
    let trusted = BucketOptions { ca_file: Some(ca_file.clone()), ..secure.clone() };
    trusted_answers(&trusted);
    let by_address = BucketOptions { endpoint: format!("https://127.0.0.1:{port}"), ..trusted.clone() };
    let error = Bucket::new(&by_address).unwrap().open("a").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    let (_, other_root) = tls_server();
    std::fs::write(&ca_file, other_root).unwrap();
    let error = Bucket::new(&trusted).unwrap().open("a").unwrap_err();
    assert!(error.to_string().contains("certificate"), "{error}");
    std::fs::write(&ca_file, "no certificate").unwrap();
    assert!(Bucket::new(&trusted).unwrap_err().to_string().contains("ca.pem"));
    let device = BucketOptions { ca_file: Some("/dev/zero".into()), ..trusted };
    assert!(Bucket::new(&device).unwrap_err().to_string().contains("must be a regular file"));
}

fn trusted_answers(options: &BucketOptions) {
    let bucket = Bucket::new(options).unwrap();
    bucket.create_from_bytes("a", Bytes::from_static(b"x")).unwrap();
    let Err(ProbeError::Unsuitable(_)) = bucket.probe() else { panic!("the server answers through TLS") };
    assert!(bucket.open("a").is_ok_and(|object| read(&*object, 0, 1).is_err()) || bucket.is_available());
}

/// Starts a server with a certificate for `localhost`; returns its port and root certificate.
pub fn tls_server() -> (u16, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let authority = authority.self_signed(&authority_key).unwrap();
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority, &authority_key).unwrap();
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .unwrap();
    let (config, listener) = (Arc::new(config), TcpListener::bind("127.0.0.1:0").unwrap());
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).unwrap();
            std::thread::spawn(move || {
                let mut stream = BufReader::new(StreamOwned::new(connection, stream));
                while read_request(&mut stream).is_some() {
                    if stream.get_mut().write_all(ACCEPTED).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (port, authority.pem())
}
