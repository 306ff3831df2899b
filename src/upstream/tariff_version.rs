//! Version of a tariff, valid from a Unix second on: its terms for the ledger, and its prices as integers for the fast
//! estimate before a request.

use crate::billing::{ReserveAmounts, SaleTerms};
use crate::config::settings::{OfferSettings, PowerContractEvidence};
use penstock_core::{WorkDone, hex};
use penstock_footprint::METHODOLOGY_VERSION;
use penstock_pricing::{BillingMode, Tariff};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::sync::{Arc, OnceLock};

/// Number of tokens to which token prices refer.
const MILLION: i128 = 1_000_000;

/// One version of an offer's tariff.
pub struct TariffVersion {
    /// Start of validity, Unix seconds.
    pub from: u64,
    /// Prices of this version.
    pub tariff: Tariff,
    /// Terms of this version, as the ledger stores them.
    pub terms: Arc<SaleTerms>,
    /// Prices per million tokens, rounded up; `None` if the tariff bills energy, has no input price, or has a price
    /// that does not fit.
    integer_estimate: Option<IntegerRates>,
}

/// Integer prices per million tokens, in micro-credits and in units of 10⁻⁸ EUR.
#[derive(Clone, Copy)]
struct IntegerRates {
    input_credits: i64,
    output_credits: i64,
    input_eur: i64,
    output_eur: i64,
}

impl TariffVersion {
    /// Prepares a tariff version of an offer.
    #[must_use]
    pub fn new(from: u64, tariff: Tariff, offer: &OfferSettings, eur_per_credit: Decimal) -> Self {
        let terms = format_terms(from, &tariff, offer, eur_per_credit);
        Self {
            from,
            integer_estimate: integer_rates(&tariff, eur_per_credit),
            terms: Arc::new(terms),
            tariff,
        }
    }

    /// Returns a tariff version without prices.
    #[must_use]
    pub fn unpriced() -> &'static Self {
        static NONE: OnceLock<TariffVersion> = OnceLock::new();
        NONE.get_or_init(|| Self {
            from: 0,
            tariff: Tariff::default(),
            terms: Arc::new(terms_with_id("{}".to_owned())),
            integer_estimate: None,
        })
    }

    /// Returns the maximum charge for this work, computed with integers; `None` if the work is not in tokens, or the
    /// tariff has no integer prices.
    #[must_use]
    pub fn fast_reserve_amounts(&self, done: &WorkDone, batch: bool) -> Option<ReserveAmounts> {
        let (prices, usage) = (self.integer_estimate?, done.usage()?);
        let sum = |input: i64, output: i64| {
            let total =
                i128::from(usage.input) * i128::from(input) + i128::from(usage.output) * i128::from(output);
            let divisor = if batch { 2 * MILLION } else { MILLION };
            i64::try_from((total + divisor - 1) / divisor).unwrap_or(i64::MAX)
        };
        Some(ReserveAmounts {
            credits: sum(prices.input_credits, prices.output_credits),
            energy: None,
            eur: sum(prices.input_eur, prices.output_eur),
        })
    }
}

/// Returns the token prices of a tariff as integers; `None` if it bills energy, has no input price, or has a price that
/// does not fit.
fn integer_rates(tariff: &Tariff, eur_per_credit: Decimal) -> Option<IntegerRates> {
    if tariff.billing == BillingMode::Energy {
        return None;
    }
    let input = tariff.input?.max(tariff.cached_input.unwrap_or_default()).max(Decimal::ZERO);
    let output = tariff.output.unwrap_or_default().max(Decimal::ZERO);
    let credits = |eur: Decimal| {
        eur.checked_div(eur_per_credit)?.checked_mul(Decimal::from(1_000_000))?.ceil().to_i64()
    };
    let units = |eur: Decimal| eur.checked_mul(Decimal::from(100_000_000))?.ceil().to_i64();
    Some(IntegerRates {
        input_credits: credits(input)?,
        output_credits: credits(output)?,
        input_eur: units(input)?,
        output_eur: units(output)?,
    })
}

/// Terms of an offer for the ledger: enough to recompute any charge, with the location of the data centre and the
/// source of the grid figures. Numbers are decimal strings.
#[derive(Serialize)]
struct TermsJson<'a> {
    model: &'a str,
    provider: &'a str,
    operator: &'a str,
    from: u64,
    billing: &'a str,
    input: Option<String>,
    cached_input: Option<String>,
    output: Option<String>,
    image: Option<String>,
    minute: Option<String>,
    eur_per_kwh: String,
    eur_per_credit: String,
    location: String,
    pue: String,
    grid: GridJson<'a>,
    contract: Option<ContractJson>,
    methodology: &'a str,
}

#[derive(Serialize)]
struct GridJson<'a> {
    source: &'a str,
    year: u16,
    g_per_kwh: String,
    renewable_percent: String,
}

#[derive(Serialize)]
struct ContractJson {
    share: String,
    evidence: PowerContractEvidence,
}

fn format_terms(from: u64, tariff: &Tariff, offer: &OfferSettings, eur_per_credit: Decimal) -> SaleTerms {
    let location = &offer.provider.location;
    let price = |price: Option<Decimal>| price.map(|price| price.to_string());
    let terms = TermsJson {
        model: &offer.model.card.id,
        provider: &offer.provider.id,
        operator: &offer.provider.operator,
        from,
        billing: tariff.billing.name(),
        input: price(tariff.input),
        cached_input: price(tariff.cached_input),
        output: price(tariff.output),
        image: price(tariff.image),
        minute: price(tariff.minute),
        eur_per_kwh: tariff.eur_per_kwh.to_string(),
        eur_per_credit: eur_per_credit.to_string(),
        location: format!("{}, {}", location.city, location.country),
        pue: offer.footprint_factors.pue().to_string(),
        grid: GridJson {
            source: location.grid.attribution(),
            year: location.grid.year,
            g_per_kwh: location.grid.g_per_kwh.to_string(),
            renewable_percent: location.grid.renewable_percent.to_string(),
        },
        contract: location
            .contractual
            .as_ref()
            .map(|contract| ContractJson { share: contract.share.to_string(), evidence: contract.evidence }),
        methodology: METHODOLOGY_VERSION,
    };
    // Structures of texts and numbers can always be serialized.
    terms_with_id(serde_json::to_string(&terms).unwrap_or_default())
}

fn terms_with_id(text: String) -> SaleTerms {
    let hash = Sha256::digest(text.as_bytes());
    SaleTerms { id: hex::encode(hash.iter().take(8)).into(), text: text.into() }
}
