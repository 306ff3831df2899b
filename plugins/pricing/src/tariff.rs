//! Tariff: the prices of one model at one offer.

use penstock_core::{ModelKind, WorkUnit};
use rust_decimal::Decimal;

/// Default price of a credit in EUR: one cent.
pub const DEFAULT_EUR_PER_CREDIT: Decimal = Decimal::from_parts(1, 0, 0, false, 2);
/// Default price in EUR per kWh: the price of models billed in energy, and for all others the stated energy component
/// of a charge, which is informational.
pub const DEFAULT_EUR_PER_KWH: Decimal = Decimal::from_parts(20, 0, 0, false, 2);

/// Unit in which the use of a model is billed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BillingMode {
    /// Billing by tokens, images or minutes, in credits.
    #[default]
    Credits,
    /// Billing by kilowatt-hours, from the energy wallet; credits pay when it is empty.
    Energy,
}

impl BillingMode {
    /// Returns the name used in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }
}

/// Prices in EUR. `None` means no such price; zero means free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tariff {
    /// Price per million input tokens.
    pub input: Option<Decimal>,
    /// Price per million input tokens from the provider's cache; if absent, `input` applies.
    pub cached_input: Option<Decimal>,
    /// Price per million output tokens.
    pub output: Option<Decimal>,
    /// Price per image.
    pub image: Option<Decimal>,
    /// Price per minute of audio.
    pub minute: Option<Decimal>,
    /// Price per kWh: for models billed in energy the charge, for all others the stated energy component.
    pub eur_per_kwh: Decimal,
    /// Billing unit of the model.
    pub billing: BillingMode,
}

impl Default for Tariff {
    /// Returns a tariff without prices per token, image or minute, billed in credits.
    fn default() -> Self {
        Self {
            input: None,
            cached_input: None,
            output: None,
            image: None,
            minute: None,
            eur_per_kwh: DEFAULT_EUR_PER_KWH,
            billing: BillingMode::Credits,
        }
    }
}

impl Tariff {
    /// Returns the price of the output of a model of this kind: per million output tokens, per image or per minute;
    /// `None` if it is not configured.
    #[must_use]
    pub fn output_price(&self, kind: ModelKind) -> Option<Decimal> {
        match kind.spec().unit {
            WorkUnit::GeneratedTokens | WorkUnit::InputTokens => self.output,
            WorkUnit::Images => self.image,
            WorkUnit::AudioSeconds => self.minute,
        }
    }

    /// Returns the name of a price that a model of this kind requires and the tariff lacks; `None` if no price is
    /// missing. A model billed in energy requires none.
    #[must_use]
    pub fn missing_price(&self, kind: ModelKind) -> Option<&'static str> {
        if self.billing == BillingMode::Energy {
            return None;
        }
        let needed: &[(&'static str, Option<Decimal>)] = match kind.spec().unit {
            WorkUnit::GeneratedTokens => &[("input", self.input), ("output", self.output)],
            WorkUnit::InputTokens => &[("input", self.input)],
            WorkUnit::Images => &[("image", self.image)],
            WorkUnit::AudioSeconds => &[("minute", self.minute)],
        };
        needed.iter().find(|(_, price)| price.is_none()).map(|(name, _)| *name)
    }
}
