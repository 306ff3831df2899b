//! Query of the batch list: `after` and `limit`. Unknown parameters are ignored.

use crate::proxy::endpoint::query_parameters;
use penstock_core::ApiError;

/// Default page size of the batch list; the maximum is `MAX_LIMIT`.
const DEFAULT_LIMIT: usize = 20;
const MAX_LIMIT: usize = 100;

/// Page of the batch list that the client requests.
#[derive(Debug, PartialEq, Eq)]
pub struct BatchListQuery {
    /// ID of the batch before the page.
    pub after: Option<String>,
    /// Maximum number of batches.
    pub limit: usize,
}

impl BatchListQuery {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// Returns a refusal if `limit` is not a number from 1 to 100.
    pub fn parse(text: &str) -> Result<Self, ApiError> {
        let mut query = Self { after: None, limit: DEFAULT_LIMIT };
        for (name, value) in query_parameters(text) {
            match &*name {
                "after" if !value.is_empty() => query.after = Some(value.into_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                    let expected = || {
                        ApiError::invalid("limit", format!("limit: expected a number from 1 to {MAX_LIMIT}"))
                    };
                    query.limit = limit.ok_or_else(expected)?;
                }
                _ => {}
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_page_is_parsed_and_its_limit_checked() {
        assert_eq!(BatchListQuery::parse("").unwrap(), BatchListQuery { after: None, limit: 20 });
        let query = BatchListQuery::parse("limit=100&after=batch%5F1&order=desc&after").unwrap();
        assert_eq!(query, BatchListQuery { after: Some("batch_1".into()), limit: 100 });
        for invalid in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=%", "limit=%+5"] {
            assert_eq!(
                BatchListQuery::parse(invalid).unwrap_err().param.as_deref(),
                Some("limit"),
                "{invalid}"
            );
        }
    }
}
