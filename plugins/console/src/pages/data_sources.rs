//! Places, grids, contracts and methods of footprints as lists in sentences, with the names that can be translated.

use super::{array_member, place};
use crate::text::Text;
use serde_json::Value;

/// Names of the evidence for a contract, as the configuration writes them.
const EVIDENCE: [(&str, &str); 4] = [
    ("on-site", "generation on site"),
    ("hourly-ppa", "PPA with hourly matching"),
    ("annual-ppa", "PPA with annual matching"),
    ("unbundled", "unbundled certificates"),
];
/// Text between two names of a list in a sentence of the API; no name contains it.
const SEPARATOR: &str = "; ";

/// Kind of the names in a list.
#[derive(Clone, Copy, Debug)]
pub(super) enum SourceKind {
    /// Name that is not translated, such as that of a method.
    Name,
    /// City and country, such as `Paris, France`.
    Place,
    /// Grid factor after the name of its country, such as `France: EEA, 2023, 56 g/kWh`.
    Grid,
    /// Contract for renewable power: place, share and evidence, such as `Paris, France, 100 %, annual-ppa`.
    Contract,
}

impl SourceKind {
    /// Returns the text of one name. A name in another format is shown unchanged.
    fn text(self, name: &str) -> Text {
        match self {
            Self::Name => Text::Data(name.to_owned()),
            Self::Place => place(name),
            Self::Grid => match name.split_once(": ") {
                Some((zone, factor)) => Text::with_values(
                    "{0}: {1}",
                    [Text::Word(zone.to_owned()), Text::Data(factor.to_owned())],
                ),
                None => Text::Data(name.to_owned()),
            },
            Self::Contract => contract(name).unwrap_or_else(|| Text::Data(name.to_owned())),
        }
    }

    /// Returns the names of a member of the API as a list; `none` without a name.
    pub(super) fn list_of_member(self, value: &Value, member: &str) -> Text {
        self.list(array_member(value, member).iter().filter_map(Value::as_str))
    }

    /// Returns the names in a sentence of the API as a list.
    pub(super) fn list_in_sentence(self, names: &str) -> Text {
        if names == "none" { "none".into() } else { self.list(names.split(SEPARATOR)) }
    }

    fn list<'n>(self, names: impl Iterator<Item = &'n str>) -> Text {
        let names: Vec<Text> = names.map(|name| self.text(name)).collect();
        if names.is_empty() { "none".into() } else { Text::List(names, SEPARATOR) }
    }
}

fn contract(name: &str) -> Option<Text> {
    let (rest, evidence) = name.rsplit_once(", ")?;
    let (location, share) = rest.rsplit_once(", ")?;
    let percent = share.strip_suffix(" %")?;
    let known = EVIDENCE.iter().find(|(name, _)| *name == evidence);
    let evidence = known.map_or_else(|| Text::Data(evidence.to_owned()), |(_, text)| (*text).into());
    Some(Text::with_values(
        "{0}, {1} %, {2}",
        [place(location), Text::Exact(percent.to_owned(), ""), evidence],
    ))
}

/// Returns a sentence of the notes with the places and grids in it as texts that are translated.
pub(super) fn with_translated_names(sentence: Text) -> Text {
    let Text::Template(template, mut values) = sentence else { return sentence };
    let kinds: &[SourceKind] = if template.starts_with("Carbon, location-based") {
        &[SourceKind::Name, SourceKind::Grid]
    } else if template.starts_with("Carbon, market-based") {
        &[SourceKind::Contract]
    } else {
        &[]
    };
    for (value, kind) in values.iter_mut().zip(kinds) {
        if let Text::Data(names) = value {
            *value = kind.list_in_sentence(names);
        }
    }
    Text::Template(template, values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Language;
    use serde_json::json;

    #[test]
    fn names_are_those_of_the_language_and_are_separated_clearly() {
        for (kind, names, german, french) in [
            (
                SourceKind::Place,
                "Paris, France; Warsaw, Poland",
                "Paris, Frankreich; Warsaw, Polen",
                "Paris, France; Warsaw, Pologne",
            ),
            (
                SourceKind::Contract,
                "Warsaw, Poland, 99.5 %, annual-ppa",
                "Warsaw, Polen, 99,5 %, PPA mit jährlichem Abgleich",
                "Warsaw, Pologne, 99,5 %, PPA à correspondance annuelle",
            ),
            (
                SourceKind::Grid,
                "Poland: EEA 2023, 2023, 600.5 g/kWh",
                "Polen: EEA 2023, 2023, 600.5 g/kWh",
                "Pologne : EEA 2023, 2023, 600.5 g/kWh",
            ),
            (SourceKind::Contract, "none", "keine", "aucun"),
            (SourceKind::Contract, "other", "other", "other"),
            (SourceKind::Grid, "other", "other", "other"),
            (SourceKind::Name, "none known; b", "none known; b", "none known; b"),
        ] {
            let text = kind.list_in_sentence(names);
            assert_eq!(text.render(Language::German), german);
            assert_eq!(text.render(Language::French), french);
        }
        let places = json!({ "places": ["Paris, France"], "none": [] });
        let of =
            |member| SourceKind::Place.list_of_member(&places, member).render(Language::German).into_owned();
        assert_eq!(
            (of("places"), of("none"), of("absent")),
            ("Paris, Frankreich".into(), "keine".into(), "keine".into())
        );
    }
}
