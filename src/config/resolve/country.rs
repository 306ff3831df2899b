//! Country rule: requests go only to providers in a member state of the European Union.

use super::super::suggest;
use penstock_footprint::country::{eu_member_state_name, eu_member_states};

/// Codes and names of other countries, for the error message.
#[rustfmt::skip]
const OTHER_COUNTRIES: [(&str, &str); 44] = [
    ("AE", "The United Arab Emirates"), ("AL", "Albania"), ("AR", "Argentina"), ("AU", "Australia"),
    ("BA", "Bosnia and Herzegovina"), ("BR", "Brazil"), ("BY", "Belarus"), ("CA", "Canada"),
    ("CH", "Switzerland"), ("CL", "Chile"), ("CN", "China"), ("EG", "Egypt"), ("GB", "The United Kingdom"),
    ("GE", "Georgia"), ("GG", "Guernsey"), ("GI", "Gibraltar"), ("HK", "Hong Kong"), ("ID", "Indonesia"),
    ("IL", "Israel"), ("IM", "The Isle of Man"), ("IN", "India"), ("IS", "Iceland"), ("JE", "Jersey"),
    ("JP", "Japan"), ("KR", "South Korea"), ("LI", "Liechtenstein"), ("MA", "Morocco"), ("MC", "Monaco"),
    ("MD", "Moldova"), ("ME", "Montenegro"), ("MK", "North Macedonia"), ("MX", "Mexico"), ("NO", "Norway"),
    ("NZ", "New Zealand"), ("RS", "Serbia"), ("RU", "Russia"), ("SA", "Saudi Arabia"), ("SG", "Singapore"),
    ("TR", "Türkiye"), ("TW", "Taiwan"), ("UA", "Ukraine"), ("UK", "The United Kingdom"),
    ("US", "The United States"), ("ZA", "South Africa"),
];

/// Returns the name of a member state. If the code belongs to no member state, returns the reason and the correction.
pub fn eu_country_name(code: &str) -> Result<&'static str, (String, String)> {
    if let Some(name) = eu_member_state_name(code) {
        return Ok(name);
    }
    let upper = code.trim().to_ascii_uppercase();
    if let Some(name) = eu_member_state_name(&upper) {
        return Err((format!("{name} is written in two capitals."), format!("Write \"{upper}\".")));
    }
    if upper == "EL" {
        return Err(("Greece is `GR` here, as in ISO 3166.".to_owned(), "Write \"GR\".".to_owned()));
    }
    if let Some((_, name)) = OTHER_COUNTRIES.iter().find(|(other, _)| *other == upper) {
        return Err(outside_eu(&format!("{name} is not a member state of the European Union")));
    }
    let by_name = eu_member_states().find(|(_, name)| name.eq_ignore_ascii_case(code.trim()));
    let guess =
        || suggest::most_similar(code, eu_member_states().map(|(_, name)| name).filter(|_| code.len() > 3));
    let meant =
        by_name.or_else(|| guess().and_then(|meant| eu_member_states().find(|(_, name)| *name == meant)));
    match meant {
        Some((code, name)) => Err((
            format!("A country is written as its two-letter code, and {name} is `{code}`."),
            format!("Write \"{code}\"."),
        )),
        None => Err(outside_eu("It is not the code of a member state of the European Union")),
    }
}

fn outside_eu(fault: &str) -> (String, String) {
    let codes: Vec<&str> = eu_member_states().map(|(code, _)| code).collect();
    (
        format!("{fault}, and requests go to providers inside it only."),
        format!("Take the provider out, or write where its machines are: one of {}.", codes.join(" ")),
    )
}
