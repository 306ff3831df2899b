//! Deserialization of a document that borrows from its [`SpannedValue`]s. An integer beyond the range of `i64`, and a
//! float that is not finite, are deserialized as their literal text.

use super::spanned_toml::{SpannedValue, Value};
use serde::de::value::{Error, MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

impl<'de> IntoDeserializer<'de, Error> for &'de SpannedValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &'de SpannedValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) | Value::Date(text) => visitor.visit_borrowed_str(text),
            Value::Integer(text) => match text.parse::<i64>() {
                Ok(number) => match u64::try_from(number) {
                    Ok(number) => visitor.visit_u64(number),
                    Err(_) => visitor.visit_i64(number),
                },
                Err(_) => visitor.visit_borrowed_str(text),
            },
            Value::Float(text) => match text.replace('_', "").parse::<f64>() {
                Ok(number) if number.is_finite() => visitor.visit_f64(number),
                _ => visitor.visit_borrowed_str(text),
            },
            Value::Bool(yes) => visitor.visit_bool(*yes),
            Value::List(elements) => visitor.visit_seq(SeqDeserializer::new(elements.iter())),
            Value::Table(_) => visitor.visit_map(MapDeserializer::new(self.named_members())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.value {
            Value::Text(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            _ => visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(self.named_members()))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

impl SpannedValue {
    fn named_members(&self) -> impl Iterator<Item = (&str, &Self)> {
        self.members().iter().map(|(name, value)| (name.as_str(), value))
    }
}
