//! What an offer's answers draw and cost: prepared once with the configuration,
//! so that a request only multiplies and rounds.

use crate::config::settings::Offer;
use penstock_annotate::{Cost, Grid, Impact, Provenance, Served, Site};
use penstock_contract::{Done, Measured, MicroCredits, Usage, UsageSource};
use penstock_footprint::{Attempt, Footprint, METHODOLOGY, Prepared, Work, boundary_name};
use penstock_pricing::{Billing, Charge, PaidWith, Sold, Tariff, charge};
use rust_decimal::Decimal;
use std::time::Duration;

/// The prepared bill of one offer.
pub struct Bill {
    prepared: Prepared,
    tariff: Tariff,
    wallet: PaidWith,
    served: Served,
}

/// What one answer drew and costs.
pub struct Settled {
    /// Its footprint, failed attempts included.
    pub footprint: Footprint,
    /// Its charge.
    pub charge: Charge,
    /// Both objects as JSON members, without braces.
    pub members: Vec<u8>,
}

/// What the whole configuration decides.
#[derive(Clone, Copy)]
pub struct Terms {
    /// EUR for one credit.
    pub eur_per_credit: Decimal,
    /// Whether provenance is told.
    pub provenance: bool,
    /// Batch price.
    pub batch: bool,
}

impl Bill {
    /// Prepares the bill of an offer.
    #[must_use]
    pub fn new(offer: &Offer) -> Self {
        let place = &offer.provider.place;
        let served = Served::new(&Site {
            renewable_percent: place.grid.renewable_percent,
            pue: offer.prepared.pue(),
            provider_id: &offer.provider.id,
            location: &format!("{}, {}", place.city, place.country),
            grid: Grid {
                source: place.grid.attribution(),
                year: place.grid.year,
                g_per_kwh: place.grid.g_per_kwh,
            },
            methodology: METHODOLOGY,
        });
        let wallet = match offer.tariff.billing {
            Billing::Energy => PaidWith::Energy,
            Billing::Credits => PaidWith::Credits,
        };
        Self { prepared: offer.prepared.clone(), tariff: offer.tariff, wallet, served }
    }

    /// What an attempt drew that answered nobody.
    #[must_use]
    pub fn failed(&self, usage: Usage, took: Duration) -> Attempt {
        self.prepared.attempt(&Work::tokens(usage, took), None)
    }

    /// The bill of an answer; `spent` is what failed attempts before it drew.
    #[must_use]
    pub fn of(
        &self,
        done: Done,
        measured: Option<Measured>,
        took: Duration,
        spent: Option<&Attempt>,
        terms: Terms,
    ) -> Settled {
        let work = Work::new(done, took);
        let mut drawn = self.prepared.attempt(&work, measured);
        if let Some(spent) = spent {
            drawn.add(spent);
        }
        let footprint = drawn.footprint();
        let billable = self.prepared.billable_kwh(&work, measured);
        let sold = sold(&done);
        let charge = charge(&self.tariff, &sold, self.wallet, terms.batch, billable, terms.eur_per_credit);
        let counted = done.usage().is_some_and(|usage| usage.source == UsageSource::Gateway);
        let members = self.members(&footprint, &charge, counted, terms.provenance);
        Settled { footprint, charge, members }
    }

    /// What so much would cost, in credits, whatever pays for it.
    #[must_use]
    pub fn worth(&self, done: &Done, terms: Terms) -> MicroCredits {
        let billable = self.prepared.billable_kwh(&Work::new(*done, Duration::ZERO), None);
        let sold = sold(done);
        let charge = charge(&self.tariff, &sold, self.wallet, terms.batch, billable, terms.eur_per_credit);
        worth(&charge, terms.eur_per_credit)
    }

    fn members(&self, footprint: &Footprint, charge: &Charge, counted: bool, provenance: bool) -> Vec<u8> {
        let impact = Impact {
            energy_kwh: footprint.energy_kwh,
            carbon_g_co2: footprint.carbon_g,
            water_liters: footprint.water_l,
            served: &self.served,
            provenance: Provenance {
                method: footprint.method.name(),
                boundary: Some(boundary_name(footprint.boundary)),
                energy_kwh_low: footprint.energy_kwh_low,
                energy_kwh_high: footprint.energy_kwh_high,
                embodied_g_co2: Some(footprint.embodied_g),
                assumed: footprint.assumed.names(),
                counted_by_gateway: counted,
            },
        };
        let cost = Cost {
            energy: charge.energy_eur,
            credits: charge.credits.credits(),
            paid_with: charge.paid_with.name(),
        };
        penstock_annotate::members(&impact, &cost, provenance)
    }
}

/// What is paid for: what was done, where it can be counted.
fn sold(done: &Done) -> Sold {
    match done {
        Done::Tokens(usage) => Sold::Tokens(*usage),
        Done::Images { count, .. } => Sold::Images(*count),
        Done::Audio { seconds } => Sold::Audio(*seconds),
        Done::Unknown => Sold::Tokens(Usage::default()),
    }
}

/// A charge in credits, whatever pays for it: what it takes from a budget.
#[must_use]
pub fn worth(charge: &Charge, eur_per_credit: Decimal) -> MicroCredits {
    match charge.paid_with {
        PaidWith::Credits => charge.credits,
        PaidWith::Energy => {
            let credits = charge.eur.checked_div(eur_per_credit);
            credits.and_then(MicroCredits::from_credits).unwrap_or(MicroCredits(i64::MAX))
        }
    }
}
