//! Requests at four times the capacity of a provider: as many good answers per second as at its peak, immediate
//! rejection of the rest, bounded memory.

use super::{CHAT, form, full, percentile, thinker};
use crate::harness::process::Home;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Concurrency limit of the provider, and its delay: together they determine the peak of good answers per second.
const MAX_IN_FLIGHT: usize = 4;
const THINKS: Duration = Duration::from_millis(500);
/// Allowed growth of the process, in KiB.
pub const GROWTH: u64 = 64 << 10;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_times_the_peak_is_answered_as_the_peak_is() {
    let lasts = Duration::from_secs(form(5, 300));
    let server = thinker(THINKS).await;
    let home = Home::new();
    home.write(&format!(
        "[log]\nlevel = \"error\"\n[overload]\nqueue = 8\n[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 4096\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\nmax_in_flight = {MAX_IN_FLIGHT}\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n",
        server.address
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    let ask =
        Arc::new(json!({"model": "m", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]}));
    assert_eq!(client.post(CHAT, &ask).await.status, 200);

    // Measures the peak, with as many clients as slots. Each client sends its next request as soon as it has its
    // answer.
    let (good, until) = (Arc::new(AtomicUsize::new(0)), Instant::now() + lasts);
    let mut clients = JoinSet::new();
    for _ in 0..MAX_IN_FLIGHT {
        let (client, ask, good) = (client.clone(), ask.clone(), good.clone());
        clients.spawn(async move {
            while Instant::now() < until {
                assert_eq!(client.post(CHAT, &ask).await.status, 200);
                good.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    let peak = good.load(Ordering::Relaxed) as f64 / lasts.as_secs_f64();
    let idle = process.memory("VmRSS");

    // Sends requests at four times the peak rate, each at its due time, without waiting for earlier answers.
    let (rate, began) = (4.0 * peak, Instant::now());
    let mut asked = JoinSet::new();
    let count = (rate * lasts.as_secs_f64()) as u32;
    for number in 0..count {
        let due = began + Duration::from_secs_f64(f64::from(number) / rate);
        tokio::time::sleep_until(due.into()).await;
        let (client, ask) = (client.clone(), ask.clone());
        asked.spawn(async move {
            let began = Instant::now();
            let answer = client.post(CHAT, &ask).await;
            (answer.status, answer.header("retry-after").is_some(), began.elapsed(), Instant::now())
        });
    }
    let (mut served, mut last, mut refused) = (0_u32, began, Vec::new());
    while let Some(done) = asked.join_next().await {
        let (status, has_retry_after, took, at) = done.unwrap();
        match status {
            200 => {
                served += 1;
                last = last.max(at);
            }
            503 => {
                assert!(has_retry_after, "a refusal says when to come back");
                refused.push(took);
            }
            other => panic!("{other}"),
        }
    }
    let grown = process.memory("VmHWM").saturating_sub(idle);
    // The rate is measured up to the last good answer, because queued requests are still answered after the load has
    // ended.
    let goodput = f64::from(served) / last.duration_since(began).as_secs_f64();
    let (half, most) = (percentile(&mut refused, 50), percentile(&mut refused, 99));
    eprintln!(
        "surge: peak {peak:.1}/s, asked {rate:.1}/s, good {goodput:.1}/s ({:.0} %), refused {} (p50 {half:?}, p99 {most:?}), \
         grown by {grown} KiB",
        100.0 * goodput / peak,
        refused.len()
    );
    // The short form has a lower bound, because the machine may have other load.
    assert!(goodput >= form(0.7, 0.9) * peak, "{goodput} of {peak}");
    assert!(refused.len() as u32 > count / 2);
    assert!(most <= Duration::from_millis(10) || !full(), "{most:?}");
    assert!(half <= Duration::from_millis(250), "{half:?}");
    assert!(grown < GROWTH, "grown by {grown} KiB");
}
