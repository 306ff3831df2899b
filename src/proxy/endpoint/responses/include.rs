//! Query parameter `include` of stored responses and of their items.

use crate::proxy::endpoint::query_parameters;
use crate::proxy::exchange::Exchange;
use penstock_core::ApiError;
use penstock_dialect::sealed_items::{seal_item_reasoning, seal_response_reasoning};
use penstock_request_validation::{ENCRYPTED_REASONING_INCLUDE, INCLUDE_VALUES};
use std::borrow::Cow;

/// Parts that a client wants in addition to those that are always returned. Log probabilities are returned if they
/// were requested when the response was created. Outputs of tools do not exist, because the gateway runs no tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct IncludedParts {
    sealed_reasoning: bool,
}

impl IncludedParts {
    /// Parses the query of a URL: `include=…`, `include[]=…` or `include[0]=…`, each once or several times. Empty
    /// values count as absent.
    ///
    /// # Errors
    /// Returns 400 for an unknown value.
    pub(super) fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parts = Self::default();
        for (name, value) in query_parameters(query) {
            if !is_include(&name) || value.is_empty() {
                continue;
            }
            if !INCLUDE_VALUES.contains(&&*value) {
                let known = INCLUDE_VALUES.join("\", \"");
                return Err(ApiError::invalid("include", format!("include: expected one of \"{known}\".")));
            }
            parts.sealed_reasoning |= value == ENCRYPTED_REASONING_INCLUDE;
        }
        Ok(parts)
    }

    /// Adds the parts to a response object.
    ///
    /// # Errors
    /// Returns a refusal if there is no memory for them.
    pub(super) fn add_to_response(
        self,
        x: &mut Exchange<'_>,
        response: Vec<u8>,
    ) -> Result<Vec<u8>, ApiError> {
        if !self.sealed_reasoning {
            return Ok(response);
        }
        // The sealed text is a third longer than the text.
        x.reserve_memory(response.len().saturating_mul(2))?;
        Ok(seal_response_reasoning(&response).unwrap_or(response))
    }

    /// Adds the parts to an item.
    pub(super) fn add_to_item(self, item: &[u8]) -> Cow<'_, [u8]> {
        let sealed = self.sealed_reasoning.then(|| seal_item_reasoning(item)).flatten();
        sealed.map_or(Cow::Borrowed(item), Cow::Owned)
    }
}

/// Returns true for the name of the parameter, also with the index of an array element.
fn is_include(name: &str) -> bool {
    let index = name.strip_prefix("include").and_then(|rest| match rest {
        "" => Some(rest),
        _ => rest.strip_prefix('[')?.strip_suffix(']'),
    });
    index.is_some_and(|index| index.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn known_parts_are_accepted_and_others_named() {
        for (query, expected) in [
            ("", false),
            ("include=", false),
            ("include[]=reasoning.encrypted_content", true),
            ("include%5B%5D=message.output_text.logprobs&include%5B%5D=reasoning.encrypted_content", true),
            ("include=reasoning.encrypted_content&limit=3", true),
            ("include[0]=web_search_call.results&include[1]=reasoning.encrypted_content", true),
            ("include[]=message.output_text.logprobs", false),
            ("includes=zzz&include_obfuscation=true&include[x]=zzz", false),
        ] {
            assert_eq!(IncludedParts::parse(query).unwrap().sealed_reasoning, expected, "{query}");
        }
        for query in
            ["include=zzz", "include[]=reasoning", "include[]=reasoning.encrypted_content&include[7]=b"]
        {
            let refusal = IncludedParts::parse(query).unwrap_err();
            assert_eq!(refusal.param.as_deref(), Some("include"), "{query}");
            assert!(refusal.message.contains("\"reasoning.encrypted_content\""));
        }
    }
}
