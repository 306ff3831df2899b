//! Tests of the admin listener over a pipe, with a store in a temporary folder.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use crate::config::{Diagnostics, ResolveEnv, load_text};
use sending::{MAX_CONNECTIONS, MAX_IN_FLIGHT_REQUESTS};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

/// Listener with the folder of its store.
struct TestListener {
    listener: Arc<AdminListener>,
    stop: watch::Sender<bool>,
    _folder: tempfile::TempDir,
}

impl TestListener {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "[storage]\npath = {:?}\nballast = \"0B\"\n[log]\nlevel = \"error\"\n[files]\nkeep_free = \"0B\"\n",
            folder.path().join("storage")
        );
        let settings = load_text("test.toml", &text, ResolveEnv { env: &|_| None }).unwrap().settings;
        let app = tokio::task::spawn_blocking(move || AppState::build(settings)).await.unwrap().unwrap();
        let api = AdminApi {
            app,
            source: Arc::new(|| Err(Diagnostics::default())),
            store_permit_group: StorePermitGroup::Admin,
        };
        let listener = Arc::new(AdminListener::new(api));
        Self { listener, stop: watch::channel(false).0, _folder: folder }
    }

    fn app(&self) -> &Arc<AppState> {
        &self.listener.api.app
    }

    /// Serves a connection whose buffers hold this number of bytes; returns its task and the client's end.
    fn connect(&self, buffered: usize) -> (JoinHandle<()>, DuplexStream) {
        let (server_end, client) = duplex(buffered);
        let (listener, stop) = (self.listener.clone(), self.stop.subscribe());
        let served = tokio::spawn(async move {
            listener.process_new_http(ServerSession::new_http1(Box::new(server_end)), &stop).await;
        });
        (served, client)
    }

    /// Returns the answer to a request.
    async fn exchange(&self, request: &str) -> String {
        let (_connection, mut client) = self.connect(1 << 20);
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    }

    fn requests_in_flight(&self) -> usize {
        self.app().admin_requests.in_flight()
    }
}

async fn send_get(client: &mut DuplexStream, path: &str) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn head_gets_the_head_of_get_and_counts_as_no_failed_attempt() {
    let served = TestListener::start().await;
    let token = served.app().stores.admin_token.clone();
    let ask = async |method: &str, path: &str, token: &str| {
        let authorization = format!("Authorization: Bearer {token}\r\n");
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}\r\n");
        let answer = served.exchange(&head).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_ascii_lowercase().contains("\r\nallow: get, head\r\n"), body.to_owned())
    };
    for _ in 0..5 {
        for path in ["/metrics", "/healthz", "/readyz", "/status", "/admin/openapi.json"] {
            let (status, ..) = ask("GET", path, "").await;
            assert_eq!(ask("HEAD", path, "").await, (status, false, String::new()), "{path}");
            for method in ["POST", "DELETE"] {
                let (status, names_get, _) = ask(method, path, "").await;
                assert_eq!((status, names_get), (405, true), "{method} {path}");
            }
        }
    }
    for route in routes::all_routes().filter(|route| *route.method == Method::GET) {
        let path = route.path.replace("{id}", "nobody");
        let (status, ..) = ask("GET", &path, &token).await;
        assert_eq!(ask("HEAD", &path, &token).await, (status, false, String::new()), "{path}");
    }
    let (status, ..) = ask("HEAD", "/admin/keys", "").await;
    assert_eq!(status, 401, "the attempts before did not count");
    for path in ["/console/sign-in", "/console/nothing"] {
        let (status, ..) = ask("GET", path, "").await;
        assert_eq!(ask("HEAD", path, "").await, (status, false, String::new()), "{path}");
    }
}

#[tokio::test]
async fn a_head_that_is_malformed_or_too_large_is_answered() {
    let served = TestListener::start().await;
    let (target, long) = ("a".repeat(9_000), "a".repeat(40_000));
    let fields = "x: y\r\n".repeat(200);
    for (head, status) in [
        ("GET /console/?x=<a> HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "400"),
        ("garbage\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nbad line\r\n\r\n".to_owned(), "400"),
        (format!("GET /console/sign-in?{target} HTTP/1.1\r\nHost: localhost\r\n\r\n"), "414"),
        (format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nx: {long}\r\n\r\n"), "431"),
        (format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"), "431"),
    ] {
        let answer = served.exchange(&head).await;
        let start: String = head.chars().take(40).collect();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{start}: {answer}");
    }
}

#[tokio::test]
async fn a_query_parameter_with_fixed_values_is_refused_otherwise() {
    let served = TestListener::start().await;
    let token = served.app().stores.admin_token.clone();
    let document = openapi::document();
    let mut checked = 0;
    for route in routes::all_routes().filter(|route| *route.method == Method::GET) {
        let operation = &document["paths"][route.path]["get"];
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let (name, Some(choices)) = (&parameter["name"], parameter["schema"]["enum"].as_array()) else {
                continue;
            };
            let target = format!("{}?{}=nothing", route.path, name.as_str().unwrap());
            let head =
                format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
            let answer = served.exchange(&head).await;
            assert!(answer.starts_with("HTTP/1.1 400 "), "{target}: {answer}");
            if route.name != "explainRouting" {
                let named = choices.iter().all(|choice| answer.contains(choice.as_str().unwrap()));
                assert!(named, "{target}: {answer}");
            }
            checked += 1;
        }
    }
    assert!(checked > 4, "{checked} parameters");
    let head =
        format!("GET /admin/routing HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    let answer = served.exchange(&head).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("expected the id of a model"), "{answer}");
}

#[tokio::test]
async fn answers_have_the_type_and_the_states_of_the_document() {
    let served = TestListener::start().await;
    let token = served.app().stores.admin_token.clone();
    let ask = async |method: &str, path: &str, body: &str| {
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n");
        served.exchange(&format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await
    };
    for route in
        routes::all_routes().filter(|route| *route.method == Method::GET && !route.path.contains('{'))
    {
        let answer = ask("GET", route.path, "").await;
        let kind = format!("content-type: {}\r\n", route.media_type);
        assert!(!answer.contains(" 200 OK") || answer.to_ascii_lowercase().contains(&kind), "{answer}");
    }
    let document = openapi::document();
    let states = &document["components"]["schemas"]["User"]["properties"]["state"]["enum"];
    let invited = ask("POST", "/admin/users", "{\"name\":\"u1\"}").await;
    assert!(
        invited.contains("\"invited\"") && states.as_array().unwrap().contains(&json!("invited")),
        "{invited}"
    );
    for (disabled, state) in [
        ("true", "disabled"),
        ("false", "invitation expired"),
        ("\"true\"", "disabled"),
        ("\"false\"", "invitation expired"),
    ] {
        let answer = ask("PATCH", "/admin/users/u1", &format!("{{\"disabled\":{disabled}}}")).await;
        let body: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        assert_eq!(body["state"], state, "{answer}");
        assert!(states.as_array().unwrap().contains(&body["state"]));
    }
    for wrong in ["1", "\"yes\"", "[]"] {
        let answer = ask("PATCH", "/admin/users/u1", &format!("{{\"disabled\":{wrong}}}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("true or false"), "{answer}");
    }
}

#[tokio::test]
async fn reads_do_not_wait_for_a_change_of_keys() {
    let served = TestListener::start().await;
    let app = served.app().clone();
    let (locked, is_locked) = tokio::sync::oneshot::channel();
    let (unlock, unlocked) = std::sync::mpsc::channel::<()>();
    let holder = app.clone();
    let holding = tokio::task::spawn_blocking(move || {
        let _guard = holder.key_write_lock.lock();
        locked.send(()).unwrap();
        unlocked.recv().unwrap();
    });
    is_locked.await.unwrap();
    let changed = app.clone();
    let change = tokio::spawn(async move { keys::create_key(&changed, &json!({ "name": "waits" })).await });
    for route in routes::all_routes().filter(|route| *route.method == Method::GET) {
        let RouteHandler::Store(work) = route.handler else { continue };
        run_store_request(&app, StorePermitGroup::Admin, work, AdminRequest::default()).await.ok();
    }
    assert!(!change.is_finished(), "changes of keys wait for each other");
    unlock.send(()).unwrap();
    holding.await.unwrap();
    change.await.unwrap().unwrap();
}

#[test]
fn requests_that_change_keys_or_accounts_run_one_at_a_time() {
    for route in routes::all_routes() {
        let is_change = *route.method != Method::GET
            && ["/admin/keys", "/admin/accounts"].iter().any(|path| route.path.starts_with(path));
        assert_eq!(matches!(route.handler, RouteHandler::KeyChange(_)), is_change, "{}", route.name);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_delays_no_upgrade_and_is_cut() {
    let served = TestListener::start().await;
    for path in ["/metrics", "/console/sign-in", "/admin/nothing"] {
        let (connection, mut client) = served.connect(64);
        send_get(&mut client, path).await;
        let mut first = [0; 12];
        client.read_exact(&mut first).await.unwrap();
        assert!(first.starts_with(b"HTTP/1.1 "), "{path}");
        assert_eq!(served.requests_in_flight(), 0, "{path}");
        connection.await.unwrap();
    }
    assert_eq!(served.listener.permits.free_connections(), MAX_CONNECTIONS);
}

#[tokio::test(start_paused = true)]
async fn connections_are_bounded() {
    let served = TestListener::start().await;
    let mut open: Vec<_> = (0..MAX_CONNECTIONS).map(|_| served.connect(64)).collect();
    // The clients read only the first byte of their answers.
    for (_, client) in &mut open {
        send_get(client, "/metrics").await;
        client.read_exact(&mut [0]).await.unwrap();
    }
    let (connection, mut client) = served.connect(64);
    connection.await.unwrap();
    assert_eq!(client.read(&mut [0]).await.unwrap(), 0, "the connection is closed");
    drop(open);
    let (_connection, mut client) = served.connect(1 << 20);
    send_get(&mut client, "/healthz").await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("ok\n"), "{answer}");
}

#[tokio::test]
async fn guesses_of_an_invitation_are_limited() {
    let served = TestListener::start().await;
    let mut statuses = Vec::new();
    for number in 0..6 {
        let (_connection, mut client) = served.connect(1 << 20);
        send_get(&mut client, &format!("/console/invitation/{number}")).await;
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        statuses.push(answer.split(' ').nth(1).unwrap().to_owned());
    }
    assert_eq!(statuses, ["404", "404", "404", "404", "404", "429"]);
}

#[tokio::test]
async fn a_gateway_without_offers_reports_no_unhealthy_provider() {
    let served = TestListener::start().await;
    served.app().set_serving();
    let (_connection, mut client) = served.connect(1 << 20);
    send_get(&mut client, "/readyz").await;
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("\r\n\r\nready\n"), "{answer}");
}

#[tokio::test]
async fn few_requests_read_at_a_time_and_none_delays_a_change_of_keys() {
    let served = TestListener::start().await;
    let app = served.app().clone();
    let mut permits = Vec::new();
    let acquire = || app.admin_requests.acquire_store_permit(StorePermitGroup::Admin);
    while let Ok(permit) = timeout(std::time::Duration::ZERO, acquire()).await {
        permits.push(permit);
        assert!(permits.len() < MAX_IN_FLIGHT_REQUESTS);
    }
    let (reader, list) = (app.clone(), routes::find(&Method::GET, "/admin/keys").unwrap().0);
    let RouteHandler::Store(list) = list.handler else { unreachable!("a read") };
    let read = tokio::spawn(async move {
        run_store_request(&reader, StorePermitGroup::Admin, list, AdminRequest::default()).await
    });
    keys::create_key(&app, &json!({ "name": "at once" })).await.unwrap();
    assert!(!read.is_finished());
    let list_of_account = run_store_request(&app, StorePermitGroup::Dashboard, list, AdminRequest::default());
    list_of_account.await.unwrap();
    drop(permits);
    read.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_read_that_waits_for_long_is_refused() {
    let served = TestListener::start().await;
    let app = served.app().clone();
    let mut permits = Vec::new();
    let acquire = || app.admin_requests.acquire_store_permit(StorePermitGroup::Admin);
    while let Ok(Ok(permit)) = timeout(std::time::Duration::ZERO, acquire()).await {
        permits.push(permit);
    }
    let list = routes::find(&Method::GET, "/admin/keys").unwrap().0;
    let RouteHandler::Store(list) = list.handler else { unreachable!("a read") };
    let refused = run_store_request(&app, StorePermitGroup::Admin, list, AdminRequest::default()).await;
    assert_eq!(refused.unwrap_err().code, ErrorCode::Overloaded);
}

#[tokio::test]
async fn a_probe_is_answered_while_silent_connections_fill_the_listener() {
    let served = TestListener::start().await;
    served.app().set_serving();
    let mut silent: Vec<_> = (0..MAX_CONNECTIONS).map(|_| served.connect(64)).collect();
    // Part of a head is as good as nothing.
    for (_, client) in &mut silent {
        client.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    }
    while served.listener.permits.free_connections() > 0 {
        tokio::task::yield_now().await;
    }
    for path in PROBES {
        let asked = std::time::Instant::now();
        let answer = served.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        assert!(asked.elapsed() < std::time::Duration::from_secs(1), "{path}: {:?}", asked.elapsed());
        // The next probe finds the listener full again.
        silent.push(served.connect(64));
        while served.listener.permits.free_connections() > 0 {
            tokio::task::yield_now().await;
        }
    }
    let (oldest, _) = silent.remove(0);
    oldest.await.unwrap();
    assert!(!silent.last().unwrap().0.is_finished(), "the youngest is still open");
}

#[tokio::test]
async fn silent_connections_and_queued_reads_lock_out_neither_probes_nor_revocations() {
    let served = TestListener::start().await;
    let silent: Vec<_> = (0..MAX_IN_FLIGHT_REQUESTS).map(|_| served.connect(64)).collect();
    assert!(
        served.exchange("GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").await.starts_with("HTTP/1.1 200 ")
    );
    let admitted = || served.listener.permits.admit_request(false);
    let reads: Vec<_> = std::iter::repeat_with(admitted).map_while(|permit| permit).collect();
    assert_eq!(reads.len(), MAX_IN_FLIGHT_REQUESTS);
    for path in PROBES {
        let answer = served.exchange(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).await;
        assert!(!answer.contains("in flight; try again"), "{path}: {answer}");
    }
    let token = &served.app().stores.admin_token;
    for (request, status) in [
        ("GET /status", "503"),
        ("GET /console/sign-in", "503"),
        ("GET /admin/keys", "503"),
        ("POST /admin/keys/0123456789abcdef/revoke", "404"),
    ] {
        let head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        let answer = served.exchange(&head).await;
        assert_eq!(answer.split(' ').nth(1), Some(status), "{request}: {answer}");
    }
    let revocation = "POST /admin/keys/0123456789abcdef/revoke HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = served.exchange(revocation).await;
    assert_eq!(answer.split(' ').nth(1), Some("503"), "without the token: {answer}");
    drop((silent, reads));
}
