//! Lists of keys on both sites: sorted by name, and filtered by a part of the name or of the id.

use super::invoice::MAX_KEY_LIST_PAGES;
use super::pages::PageContext;
use penstock_console::Form;
use penstock_console::pages::key_filter_form;
use penstock_core::ApiError;
use serde_json::{Value, json};

/// Name of the query parameter with the filter.
const FILTER_PARAMETER: &str = "filter";
/// Number of keys from which on their list has a filter.
const FILTERED_KEYS: usize = 10;

/// Keys of an account, as a page shows them.
pub struct KeyList {
    /// Sorted keys that pass the filter, as a list of the admin API.
    pub keys: Value,
    /// Form of the filter; `None` for an account with few keys.
    pub filter: Option<Form>,
}

impl KeyList {
    /// Reads the keys of an account from the page on that the query parameter `after` selects; at most
    /// [`MAX_KEY_LIST_PAGES`] pages of the admin API. `path` is the path of the page that shows them.
    ///
    /// # Errors
    /// Returns the refusal of the admin API.
    pub async fn read(page: &PageContext<'_>, account: &str, path: &str) -> Result<Self, ApiError> {
        let (mut keys, mut after) = (Vec::new(), page.request.query_parameter("after").map(str::to_owned));
        for _ in 0..MAX_KEY_LIST_PAGES {
            let mut query = vec![("account", account)];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let mut answer = page.get_from_admin_api("/admin/keys", &query).await?;
            if let Some(Value::Array(rows)) = answer.get_mut("data").map(Value::take) {
                keys.extend(rows);
            }
            after = answer.get("next").and_then(Value::as_str).map(str::to_owned);
            if after.is_none() {
                break;
            }
        }
        let wanted = page.request.query_parameter(FILTER_PARAMETER).unwrap_or_default().trim();
        let has_filter = !wanted.is_empty() || keys.len() >= FILTERED_KEYS || after.is_some();
        let keys = json!({ "data": sorted_keys(keys, wanted), "next": after, "filter": wanted });
        Ok(Self { keys, filter: has_filter.then(|| key_filter_form(path, wanted)) })
    }
}

/// Returns the keys whose name or id contains a text, sorted by name without regard to case, then by creation and id.
/// Keys without a name are sorted by their ids, which pages show instead.
fn sorted_keys(mut keys: Vec<Value>, wanted: &str) -> Vec<Value> {
    let text =
        |key: &Value, name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default().to_lowercase();
    let wanted = wanted.to_lowercase();
    keys.retain(|key| ["name", "id"].iter().any(|name| text(key, name).contains(&wanted)));
    keys.sort_by_cached_key(|key| {
        let (name, id) = (text(key, "name"), text(key, "id"));
        let created = key.get("created").and_then(Value::as_u64).unwrap_or_default();
        (if name.is_empty() { id.clone() } else { name }, created, id)
    });
    keys
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn keys_are_sorted_by_name_and_found_by_a_part_of_it() {
        let keys = || {
            vec![
                json!({ "id": "5", "name": "web", "created": 2 }),
                json!({ "id": "9", "name": "Batch", "created": 1 }),
                json!({ "id": "c", "name": "" }),
                json!({ "id": "7", "name": "web", "created": 1 }),
            ]
        };
        let ids = |wanted: &str| {
            let sorted = sorted_keys(keys(), wanted);
            sorted.iter().filter_map(|key| key["id"].as_str().map(str::to_owned)).collect::<String>()
        };
        assert_eq!(ids(""), "9c75");
        assert_eq!(ids("WEB"), "75");
        assert_eq!(ids("c"), "9c");
        assert_eq!(ids("nothing"), "");
    }
}
