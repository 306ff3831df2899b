//! The public page says what the code does.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_contract::Boundary;
use penstock_footprint::{METHODOLOGY, Method, Range, law, measured_range};

const PAGE: &str = include_str!("../../../docs/methodology.md");

/// The line of the page that starts with this.
fn line(start: &str) -> &'static str {
    PAGE.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line `{start}`"))
}

#[test]
fn the_page_has_this_version() {
    assert!(PAGE.contains(&format!("Version **{METHODOLOGY}**.")));
}

#[test]
fn the_page_has_every_constant() {
    let constants = [
        ("| `e_in`, language", law::INPUT_JOULES_PER_B),
        ("| `e_in`, encoders", law::ENCODER_JOULES_PER_B),
        ("| context ", law::CONTEXT_TOKENS.into()),
        ("| cached token ", law::CACHED_SHARE),
        ("| φ ", law::THROUGHPUT_TIER),
        ("| rest of the server ", law::HOST),
        ("| waiting machines ", law::IDLE),
        ("| embodied ", law::EMBODIED_G_PER_WH),
        ("| speech, unknown", law::AUDIO_JOULES),
        ("| image, unknown", law::IMAGE_JOULES),
        ("| PUE, unpublished", law::DEFAULT_PUE),
        ("| WUE on site, unpublished", law::DEFAULT_WUE),
    ];
    for (start, value) in constants {
        let cell = line(start).split('|').nth(2).unwrap();
        assert!(
            cell.split([' ', ';']).any(|word| word == value.to_string()),
            "{start}: {value} is not in `{cell}`"
        );
    }
    assert!(PAGE.contains(&format!("never more than {} times", law::MEASURED_CAP)));
    assert!(PAGE.contains(&format!("({} W + {} W)", law::GPU_WATTS, law::HOST_WATTS)));
}

#[test]
fn the_page_has_every_range() {
    let row = |start: &str, range: Range| {
        let cells: Vec<&str> = line(start).split('|').map(str::trim).collect();
        assert_eq!((cells[2], cells[3]), (&*range.low.to_string(), &*range.high.to_string()), "{start}");
    };
    row("| `measured`, facility", measured_range(Boundary::Facility));
    row("| `measured`, it", measured_range(Boundary::It));
    row("| `measured`, gpu", measured_range(Boundary::Gpu));
    for method in [
        Method::ProviderAverage,
        Method::Benchmark,
        Method::Parametric,
        Method::LatencyProxy,
        Method::ClassDefault,
    ] {
        row(&format!("| `{}` |", method.name()), method.range());
    }
}
