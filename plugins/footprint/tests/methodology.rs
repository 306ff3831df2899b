//! The published methodology page agrees with the code.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::MeterBoundary;
use penstock_footprint::{
    EnergyMethod, ErrorRange, METHODOLOGY_VERSION, constants, meter_boundary_error_range,
};

const PAGE: &str = include_str!("../../../docs/methodology.md");

/// Returns the line of the page with this start.
fn line(start: &str) -> &'static str {
    PAGE.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line `{start}`"))
}

#[test]
fn the_page_has_this_version() {
    assert!(PAGE.contains(&format!("Version **{METHODOLOGY_VERSION}**.")));
}

#[test]
fn the_page_has_every_constant() {
    let constants = [
        ("| `e_in`, language", constants::INPUT_TOKEN_JOULES_PER_BILLION),
        ("| `e_in`, encoders", constants::ENCODER_TOKEN_JOULES_PER_BILLION),
        ("| context ", constants::ATTENTION_DOUBLING_TOKENS.into()),
        ("| cached token ", constants::CACHED_TOKEN_ENERGY_SHARE),
        ("| φ ", constants::THROUGHPUT_TIER_FACTOR),
        ("| rest of the server ", constants::HOST_FACTOR),
        ("| waiting machines ", constants::IDLE_FACTOR),
        ("| embodied ", constants::EMBODIED_CO2E_GRAMS_PER_WH),
        ("| speech, unknown", constants::AUDIO_JOULES_PER_SECOND),
        ("| image, unknown", constants::IMAGE_JOULES),
        ("| PUE, unpublished", constants::DEFAULT_PUE),
        ("| WUE on site, unpublished", constants::DEFAULT_WUE_LITRES_PER_KWH),
    ];
    for (start, value) in constants {
        let cell = line(start).split('|').nth(2).unwrap();
        assert!(
            cell.split([' ', ';']).any(|word| word == value.to_string()),
            "{start}: {value} is not in `{cell}`"
        );
    }
    assert!(PAGE.contains(&format!("never more than {} times", constants::MAX_BILLED_TO_FORMULA_RATIO)));
    assert!(PAGE.contains(&format!("({} W + {} W)", constants::GPU_WATTS, constants::HOST_WATTS_PER_GPU)));
}

#[test]
fn the_page_has_every_range() {
    let row = |start: &str, range: ErrorRange| {
        let cells: Vec<&str> = line(start).split('|').map(str::trim).collect();
        assert_eq!((cells[2], cells[3]), (&*range.low.to_string(), &*range.high.to_string()), "{start}");
    };
    row("| `measured`, facility", meter_boundary_error_range(MeterBoundary::Facility));
    row("| `measured`, it", meter_boundary_error_range(MeterBoundary::It));
    row("| `measured`, gpu", meter_boundary_error_range(MeterBoundary::Gpu));
    for method in [
        EnergyMethod::ProviderAverage,
        EnergyMethod::Benchmark,
        EnergyMethod::Parametric,
        EnergyMethod::LatencyProxy,
        EnergyMethod::ClassDefault,
    ] {
        row(&format!("| `{}` |", method.name()), method.error_range());
    }
}
