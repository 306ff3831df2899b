//! A page of the catalogue: filter, sort, cut, serialize.

use crate::catalog::{Catalog, CatalogEntry};
use crate::item::meta_json_for_alias;
use crate::meta::{ItemDetail, with_meta};
use crate::model::CatalogModel;
use crate::query::{CatalogQuery, PageStart, SortOrder};
use penstock_core::{ApiError, WorkUnit};
use rust_decimal::Decimal;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::{Ordering, Reverse};
use std::ops::Range;

/// Live figures of a model over the last hour; each is `None` if no answer of that hour provides it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LastHourFigures {
    /// Output tokens per second.
    pub throughput: Option<f64>,
    /// Seconds to the first token.
    pub latency: Option<f64>,
    /// Number of successful answers in the last hour; a float like the other figures, for sorting.
    pub popularity: Option<f64>,
}

impl Catalog {
    /// Serializes the page of a query:
    /// `{"object":"list","data":[…],"has_more":…,"first_id":…,"last_id":…,"total_count":…}`.
    ///
    /// Models for which `may_see` returns false are left out; `total_count` counts the items that remain after this and
    /// the filters. `has_more` is true if more items follow in reading direction: after the page, or before it if the
    /// query has `before_id`. Aliases, if included, follow all models, in the order of their models. `figures` returns
    /// the figures of the last hour by model id; it is called only if the sort order needs them. The items have the prices
    /// of the time `now`, Unix seconds.
    ///
    /// # Errors
    /// Returns 400 if a cursor is not the id of an item in the list: starting again from the beginning would make a
    /// client loop forever.
    pub fn serialize_page(
        &self,
        query: &CatalogQuery,
        may_see: &dyn Fn(&CatalogModel) -> bool,
        figures: &dyn Fn(&str) -> LastHourFigures,
        now: u64,
    ) -> Result<Vec<u8>, ApiError> {
        let seen = |entry: &&CatalogEntry| matches(&entry.model, query) && may_see(&entry.model);
        let mut chosen: Vec<&CatalogEntry> = self.entries.iter().filter(seen).collect();
        sort(&mut chosen, query.sort, figures, now);
        let mut items: Vec<PageItem<'_>> = chosen.iter().map(|entry| PageItem::of(entry, now)).collect();
        if query.include_aliases {
            let aliases = |entry: &&'_ CatalogEntry| entry.items_at(now).aliases.len();
            items.reserve(chosen.iter().map(aliases).sum());
            items.extend(chosen.iter().flat_map(|entry| PageItem::of_aliases(entry, now)));
        }
        let (range, has_more) = page_range(&items, query)?;
        let shown = items.get(range).unwrap_or_default();
        Ok(page_json(shown, has_more, items.len(), query.detail, now))
    }
}

/// Item of a catalogue list: a model or one of its aliases.
struct PageItem<'c> {
    id: &'c str,
    json: &'c str,
    entry: &'c CatalogEntry,
}

impl<'c> PageItem<'c> {
    fn of(entry: &'c CatalogEntry, now: u64) -> Self {
        Self { id: &entry.model.id, json: &entry.items_at(now).item, entry }
    }

    fn of_aliases(entry: &'c CatalogEntry, now: u64) -> impl Iterator<Item = Self> {
        entry.items_at(now).aliases.iter().map(move |(id, json)| Self { id, json, entry })
    }

    fn json(&self, detail: ItemDetail, now: u64) -> Cow<'c, str> {
        match detail {
            ItemDetail::Plain => Cow::Borrowed(self.json),
            ItemDetail::Meta => {
                let alias = Some(self.id).filter(|id| *id != self.entry.model.id);
                let model = &self.entry.model;
                Cow::Owned(with_meta(self.json, &meta_json_for_alias(model, alias, model.price_at(now))))
            }
        }
    }
}

fn matches(model: &CatalogModel, query: &CatalogQuery) -> bool {
    let outputs = &query.output_modalities;
    (outputs.is_empty() || outputs.iter().any(|name| model.output_modalities.contains(name)))
        && query.supported_parameters.iter().all(|name| model.supported_parameters.contains(name))
        && (query.lifecycle.is_empty() || query.lifecycle.contains(&model.lifecycle))
}

fn sort(entries: &mut [&CatalogEntry], sort: SortOrder, figures: &dyn Fn(&str) -> LastHourFigures, now: u64) {
    // Models that are charged by the image or the minute have no price of tokens that could be compared.
    let price = |entry: &&CatalogEntry| -> Option<Decimal> {
        let has_token_price = match entry.model.kind.spec().unit {
            WorkUnit::GeneratedTokens | WorkUnit::InputTokens => true,
            WorkUnit::Images | WorkUnit::AudioSeconds => false,
        };
        let price = entry.model.price_at(now).filter(|_| has_token_price)?;
        price.input.checked_add(price.output)
    };
    // The items are sorted by id first, because the later sorts are stable: equal items stay ordered by id.
    entries.sort_unstable_by(|a, b| a.model.id.cmp(&b.model.id));
    match sort {
        SortOrder::PriceAscending => entries.sort_by_key(|entry| (price(entry).is_none(), price(entry))),
        SortOrder::PriceDescending => {
            entries.sort_by_key(|entry| (price(entry).is_none(), Reverse(price(entry))))
        }
        SortOrder::Context => entries.sort_by_key(|entry| Reverse(entry.model.context_length)),
        SortOrder::Newest => entries.sort_by_key(|entry| Reverse(entry.model.created)),
        SortOrder::Latency => sort_by_figure(entries, |entry| figures(&entry.model.id).latency),
        SortOrder::Throughput => {
            sort_by_figure(entries, |entry| figures(&entry.model.id).throughput.map(|rate| -rate))
        }
        SortOrder::Popular => {
            sort_by_figure(entries, |entry| figures(&entry.model.id).popularity.map(|count| -count))
        }
    }
}

/// Sorts ascending by a figure; entries without a figure come last. Each figure is read once, because it may change
/// during the sort.
fn sort_by_figure(entries: &mut [&CatalogEntry], figure: impl Fn(&CatalogEntry) -> Option<f64>) {
    let mut keyed: Vec<(Option<f64>, &CatalogEntry)> =
        entries.iter().map(|entry| (figure(entry).filter(|figure| !figure.is_nan()), *entry)).collect();
    keyed.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    entries.iter_mut().zip(keyed).for_each(|(slot, (_, entry))| *slot = entry);
}

/// Returns the range of items on the page, and true if more items follow in reading direction.
fn page_range(items: &[PageItem<'_>], query: &CatalogQuery) -> Result<(Range<usize>, bool), ApiError> {
    let find = |param: &str, id: &str| {
        let position = items.iter().position(|item| item.id == id);
        position.ok_or_else(|| ApiError::invalid(param, format!("{param} names no item of this list.")))
    };
    let from = match &query.start {
        PageStart::Offset(offset) => (*offset).min(items.len()),
        PageStart::After(id) => find("after_id", id)? + 1,
        PageStart::Before(id) => {
            let end = find("before_id", id)?;
            let from = end.saturating_sub(query.limit);
            return Ok((from..end, from > 0));
        }
    };
    let end = from.saturating_add(query.limit).min(items.len());
    Ok((from..end, end < items.len()))
}

fn page_json(items: &[PageItem<'_>], has_more: bool, total: usize, detail: ItemDetail, now: u64) -> Vec<u8> {
    let id = |item: Option<&PageItem<'_>>| item.map_or(Value::Null, |item| Value::from(item.id));
    let size: usize = items.iter().map(|item| item.json.len() + 1).sum();
    let mut page = String::with_capacity(size + 256);
    page.push_str("{\"object\":\"list\",\"data\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            page.push(',');
        }
        page.push_str(&item.json(detail, now));
    }
    let (first, last) = (id(items.first()), id(items.last()));
    page.push_str(&format!(
        "],\"has_more\":{has_more},\"first_id\":{first},\"last_id\":{last},\"total_count\":{total}}}"
    ));
    page.into_bytes()
}
