//! Catalogue pages: filters, orders, cursors.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_catalog::{Catalog, CatalogModel, CatalogPrice, CatalogQuery, LastHourFigures};
use penstock_core::{ApiError, ErrorCode, ModelKind};
use proptest::prelude::*;
use rust_decimal::Decimal;
use serde_json::Value;

fn price(input: u32, output: u32) -> Option<CatalogPrice> {
    Some(CatalogPrice { input: input.into(), output: output.into(), ..CatalogPrice::default() })
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|text| (*text).to_owned()).collect()
}

fn catalog() -> Catalog {
    let models = vec![
        CatalogModel {
            created: 100,
            context_length: 8_000,
            price: price(1, 2),
            supported_parameters: texts(&["tools", "stream"]),
            aliases: texts(&["claude-a", "claude-b"]),
            ..CatalogModel::new("alpha")
        },
        CatalogModel {
            created: 300,
            context_length: 32_000,
            price: price(5, 5),
            supported_parameters: texts(&["stream"]),
            aliases: texts(&["claude-c"]),
            ..CatalogModel::new("bravo")
        },
        CatalogModel {
            created: 200,
            context_length: 512,
            price: price(1, 0),
            output_modalities: texts(&["embeddings"]),
            ..CatalogModel::new("charlie")
        },
        CatalogModel {
            created: 200,
            context_length: 0,
            output_modalities: texts(&["image"]),
            ..CatalogModel::new("delta")
        },
    ];
    Catalog::new(models).unwrap()
}

fn figures(id: &str) -> LastHourFigures {
    match id {
        "alpha" => LastHourFigures { throughput: Some(10.0), latency: Some(0.1), popularity: Some(1.0) },
        "bravo" => LastHourFigures { throughput: Some(90.0), latency: Some(0.9), popularity: Some(9.0) },
        "charlie" => LastHourFigures { latency: Some(0.5), throughput: Some(f64::NAN), popularity: None },
        _ => LastHourFigures::default(),
    }
}

fn page(query: &str) -> Value {
    let query = CatalogQuery::parse(query).unwrap();
    serde_json::from_slice(&catalog().serialize_page(&query, &|_| true, &figures, 0).unwrap()).unwrap()
}

fn ids(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap()).collect()
}

fn refusal(query: &str) -> ApiError {
    match CatalogQuery::parse(query) {
        Err(refusal) => refusal,
        Ok(query) => catalog().serialize_page(&query, &|_| true, &figures, 0).unwrap_err(),
    }
}

#[test]
fn without_a_query_the_newest_come_first_with_ties_by_id() {
    let page = page("");
    assert_eq!(ids(&page), ["bravo", "charlie", "delta", "alpha"]);
    assert_eq!(page["object"], "list");
    assert_eq!(page["has_more"], false);
    assert_eq!(page["first_id"], "bravo");
    assert_eq!(page["last_id"], "alpha");
    assert_eq!(page["total_count"], 4);
}

#[test]
fn each_of_the_seven_orders_orders() {
    let cases = [
        ("pricing-low-to-high", ["charlie", "alpha", "bravo", "delta"]),
        ("pricing-high-to-low", ["bravo", "alpha", "charlie", "delta"]),
        ("context-high-to-low", ["bravo", "alpha", "charlie", "delta"]),
        ("throughput-high-to-low", ["bravo", "alpha", "charlie", "delta"]),
        ("latency-low-to-high", ["alpha", "charlie", "bravo", "delta"]),
        ("newest", ["bravo", "charlie", "delta", "alpha"]),
        ("most-popular", ["bravo", "alpha", "charlie", "delta"]),
    ];
    for (sort, expected) in cases {
        assert_eq!(ids(&page(&format!("sort={sort}"))), expected, "{sort}");
    }
}

#[test]
fn models_without_a_price_of_tokens_come_last_in_both_orders_of_price() {
    let model = |id: &str, kind, price| CatalogModel { kind, price: Some(price), ..CatalogModel::new(id) };
    let unit = || Some(Decimal::from(5));
    let catalog = Catalog::new(vec![
        model("an-image", ModelKind::Image, CatalogPrice { image: unit(), ..CatalogPrice::default() }),
        model("a-voice", ModelKind::Speech, CatalogPrice { minute: unit(), ..CatalogPrice::default() }),
        model("an-ear", ModelKind::Transcription, CatalogPrice::default()),
        model("chat", ModelKind::Chat, price(1, 2).unwrap()),
        model("free", ModelKind::Moderation, price(0, 0).unwrap()),
    ]);
    for (sort, expected) in [
        ("pricing-low-to-high", ["free", "chat", "a-voice", "an-ear", "an-image"]),
        ("pricing-high-to-low", ["chat", "free", "a-voice", "an-ear", "an-image"]),
    ] {
        let query = CatalogQuery::parse(&format!("sort={sort}")).unwrap();
        let page = catalog.as_ref().unwrap().serialize_page(&query, &|_| true, &figures, 0).unwrap();
        assert_eq!(ids(&serde_json::from_slice(&page).unwrap()), expected, "{sort}");
    }
}

#[test]
fn output_modalities_are_any_of_and_all_is_no_filter() {
    assert_eq!(ids(&page("output_modalities=embeddings")), ["charlie"]);
    assert_eq!(ids(&page("output_modalities=embeddings,image")), ["charlie", "delta"]);
    assert_eq!(ids(&page("output_modalities=image&output_modalities=embeddings")), ["charlie", "delta"]);
    assert_eq!(ids(&page("output_modalities=all")).len(), 4);
    assert_eq!(ids(&page("output_modalities=text,all")).len(), 4);
    assert_eq!(ids(&page("output_modalities=audio")).len(), 0);
    assert_eq!(ids(&page("output_modalities=")).len(), 4);
    assert_eq!(ids(&page("output_modalities=embeddings%2C%20image")), ["charlie", "delta"]);
}

#[test]
fn supported_parameters_are_all_of() {
    assert_eq!(ids(&page("supported_parameters=tools")), ["alpha"]);
    assert_eq!(ids(&page("supported_parameters=stream")), ["bravo", "alpha"]);
    assert_eq!(ids(&page("supported_parameters=stream,tools")), ["alpha"]);
    assert_eq!(ids(&page("supported_parameters=stream&supported_parameters=tools")), ["alpha"]);
    assert_eq!(ids(&page("supported_parameters=levitation")).len(), 0);
}

#[test]
fn lifecycle_filters_too() {
    assert_eq!(ids(&page("lifecycle=active")).len(), 4);
    assert_eq!(ids(&page("lifecycle=retired")).len(), 0);
}

#[test]
fn offset_and_limit_cut_and_has_more_tells() {
    let first = page("limit=3");
    assert_eq!((ids(&first).len(), &first["has_more"], &first["total_count"]), (3, &true.into(), &4.into()));
    let second = page("limit=3&offset=3");
    assert_eq!((ids(&second), &second["has_more"]), (vec!["alpha"], &false.into()));
    let exact = page("limit=4");
    assert_eq!(exact["has_more"], false);
    let beyond = page("offset=18446744073709551615");
    assert_eq!(ids(&beyond).len(), 0);
    assert_eq!((&beyond["first_id"], &beyond["last_id"]), (&Value::Null, &Value::Null));
    assert_eq!(beyond["has_more"], false);
}

#[test]
fn the_page_has_a_hundred_items_by_default() {
    let models = (0..1_200).map(|n| CatalogModel::new(format!("model-{n:04}"))).collect();
    let catalog = Catalog::new(models).unwrap();
    let count = |query: &str| {
        let page =
            catalog.serialize_page(&CatalogQuery::parse(query).unwrap(), &|_| true, &figures, 0).unwrap();
        ids(&serde_json::from_slice(&page).unwrap()).len()
    };
    assert_eq!(count(""), 100);
    assert_eq!(count("limit=1000"), 1_000);
}

#[test]
fn a_mistake_names_its_parameter() {
    let cases = [
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=-1", "limit"),
        ("limit=+5", "limit"),
        ("limit=ten", "limit"),
        ("offset=-1", "offset"),
        ("offset=1.5", "offset"),
        ("sort=cheapest", "sort"),
        ("output_modalities=smell", "output_modalities"),
        ("output_modalities=text,smell", "output_modalities"),
        ("lifecycle=dead", "lifecycle"),
        ("after_id=nobody", "after_id"),
        ("before_id=nobody", "before_id"),
        ("after_id=alpha&before_id=bravo", "before_id"),
        ("after_id=alpha&offset=2", "offset"),
        ("include_aliases=perhaps", "include_aliases"),
        ("sort=%ff", "query"),
    ];
    for (query, param) in cases {
        let refusal = refusal(query);
        assert_eq!(refusal.code, ErrorCode::InvalidRequest, "{query}");
        assert_eq!(refusal.param.as_deref(), Some(param), "{query}");
    }
    assert!(refusal("sort=cheapest").message.contains("most-popular"), "says what it takes");
}

#[test]
fn a_list_has_at_most_100_names_over_all_its_repetitions() {
    for (name, value) in
        [("supported_parameters", "tools"), ("output_modalities", "image"), ("lifecycle", "active")]
    {
        let list = |count: usize| format!("{name}={}", vec![value; count].join(","));
        for query in [list(100), format!("{}&{}", list(60), list(40))] {
            assert!(CatalogQuery::parse(&query).is_ok(), "{query}");
        }
        let unknown = format!("{},unheard-of", list(100));
        for query in [list(101), format!("{}&{}", list(60), list(41)), unknown] {
            let refusal = refusal(&query);
            assert_eq!(refusal.param.as_deref(), Some(name), "{query}");
            assert_eq!(refusal.message, format!("{name} takes at most 100 names."));
        }
    }
}

#[test]
fn unknown_parameters_are_ignored() {
    assert_eq!(page("beta=true&&x&=y"), page(""));
}

#[test]
fn cursors_walk_forwards_and_backwards() {
    let after = page("after_id=bravo&limit=2");
    assert_eq!((ids(&after), &after["has_more"]), (vec!["charlie", "delta"], &true.into()));
    let before = page("before_id=alpha&limit=2");
    assert_eq!((ids(&before), &before["has_more"]), (vec!["charlie", "delta"], &true.into()));
    let start = page("before_id=charlie&limit=2");
    assert_eq!((ids(&start), &start["has_more"]), (vec!["bravo"], &false.into()));
    let end = page("after_id=alpha&offset=0");
    assert_eq!((ids(&end).len(), &end["has_more"]), (0, &false.into()));
}

#[test]
fn aliases_stand_behind_the_models_as_items_of_their_own() {
    let expected = ["bravo", "charlie", "delta", "alpha", "claude-c", "claude-a", "claude-b"];
    let listed = page("include_aliases=true");
    assert_eq!(ids(&listed), expected);
    assert_eq!(listed["total_count"], 7);
    let query = CatalogQuery::parse("").unwrap().with_aliases();
    let again: Value =
        serde_json::from_slice(&catalog().serialize_page(&query, &|_| true, &figures, 0).unwrap()).unwrap();
    assert_eq!(again, listed);
    assert_eq!(ids(&page("include_aliases=1&supported_parameters=tools")), ["alpha", "claude-a", "claude-b"]);
    assert_eq!(ids(&page("include_aliases=1&after_id=claude-a")), ["claude-b"]);
}

#[test]
fn a_name_is_an_id_or_an_alias_exactly() {
    let catalog = catalog();
    assert_eq!(catalog.resolve("alpha").unwrap().id, "alpha");
    assert_eq!(catalog.resolve("claude-b").unwrap().id, "alpha");
    assert!(catalog.resolve("Alpha").is_none());
    assert!(catalog.resolve("alpha:eco").is_none());
    assert!(catalog.resolve("").is_none());
    assert_eq!(catalog.models().count(), 4);
}

#[test]
fn patterns_stand_behind_names_and_the_one_that_says_more_counts() {
    let named =
        |id: &str, aliases: &[&str]| CatalogModel { aliases: texts(aliases), ..CatalogModel::new(id) };
    let models = vec![
        named("small", &["*haiku*", "*"]),
        named("middle", &["*Sonnet*", "claude-sonnet-4-5"]),
        named("large", &["claude-*", "*opus*"]),
        named("Claude-Sonnet-9", &[]),
    ];
    let catalog = Catalog::new(models).unwrap();
    for (name, id) in [
        ("claude-sonnet-4-5-20250929", "large"),
        ("CLAUDE-SONNET-4-5", "large"),
        ("claude-sonnet-4-5", "middle"),
        ("anthropic.SONNET", "middle"),
        ("Claude-Sonnet-9", "Claude-Sonnet-9"),
        ("my-haiku", "small"),
        ("anything", "small"),
        ("large", "large"),
    ] {
        assert_eq!(catalog.resolve(name).unwrap().id, id, "{name}");
    }
    assert!(catalog.resolve("").is_none());
    let query = CatalogQuery::parse("").unwrap().with_aliases();
    let listed = catalog.serialize_page(&query, &|_| true, &|_| LastHourFigures::default(), 0).unwrap();
    let listed: Value = serde_json::from_slice(&listed).unwrap();
    assert_eq!(
        ids(&listed),
        ["Claude-Sonnet-9", "large", "middle", "small", "claude-sonnet-4-5"],
        "no pattern is a name"
    );
    let item: Value = serde_json::from_slice(&penstock_catalog::serialize_item(
        catalog.resolve("My-Haiku").unwrap(),
        "My-Haiku",
        penstock_catalog::ItemDetail::Plain,
        0,
    ))
    .unwrap();
    assert_eq!((&item["id"], &item["alias_of"]), (&"My-Haiku".into(), &"small".into()));
}

#[test]
fn items_and_order_have_the_prices_of_the_day() {
    let changed = CatalogModel {
        price: price(1, 2),
        price_changes: vec![(100, price(9, 9)), (200, None)],
        aliases: texts(&["alias"]),
        ..CatalogModel::new("changed")
    };
    let fixed = CatalogModel { price: price(3, 3), ..CatalogModel::new("fixed") };
    let catalog = Catalog::new(vec![changed, fixed]).unwrap();
    let query =
        CatalogQuery::parse("sort=pricing-low-to-high&include_aliases=true&include_meta=true").unwrap();
    for (now, order, input, per_million) in [
        (99, ["changed", "fixed"], 1e-6, Value::from(1)),
        (100, ["fixed", "changed"], 9e-6, Value::from(9)),
        (200, ["fixed", "changed"], 0.0, Value::Null),
    ] {
        let page = catalog.serialize_page(&query, &|_| true, &figures, now).unwrap();
        let page: Value = serde_json::from_slice(&page).unwrap();
        assert_eq!(ids(&page), [order[0], order[1], "alias"], "{now}");
        for name in ["changed", "alias"] {
            let model = catalog.resolve(name).unwrap();
            let detail = penstock_catalog::ItemDetail::Meta;
            let item = penstock_catalog::serialize_item(model, name, detail, now);
            let item: Value = serde_json::from_slice(&item).unwrap();
            assert_eq!(item["pricing"]["input"].as_f64(), Some(input), "{now}: {item}");
            assert_eq!(item["_meta"]["pricing"]["input_cost_per_million_eur"], per_million, "{now}: {item}");
            let listed = page["data"].as_array().unwrap().iter().find(|item| item["id"] == name);
            assert_eq!(listed, Some(&item), "{now}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn following_the_cursors_sees_every_item_once_and_ends(
        count in 0..60_usize, limit in 1..20_usize, sort in 0..7_usize, backwards: bool,
    ) {
        let models: Vec<_> = (0..count)
            .map(|n| CatalogModel {
                created: (n * 7 % 5) as u64,
                price: (n % 3 > 0).then(|| price((n % 4) as u32, 1).unwrap()),
                aliases: (0..n % 3).map(|alias| format!("alias-{n}-{alias}")).collect(),
                ..CatalogModel::new(format!("model-{n}"))
            })
            .collect();
        let total = models.iter().map(|model| 1 + model.aliases.len()).sum::<usize>();
        let catalog = Catalog::new(models).unwrap();
        let sort = penstock_catalog::SortOrder::ALL[sort].name();
        let read = |query: String| -> Value {
            let query = CatalogQuery::parse(&query).unwrap().with_aliases();
            serde_json::from_slice(&catalog.serialize_page(&query, &|_| true, &figures, 0).unwrap()).unwrap()
        };
        let whole = read(format!("sort={sort}&limit=1000"));
        let mut seen: Vec<String> = Vec::new();
        let (param, end) = if backwards { ("before_id", "first_id") } else { ("after_id", "last_id") };
        let mut cursor = if backwards {
            let Some(last) = whole["last_id"].as_str() else { return Ok(()) };
            seen.push(last.to_owned());
            format!("&before_id={last}")
        } else {
            String::new()
        };
        for _ in 0..=total {
            let page = read(format!("sort={sort}&limit={limit}{cursor}"));
            let ids: Vec<String> = ids(&page).into_iter().map(str::to_owned).collect();
            if backwards { seen.splice(0..0, ids); } else { seen.extend(ids); }
            if page["has_more"] == false {
                break;
            }
            cursor = format!("&{param}={}", page[end].as_str().unwrap());
        }
        prop_assert_eq!(seen, ids(&whole));
        prop_assert_eq!(whole["total_count"].as_u64(), Some(total as u64));
    }

    #[test]
    fn any_query_string_is_a_page_or_a_refusal(query in ".{0,80}") {
        if let Ok(query) = CatalogQuery::parse(&query) {
            let _ = catalog().serialize_page(&query, &|_| true, &figures, 0);
        }
    }
}

#[test]
fn objects_hidden_from_a_key_are_neither_counted_nor_cursors() {
    let only = |query: &str, id: &'static str| {
        let query = CatalogQuery::parse(query)?;
        catalog().serialize_page(&query, &|model| model.id == id, &figures, 0)
    };
    let all: Value = serde_json::from_slice(&only("", "nobody").unwrap()).unwrap();
    assert_eq!((all["data"].as_array().unwrap().len(), &all["total_count"]), (0, &0.into()));
    let whole: Value = serde_json::from_slice(
        &catalog().serialize_page(&CatalogQuery::parse("").unwrap(), &|_| true, &figures, 0).unwrap(),
    )
    .unwrap();
    let id: &'static str = whole["data"][0]["id"].as_str().unwrap().to_owned().leak();
    let hidden = whole["data"][1]["id"].as_str().unwrap();
    let one: Value = serde_json::from_slice(&only("include_aliases=true", id).unwrap()).unwrap();
    let ids = one["data"].as_array().unwrap().iter();
    assert!(ids.clone().all(|item| item["id"] == id || item["alias_of"] == id), "{one}");
    assert_eq!(one["total_count"], ids.count());
    assert!(only(&format!("after_id={hidden}"), id).is_err());
}
