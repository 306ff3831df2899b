//! What a client wants to see of the catalogue: the query string of a list.
//!
//! Unknown parameters are ignored, known ones are strict: a mistake is a 400
//! that names the parameter and says what it takes.

use crate::meta::Detail;
use crate::model::Lifecycle;
use penstock_contract::{Refusal, percent};

/// Items of a page unless told otherwise.
const LIMIT: usize = 100;
/// Most items of a page.
const MOST: usize = 1_000;
/// Most names in one list.
const NAMES: usize = 100;
/// What models may put out, and `all`.
const MODALITIES: [&str; 6] = ["text", "image", "audio", "embeddings", "scores", "all"];

/// The orders of a list. Ties go by id; models without the figure come last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Input plus output price, the cheapest first.
    PriceUp,
    /// Input plus output price, the dearest first.
    PriceDown,
    /// The widest window first.
    Context,
    /// The most tokens per second of the last hour first.
    Throughput,
    /// The shortest time to the first token of the last hour first.
    Latency,
    /// The youngest first.
    #[default]
    Newest,
    /// The most answers of the last hour first.
    Popular,
}

impl Sort {
    /// All seven.
    pub const ALL: [Self; 7] = [
        Self::PriceUp,
        Self::PriceDown,
        Self::Context,
        Self::Throughput,
        Self::Latency,
        Self::Newest,
        Self::Popular,
    ];

    /// Its name in a query.
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

/// Where a page begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// After this many items.
    Offset(usize),
    /// Right after the item with this id.
    After(String),
    /// It ends right before the item with this id.
    Before(String),
}

/// A list's query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// Any of these; empty: no filter.
    pub(crate) output_modalities: Vec<String>,
    /// All of these.
    pub(crate) supported_parameters: Vec<String>,
    /// Any of these; empty: no filter.
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
    /// Reads a query string (without `?`): `output_modalities` (any of a comma
    /// list, `all`: no filter), `supported_parameters` (all of a comma list),
    /// `lifecycle`, `sort`, `offset`, `limit`, `after_id`, `before_id`,
    /// `include_aliases`, `include_meta`. An empty value counts as absent. Of a repeated
    /// parameter lists add up, else the last counts.
    ///
    /// # Errors
    /// 400 with the parameter and what it takes.
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

    /// Lists aliases as items of their own, behind the models. For clients of
    /// the messages dialect (those that send `anthropic-version`), who look for
    /// names they know.
    #[must_use]
    pub fn with_aliases(mut self) -> Self {
        self.aliases = true;
        self
    }
}

/// Whether the query of one model asks for `_meta`: its other parameters mean nothing.
///
/// # Errors
/// 400 for a value of `include_meta` that is none.
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
