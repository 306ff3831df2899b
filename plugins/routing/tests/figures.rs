//! Tests of the recorded latency, and of its expiry.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_routing::latency::{HALF_LIFE, STALE_AFTER};
use penstock_routing::{LastHourStats, LastHourSummary, LatencySample, LatencyStats};
use std::time::Duration;

const NOW: Duration = Duration::from_secs(1_800_000_000);

fn streamed(prompt_tokens: u64, output_tokens: u64, first: f64, total: f64) -> LatencySample {
    LatencySample {
        prompt_tokens,
        output_tokens,
        first_token: Some(Duration::from_secs_f64(first)),
        total: Duration::from_secs_f64(total),
    }
}

fn close(left: Option<f64>, right: f64) -> bool {
    left.is_some_and(|left| (left - right).abs() < 1e-6)
}

#[test]
fn a_newcomer_predicts_nothing() {
    assert_eq!(LatencyStats::new().predict_seconds(NOW, 100, 100), None);
}

#[test]
fn a_prediction_is_the_first_token_plus_output_over_speed() {
    let mut figures = LatencyStats::new();
    // 100 tokens after the first one, in 2 s.
    figures.observe(NOW, streamed(500, 101, 0.5, 2.5));
    assert!(close(figures.tokens_per_second(NOW), 50.0));
    assert!(close(figures.predict_seconds(NOW, 500, 1_000), 0.5 + 20.0));
    assert_eq!(figures.typical_output_tokens(NOW), Some(101));
}

#[test]
fn prompt_sizes_are_separate_and_an_unseen_one_uses_the_closest() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(100, 0, 0.2, 0.2));
    figures.observe(NOW, streamed(50_000, 0, 6.0, 6.0));
    assert!(close(figures.seconds_to_first_token(NOW, 1_000), 0.2));
    assert!(close(figures.seconds_to_first_token(NOW, 1_001), 0.2), "the class beside it");
    assert!(close(figures.seconds_to_first_token(NOW, 20_000), 6.0));
    assert!(close(figures.seconds_to_first_token(NOW, 900_000), 6.0), "the nearest below");
}

#[test]
fn an_old_observation_counts_half_after_the_half_life() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(1, 0, 1.0, 1.0));
    figures.observe(NOW + HALF_LIFE, streamed(1, 0, 4.0, 4.0));
    // Weighted mean: (0.5 * 1 + 1 * 4) / 1.5.
    assert!(close(figures.seconds_to_first_token(NOW + HALF_LIFE, 1), 3.0));
}

#[test]
fn entries_unseen_for_long_are_forgotten() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(1, 10, 1.0, 2.0));
    assert!(figures.predict_seconds(NOW + STALE_AFTER - Duration::from_secs(1), 1, 1).is_some());
    assert_eq!(figures.predict_seconds(NOW + STALE_AFTER, 1, 1), None);
    figures.observe(NOW + STALE_AFTER, streamed(1, 0, 9.0, 9.0));
    assert!(
        close(figures.seconds_to_first_token(NOW + STALE_AFTER, 1), 9.0),
        "nothing of the old one is left in it"
    );
}

#[test]
fn recent_answers_halve_per_half_life() {
    let mut figures = LatencyStats::new();
    assert_eq!(figures.recent_answers(NOW), 0.0);
    // Streamed, without tokens, and not streamed: each counts as one answer.
    figures.observe(NOW, streamed(1, 10, 1.0, 2.0));
    figures.observe(NOW, streamed(50_000, 10, 1.0, 2.0));
    assert!(close(Some(figures.recent_answers(NOW)), 2.0));
    assert!(close(Some(figures.recent_answers(NOW + HALF_LIFE)), 1.0));
    assert_eq!(figures.recent_answers(NOW + STALE_AFTER), 0.0);
    let total = Duration::from_secs(1);
    let mut embeddings = LatencyStats::new();
    embeddings.observe(NOW, LatencySample { prompt_tokens: 1, output_tokens: 0, first_token: None, total });
    assert!(close(Some(embeddings.recent_answers(NOW)), 1.0));
    let mut plain = LatencyStats::new();
    plain.observe(NOW, LatencySample { prompt_tokens: 1, output_tokens: 9, first_token: None, total });
    assert!(close(Some(plain.recent_answers(NOW)), 1.0));
}

#[test]
fn a_clock_that_goes_back_is_no_time_passing() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(1, 0, 1.0, 1.0));
    figures.observe(NOW - Duration::from_secs(100), streamed(1, 0, 3.0, 3.0));
    assert!(close(figures.seconds_to_first_token(NOW, 1), 2.0));
}

#[test]
fn a_plain_answer_teaches_generation_speed_net_of_the_known_first_token() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(1, 0, 1.0, 1.0));
    let plain = |seconds| LatencySample {
        prompt_tokens: 1,
        output_tokens: 100,
        first_token: None,
        total: Duration::from_secs(seconds),
    };
    figures.observe(NOW, plain(3));
    assert!(close(figures.tokens_per_second(NOW), 50.0));
    let mut alone = LatencyStats::new();
    alone.observe(NOW, plain(2));
    assert!(
        close(alone.predict_seconds(NOW, 1, 100), 2.0),
        "without a known first token it predicts its own total"
    );
}

#[test]
fn work_without_output_is_all_first_token() {
    let mut figures = LatencyStats::new();
    let sample = LatencySample {
        prompt_tokens: 10,
        output_tokens: 0,
        first_token: None,
        total: Duration::from_millis(80),
    };
    figures.observe(NOW, sample);
    assert!(close(figures.predict_seconds(NOW, 10, 0), 0.08));
}

#[test]
fn figures_survive_a_restart_as_plain_numbers() {
    let mut figures = LatencyStats::new();
    let mut hour = LastHourStats::new();
    for second in 0..50 {
        let now = NOW + Duration::from_secs(second * 40);
        let sample = streamed(second * 2_000, 100 + second, 0.3, 2.0);
        figures.observe(now, sample);
        hour.observe(now, sample);
    }
    let later = NOW + Duration::from_secs(2_100);
    let serialized = serde_json::to_string(&(&figures, &hour)).unwrap();
    let (again, hour_again): (LatencyStats, LastHourStats) = serde_json::from_str(&serialized).unwrap();
    let (restored, known) =
        (again.predict_seconds(later, 3_000, 500), figures.predict_seconds(later, 3_000, 500).unwrap());
    assert!(close(restored, known));
    let (restored, known) = (hour_again.summary(later), hour.summary(later));
    assert!(close(restored.throughput, known.throughput.unwrap()));
    assert!(close(restored.latency, known.latency.unwrap()));
    assert_eq!(restored.popularity, known.popularity);
}

#[test]
fn the_last_hour_has_throughput_latency_and_popularity() {
    let mut hour = LastHourStats::new();
    assert_eq!(hour.summary(NOW), LastHourSummary::default());
    hour.observe(NOW, streamed(1, 101, 0.5, 2.5));
    hour.observe(NOW, streamed(1, 101, 1.5, 3.5));
    let rates = hour.summary(NOW + Duration::from_secs(60));
    assert!(close(rates.throughput, 50.0) && close(rates.latency, 1.0) && close(rates.popularity, 2.0));
    assert_eq!(
        hour.summary(NOW + Duration::from_secs(3_700)),
        LastHourSummary::default(),
        "an hour later nothing is left"
    );
}

#[test]
fn a_new_slice_replaces_an_old_one() {
    let mut hour = LastHourStats::new();
    for round in 0..100 {
        hour.observe(NOW + Duration::from_secs(round * 3_600), streamed(1, 11, 1.0, 2.0));
    }
    assert!(close(hour.summary(NOW + Duration::from_secs(99 * 3_600)).popularity, 1.0));
}

#[test]
fn figures_move_to_another_clock_with_their_age() {
    let mut figures = LatencyStats::new();
    assert_eq!((figures.last_observation_age(NOW), figures.revision()), (None, 0));
    assert_eq!(figures.time_since_first_seen(NOW), Duration::ZERO);
    figures.observe(NOW, streamed(1, 101, 1.0, 3.0));
    let written = NOW + Duration::from_secs(100);
    // The new clock shows 5,000 s when the old one shows `written`.
    let there = Duration::from_secs(5_000);
    let mut moved = figures.convert_clock(written, there);
    assert_eq!(moved.last_observation_age(there), Some(Duration::from_secs(100)));
    assert_eq!(moved.time_since_first_seen(there), Duration::from_secs(100));
    assert!(close(moved.tokens_per_second(there), 50.0));
    assert_eq!(
        moved.predict_seconds(there - Duration::from_secs(100) + STALE_AFTER, 1, 1),
        None,
        "they age on"
    );
    assert_eq!(figures.convert_clock(written, written), figures);
    let future = figures.convert_clock(NOW - Duration::from_secs(60), NOW);
    assert_eq!(future.last_observation_age(NOW), Some(Duration::ZERO), "nothing is measured in the future");
    let away = figures.convert_clock(written, Duration::ZERO);
    assert_eq!(away.predict_seconds(NOW, 1, 1), None, "a very long time away");
}

#[test]
fn impossible_measurements_are_dropped() {
    let mut figures = LatencyStats::new();
    figures.observe(NOW, streamed(1, 101, 1.0, 3.0));
    let good = serde_json::to_value(&figures).unwrap();
    let mean = good["per_token"]["mean"].as_f64().unwrap();
    for absurd in [-1e-9, 86_400.1, 1e300, f64::MAX, -f64::MAX] {
        let mut stored = good.clone();
        stored["per_token"]["mean"] = absurd.into();
        let read: LatencyStats = serde_json::from_value(stored).unwrap();
        let moved = read.convert_clock(NOW, NOW);
        assert_eq!(moved.tokens_per_second(NOW), None, "{absurd}");
        assert!(close(moved.seconds_to_first_token(NOW, 1), 1.0), "what is sound stays");
    }
    for weight in [0.0, -1.0] {
        let mut stored = good.clone();
        stored["per_token"]["weight"] = weight.into();
        let read: LatencyStats = serde_json::from_value(stored).unwrap();
        assert_eq!(read.convert_clock(NOW, NOW).tokens_per_second(NOW), None, "{weight}");
    }
    let mut stored = good;
    stored["per_token"]["mean"] = 86_400.0.into();
    stored["observed"] = u64::MAX.into();
    stored["known"] = u64::MAX.into();
    let mut moved = serde_json::from_value::<LatencyStats>(stored).unwrap().convert_clock(NOW, NOW);
    assert_eq!(moved.last_observation_age(NOW), Some(Duration::ZERO));
    assert_eq!(moved.time_since_first_seen(NOW), Duration::ZERO);
    assert!(
        mean > 0.0 && moved.tokens_per_second(NOW).is_some(),
        "a day for a token is the slowest there is"
    );
}

#[test]
fn an_hour_moves_to_another_clock_without_impossible_values() {
    let mut hour = LastHourStats::new();
    assert!(hour.is_empty());
    let base = Duration::from_secs(1_800_000_000 / 300 * 300);
    for minute in 0..60 {
        hour.observe(base + Duration::from_secs(minute * 60), streamed(1, 101, 0.5, 2.5));
    }
    let written = base + Duration::from_secs(3_599);
    let there = Duration::from_secs(30_000_000) + Duration::from_secs(299);
    let moved = hour.convert_clock(written, there);
    assert_eq!(moved.summary(there), hour.summary(written));
    assert_eq!(moved.summary(there + Duration::from_secs(3_600)), LastHourSummary::default());
    assert!(close(moved.summary(there + Duration::from_secs(1_800)).popularity, 30.0));
    assert_eq!(hour.convert_clock(written, written), hour);
    assert!(hour.convert_clock(written, Duration::ZERO).summary(written).popularity.is_none());
    let mut stored = serde_json::to_value(&hour).unwrap();
    for slice in stored["slices"].as_array_mut().unwrap() {
        slice["waiting"] = (-1.0).into();
    }
    assert!(
        serde_json::from_value::<LastHourStats>(stored).unwrap().convert_clock(written, there).is_empty()
    );
}
