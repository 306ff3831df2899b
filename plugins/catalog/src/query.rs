//! Query string of a catalogue list.
//!
//! Unknown parameters are ignored, known ones are strict: an invalid value is a 400 that names the parameter and its
//! valid values.

use crate::meta::ItemDetail;
use crate::model::LifecycleStage;
use penstock_core::{ApiError, percent};

/// Default number of items on a page.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number of items on a page.
const MAX_LIMIT: usize = 1_000;
/// Maximum number of names in a list parameter, over all its repetitions.
const MAX_NAMES: usize = 100;
/// Output modalities that the filter accepts; `all` turns the filter off.
const KNOWN_MODALITIES: [&str; 6] = ["text", "image", "audio", "embeddings", "scores", "all"];

/// Sort orders of a list. Equal items are ordered by id; models without the figure come last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortOrder {
    /// Input plus output price, lowest first.
    PriceAscending,
    /// Input plus output price, highest first.
    PriceDescending,
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

impl SortOrder {
    /// All seven sort orders of the catalogue list.
    pub const ALL: [Self; 7] = [
        Self::PriceAscending,
        Self::PriceDescending,
        Self::Context,
        Self::Throughput,
        Self::Latency,
        Self::Newest,
        Self::Popular,
    ];

    /// Returns the name of the order in a query.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PriceAscending => "pricing-low-to-high",
            Self::PriceDescending => "pricing-high-to-low",
            Self::Context => "context-high-to-low",
            Self::Throughput => "throughput-high-to-low",
            Self::Latency => "latency-low-to-high",
            Self::Newest => "newest",
            Self::Popular => "most-popular",
        }
    }
}

/// Position at which a page of the list starts, or before which it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageStart {
    /// Number of items to skip.
    Offset(usize),
    /// Page that starts right after the item with this id.
    After(String),
    /// Page that ends right before the item with this id.
    Before(String),
}

/// Parsed query of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogQuery {
    /// Output modalities; a model needs at least one of them. Empty for no filter.
    pub(crate) output_modalities: Vec<String>,
    /// Parameters that requests may set; a model needs all of them.
    pub(crate) supported_parameters: Vec<String>,
    /// Lifecycle stages; a model needs one of them. Empty for no filter.
    pub(crate) lifecycle: Vec<LifecycleStage>,
    pub(crate) sort: SortOrder,
    pub(crate) start: PageStart,
    pub(crate) limit: usize,
    pub(crate) include_aliases: bool,
    pub(crate) detail: ItemDetail,
}

impl Default for CatalogQuery {
    fn default() -> Self {
        Self {
            output_modalities: Vec::new(),
            supported_parameters: Vec::new(),
            lifecycle: Vec::new(),
            sort: SortOrder::default(),
            start: PageStart::Offset(0),
            limit: DEFAULT_LIMIT,
            include_aliases: false,
            detail: ItemDetail::Plain,
        }
    }
}

impl CatalogQuery {
    /// Parses a query string (without `?`): `output_modalities` (comma-separated; models with at least one of them,
    /// `all` for no filter), `supported_parameters` (comma-separated; models with all of them), `lifecycle`, `sort`,
    /// `offset`, `limit`, `after_id`, `before_id`, `include_aliases`, `include_meta`. An empty value counts as absent.
    /// Repeated list parameters add up; of other repeated parameters the last one counts.
    ///
    /// # Errors
    /// Returns 400 with the parameter and its valid values.
    pub fn parse(query: &str) -> Result<Self, ApiError> {
        let mut parsed = Self::default();
        let (mut offset, mut after, mut before) = (None, None, None);
        let decode = |text| {
            let invalid = || ApiError::invalid("query", "The query string is not UTF-8.");
            percent::decode_form(text).ok_or_else(invalid)
        };
        for (name, value) in percent::query_parameters(query) {
            let (name, value) = (decode(name)?, decode(value)?);
            if value.is_empty() {
                continue;
            }
            match name.trim_end_matches("[]") {
                "output_modalities" => {
                    extend_list("output_modalities", &mut parsed.output_modalities, &value, parse_modality)?;
                }
                "supported_parameters" => {
                    let list = &mut parsed.supported_parameters;
                    extend_list("supported_parameters", list, &value, |name| Ok(name.to_owned()))?;
                }
                "lifecycle" => extend_list("lifecycle", &mut parsed.lifecycle, &value, parse_lifecycle)?,
                "sort" => parsed.sort = parse_sort(&value)?,
                "offset" => offset = Some(parse_number("offset", &value, 0, usize::MAX)?),
                "limit" => parsed.limit = parse_number("limit", &value, 1, MAX_LIMIT)?,
                "after_id" => after = Some(value.into_owned()),
                "before_id" => before = Some(value.into_owned()),
                "include_aliases" => parsed.include_aliases = parse_bool("include_aliases", &value)?,
                "include_meta" => parsed.detail = parse_include_meta(&value)?,
                _ => {}
            }
        }
        if parsed.output_modalities.iter().any(|name| name == "all") {
            parsed.output_modalities.clear();
        }
        parsed.start = parse_start(offset, after, before)?;
        Ok(parsed)
    }

    /// Lists aliases as separate items after the models, for clients of the messages dialect (those that send
    /// `anthropic-version`), which look for names that they know.
    #[must_use]
    pub fn with_aliases(mut self) -> Self {
        self.include_aliases = true;
        self
    }
}

/// Parses `include_meta` from the query of a single model; other parameters are ignored.
///
/// # Errors
/// Returns 400 if the value of `include_meta` is invalid.
pub fn parse_item_detail(query: &str) -> Result<ItemDetail, ApiError> {
    let mut detail = ItemDetail::Plain;
    for (name, value) in percent::query_parameters(query) {
        let value = percent::decode_form(value).unwrap_or_default();
        if percent::decode_form(name).is_some_and(|name| name == "include_meta") && !value.is_empty() {
            detail = parse_include_meta(&value)?;
        }
    }
    Ok(detail)
}

fn parse_include_meta(value: &str) -> Result<ItemDetail, ApiError> {
    Ok(if parse_bool("include_meta", value)? { ItemDetail::Meta } else { ItemDetail::Plain })
}

fn parse_start(
    offset: Option<usize>,
    after: Option<String>,
    before: Option<String>,
) -> Result<PageStart, ApiError> {
    match (offset, after, before) {
        (_, Some(_), Some(_)) => {
            Err(ApiError::invalid("before_id", "after_id and before_id exclude each other."))
        }
        (Some(1..), Some(_), None) | (Some(1..), None, Some(_)) => {
            Err(ApiError::invalid("offset", "offset and a cursor (after_id, before_id) exclude each other."))
        }
        (_, Some(id), None) => Ok(PageStart::After(id)),
        (_, None, Some(id)) => Ok(PageStart::Before(id)),
        (offset, None, None) => Ok(PageStart::Offset(offset.unwrap_or(0))),
    }
}

/// Adds the names of a comma-separated value to a list parameter.
fn extend_list<T>(
    parameter: &str,
    list: &mut Vec<T>,
    value: &str,
    parse: impl Fn(&str) -> Result<T, ApiError>,
) -> Result<(), ApiError> {
    for name in value.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        if list.len() >= MAX_NAMES {
            let message = format!("{parameter} takes at most {MAX_NAMES} names.");
            return Err(ApiError::invalid(parameter, message));
        }
        list.push(parse(name)?);
    }
    Ok(())
}

fn parse_modality(name: &str) -> Result<String, ApiError> {
    let found = KNOWN_MODALITIES.iter().find(|known| **known == name).map(|known| (*known).to_owned());
    found.ok_or_else(|| one_of("output_modalities", &KNOWN_MODALITIES))
}

fn parse_lifecycle(name: &str) -> Result<LifecycleStage, ApiError> {
    let found = LifecycleStage::ALL.into_iter().find(|known| known.name() == name);
    found.ok_or_else(|| one_of("lifecycle", &LifecycleStage::ALL.map(LifecycleStage::name)))
}

fn parse_sort(value: &str) -> Result<SortOrder, ApiError> {
    let found = SortOrder::ALL.into_iter().find(|sort| sort.name() == value);
    found.ok_or_else(|| one_of("sort", &SortOrder::ALL.map(SortOrder::name)))
}

/// Parses a boolean: `true`, `1`, `false` or `0` in upper or lower case, as Python writes `True`.
fn parse_bool(name: &str, value: &str) -> Result<bool, ApiError> {
    let is_any_of = |words: [&str; 2]| words.iter().any(|word| word.eq_ignore_ascii_case(value));
    if is_any_of(["true", "1"]) {
        return Ok(true);
    }
    if is_any_of(["false", "0"]) { Ok(false) } else { Err(one_of(name, &["true", "false"])) }
}

fn parse_number(name: &str, value: &str, min: usize, max: usize) -> Result<usize, ApiError> {
    let digits = value.bytes().all(|byte| byte.is_ascii_digit());
    let number = value.parse().ok().filter(|number| digits && (min..=max).contains(number));
    number.ok_or_else(|| {
        let range = if max == usize::MAX { format!("{min} or more") } else { format!("from {min} to {max}") };
        ApiError::invalid(name, format!("{name} must be an integer, {range}."))
    })
}

fn one_of(name: &str, allowed_values: &[&str]) -> ApiError {
    ApiError::invalid(name, format!("{name} takes {}.", allowed_values.join(", ")))
}
