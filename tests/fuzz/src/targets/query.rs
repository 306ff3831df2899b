//! Query of `GET /v1/models`: the answer is an error that names a field, or a page of valid JSON.

use penstock_catalog::{Catalog, CatalogModel, CatalogQuery, LastHourFigures};
use std::sync::LazyLock;

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
    Catalog::new(["a", "org/b:c", "é"].map(CatalogModel::new).to_vec()).expect("a sound catalogue")
});

pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match CatalogQuery::parse(text) {
        Ok(query) => {
            if let Ok(page) = CATALOG.serialize_page(&query, &|_| true, &|_| LastHourFigures::default(), 0) {
                let value: serde_json::Value = serde_json::from_slice(&page).expect("a page is JSON");
                assert!(value["data"].as_array().is_some_and(|models| models.len() <= 3));
            }
        }
        Err(refusal) => assert!(refusal.param.is_some() && refusal.message.len() < 1_024),
    }
    let _ = CATALOG.resolve(text);
}
