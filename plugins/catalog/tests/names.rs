//! Names of models and their aliases.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use penstock_catalog::{Catalog, CatalogModel};

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn names_are_unique_and_every_clash_is_reported() {
    let named =
        |id: &str, aliases: &[&str]| CatalogModel { aliases: texts(aliases), ..CatalogModel::new(id) };
    let mistakes =
        Catalog::new(vec![named("a", &["b", "b"]), named("b", &[]), named("a", &[""]), named("c", &["c"])])
            .unwrap_err();
    assert_eq!(mistakes.len(), 5, "{mistakes:#?}");
    assert!(mistakes[1].contains("'b'") && mistakes[1].contains("'a'"), "{mistakes:#?}");
    assert!(mistakes[3].contains("empty"), "{mistakes:#?}");
}
