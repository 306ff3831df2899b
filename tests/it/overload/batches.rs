//! All batches together stay within their memory, however many there are and
//! however long their lines.

use super::{form, thinker};
use crate::harness::jobs;
use crate::harness::process::Home;
use std::time::Duration;

const BATCHES: usize = 20;
/// Bytes of a line.
const LINE: usize = 256 << 10;
/// What the process may grow by, in KiB; without optimisation what waits takes more.
const GROWTH: u64 = if cfg!(debug_assertions) { 128 << 10 } else { 64 << 10 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_batches_of_long_lines_stay_within_their_memory() {
    let lines = form(16, 100);
    let server = thinker(Duration::from_millis(50)).await;
    let home = Home::new();
    home.write(&format!(
        "[log]\nlevel = \"error\"\n[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 1000000\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"FR\"\ncity = \"Paris\"\nmax_in_flight = 10\n\
         base_url = \"http://{}/v1\"\n[[providers.offers]]\nmodel = \"m\"\nname = \"theirs\"\n",
        server.address
    ));
    let process = home.run().await;
    let (client, _) = home.key();
    let warm = jobs::batch(&client, &jobs::lines(20)).await;
    jobs::ended(&client, &warm).await;
    let long = "x".repeat(LINE);
    let text: String = (0..lines).map(|number| jobs::line(&format!("l-{number}"), &long) + "\n").collect();
    let file = jobs::uploaded(&client, &text).await;
    let idle = process.memory("VmRSS");
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        batches.push(jobs::create(&client, &file).await.json());
    }
    let mut most = 0;
    for batch in &batches {
        let watched = jobs::ended(&client, batch);
        tokio::pin!(watched);
        let end = loop {
            most = most.max(process.memory("VmRSS"));
            tokio::select! {
                end = &mut watched => break end,
                () = tokio::time::sleep(Duration::from_millis(5)) => {}
            }
        };
        assert_eq!(end["request_counts"]["completed"], lines, "{end}");
    }
    let grown = most.saturating_sub(idle);
    eprintln!(
        "batches: {BATCHES} of {lines} lines of {LINE} bytes, idle {idle} KiB, grown by at most {grown} KiB"
    );
    assert!(grown < GROWTH, "grown by {grown} KiB from {idle} KiB");
}
