//! Query string of a catalogue list.
//!
//! Unknown parameters are ignored, known ones are strict: an invalid value is a 400 that names the parameter and its
//! valid values.

use crate::meta::Detail;
use crate::model::Lifecycle;
use penstock_contract::{Refusal, percent};

/// Default number of items on a page.
const LIMIT: usize = 100;
/// Maximum number of items on a page.
const MOST: usize = 1_000;
/// Maximum number of names in one list parameter.
const NAMES: usize = 100;
/// Output modalities of the filter; `all` turns it off.
const MODALITIES: [&str; 6] = ["text", "image", "audio", "embeddings", "scores", "all"];

/// Sort orders of a list. Equal items are ordered by id; models without the figure come last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Input plus output price, lowest first.
    PriceUp,
    /// Input plus output price, highest first.
    PriceDown,
    /// Context window, largest first.
    Context,
    /// Tokens per second over the last hour, highest first.
    Throughput,
    /// Time to the first token over the last hour, shortest first.
    Latency,
    /// Creation time, newest first.
    #[default]
    Newest,
    /// Number of answers over the last hour, highest first.
    Popular,
}

impl Sort {
    /// All seven orders.
    pub const ALL: [Self; 7] = [
        Self::PriceUp,
        Self::PriceDown,
        Self::Context,
        Self::Throughput,
        Self::Latency,
        Self::Newest,
        Self::Popular,
    ];

    /// Name of the order in a query.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PriceUp => "pricing-low-to-high",
            Self::PriceDown => "pricing-high-to-low",
            Self::Context => "context-high-to-low",
            Self::Throughput => "throughput-high-to-low",
            Self::Latency => "latency-low-to-high",
            Self::Newest => "newest",
            Self::Popular => "most-popular",
        }
    }
}

/// Start of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// Number of items to skip.
    Offset(usize),
    /// Page that starts right after the item with this id.
    After(String),
    /// Page that ends right before the item with this id.
    Before(String),
}

/// Parsed query of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Output modalities of which a model needs one; empty: no filter.
    pub(crate) output_modalities: Vec<String>,
    /// Parameters of which a model needs all.
    pub(crate) supported_parameters: Vec<String>,
    /// Lifecycle stages of which a model needs one; empty: no filter.
    pub(crate) lifecycle: Vec<Lifecycle>,
    pub(crate) sort: Sort,
    pub(crate) start: Start,
    pub(crate) limit: usize,
    pub(crate) aliases: bool,
    pub(crate) detail: Detail,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            output_modalities: Vec::new(),
            supported_parameters: Vec::new(),
            lifecycle: Vec::new(),
            sort: Sort::default(),
            start: Start::Offset(0),
            limit: LIMIT,
            aliases: false,
            detail: Detail::Plain,
        }
    }
}

impl Query {
    /// Parses a query string (without `?`): `output_modalities` (one of a comma-separated list, `all`: no filter),
    /// `supported_parameters` (all of a comma-separated list), `lifecycle`, `sort`, `offset`, `limit`, `after_id`,
    /// `before_id`, `include_aliases`, `include_meta`. An empty value counts as absent. Repeated list parameters add
    /// up; of other repeated parameters the last counts.
    ///
    /// # Errors
    /// Returns 400 with the parameter and its valid values.
    pub fn parse(query: &str) -> Result<Self, Refusal> {
        let mut parsed = Self::default();
        let (mut offset, mut after, mut before) = (None, None, None);
        let undone = |text| {
            let wrong = || Refusal::invalid("query", "The query string is not UTF-8.");
            percent::form(text).ok_or_else(wrong)
        };
        for (name, value) in percent::parameters(query) {
            let (name, value) = (undone(name)?, undone(value)?);
            if value.is_empty() {
                continue;
            }
            match name.trim_end_matches("[]") {
                "output_modalities" => parsed.output_modalities.extend(modalities(&value)?),
                "supported_parameters" => {
                    parsed.supported_parameters.extend(list(&value).map(str::to_owned));
                }
                "lifecycle" => parsed.lifecycle.extend(lifecycles(&value)?),
                "sort" => parsed.sort = sort(&value)?,
                "offset" => offset = Some(number("offset", &value, 0, usize::MAX)?),
                "limit" => parsed.limit = number("limit", &value, 1, MOST)?,
                "after_id" => after = Some(value.into_owned()),
                "before_id" => before = Some(value.into_owned()),
                "include_aliases" => parsed.aliases = switch("include_aliases", &value)?,
                "include_meta" => parsed.detail = shown(&value)?,
                _ => {}
            }
            if parsed.supported_parameters.len() > NAMES {
                let message = format!("supported_parameters takes at most {NAMES} names.");
                return Err(Refusal::invalid("supported_parameters", message));
            }
        }
        if parsed.output_modalities.iter().any(|name| name == "all") {
            parsed.output_modalities.clear();
        }
        parsed.start = start(offset, after, before)?;
        Ok(parsed)
    }

    /// Lists aliases as separate items after the models. For clients of the messages dialect (those that send
    /// `anthropic-version`), which look for names they know.
    #[must_use]
    pub fn with_aliases(mut self) -> Self {
        self.aliases = true;
        self
    }
}

/// Parses `include_meta` from the query of a single model; other parameters are ignored.
///
/// # Errors
/// Returns 400 if the value of `include_meta` is invalid.
pub fn detail(query: &str) -> Result<Detail, Refusal> {
    let mut detail = Detail::Plain;
    for (name, value) in percent::parameters(query) {
        let value = percent::form(value).unwrap_or_default();
        if percent::form(name).is_some_and(|name| name == "include_meta") && !value.is_empty() {
            detail = shown(&value)?;
        }
    }
    Ok(detail)
}

fn shown(value: &str) -> Result<Detail, Refusal> {
    Ok(if switch("include_meta", value)? { Detail::Meta } else { Detail::Plain })
}

fn start(offset: Option<usize>, after: Option<String>, before: Option<String>) -> Result<Start, Refusal> {
    match (offset, after, before) {
        (_, Some(_), Some(_)) => {
            Err(Refusal::invalid("before_id", "after_id and before_id exclude each other."))
        }
        (Some(1..), Some(_), None) | (Some(1..), None, Some(_)) => {
            Err(Refusal::invalid("offset", "offset and a cursor (after_id, before_id) exclude each other."))
        }
        (_, Some(id), None) => Ok(Start::After(id)),
        (_, None, Some(id)) => Ok(Start::Before(id)),
        (offset, None, None) => Ok(Start::Offset(offset.unwrap_or(0))),
    }
}

fn list(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|name| !name.is_empty())
}

fn modalities(value: &str) -> Result<Vec<String>, Refusal> {
    let known = |name: &str| {
        let found = MODALITIES.iter().find(|known| **known == name).map(|known| (*known).to_owned());
        found.ok_or_else(|| one_of("output_modalities", &MODALITIES))
    };
    list(value).take(NAMES).map(known).collect()
}

fn lifecycles(value: &str) -> Result<Vec<Lifecycle>, Refusal> {
    let known = |name: &str| {
        let found = Lifecycle::ALL.into_iter().find(|known| known.name() == name);
        found.ok_or_else(|| one_of("lifecycle", &Lifecycle::ALL.map(Lifecycle::name)))
    };
    list(value).take(NAMES).map(known).collect()
}

fn sort(value: &str) -> Result<Sort, Refusal> {
    let found = Sort::ALL.into_iter().find(|sort| sort.name() == value);
    found.ok_or_else(|| one_of("sort", &Sort::ALL.map(Sort::name)))
}

fn switch(name: &str, value: &str) -> Result<bool, Refusal> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(one_of(name, &["true", "false"])),
    }
}

fn number(name: &str, value: &str, least: usize, most: usize) -> Result<usize, Refusal> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (least..=most).contains(number));
    number.ok_or_else(|| {
        let range =
            if most == usize::MAX { format!("{least} or more") } else { format!("from {least} to {most}") };
        Refusal::invalid(name, format!("{name} must be an integer, {range}."))
    })
}

fn one_of(name: &str, known: &[&str]) -> Refusal {
    Refusal::invalid(name, format!("{name} takes {}.", known.join(", ")))
}
