//! JSON bodies of requests to the admin API. A key that occurs twice is refused, as in the public API: it would be
//! unclear which value counts.

use penstock_core::{ApiError, ErrorCode};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::fmt;

/// Parses the JSON object of a request body; an empty body is an empty object.
///
/// # Errors
/// Returns a refusal if the body is no JSON object, or if a key occurs more than once in an object.
pub fn parse_object(body: &[u8]) -> Result<Value, ApiError> {
    if body.is_empty() {
        return Ok(json!({}));
    }
    let repeated = RefCell::new(None);
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = UniqueKeys(&repeated).deserialize(&mut deserializer);
    let value = value.and_then(|value| deserializer.end().map(|()| value));
    if let Some(key) = repeated.take() {
        let sentence = format!("{key}: the key occurs more than once.");
        return Err(ApiError::with_message(ErrorCode::InvalidRequest, sentence));
    }
    value
        .ok()
        .filter(Value::is_object)
        .ok_or_else(|| ApiError::with_message(ErrorCode::InvalidRequest, "The body has to be a JSON object."))
}

/// Deserializer of a value whose objects have unique keys. Stores the first repeated key.
#[derive(Clone, Copy)]
struct UniqueKeys<'k>(&'k RefCell<Option<String>>);

impl<'de> DeserializeSeed<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for UniqueKeys<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                *self.0.borrow_mut() = Some(key);
                return Err(A::Error::custom("a repeated key"));
            }
            let value = members.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_body_is_an_object_with_unique_keys() {
        let text = r#"{"a":[1,-2,1.5,"x",null,true,{"b":{}}],"c":18446744073709551615}"#;
        assert_eq!(parse_object(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(parse_object(b"").unwrap(), json!({}));
        for (body, message) in [
            (r#"{"credits":1,"credits":1000}"#, "credits: the key occurs more than once."),
            (r#"{"a":{"b":1,"\u0062":2}}"#, "b: the key occurs more than once."),
            (r#"{"a":[{"b":1,"b":1}]}"#, "b: the key occurs more than once."),
            ("[]", "The body has to be a JSON object."),
            ("{} {}", "The body has to be a JSON object."),
            ("{", "The body has to be a JSON object."),
        ] {
            assert_eq!(parse_object(body.as_bytes()).unwrap_err().message, message, "{body}");
        }
    }
}
