//! Countries of providers: exactly the 27 member states are accepted; any other ends the start before a port is bound.

use crate::harness::process::{Home, complaint};
use penstock::config::{ResolveEnv, load_text};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// ISO 3166-1, all 249.
const ALL: &str = "AD AE AF AG AI AL AM AO AQ AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BV \
    BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ \
    FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GS GT GU GW GY HK HM HN HR HT HU ID IE IL IM IN IO IQ IR \
    IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML \
    MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PN PR \
    PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TC TD TF TG TH TJ \
    TK TL TM TN TO TR TT TV TW TZ UA UG UM US UY UZ VA VC VE VG VI VN VU WF WS YE YT ZA ZM ZW";
const UNION: &str = "AT BE BG CY CZ DE DK EE ES FI FR GR HR HU IE IT LT LU LV MT NL PL PT RO SE SI SK";

fn block(country: &str) -> String {
    format!(
        "[[models]]\nid = \"m\"\nkind = \"chat\"\ncontext_length = 1000\n\
         [[providers]]\nid = \"a\"\noperator = \"T\"\ncountry = \"{country}\"\ncity = \"C\"\n\
         base_url = \"http://127.0.0.1:9/v1\"\n[[providers.offers]]\nmodel = \"m\"\n"
    )
}

#[test]
fn exactly_the_member_states_are_accepted_as_locations() {
    let all: BTreeSet<&str> = ALL.split_whitespace().collect();
    assert_eq!(all.len(), 249);
    let good = |code: &&str| {
        let loaded = load_text("t.toml", &block(code), ResolveEnv { env: &|_| None });
        if let Err(report) = &loaded {
            assert!(report.mistakes.iter().all(|mistake| mistake.key.ends_with("country")), "{code}");
        }
        loaded.is_ok()
    };
    let accepted: BTreeSet<&str> = all.iter().copied().filter(good).collect();
    assert_eq!(accepted, UNION.split_whitespace().collect());
    // Codes that look like countries but are none, among them those of the United Kingdom and the European Union.
    for code in ["UK", "EU", "XK", "fr", "FRA", "", "France"] {
        assert!(load_text("t.toml", &block(code), ResolveEnv { env: &|_| None }).is_err(), "{code}");
    }
}

#[test]
fn a_provider_elsewhere_ends_the_start_before_a_port_is_bound() {
    let home = Home::new();
    home.write(&block("US"));
    // Another socket uses the port. A gateway that tried to bind the port would report that.
    let _taken = std::net::TcpListener::bind(home.http).unwrap();
    let begun = Instant::now();
    let output = home.command(&["run"]);
    let took = begun.elapsed();
    eprintln!("refused after {took:?}");
    let stderr = complaint(&output);
    assert_eq!(output.status.code(), Some(78), "{stderr}");
    assert!(stderr.contains("country") && !stderr.contains("in use"), "{stderr}");
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert!(!home.storage().exists());
}
