//! A page of the catalogue: filter, sort, cut, write.

use crate::catalog::{Catalog, Entry};
use crate::model::Model;
use crate::query::{Query, Sort, Start};
use penstock_contract::Refusal;
use rust_decimal::Decimal;
use serde_json::Value;
use std::cmp::{Ordering, Reverse};
use std::ops::Range;

/// Live figures of a model's last hour; `None` when there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Tokens per second.
    pub throughput: Option<f64>,
    /// Seconds to the first token.
    pub latency: Option<f64>,
    /// Answers.
    pub popularity: Option<f64>,
}

impl Catalog {
    /// The page that a query asks for:
    /// `{"object":"list","data":[…],"has_more":…,"first_id":…,"last_id":…,"total_count":…}`.
    ///
    /// `total_count` counts what the filters leave. `has_more` tells whether
    /// there is more in the direction of reading: behind the page, or before it
    /// when it was asked for with `before_id`. Aliases stand behind all models,
    /// in the order of their models. `figures` gives the last hour of the model
    /// with an id, and is only asked where the order needs it.
    ///
    /// # Errors
    /// 400 when a cursor is no item of the list: to begin anew there would send
    /// a client round in circles.
    pub fn page(&self, query: &Query, figures: &dyn Fn(&str) -> Figures) -> Result<Vec<u8>, Refusal> {
        let mut chosen: Vec<&Entry> =
            self.entries.iter().filter(|entry| matches(&entry.model, query)).collect();
        sort(&mut chosen, query.sort, figures);
        let mut items: Vec<(&str, &str)> =
            chosen.iter().map(|entry| (entry.model.id.as_str(), entry.item.as_str())).collect();
        if query.aliases {
            let aliases = |entry: &&'_ Entry| entry.aliases.len();
            items.reserve(chosen.iter().map(aliases).sum());
            for entry in &chosen {
                items.extend(entry.aliases.iter().map(|(name, item)| (name.as_str(), item.as_str())));
            }
        }
        let (range, has_more) = cut(&items, query)?;
        let shown = items.get(range).unwrap_or_default();
        Ok(write(shown, has_more, items.len()))
    }
}

fn matches(model: &Model, query: &Query) -> bool {
    let outputs = &query.output_modalities;
    (outputs.is_empty() || outputs.iter().any(|name| model.output_modalities.contains(name)))
        && query.supported_parameters.iter().all(|name| model.supported_parameters.contains(name))
        && (query.lifecycle.is_empty() || query.lifecycle.contains(&model.lifecycle))
}

fn sort(entries: &mut [&Entry], sort: Sort, figures: &dyn Fn(&str) -> Figures) {
    let price = |entry: &&Entry| -> Option<Decimal> {
        let price = entry.model.price?;
        price.input.checked_add(price.output)
    };
    // Ties by id; each of the following sorts is stable.
    entries.sort_unstable_by(|a, b| a.model.id.cmp(&b.model.id));
    match sort {
        Sort::PriceUp => entries.sort_by_key(|entry| (price(entry).is_none(), price(entry))),
        Sort::PriceDown => entries.sort_by_key(|entry| (price(entry).is_none(), Reverse(price(entry)))),
        Sort::Context => entries.sort_by_key(|entry| Reverse(entry.model.context_length)),
        Sort::Newest => entries.sort_by_key(|entry| Reverse(entry.model.created)),
        Sort::Latency => by_figure(entries, |entry| figures(&entry.model.id).latency),
        Sort::Throughput => by_figure(entries, |entry| figures(&entry.model.id).throughput.map(|rate| -rate)),
        Sort::Popular => by_figure(entries, |entry| figures(&entry.model.id).popularity.map(|count| -count)),
    }
}

/// Ascending; those without a figure last. Each figure is asked for once, so
/// that it does not move while the list is being sorted.
fn by_figure(entries: &mut [&Entry], figure: impl Fn(&Entry) -> Option<f64>) {
    let mut keyed: Vec<(Option<f64>, &Entry)> =
        entries.iter().map(|entry| (figure(entry).filter(|figure| !figure.is_nan()), *entry)).collect();
    keyed.sort_by(|(a, _), (b, _)| match (a, b) {
        (Some(a), Some(b)) => a.total_cmp(b),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => Ordering::Equal,
    });
    entries.iter_mut().zip(keyed).for_each(|(place, (_, entry))| *place = entry);
}

/// The page's range of items, and whether there is more in its direction.
fn cut(items: &[(&str, &str)], query: &Query) -> Result<(Range<usize>, bool), Refusal> {
    let find = |param: &str, id: &str| {
        let place = items.iter().position(|(known, _)| *known == id);
        place.ok_or_else(|| Refusal::invalid(param, format!("{param} names no item of this list.")))
    };
    let from = match &query.start {
        Start::Offset(offset) => (*offset).min(items.len()),
        Start::After(id) => find("after_id", id)? + 1,
        Start::Before(id) => {
            let end = find("before_id", id)?;
            let from = end.saturating_sub(query.limit);
            return Ok((from..end, from > 0));
        }
    };
    let end = from.saturating_add(query.limit).min(items.len());
    Ok((from..end, end < items.len()))
}

fn write(items: &[(&str, &str)], has_more: bool, total: usize) -> Vec<u8> {
    let id = |item: Option<&(&str, &str)>| item.map_or(Value::Null, |(id, _)| Value::from(*id));
    let size: usize = items.iter().map(|(_, item)| item.len() + 1).sum();
    let mut page = String::with_capacity(size + 256);
    page.push_str("{\"object\":\"list\",\"data\":[");
    for (place, (_, item)) in items.iter().enumerate() {
        if place > 0 {
            page.push(',');
        }
        page.push_str(item);
    }
    let (first, last) = (id(items.first()), id(items.last()));
    page.push_str(&format!(
        "],\"has_more\":{has_more},\"first_id\":{first},\"last_id\":{last},\"total_count\":{total}}}"
    ));
    page.into_bytes()
}
