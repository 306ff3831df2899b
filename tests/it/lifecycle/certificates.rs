//! Certificates and credentials that change in their files under load.

use super::size;
use crate::harness::certificates::{TestCertificate, at, connect, try_connect};
use crate::harness::gateway::{PATIENT, Running};
use crate::harness::process::{Home, catalogue, complaint};
use crate::harness::{Bench, Provider, until, within};
use penstock::app::gateway::RunningGateway;
use penstock::config::ConfigLoader;
use penstock::config::{Diagnostics, ResolveEnv, load_text};
use penstock_simulator::{SimulatedServer, SimulatorOptions};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const CHAT: &str = "/v1/chat/completions";
/// Interval of the file checks in these tests.
const WATCH: &str = "[process]\nwatch = \"20ms\"";

/// Returns the DER of the certificate that the gateway presents.
async fn shown(address: std::net::SocketAddr, roots: &[&std::path::Path]) -> Vec<u8> {
    for root in roots {
        if let Ok(socket) = try_connect(address, root, &["http/1.1"], None).await {
            return socket.get_ref().1.peer_certificates().unwrap()[0].to_vec();
        }
    }
    panic!("no root is good for what is shown");
}

fn reloads(running: &Home) -> usize {
    fs::read_to_string(running.path().join("said")).unwrap().matches("\"reloaded\"").count()
}

/// A gateway in a process, with TLS and these files.
fn secured(
    home: &mut Home,
    provider: &Provider,
    files: &TestCertificate,
    lines: &str,
) -> std::net::SocketAddr {
    let https = home.secure(files);
    home.write(&format!("{WATCH}\n{}", catalogue(provider, lines)));
    https
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_changes_in_its_file_and_no_handshake_fails() {
    let swaps = size(200, 6);
    let (used, provider) = (TestCertificate::make(), Provider::start().await);
    let mut home = Home::new();
    let https = secured(&mut home, &provider, &used, "");
    let running = home.run().await;
    let (client, _) = home.key();
    let client = at(&client, https);
    // All certificates are under one root, so that a client trusts each of them.
    let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let root = used.root.clone();
    let asking: Vec<_> = (0..4)
        .map(|_| {
            let (client, root, stop, asked) = (client.clone(), root.clone(), stop.clone(), asked.clone());
            tokio::spawn(async move {
                let body = super::open_streams::ask("m", false).to_string();
                while !stop.load(Ordering::SeqCst) {
                    let socket = connect(https, &root, &["http/1.1"]).await;
                    let mut open = client.open_over(socket, "POST", CHAT, &[], body.as_bytes()).await;
                    assert_eq!(open.finish().await.status, 200);
                    asked.fetch_add(1, Ordering::SeqCst);
                }
            })
        })
        .collect();
    let mut seen = vec![shown(https, &[&used.root]).await];
    for _ in 0..swaps {
        used.renew();
        let next = async {
            loop {
                let now = shown(https, &[&used.root]).await;
                if Some(&now) != seen.last() {
                    return now;
                }
            }
        };
        let next = within("the next certificate", next).await;
        seen.push(next);
    }
    stop.store(true, Ordering::SeqCst);
    for client in asking {
        within("a client", client).await.unwrap();
    }
    eprintln!("{swaps} certificates, {} handshakes and requests, none failed", asked.load(Ordering::SeqCst));
    // A key that does not belong to the certificate is reported, and the gateway continues to use the previous
    // certificate.
    let good = seen.last().unwrap().clone();
    let original = fs::read(&used.key).unwrap();
    let refusals = || running.output().matches("does not belong to the certificate").count();
    let before = refusals();
    fs::copy(&TestCertificate::make().key, &used.key).unwrap();
    until("a refusal", || refusals() > before).await;
    assert_eq!(shown(https, &[&used.root]).await, good);
    let checked = home.command(&["check"]);
    assert!(!checked.status.success() && complaint(&checked).contains("does not belong"));
    fs::write(&used.key, original).unwrap();
    assert!(home.command(&["check"]).status.success());
    let metrics = home.admin().get("/metrics").await.text();
    let line =
        metrics.lines().find(|line| line.starts_with("penstock_certificate_expires_seconds ")).unwrap();
    let expires: i64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(expires > 1_700_000_000, "{line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_s_credential_and_root_change_in_their_files() {
    let (one, two) = (TestCertificate::make(), TestCertificate::make());
    let provider = Provider::start().await;
    let home = Home::new();
    let secret = home.path().join("secret");
    fs::write(&secret, "first-secret\n").unwrap();
    home.write(&format!("{WATCH}\n{}", catalogue(&provider, &format!("api_key = {{ file = {secret:?} }}"))));
    let running = home.run().await;
    let (client, _) = home.key();
    let ask = super::open_streams::ask("m", false);
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    assert_eq!(provider.last().header("authorization"), Some("Bearer first-secret"));
    fs::write(&secret, "").unwrap();
    running.wait_for_line("reload_refused").await;
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    assert_eq!(provider.last().header("authorization"), Some("Bearer first-secret"));
    fs::write(&secret, "second-secret\n").unwrap();
    until("the reload", || reloads(&home) == 1).await;
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
    assert_eq!(provider.last().header("authorization"), Some("Bearer second-secret"));
    assert!(!running.output().contains("-secret\""), "neither is told");
    drop(running);
    // Repeats the test with the file of the root certificate for a provider.
    let server = SimulatedServer::start(SimulatorOptions { tls: two.files(), ..SimulatorOptions::default() })
        .await
        .unwrap();
    let root = home.path().join("root.pem");
    fs::copy(&one.root, &root).unwrap();
    let lines = format!("ca = {root:?}\n{PATIENT}");
    let text = catalogue(&provider, &lines).replace(
        &format!("http://{}/v1", provider.address),
        &format!("https://127.0.0.1:{}/v1", server.address.port()),
    );
    home.write(&format!("{WATCH}\n{text}"));
    let _running = home.run().await;
    assert_eq!(client.post(CHAT, &ask).await.status, 503, "the wrong root");
    fs::copy(&two.root, &root).unwrap();
    until("the reload", || reloads(&home) == 2).await;
    assert_eq!(client.post(CHAT, &ask).await.status, 200);
}

async fn with_tls(provider: &Provider, certified: &TestCertificate, more: &str) -> Running {
    let https = certified.https().replace(" }", &format!(", {more} }}"));
    Bench::new().listen(&https).provider("a", provider).start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_show_certificates_where_they_have_to() {
    let (ours, theirs, strangers) =
        (TestCertificate::make(), TestCertificate::make(), TestCertificate::make());
    let provider = Provider::start().await;
    for (mode, bare) in [("required", false), ("optional", true)] {
        let more = format!("client_ca = {:?}, client_certificate = \"{mode}\"", theirs.root);
        let running = with_tls(&provider, &ours, &more).await;
        let (client, address) = (
            at(&running.client, running.gateway.https_address.unwrap()),
            running.gateway.https_address.unwrap(),
        );
        let body = running.ask().to_string();
        for (shown, good) in [(Some(&theirs), true), (None, bare), (Some(&strangers), false)] {
            let served = match try_connect(address, &ours.root, &["http/1.1"], shown).await {
                Ok(socket) => client.try_post_over(socket, CHAT, body.as_bytes()).await == Some(200),
                Err(_) => false,
            };
            assert_eq!(served, good, "{mode}, {}", shown.is_some());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_is_shown_our_certificate_where_it_wants_one() {
    let (server, ours) = (TestCertificate::make(), TestCertificate::make());
    let asks = crate::harness::certificates::StrictTlsProvider::start(&server, &ours).await;
    let base = format!("https://127.0.0.1:{}/v1", asks.address.port());
    let trust = format!("{PATIENT}\nca = {:?}", server.root);
    for http in ["h1", "auto"] {
        let shows = format!(
            "{trust}\nhttp = \"{http}\"\nclient_certificate = {:?}\nclient_key = {:?}",
            ours.chain, ours.key
        );
        let running = Bench::new().provider_at("a", &base, &shows, "").start().await;
        assert_eq!(running.chat().await.status, 200, "{http}");
    }
    let bare = Bench::new().provider_at("a", &base, &trust, "").start().await;
    assert_eq!(bare.chat().await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_older_than_the_least_version_is_spoken() {
    let (certified, provider) = (TestCertificate::make(), Provider::start().await);
    for (least, old) in [("1.2", true), ("1.3", false)] {
        let running = with_tls(&provider, &certified, &format!("min_tls = \"{least}\"")).await;
        let address = running.gateway.https_address.unwrap();
        let spoken = crate::harness::certificates::accepts_tls12(address, &certified.root).await;
        assert_eq!(spoken, old, "{least} towards clients");
        assert!(try_connect(address, &certified.root, &["h2"], None).await.is_ok());
    }
    let old = crate::harness::certificates::StrictTlsProvider::old(&certified).await;
    for (least, status) in [("1.2", 200), ("1.3", 503)] {
        for http in ["h1", "auto"] {
            let base = format!("https://127.0.0.1:{}/v1", old.address.port());
            let lines =
                format!("{PATIENT}\nca = {:?}\nhttp = \"{http}\"\nmin_tls = \"{least}\"", certified.root);
            let running = Bench::new().provider_at("a", &base, &lines, "").start().await;
            let before = old.asked();
            assert_eq!(running.chat().await.status, status, "{least} towards providers over {http}");
            assert_eq!(old.asked() > before, status == 200, "nothing is said on what is too old");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_of_another_certificate_is_one_sentence_at_the_start() {
    let (one, two, provider) = (TestCertificate::make(), TestCertificate::make(), Provider::start().await);
    let folder = tempfile::tempdir().unwrap();
    let text = Bench::new().listen(&one.https()).provider("a", &provider).toml(folder.path());
    let settings = load_text("t.toml", &text, ResolveEnv { env: &|_| None }).unwrap().settings;
    // The key changes after the configuration was checked.
    fs::copy(&two.key, &one.key).unwrap();
    let source: ConfigLoader = Arc::new(|| Err(Diagnostics::default()));
    let Err(why) = RunningGateway::start(settings, source).await else { panic!("it started") };
    assert!(why.starts_with("listen.https: ") && why.contains("does not belong to"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expired_certificate_is_reported_and_still_used() {
    let (over, own, provider) =
        (TestCertificate::make().expired(), TestCertificate::make().expired(), Provider::start().await);
    let mut home = Home::new();
    let own = format!("client_certificate = {:?}\nclient_key = {:?}", own.chain, own.key);
    secured(&mut home, &provider, &over, &own);
    let checked = home.command(&["check"]);
    let stderr = complaint(&checked);
    assert!(checked.status.success(), "{stderr}");
    for subject in ["listen.https: The certificate", "client_certificate: The certificate"] {
        assert!(stderr.contains(subject), "{stderr}");
    }
    assert_eq!(stderr.matches("expired on 2021-01-01.").count(), 2, "{stderr}");
    let early = TestCertificate::make().valid_in_years(2990..2991);
    fs::copy(&early.key, &over.key).unwrap();
    fs::copy(&early.chain, &over.chain).unwrap();
    let stderr = complaint(&home.command(&["check"]));
    assert!(stderr.contains("is not valid before 2990-01-01.") && stderr.contains("expired on"), "{stderr}");
    let running = home.run().await;
    until("both lines", || running.output().matches("\"certificate_expired\"").count() == 2).await;
}
