//! Id of an exchange: every response has it in `x-request-id` and `request-id`, and every log line of the exchange
//! contains it.

use http::HeaderValue;
use penstock_dialect::item_references::{RESPONSE_ID_ALPHABET, RESPONSE_ID_RANDOM_CHARS};
use std::fmt;

/// Request id: `req_` and 24 letters and digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestId([u8; 4 + RESPONSE_ID_RANDOM_CHARS]);

impl RequestId {
    /// Creates an id from the thread's random source, with 5 bits per character.
    #[must_use]
    pub fn random() -> Self {
        let mut id = *b"req_aaaaaaaaaaaaaaaaaaaaaaaa";
        let mut bits: u128 = rand::random();
        for letter in id.iter_mut().skip(4) {
            *letter = RESPONSE_ID_ALPHABET.get((bits & 31) as usize).copied().unwrap_or(b'a');
            bits >>= 5;
        }
        Self(id)
    }

    /// Returns the complete id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("req_")
    }

    /// Returns the random part, which is also part of the id of the response (`chatcmpl-…`, `msg_…`).
    #[must_use]
    pub fn random_part(&self) -> &str {
        self.as_str().get(4..).unwrap_or_default()
    }

    /// Returns the id as a header value.
    #[must_use]
    pub fn to_header_value(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).unwrap_or_else(|_| HeaderValue::from_static("req_"))
    }
}

impl fmt::Debug for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_dialect::item_references::response_id_of_item;

    #[test]
    fn ids_are_letters_and_digits_and_differ() {
        let (one, two) = (RequestId::random(), RequestId::random());
        assert_ne!(one.as_str(), two.as_str());
        assert_eq!(one.random_part().len(), RESPONSE_ID_RANDOM_CHARS);
        assert!(one.random_part().bytes().all(|b| b.is_ascii_alphanumeric()));
        let item = format!("msg_{}_0", one.random_part());
        assert_eq!(response_id_of_item(&item), Some(format!("resp_{}", one.random_part())));
        assert_eq!(one.to_header_value(), one.as_str());
    }
}
