//! Disconnects of clients under load: the gateway notices them within a second, and the delivered output is charged.

use super::{CHAT, form, percentile, timed, until_empty};
use crate::harness::script::{ScriptStep, role, sse, text};
use crate::harness::{Bench, Provider};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_client_that_leaves_cancels_its_provider_within_a_second() {
    let trials = form(40, 1_000);
    let provider = Provider::start().await;
    let words = "sixteen letters.";
    provider.always(vec![sse(), role(), text(words), ScriptStep::Hang]);
    let running = Bench::new().provider("a", &provider).start().await;
    let mut times = Vec::new();
    for trial in 1..=trials {
        let open = running.client.stream_until(CHAT, &running.ask_stream(), words).await;
        drop(open);
        let (_, took) = timed(provider.until_left(trial)).await;
        times.push(took);
    }
    until_empty(&running).await;
    let (half, most) = (percentile(&mut times, 50), percentile(&mut times, 100));
    eprintln!("leavers: {trials} noticed, p50 {half:?}, all within {most:?}");
    assert!(most <= Duration::from_secs(1), "{most:?}");
    let entries = crate::billing::entries(&running).await;
    let charges: Vec<_> = entries.iter().filter(|entry| entry["act"] == "settle").collect();
    assert_eq!(charges.len(), trials, "each once");
    let four = words.len().div_ceil(4) as u64;
    assert!(
        charges.iter().all(|charge| charge["output"].as_u64() == Some(four)),
        "what was received, no more"
    );
}
