//! The shipped tables are complete, and the error of an invalid one names its position.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_footprint::{country, datacentre, grid};
use rust_decimal::Decimal;

const GRID: &str = include_str!("../../../conf/grid/eu-2025.csv");
const DATACENTRES: &str = include_str!("../../../conf/grid/datacentres.csv");

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

#[test]
fn the_shipped_grid_table_has_exactly_the_27_member_states() {
    let table = grid::parse_table(GRID).unwrap();
    assert_eq!(table.rows().len(), 27);
    assert_eq!(country::eu_member_states().len(), 27);
    for (code, name) in country::eu_member_states() {
        let row = table.get(code).unwrap();
        assert_eq!(row.country, name);
        assert_eq!(row.year, 2025);
        assert!(row.g_per_kwh > Decimal::ZERO && row.water_l_per_kwh > Decimal::ZERO);
        assert!(row.source.contains("ODbL"));
    }
}

#[test]
fn a_row_has_the_figures_of_its_line_and_an_abbreviated_source() {
    let table = grid::parse_table(GRID).unwrap();
    let france = table.get("FR").unwrap();
    assert_eq!(france.g_per_kwh, decimal("31"));
    assert_eq!(france.renewable_percent, decimal("27"));
    assert_eq!(france.water_l_per_kwh, decimal("3.6737"));
    assert_eq!(
        france.attribution(),
        "Electricity Maps yearly 2025 flow-traced consumption lifecycle (ODbL 1.0)"
    );
    let croatia = table.get("HR").unwrap();
    assert!(croatia.source.ends_with("(world default, no national WRI value)"), "a quoted cell is unquoted");
}

#[test]
fn an_unknown_member_has_no_name() {
    assert_eq!(country::eu_member_state_name("GR"), Some("Greece"));
    for stranger in ["CH", "NO", "GB", "IS", "US", "EL", "fr", "", "EU"] {
        assert_eq!(country::eu_member_state_name(stranger), None, "{stranger}");
    }
}

#[test]
fn a_broken_grid_table_names_every_mistake_with_its_line() {
    let csv = format!(
        "{}\nFR,France,31,27,3.67,2025,s\nCH,Switzerland,30,60,1,2025,s\nDE,Germany,-1,60,1,2025,s\n\
         FR,France,31,27,3.67,2025,s\nIT,Italy,1,2\nAT,Australia,1,2,3,2025,s\nBE,Belgium,1,101,3,2025,s\n",
        grid::TABLE_HEADER
    );
    let mistakes = grid::parse_table(&csv).unwrap_err();
    let starts: Vec<&str> = mistakes.iter().map(|mistake| mistake.split(':').next().unwrap()).collect();
    assert_eq!(starts, ["line 3", "line 4", "line 5", "line 6", "line 7", "line 8"]);
    assert!(mistakes[0].contains("`CH` is not a member state"));
    assert!(mistakes[4].contains("`AT` is Austria"));
    assert!(grid::parse_table("").is_err());
    assert!(grid::parse_table("a,b\n").unwrap_err()[0].contains("header"));
}

#[test]
fn a_site_without_a_published_figure_has_none_and_not_zero() {
    let sites = datacentre::parse_table(DATACENTRES).unwrap();
    let paris = datacentre::find_site(&sites, "fr-par-2").unwrap();
    assert_eq!((paris.pue, paris.wue), (Some(decimal("1.16")), Some(decimal("0.214"))));
    assert_eq!((paris.operator.as_str(), paris.country_code.as_str()), ("Scaleway", "FR"));
    assert_eq!(datacentre::find_site(&sites, "pl-waw-2").unwrap().wue, None);
    assert_eq!(datacentre::find_site(&sites, "all sites").unwrap().pue, None, "a bound is not a figure");
    assert!(datacentre::find_site(&sites, "fr-par-9").is_none());
}
