//! Member `_meta` of the models of a page.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_catalog::{Catalog, CatalogModel, CatalogQuery, LastHourFigures};
use serde_json::Value;

#[test]
fn meta_is_there_when_it_is_asked_for() {
    let models = ["alpha", "bravo"].map(CatalogModel::new).to_vec();
    let catalog = Catalog::new(models).unwrap();
    let page = |query: &str| -> Value {
        let query = CatalogQuery::parse(query).unwrap();
        serde_json::from_slice(
            &catalog.serialize_page(&query, &|_| true, &|_| LastHourFigures::default(), 0).unwrap(),
        )
        .unwrap()
    };
    for (query, there) in [
        ("", false),
        ("include_meta=false", false),
        ("include_meta=", false),
        ("include_meta=true", true),
        ("include_meta=True", true),
        ("include_meta=FALSE", false),
        ("include_meta=1&include_aliases=true", true),
    ] {
        for item in page(query)["data"].as_array().unwrap() {
            assert_eq!(item.get("_meta").is_some(), there, "{query}");
            assert!(!there || item["_meta"]["display_name"] == item["display_name"], "{item}");
        }
    }
    assert!(
        CatalogQuery::parse("include_meta=yes").is_err()
            && penstock_catalog::parse_item_detail("include_meta=yes").is_err()
    );
    assert_eq!(
        penstock_catalog::parse_item_detail("limit=no&include_meta=true").unwrap(),
        penstock_catalog::ItemDetail::Meta
    );
}
