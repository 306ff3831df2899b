//! Query of the batch list: `after` and `limit`. Unknown parameters are ignored.

use crate::proxy::endpoint::parameters;
use penstock_contract::Refusal;

/// Default and largest page size.
const USUAL: usize = 20;
const MOST: usize = 100;

/// Page of the list.
#[derive(Debug, PartialEq, Eq)]
pub struct Query {
    /// ID of the batch before the page.
    pub after: Option<String>,
    /// Maximum number of batches.
    pub limit: usize,
}

impl Query {
    /// Parses the query of a URL.
    ///
    /// # Errors
    /// Returns a refusal if `limit` is not a number from 1 to 100.
    pub fn parse(text: &str) -> Result<Self, Refusal> {
        let mut query = Self { after: None, limit: USUAL };
        for (name, value) in parameters(text) {
            match &*name {
                "after" if !value.is_empty() => query.after = Some(value.into_owned()),
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MOST).contains(limit));
                    let expected =
                        || Refusal::invalid("limit", format!("limit: expected a number from 1 to {MOST}"));
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
    fn a_page_is_read_and_its_limit_held() {
        assert_eq!(Query::parse("").unwrap(), Query { after: None, limit: 20 });
        let query = Query::parse("limit=100&after=batch%5F1&order=desc&after").unwrap();
        assert_eq!(query, Query { after: Some("batch_1".into()), limit: 100 });
        for wrong in ["limit=0", "limit=101", "limit=-1", "limit=x", "limit=", "limit=%", "limit=%+5"] {
            assert_eq!(Query::parse(wrong).unwrap_err().param.as_deref(), Some("limit"), "{wrong}");
        }
    }
}
