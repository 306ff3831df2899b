//! Prices and footprint of an offer's answers. The factors are prepared once per configuration, so that a request only
//! has to multiply and round.

use crate::billing::sale::{billed_work, eur_to_hundred_millionths};
use crate::billing::{ReserveAmounts, SaleTerms, Settlement};
use crate::config::settings::{BillingSettings as Money, OfferSettings};
use crate::upstream::tariff_version::TariffVersion;
use penstock_core::{MeasuredEnergy, MicroCredits, TokenUsage, WorkDone};
use penstock_footprint::{
    AnswerFootprint, AttemptEnergy, AttemptWork, METHODOLOGY_VERSION, OfferFactors, meter_boundary_name,
};
use penstock_ledger::{RequestFootprint, SaleDetails};
use penstock_pricing::{BillingMode, PayingWallet, RequestCharge, compute_charge};
use penstock_response_metadata::{
    AmountFormat, BillingCost, CacheSavings, DataCentreInfo, EnergyProvenance, EnvironmentImpact, GridInfo,
    SiteJson,
};
use rust_decimal::Decimal;
use std::sync::Arc;
use std::time::Duration;

/// Prepared prices and footprint factors of one offer.
pub struct OfferPricing {
    prepared: OfferFactors,
    /// Tariff versions in ascending order of their start; never empty.
    rates: Vec<TariffVersion>,
    site_json: SiteJson,
    model: Arc<str>,
    provider: Arc<str>,
    /// Limit on the energy that a provider measured and that is billed, as a multiple of the energy by the
    /// configuration.
    measured_limit: i64,
    /// True if the provider runs the offer in its throughput tier.
    throughput_tier: bool,
}

/// Price and footprint of one answer.
pub struct PricedAnswer {
    /// Footprint, which includes failed attempts.
    pub footprint: AnswerFootprint,
    /// Charge for the answer.
    pub charge: RequestCharge,
    /// Energy in kWh for the bill; `None` if the model is not billed by energy.
    pub billable_kwh: Option<Decimal>,
    /// Terms by which the answer is charged.
    pub terms: Arc<SaleTerms>,
    /// Energy and credits that the provider's prefix cache saved; `None` if no tokens were cached.
    pub cache: Option<CacheSavings>,
    /// `environment_impact` and `billing_cost` as JSON members, without braces.
    pub members: Vec<u8>,
}

/// Context of one charge: the settings of billing and of responses, and the circumstances of the request.
#[derive(Clone, Copy)]
pub struct ChargeContext {
    /// Price of one credit, EUR.
    pub eur_per_credit: Decimal,
    /// True if the members of the response show how the figures were computed.
    pub provenance: bool,
    /// Format of amounts in responses.
    pub amounts: AmountFormat,
    /// True if the batch price applies.
    pub batch: bool,
    /// Wallet that pays for the answer.
    pub wallet: PayingWallet,
    /// Time of the request, Unix seconds; selects the tariff version.
    pub at: u64,
}

impl OfferPricing {
    /// Prepares the prices and footprint factors of an offer.
    #[must_use]
    pub fn new(offer: &OfferSettings, money: &Money) -> Self {
        let location = &offer.provider.location;
        let site_json = SiteJson::new(&DataCentreInfo {
            renewable_percent: location.grid.renewable_percent,
            pue: offer.footprint_factors.pue(),
            provider_id: &offer.provider.id,
            location: &format!("{}, {}", location.city, location.country),
            country: &location.code,
            grid: GridInfo {
                source: location.grid.attribution(),
                year: location.grid.year,
                g_per_kwh: location.grid.g_per_kwh,
            },
            methodology: METHODOLOGY_VERSION,
        });
        let tariffs = std::iter::once((0, offer.tariff)).chain(offer.later_tariffs.iter().copied());
        Self {
            prepared: offer.footprint_factors.clone(),
            rates: tariffs
                .map(|(from, tariff)| TariffVersion::new(from, tariff, offer, money.eur_per_credit))
                .collect(),
            site_json,
            model: offer.model.card.id.as_str().into(),
            provider: Arc::from(&*offer.provider.id),
            measured_limit: if location.site.bills_measured { 2 } else { 1 },
            throughput_tier: offer.throughput_tier,
        }
    }

    /// Returns the tariff version that is valid at a time, Unix seconds. The result is never `None`, because the first
    /// version is valid from the Unix second 0.
    fn tariff_at(&self, at: u64) -> Option<&TariffVersion> {
        self.rates.iter().rev().find(|rate| rate.from <= at)
    }

    /// Returns the input price at a time (Unix seconds), EUR per million tokens; `None` if there is none.
    #[must_use]
    pub fn input_price(&self, at: u64) -> Option<Decimal> {
        self.tariff_at(at)?.tariff.input
    }

    /// Returns true if the tariff at a time, Unix seconds, bills energy: requests are then paid from the energy wallet
    /// while it has a balance.
    #[must_use]
    pub fn is_priced_by_energy(&self, at: u64) -> bool {
        self.tariff_at(at).is_some_and(|rate| rate.tariff.billing == BillingMode::Energy)
    }

    /// Returns the reservation for this work: the maximum charge in credits, in energy and in EUR.
    #[must_use]
    pub fn reserve_amounts(
        &self,
        done: &WorkDone,
        batch: bool,
        at: u64,
        eur_per_credit: Decimal,
    ) -> ReserveAmounts {
        let Some(rate) = self.tariff_at(at) else { return ReserveAmounts::default() };
        if let Some(need) = rate.fast_reserve_amounts(done, batch) {
            return need;
        }
        let (credits, energy) = self.highest_price(rate, done, batch, eur_per_credit);
        ReserveAmounts {
            credits: credits.credits.0,
            energy: (rate.tariff.billing == BillingMode::Energy).then_some(energy.energy.0),
            eur: eur_to_hundred_millionths(credits.eur.max(energy.eur)),
        }
    }

    /// Returns the highest charge of this work to a budget, in micro-credits, if the energy wallet pays; with
    /// `with_credits`, if the more expensive of the two wallets pays.
    #[must_use]
    pub fn max_budget_charge(
        &self,
        done: &WorkDone,
        batch: bool,
        at: u64,
        eur_per_credit: Decimal,
        with_credits: bool,
    ) -> MicroCredits {
        let Some(rate) = self.tariff_at(at) else { return MicroCredits(0) };
        if let Some(need) = rate.fast_reserve_amounts(done, batch) {
            return MicroCredits(need.credits);
        }
        let (credits, energy) = self.highest_price(rate, done, batch, eur_per_credit);
        let energy = charge_in_credits(&energy, eur_per_credit);
        if with_credits { energy.max(charge_in_credits(&credits, eur_per_credit)) } else { energy }
    }

    /// Returns the maximum charges to the credit wallet and to the energy wallet, under the assumption that measured
    /// energy reaches its limit.
    fn highest_price(
        &self,
        rate: &TariffVersion,
        done: &WorkDone,
        batch: bool,
        eur_per_credit: Decimal,
    ) -> (RequestCharge, RequestCharge) {
        let kwh = self.prepared.billable_kwh(&AttemptWork::new(*done, Duration::ZERO), None);
        let kwh = kwh.saturating_mul(Decimal::from(self.measured_limit));
        let of =
            |wallet| compute_charge(&rate.tariff, &billed_work(done), wallet, batch, kwh, eur_per_credit);
        (of(PayingWallet::Credits), of(PayingWallet::Energy))
    }

    /// Returns the work in the tier in which the provider runs the offer, for the footprint. The bill always uses the
    /// ordinary tier.
    const fn attempt_work(&self, done: WorkDone, took: Duration) -> AttemptWork {
        AttemptWork { throughput_tier: self.throughput_tier, ..AttemptWork::new(done, took) }
    }

    /// Returns the energy of a failed attempt.
    #[must_use]
    pub fn failed_attempt_energy(&self, usage: TokenUsage, took: Duration) -> AttemptEnergy {
        self.prepared.attempt_energy(&self.attempt_work(WorkDone::Tokens(usage), took), None)
    }

    /// Returns the energy of a failed attempt whose work may be incomplete: the energy of the complete work, but at
    /// most the energy that the servers can use in this time. It is at least the energy of `least`, the work that is
    /// known to be done.
    #[must_use]
    pub fn incomplete_attempt_energy(
        &self,
        done: WorkDone,
        least: Option<WorkDone>,
        took: Duration,
    ) -> AttemptEnergy {
        let energy_of = |work| self.prepared.attempt_energy(&self.attempt_work(work, took), None);
        let (all, most) = (energy_of(done), energy_of(WorkDone::Unknown));
        let bounded = if most.footprint().energy_kwh < all.footprint().energy_kwh { most } else { all };
        match least.map(energy_of) {
            Some(least) if least.footprint().energy_kwh > bounded.footprint().energy_kwh => least,
            _ => bounded,
        }
    }

    /// Computes price and footprint of an answer. `done` is the billed work, `own` the part of it that this offer did,
    /// `took` the duration of the attempt, `spent` the energy of failed attempts.
    #[must_use]
    pub fn price_answer(
        &self,
        done: WorkDone,
        own: WorkDone,
        measured: Option<MeasuredEnergy>,
        took: Duration,
        spent: Option<&AttemptEnergy>,
        terms: ChargeContext,
    ) -> PricedAnswer {
        let work = AttemptWork::new(done, took);
        let mut drawn = self.prepared.attempt_energy(&self.attempt_work(own, took), measured);
        if let Some(spent) = spent {
            drawn.add_failed(spent);
        }
        let footprint = drawn.footprint();
        let billable = self.prepared.billable_kwh(&work, measured);
        let sold = billed_work(&done);
        let rate = self.tariff_at(terms.at).unwrap_or_else(|| TariffVersion::unpriced());
        let charge =
            compute_charge(&rate.tariff, &sold, terms.wallet, terms.batch, billable, terms.eur_per_credit);
        let counted = done.usage().is_some_and(|usage| usage.source.is_gateway_count());
        let cache = self.saved_by_cache(&done, &charge, rate, &terms);
        let members = self.response_members(&footprint, &charge, counted, cache, &terms);
        let in_energy = rate.tariff.billing == BillingMode::Energy;
        let billable_kwh = in_energy.then_some(billable);
        PricedAnswer { footprint, charge, billable_kwh, terms: rate.terms.clone(), cache, members }
    }

    /// Returns the savings in comparison with the same work without cached tokens; `None` if no tokens were cached.
    fn saved_by_cache(
        &self,
        done: &WorkDone,
        charge: &RequestCharge,
        rate: &TariffVersion,
        terms: &ChargeContext,
    ) -> Option<CacheSavings> {
        let usage = done.usage().filter(|usage| usage.cached > 0)?;
        let uncached = WorkDone::Tokens(TokenUsage { cached: 0, ..*usage });
        let kwh = |done| self.prepared.billable_kwh(&AttemptWork::new(done, Duration::ZERO), None);
        let uncached_kwh = kwh(uncached);
        let full = compute_charge(
            &rate.tariff,
            &billed_work(&uncached),
            charge.paid_with,
            terms.batch,
            uncached_kwh,
            terms.eur_per_credit,
        );
        Some(CacheSavings {
            tokens: usage.cached,
            energy_kwh_saved: uncached_kwh.saturating_sub(kwh(*done)),
            credits_saved: MicroCredits(full.credits.0.saturating_sub(charge.credits.0)).credits(),
        })
    }

    /// Returns `environment_impact` and `billing_cost` with zero amounts, as JSON members, for an answer of the gateway
    /// itself.
    #[must_use]
    pub fn zero_settlement_members(&self, at: u64, amounts: AmountFormat) -> Vec<u8> {
        let paid_with =
            if self.is_priced_by_energy(at) { PayingWallet::Energy } else { PayingWallet::Credits };
        penstock_response_metadata::zero_impact_and_billing_members(
            &self.site_json,
            paid_with.name(),
            amounts,
        )
    }

    /// Returns the energy that a provider measured; `None` if it is invalid, or implausibly high or low for this work.
    #[must_use]
    pub fn energy_if_plausible(
        &self,
        own: WorkDone,
        measured: MeasuredEnergy,
        took: Duration,
    ) -> Option<MeasuredEnergy> {
        self.prepared.plausible_measurement(&AttemptWork::new(own, took), measured)
    }

    /// Returns the settlement of a priced answer for the ledger.
    #[must_use]
    pub fn settlement(&self, settled: &PricedAnswer, done: &WorkDone, batch: bool) -> Settlement {
        let charge = &settled.charge;
        let (images, seconds) = match done {
            WorkDone::Images { count, .. } => (*count, Decimal::ZERO),
            WorkDone::Audio { seconds } => (0, *seconds),
            WorkDone::Tokens(_) | WorkDone::Unknown => (0, Decimal::ZERO),
        };
        Settlement {
            amount: match charge.paid_with {
                PayingWallet::Credits => charge.credits.0,
                PayingWallet::Energy => charge.energy.0,
            },
            eur: eur_to_hundred_millionths(charge.eur),
            sale: SaleDetails {
                model: self.model.clone(),
                provider: self.provider.clone(),
                terms: settled.terms.id.clone(),
                batch,
                usage: done.usage().copied().unwrap_or_default(),
                images,
                seconds,
                billable_kwh: settled.billable_kwh,
                eur: charge.eur,
            },
            terms: settled.terms.clone(),
            footprint: to_ledger_footprint(&settled.footprint),
        }
    }

    fn response_members(
        &self,
        footprint: &AnswerFootprint,
        charge: &RequestCharge,
        counted: bool,
        cache: Option<CacheSavings>,
        terms: &ChargeContext,
    ) -> Vec<u8> {
        let impact = EnvironmentImpact {
            energy_kwh: footprint.energy_kwh,
            carbon_g_co2: footprint.carbon_g,
            water_liters: footprint.water_l,
            site: &self.site_json,
            provenance: EnergyProvenance {
                method: footprint.method.name(),
                boundary: Some(meter_boundary_name(footprint.boundary)),
                energy_kwh_low: footprint.energy_kwh_low,
                energy_kwh_high: footprint.energy_kwh_high,
                embodied_g_co2: Some(footprint.embodied_g),
                assumed: footprint.assumed.names(),
                counted_by_gateway: counted,
                cache,
            },
        };
        let cost = BillingCost {
            energy: charge.energy_eur,
            credits: charge.credits.credits(),
            paid_with: charge.paid_with.name(),
            amounts: terms.amounts,
        };
        penstock_response_metadata::impact_and_billing_members(&impact, &cost, terms.provenance)
    }
}

/// Converts a footprint to the form that the ledger stores.
#[must_use]
pub const fn to_ledger_footprint(footprint: &AnswerFootprint) -> RequestFootprint {
    RequestFootprint {
        kwh: footprint.energy_kwh,
        carbon_g: footprint.carbon_g,
        carbon_low_g: footprint.carbon_low_g,
        carbon_high_g: footprint.carbon_high_g,
        water_l: footprint.water_l,
        failed_kwh: footprint.failed_kwh,
    }
}

/// Returns a charge in credits, as it counts in a budget, whichever wallet pays.
#[must_use]
pub fn charge_in_credits(charge: &RequestCharge, eur_per_credit: Decimal) -> MicroCredits {
    match charge.paid_with {
        PayingWallet::Credits => charge.credits,
        PayingWallet::Energy => {
            let credits = charge.eur.checked_div(eur_per_credit);
            credits.and_then(MicroCredits::from_credits).unwrap_or(MicroCredits(i64::MAX))
        }
    }
}
