//! Requests on broken reused connections: the retries that are allowed.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::h2_provider::{H2FrameProvider, INTERNAL_ERROR, REFUSED_STREAM, StreamAction};
use crate::harness::script::{Script, ScriptStep, cut, held, plain};
use crate::harness::{Bench, Provider};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Setting that allows a single attempt, so only retries that do not count as attempts are possible.
const ONCE: &str = "[routing]\nattempts = 1";
/// Number of idle connections in the pool.
const IDLE: usize = 6;

/// Starts a gateway in front of a provider with HTTP/2.
async fn before(provider: &H2FrameProvider) -> Running {
    let base = format!("http://{}/v1", provider.address);
    let lines = format!("{PATIENT}\nhttp = \"h2\"");
    Bench::new().settings(ONCE).provider_at("a", &base, &lines, "").start().await
}

/// Sends two requests over HTTP/2, of which the first is answered. Returns the status of the second one, and the
/// number of its provider calls.
async fn second(deeds: &[StreamAction]) -> (u16, usize) {
    let provider = H2FrameProvider::start(&[&[StreamAction::Answer], deeds].concat()).await;
    let running = before(&provider).await;
    assert_eq!(running.chat().await.status, 200);
    let answer = running.chat().await;
    (answer.status, provider.asked() - 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_possibly_processed_stream_is_not_retried() {
    assert_eq!(second(&[StreamAction::Reset(INTERNAL_ERROR)]).await, (503, 1));
    assert_eq!(second(&[StreamAction::GoAwayProcessed]).await, (503, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_nothing_was_done_for_is_asked_for_once_more() {
    assert_eq!(second(&[StreamAction::Reset(REFUSED_STREAM), StreamAction::Answer]).await, (200, 2));
    assert_eq!(second(&[StreamAction::GoAwayUnprocessed, StreamAction::Answer]).await, (200, 2));
    assert_eq!(second(&[StreamAction::Reset(REFUSED_STREAM)]).await, (503, 2));
}

/// Returns the same over HTTP/1.1.
async fn second_plain(script: Script) -> (u16, usize) {
    let provider = Provider::start().await;
    provider.then(plain("Hello")).then(script);
    let running = Bench::new().settings(ONCE).provider("a", &provider).start().await;
    assert_eq!(running.chat().await.status, 200);
    let answer = running.chat().await;
    (answer.status, provider.calls() - 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_connection_is_replaced_only_if_it_breaks_at_once() {
    assert_eq!(second_plain(cut()).await, (200, 2));
    assert_eq!(
        second_plain(vec![ScriptStep::Pause(Duration::from_millis(1_500)), ScriptStep::Cut]).await,
        (503, 1)
    );
    assert_eq!(second_plain(vec![ScriptStep::Raw(b"HTTP/1.1 2".to_vec()), ScriptStep::Cut]).await, (503, 1));
}

/// Tests that a provider which reads each request and then closes its connection gets the request twice at most, although
/// the pool has several idle connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_is_sent_twice_at_most_however_many_connections_are_idle() {
    let provider = Provider::start().await;
    let running = Arc::new(Bench::new().settings(ONCE).provider("a", &provider).start().await);
    let releases: Vec<Arc<Notify>> = (0..IDLE).map(|_| Arc::default()).collect();
    for release in &releases {
        provider.then(held(release, "Hello"));
    }
    let mut chats = JoinSet::new();
    for _ in 0..IDLE {
        let running = running.clone();
        chats.spawn(async move { running.chat().await.status });
    }
    provider.until_calls(IDLE).await;
    releases.iter().for_each(|release| release.notify_one());
    assert!(chats.join_all().await.into_iter().all(|status| status == 200));
    for _ in 0..IDLE {
        provider.then(cut());
    }
    assert_eq!(running.chat().await.status, 503);
    let sent = provider.calls() - IDLE;
    assert!(sent <= 2, "{sent}");
}
