//! Single values as written in a configuration. Each has a `format` in the schema, which the schema check knows.

use super::super::units;
use rust_decimal::Decimal;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::time::Duration;

/// A duration above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonZeroDuration(pub Duration);

/// A duration that may be zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationOrZero(pub Duration);

/// A size in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub u64);

/// An exact decimal number, zero or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExactDecimal(pub Decimal);

impl NonZeroDuration {
    /// Creates a duration of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

macro_rules! leaf {
    ($name:ident, $schema:expr, $read:expr, $write:expr) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match serde_json::Value::deserialize(deserializer)? {
                    serde_json::Value::String(text) => text,
                    other => other.to_string(),
                };
                $read(&text).map($name).ok_or_else(|| D::Error::custom(stringify!($name)))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&$write(&self.0))
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

leaf!(
    NonZeroDuration,
    json_schema!({ "type": "string", "format": "duration", "examples": ["30s"] }),
    units::parse_duration,
    |value: &Duration| units::format_duration(*value)
);
leaf!(
    DurationOrZero,
    json_schema!({ "type": "string", "format": "pause", "examples": ["5s"] }),
    units::parse_duration,
    |value: &Duration| units::format_duration(*value)
);
leaf!(
    ByteSize,
    json_schema!({ "type": ["string", "integer"], "format": "size", "examples": ["32MiB"] }),
    units::parse_size,
    |value: &u64| units::format_size(*value)
);
leaf!(
    ExactDecimal,
    json_schema!({ "type": ["number", "string"], "format": "decimal", "minimum": 0, "examples": [0.15] }),
    units::parse_decimal,
    |value: &Decimal| value.to_string()
);

/// One string or several.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum OneOrMany {
    /// One string.
    One(String),
    /// Several strings, or none.
    Many(Vec<String>),
}

/// Reference to a secret: exactly one of the two keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline, extend("format" = "secret"))]
pub struct SecretRef {
    /// Name of the environment variable that contains the secret.
    #[schemars(length(min = 1), example = &"SCALEWAY_API_KEY")]
    pub env: Option<String>,
    /// File that contains the secret; whitespace at its end is ignored.
    #[schemars(length(min = 1), example = &"/run/secrets/scaleway")]
    pub file: Option<String>,
}

/// Value of a header: plain text, or a reference to a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub enum HeaderValueConfig {
    /// Plain text.
    Plain(String),
    /// Reference to a secret.
    Secret(SecretRef),
}
