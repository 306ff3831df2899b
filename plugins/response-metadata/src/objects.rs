//! Annotation objects, with their fields in the order of the API contract.

use crate::json::{write_key, write_number, write_string};
use rust_decimal::Decimal;

/// Name of the header that contains `environment_impact` if the body is not JSON.
pub const IMPACT_HEADER: &str = "x-environment-impact";

/// Name of the header that contains `billing_cost` if the body is not JSON.
pub const BILLING_HEADER: &str = "x-billing-cost";

/// Electricity grid whose carbon intensity is the basis of the carbon figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GridInfo<'a> {
    /// Publisher of the figures, with the licence.
    pub source: &'a str,
    /// Year of the figures.
    pub year: u16,
    /// Grams of CO2 equivalent per kWh.
    pub g_per_kwh: Decimal,
}

/// Facts about the data centre of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataCentreInfo<'a> {
    /// Physical share of renewable electricity in the grid of the data centre, percent.
    pub renewable_percent: Decimal,
    /// Power usage effectiveness, published or assumed.
    pub pue: Decimal,
    /// Id of the provider.
    pub provider_id: &'a str,
    /// Location as `City, Country`.
    pub location: &'a str,
    /// Country code, ISO 3166-1 alpha-2.
    pub country: &'a str,
    /// Grid of the data centre.
    pub grid: GridInfo<'a>,
    /// Version of the method by which the footprint is computed.
    pub methodology: &'a str,
}

/// Members of [`DataCentreInfo`] as JSON text, serialised once for all answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteJson {
    site: Box<[u8]>,
    grid: Box<[u8]>,
}

impl SiteJson {
    /// Serialises the members that are the same for all requests.
    #[must_use]
    pub fn new(site: &DataCentreInfo<'_>) -> Self {
        let mut fixed = Vec::new();
        fixed.extend_from_slice(b",\"renewable_percent\":");
        write_number(&mut fixed, site.renewable_percent);
        write_key(&mut fixed, "pue");
        write_number(&mut fixed, site.pue);
        write_key(&mut fixed, "provider_id");
        write_string(&mut fixed, site.provider_id);
        write_key(&mut fixed, "location");
        write_string(&mut fixed, site.location);
        write_key(&mut fixed, "country");
        write_string(&mut fixed, site.country);
        let mut grid = Vec::new();
        grid.extend_from_slice(b",\"grid\":{\"source\":");
        write_string(&mut grid, site.grid.source);
        write_key(&mut grid, "year");
        write_number(&mut grid, Decimal::from(site.grid.year));
        write_key(&mut grid, "g_per_kwh");
        write_number(&mut grid, site.grid.g_per_kwh);
        grid.push(b'}');
        write_key(&mut grid, "methodology");
        write_string(&mut grid, site.methodology);
        Self { site: fixed.into(), grid: grid.into() }
    }
}

/// Origin of an energy figure, with its error range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnergyProvenance<'a> {
    /// Name of the method: `measured`, `benchmark` …
    pub method: &'a str,
    /// Part of the data centre whose energy the method covers: `gpu`, `it` or `facility`; omitted if `None`.
    pub boundary: Option<&'a str>,
    /// Lower limit of the energy, kWh.
    pub energy_kwh_low: Decimal,
    /// Upper limit of the energy, kWh.
    pub energy_kwh_high: Decimal,
    /// Embodied carbon of the hardware, grams, which the operational carbon does not include; omitted if `None`.
    pub embodied_g_co2: Option<Decimal>,
    /// Names of values that are assumed because they are unknown (`pue`, `wue`, `boundary`); omitted if empty.
    pub assumed: &'a [&'a str],
    /// True if the gateway counted the tokens, because the provider reported none or implausible numbers.
    pub counted_by_gateway: bool,
    /// Saving by the provider's prefix cache; omitted without cached tokens.
    pub cache: Option<CacheSavings>,
}

/// Saving by the tokens that a provider read from its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSavings {
    /// Prompt tokens from the cache.
    pub tokens: u64,
    /// Additional energy, kWh, that the cached tokens would have taken without the cache.
    pub energy_kwh_saved: Decimal,
    /// Additional credits that the cached tokens would have cost without the cache.
    pub credits_saved: Decimal,
}

/// Footprint of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvironmentImpact<'a> {
    /// Energy, kWh.
    pub energy_kwh: Decimal,
    /// CO2 equivalent, grams.
    pub carbon_g_co2: Decimal,
    /// Water, litres.
    pub water_liters: Decimal,
    /// Serialised facts of the data centre that served the answer.
    pub site: &'a SiteJson,
    /// Origin of the figures.
    pub provenance: EnergyProvenance<'a>,
}

/// Charge of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BillingCost<'a> {
    /// Price of the billable energy in EUR; only for information unless the model is billed in energy.
    pub energy: Decimal,
    /// Credits deducted.
    pub credits: Decimal,
    /// Wallet: `credits` or `energy`.
    pub paid_with: &'a str,
    /// JSON format of `energy` and `credits`.
    pub amounts: AmountFormat,
}

/// Format of amounts of money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AmountFormat {
    /// JSON numbers.
    #[default]
    Numbers,
    /// JSON strings with the same digits.
    Strings,
}

/// Returns `"environment_impact":{…},"billing_cost":{…}`: two members without enclosing braces. If `provenance` is
/// false, the member `provenance` is omitted.
#[must_use]
pub fn impact_and_billing_members(
    impact: &EnvironmentImpact<'_>,
    cost: &BillingCost<'_>,
    provenance: bool,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(800);
    out.extend_from_slice(b"\"environment_impact\":");
    write_impact(&mut out, impact, provenance);
    out.extend_from_slice(b",\"billing_cost\":");
    write_cost(&mut out, cost);
    out
}

/// Returns the members `environment_impact` and `billing_cost` of an answer for which no model ran: no energy, no
/// charge. The site is that of the provider that would have served it.
#[must_use]
pub fn zero_impact_and_billing_members(served: &SiteJson, paid_with: &str, amounts: AmountFormat) -> Vec<u8> {
    let mut out = br#""environment_impact":{"energy_kwh":0,"carbon_g_co2":0,"water_liters":0"#.to_vec();
    out.extend_from_slice(&served.site);
    out.extend_from_slice(b"},\"billing_cost\":");
    write_cost(&mut out, &BillingCost { energy: Decimal::ZERO, credits: Decimal::ZERO, paid_with, amounts });
    out
}

/// Returns `environment_impact` and `billing_cost` as headers (name, value), for answers that are not JSON. The values
/// are ASCII without control characters.
#[must_use]
pub fn impact_and_billing_headers(
    impact: &EnvironmentImpact<'_>,
    cost: &BillingCost<'_>,
    provenance: bool,
) -> [(&'static str, Vec<u8>); 2] {
    let (mut first, mut second) = (Vec::with_capacity(700), Vec::with_capacity(96));
    write_impact(&mut first, impact, provenance);
    write_cost(&mut second, cost);
    [(IMPACT_HEADER, first), (BILLING_HEADER, second)]
}

fn write_impact(out: &mut Vec<u8>, impact: &EnvironmentImpact<'_>, provenance: bool) {
    out.extend_from_slice(b"{\"energy_kwh\":");
    write_number(out, impact.energy_kwh);
    out.extend_from_slice(b",\"carbon_g_co2\":");
    write_number(out, impact.carbon_g_co2);
    out.extend_from_slice(b",\"water_liters\":");
    write_number(out, impact.water_liters);
    out.extend_from_slice(&impact.site.site);
    if provenance {
        write_provenance(out, &impact.provenance, impact.site);
    }
    out.push(b'}');
}

fn write_provenance(out: &mut Vec<u8>, provenance: &EnergyProvenance<'_>, served: &SiteJson) {
    out.extend_from_slice(b",\"provenance\":{\"method\":");
    write_string(out, provenance.method);
    if let Some(boundary) = provenance.boundary {
        write_key(out, "boundary");
        write_string(out, boundary);
    }
    write_key(out, "energy_kwh_low");
    write_number(out, provenance.energy_kwh_low);
    write_key(out, "energy_kwh_high");
    write_number(out, provenance.energy_kwh_high);
    if let Some(embodied) = provenance.embodied_g_co2 {
        write_key(out, "embodied_g_co2");
        write_number(out, embodied);
    }
    out.extend_from_slice(&served.grid);
    if let Some((first, rest)) = provenance.assumed.split_first() {
        out.extend_from_slice(b",\"assumed\":[");
        write_string(out, first);
        for name in rest {
            out.push(b',');
            write_string(out, name);
        }
        out.push(b']');
    }
    if provenance.counted_by_gateway {
        out.extend_from_slice(b",\"usage_source\":\"gateway\"");
    }
    if let Some(cache) = &provenance.cache {
        out.extend_from_slice(b",\"cache\":{\"tokens\":");
        write_number(out, Decimal::from(cache.tokens));
        write_key(out, "energy_kwh_saved");
        write_number(out, cache.energy_kwh_saved);
        write_key(out, "credits_saved");
        write_number(out, cache.credits_saved);
        out.push(b'}');
    }
    out.push(b'}');
}

fn write_cost(out: &mut Vec<u8>, cost: &BillingCost<'_>) {
    let mut amount = |name: &[u8], value: Decimal| {
        out.extend_from_slice(name);
        match cost.amounts {
            AmountFormat::Numbers => write_number(out, value),
            AmountFormat::Strings => {
                out.push(b'"');
                write_number(out, value);
                out.push(b'"');
            }
        }
    };
    amount(b"{\"energy\":", cost.energy);
    amount(b",\"credits\":", cost.credits);
    out.extend_from_slice(b",\"paid_with\":");
    write_string(out, cost.paid_with);
    out.push(b'}');
}
