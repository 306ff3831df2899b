//! JSON document in memory that borrows its names and texts from the source text. `serde_json::Value` would copy them,
//! and a configuration of 32,000 offers has millions of them.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};
use serde_json::Number;
use std::borrow::Cow;
use std::fmt;

/// JSON value that borrows its names and texts from the source document.
#[derive(Debug, PartialEq)]
pub(super) enum ConfigTree<'d> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'d, str>),
    List(Vec<ConfigTree<'d>>),
    /// Members in the order of the document.
    Table(Vec<(Cow<'d, str>, ConfigTree<'d>)>),
}

impl ConfigTree<'_> {
    /// Returns the member of a table with this name; `None` if there is none, and for any other value.
    pub(super) fn get(&self, name: &str) -> Option<&Self> {
        let Self::Table(members) = self else { return None };
        members.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Returns the text of a string; `None` for any other value.
    pub(super) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl<'de: 'd, 'd> Deserialize<'de> for ConfigTree<'d> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = ConfigTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<ConfigTree<'de>, E> {
        Ok(Number::from_f64(value).map_or(ConfigTree::Null, ConfigTree::Number))
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ConfigTree<'de>, E> {
        Ok(ConfigTree::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ConfigTree<'de>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(ConfigTree::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut table: A) -> Result<ConfigTree<'de>, A::Error> {
        let mut members = Vec::new();
        while let Some((name, value)) = table.next_entry::<ConfigTree<'de>, ConfigTree<'de>>()? {
            // A member whose value is `null` counts as absent.
            if let (ConfigTree::Text(name), false) = (name, value == ConfigTree::Null) {
                members.push((name, value));
            }
        }
        Ok(ConfigTree::Table(members))
    }
}

impl Serialize for ConfigTree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::Text(text) => serializer.serialize_str(text),
            Self::List(values) => serializer.collect_seq(values),
            Self::Table(members) => serializer.collect_map(members.iter().map(|(name, value)| (name, value))),
        }
    }
}
