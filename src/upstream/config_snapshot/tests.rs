//! Test of the processor time for parsing, building and reloading configurations with many offers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

use super::*;
use crate::config::{ResolveEnv, load_text};
use std::fmt::Write as _;

/// Returns the processor time of this thread in nanoseconds, without that of other threads.
fn processor() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split_whitespace().next().unwrap().parse().unwrap()
}

/// Returns a configuration with one model per offer, spread over the providers; each model falls back on the next.
fn text(offers: usize, providers: usize) -> String {
    let mut text = String::from(
        "[listen]\nhttp = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\"\n[storage]\npath = \"data\"\n",
    );
    for model in 0..offers {
        let next =
            if model + 1 < offers { format!("fallbacks = [\"m{}\"]\n", model + 1) } else { String::new() };
        writeln!(
            text,
            "[[models]]\nid = \"m{model}\"\nkind = \"chat\"\naliases = [\"a{model}\"]\ncontext_length = 8192\n\
             price = {{ input = 0.1, output = 0.2 }}\n{next}"
        )
        .unwrap();
    }
    for provider in 0..providers {
        writeln!(
            text,
            "[[providers]]\nid = \"p{provider}\"\noperator = \"P\"\ncountry = \"FR\"\ncity = \"Paris\"\npue = 1.2\n\
             base_url = \"https://p{provider}.example.eu/v1\""
        )
        .unwrap();
        for offer in (provider..offers).step_by(providers) {
            writeln!(text, "[[providers.offers]]\nmodel = \"m{offer}\"\nname = \"n\"").unwrap();
        }
    }
    text
}

/// Returns the processor times of a check, a start and a reload of a configuration of this size.
fn work(offers: usize, providers: usize) -> [u64; 3] {
    let text = text(offers, providers);
    let pools = ConnectionPools::default();
    let timed = |work: &mut dyn FnMut()| {
        let before = processor();
        work();
        processor() - before
    };
    let (mut settings, mut old) = (None, None);
    let check = timed(&mut || {
        let loaded = load_text("many.toml", &text, ResolveEnv { env: &|_| None });
        let loaded = loaded.unwrap_or_else(|report| panic!("{}", report.mistakes.first().unwrap()));
        settings = Some(loaded.settings);
    });
    let settings = settings.unwrap();
    assert_eq!((settings.offers.len(), settings.providers.len()), (offers, providers));
    let start = timed(&mut || old = Some(ConfigSnapshot::build(settings.clone(), None, &pools, 0).unwrap()));
    let old = old.unwrap();
    let reload = timed(&mut || {
        let fresh = ConfigSnapshot::build(settings.clone(), Some(&old), &pools, 0).unwrap();
        fresh.configure_shared_state();
        assert!(
            fresh
                .offers
                .iter()
                .zip(&old.offers)
                .all(|(new, old)| Arc::ptr_eq(&new.latency_stats, &old.latency_stats))
        );
        assert!(fresh.offers.iter().enumerate().all(|(at, live)| live.offer.index == at));
        assert_eq!(fresh.model("m7").unwrap().offers.len(), 1);
    });
    [check, start, reload]
}

/// Returns the factors by which each processor time of `work` grows from 500 to 4,000 offers, in percent.
fn growth(providers: impl Fn(usize) -> usize) -> [u64; 3] {
    let (small, large) = (work(500, providers(500)), work(4_000, providers(4_000)));
    std::array::from_fn(|at| large[at].saturating_mul(100) / small[at])
}

/// Checks the growth with one provider and with four offers per provider.
///
/// Linear work grows 8 times, and quadratic work 64 times. The lowest factor of up to six rounds is used, because other
/// programs on the machine share its caches and change the processor time of a round.
#[test]
fn eight_times_the_offers_take_no_twelve_times_the_work() {
    let one: fn(usize) -> usize = |_| 1;
    let many: fn(usize) -> usize = |offers| offers / 4;
    for providers in [one, many] {
        let mut lowest = [u64::MAX; 3];
        for _ in 0..6 {
            let factors = growth(providers);
            lowest = std::array::from_fn(|at| factors[at].min(lowest[at]));
            if lowest.iter().all(|factor| *factor < 1_200) {
                break;
            }
        }
        for (name, factor) in ["check", "start", "reload"].into_iter().zip(lowest) {
            assert!(factor < 1_200, "{name}: {factor} % of the time of 500 offers for 4,000");
        }
    }
}
