//! Samples of the process's memory and descriptors: the trend of the memory and the maximum number of descriptors.

use crate::harness::process::Process;
use std::time::{Duration, Instant};

/// Maximum seconds between two samples.
const OFTEN: f64 = 10.0;
/// Minimum number of samples in a run.
const LOOKS: f64 = 60.0;
/// Allowed growth of memory in an hour under load, in KiB; the goal is a megabyte per day. Short runs may exceed it,
/// see [`WAVE`].
const SLOPE: f64 = 1024.0;
/// Additional growth in KiB that temporary changes may simulate in a short run. In an hour at 150 requests per
/// second, memory moved within 4 MiB, because of archives, provider failures and memory that threads had freed. A
/// wave of that height tilts the regression line most if exactly one wave fills the measured time: by 1.9 times half
/// the height, 3.8 MiB; a quarter is added for other effects. A run of an hour, of which the second half is measured,
/// may therefore show 11 MiB per hour, which is 21 bytes per request; a run of a day 1.4 MiB per hour.
const WAVE: f64 = 5.0 * 1024.0;
/// Minimum length of a run whose slope is meaningful, in seconds: in such a run, one-time allocations are over before
/// the middle.
const LONG: u64 = 3_600;
/// Descriptors that do not depend on the load: batches, their connections, archives in progress.
const BESIDES: usize = 64;

/// Samples of the process.
pub struct ResourceMonitor {
    begun: Instant,
    /// Descriptors before there was any load.
    idle: usize,
    looks: Vec<ResourceSample>,
}

struct ResourceSample {
    /// In hours from the beginning.
    at: f64,
    /// In KiB.
    resident: f64,
    descriptors: usize,
}

impl ResourceMonitor {
    pub fn new(process: &Process, begun: Instant) -> Self {
        Self { begun, idle: process.descriptors(), looks: Vec::new() }
    }

    /// Takes samples for this duration, which is a twelfth of the run.
    pub async fn over(&mut self, process: &Process, span: Duration) {
        let end = Instant::now() + span;
        let pause = Duration::from_secs_f64((span.as_secs_f64() * 12.0 / LOOKS).min(OFTEN));
        while Instant::now() < end {
            tokio::time::sleep(pause.min(end - Instant::now())).await;
            self.looks.push(ResourceSample {
                at: self.begun.elapsed().as_secs_f64() / 3_600.0,
                resident: process.memory("VmRSS") as f64,
                descriptors: process.descriptors(),
            });
        }
    }

    /// Prints and checks the usage of a run of this length: memory hardly rises under load, and there are not more
    /// descriptors than `busiest` concurrent requests need.
    pub fn is_flat(&self, seconds: u64, busiest: usize) {
        let half = &self.looks[self.looks.len() / 2..];
        let slope = slope(half);
        let hours = half.last().unwrap().at - half[0].at;
        let bound = SLOPE + WAVE / hours;
        let most = self.looks.iter().map(|look| look.descriptors).max().unwrap();
        let highest = self.looks.iter().map(|look| look.resident).fold(0.0, f64::max);
        eprintln!(
            "{} looks: memory goes by {:.1} MiB an hour in the second half and was {:.1} MiB at its highest, {most} \
             descriptors at most ({} idle, {busiest} requests at one time)",
            self.looks.len(),
            slope / 1024.0,
            highest / 1024.0,
            self.idle,
        );
        assert!(
            seconds < LONG || slope <= bound,
            "memory grows by {slope:.0} KiB an hour, more than {bound:.0}"
        );
        // Each request has its client's connection, and each of three providers may have as many idle connections as
        // it ever used.
        let explained = self.idle + 4 * busiest + BESIDES;
        assert!(most <= explained, "{most} descriptors, {explained} explained");
    }
}

/// Returns the slope of the least-squares line, in KiB per hour.
fn slope(looks: &[ResourceSample]) -> f64 {
    let count = looks.len() as f64;
    let mean = |of: fn(&ResourceSample) -> f64| looks.iter().map(of).sum::<f64>() / count;
    let (at, resident) = (mean(|look| look.at), mean(|look| look.resident));
    let together: f64 = looks.iter().map(|look| (look.at - at) * (look.resident - resident)).sum();
    let spread: f64 = looks.iter().map(|look| (look.at - at).powi(2)).sum();
    together / spread
}

#[test]
fn a_slope_is_that_of_the_nearest_line() {
    let line = |rise: f64, noise: f64| -> Vec<ResourceSample> {
        let look = |number: i32| {
            let at = f64::from(number) / 100.0;
            let wave = if number % 2 == 0 { noise } else { -noise };
            ResourceSample { at, resident: 50_000.0 + rise * at + wave, descriptors: 0 }
        };
        (0..100).map(look).collect()
    };
    for rise in [0.0, 1_024.0, -500.0] {
        assert!((slope(&line(rise, 0.0)) - rise).abs() < 1e-6);
        assert!((slope(&line(rise, 100.0)) - rise).abs() < 20.0, "{}", slope(&line(rise, 100.0)));
    }
}
