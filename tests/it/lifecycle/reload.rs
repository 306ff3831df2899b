//! Reloads and stops under load: no request is refused, a request ends with the configuration that it began with, and a
//! stop waits for open requests only.

use super::load_clients::{ClientLoad, charges, log_text};
use super::open_streams::{Streams, ask};
use super::size;
use super::transports::GatewayListeners;
use super::upgrade::two;
use crate::harness::batch_jobs;
use crate::harness::process::Home;
use crate::harness::script::plain;
use crate::harness::{Provider, until};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reloads_under_load_break_nothing() {
    let reloads = size(200, 10);
    let (quick, slow, later) = (Provider::start().await, Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    later.always(plain("Hello"));
    let mut home = Home::new();
    let listeners = GatewayListeners::of(&mut home);
    let (one, two) = (two(&quick, &slow), two(&later, &slow));
    home.write(&one);
    let running = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::through(&listeners, &client, &slow, size(200, 20)).await;
    let batch = batch_jobs::batch(&client, &batch_jobs::lines(size(2_000, 200))).await;
    let crowd = ClientLoad::start(&listeners, &client.key, &ask("m", false), size(30, 6), 10);
    for number in 0..reloads {
        let (text, provider) = if number % 2 == 0 { (&two, &later) } else { (&one, &quick) };
        let before = provider.calls();
        home.write(text);
        running.signal("HUP");
        until("the reload", || log_text(&home).matches("\"reloaded\"").count() == number + 1).await;
        // Waits until each configuration has served a request before the next one is loaded.
        until("a request with it", || provider.calls() > before).await;
    }
    assert_eq!(streams.end().await, 0, "they end with the configuration that they began with");
    let ended = batch_jobs::ended(&client, &batch).await;
    assert_eq!(ended["request_counts"]["failed"], 0, "{ended}");
    let tally = crowd.stop().await;
    let (answered, refused) = (tally.answered(), tally.refused.load(Ordering::SeqCst));
    eprintln!("{reloads} reloads, {answered} requests, {refused} refused");
    assert_eq!(refused, 0, "{:?}", tally.failures.lock());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_under_load_answers_all_that_was_taken_and_ends_with_the_last_stream() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    quick.always(plain("Hello"));
    let mut home = Home::new();
    let listeners = GatewayListeners::of(&mut home);
    home.write(&two(&quick, &slow));
    let mut running = home.run().await;
    let (client, _) = home.key();
    let count = size(1_000, 30);
    let streams = Streams::through(&listeners, &client, &slow, count).await;
    let crowd = ClientLoad::start(&listeners, &client.key, &ask("m", false), size(30, 6), 10);
    until("some answers", || crowd.tally.answered() > 20).await;
    running.signal("TERM");
    // From now on no process listens. New connections may fail, but no request on an open connection.
    until("the door to close", || !crowd.tally.failures.lock().is_empty()).await;
    assert!(running.ended().is_none(), "it waits for its streams");
    assert_eq!(home.admin().get("/readyz").await.status, 503, "and says that it does");
    let tally = crowd.stop().await;
    let failures = tally.failures.lock().clone();
    assert!(failures.iter().all(|why| why.starts_with("not connected")), "{failures:?}");
    assert_eq!(streams.end().await, 0);
    let last = Instant::now();
    assert_eq!(running.until_ended().await.code(), Some(0));
    let took = last.elapsed();
    eprintln!("{count} streams ended by themselves, the process {took:?} after the last of them");
    assert!(took <= Duration::from_secs(2), "{took:?}");
    assert_eq!(charges(&home), tally.answered() + count);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_with_nothing_open_is_quick_and_a_drain_that_is_over_cuts() {
    let (quick, slow) = (Provider::start().await, Provider::start().await);
    let home = Home::new();
    home.write(&format!("[process]\ndrain = \"300ms\"\n{}", two(&quick, &slow)));
    let mut running = home.run().await;
    let begun = Instant::now();
    running.signal("TERM");
    assert_eq!(running.until_ended().await.code(), Some(0));
    let idle = begun.elapsed();
    eprintln!("stopped after {idle:?} with nothing open");
    assert!(idle <= Duration::from_secs(1), "{idle:?}");
    let mut running = home.run().await;
    let (client, _) = home.key();
    let streams = Streams::open(&client, &slow, 2).await;
    running.signal("TERM");
    assert_eq!(running.until_ended().await.code(), Some(0));
    assert_eq!(streams.end().await, 2, "cut at the limit");
    assert!(log_text(&home).contains("\"cut\":\"2\""), "{}", log_text(&home));
}
