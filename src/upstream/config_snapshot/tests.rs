//! Processor time of parsing, building and reloading configurations with many offers.
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

/// Returns the processor times of a check, a start and a reload.
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
        fresh.begin_publish();
        assert!(
            fresh.offers.iter().zip(&old.offers).all(|(new, old)| Arc::ptr_eq(&new.figures, &old.figures))
        );
        assert!(fresh.offers.iter().enumerate().all(|(at, live)| live.offer.index == at));
        assert_eq!(fresh.model("m7").unwrap().offers.len(), 1);
    });
    [check, start, reload]
}

#[test]
fn eight_times_the_offers_take_no_twelve_times_the_work() {
    for providers in [1, 8] {
        let of = |times: usize| {
            let all = [(); 3].map(|()| work(500 * times, if providers == 1 { 1 } else { 500 * times / 4 }));
            let least = |at: usize| all.iter().filter_map(|work| work.get(at)).min().copied().unwrap();
            [least(0), least(1), least(2)]
        };
        let (small, large) = (of(1), of(8));
        for ((name, small), large) in ["check", "start", "reload"].into_iter().zip(small).zip(large) {
            let most = small.saturating_mul(12);
            assert!(large < most, "{name}: {small} ns for 500 offers, {large} ns for 4,000");
        }
    }
}
