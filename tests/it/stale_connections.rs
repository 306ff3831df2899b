//! Requests on broken reused connections: the retries that are allowed.

use crate::harness::gateway::{PATIENT, Running};
use crate::harness::h2_provider::{H2FrameProvider, INTERNAL_ERROR, REFUSED_STREAM, StreamAction};
use crate::harness::script::{Script, ScriptStep, cut, plain};
use crate::harness::{Bench, Provider};
use std::time::Duration;

/// Setting that allows a single attempt, so only retries that do not count as attempts are possible.
const ONCE: &str = "[routing]\nattempts = 1";

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
