//! A tariff: the prices of one model at one offer.

use penstock_contract::Kind;
use rust_decimal::Decimal;

/// EUR per credit, where the configuration does not say: one cent.
pub const EUR_PER_CREDIT: Decimal = Decimal::from_parts(1, 0, 0, false, 2);
/// EUR per kWh of the informational energy component, where the configuration
/// does not say.
pub const EUR_PER_KWH: Decimal = Decimal::from_parts(20, 0, 0, false, 2);

/// What a model is billed by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Billing {
    /// By tokens, images or minutes, in credits.
    #[default]
    Credits,
    /// By kilowatt-hours, from the energy wallet; credits pay when it is empty.
    Energy,
}

impl Billing {
    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Credits => "credits",
            Self::Energy => "energy",
        }
    }
}

/// Prices in EUR. `None`: no such price; zero: free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tariff {
    /// Per million input tokens.
    pub input: Option<Decimal>,
    /// Per million input tokens from the provider's cache; as `input`, where
    /// not said.
    pub cached_input: Option<Decimal>,
    /// Per million output tokens.
    pub output: Option<Decimal>,
    /// Per image.
    pub image: Option<Decimal>,
    /// Per minute of audio.
    pub minute: Option<Decimal>,
    /// Per kWh: the price of what is billed in energy, and the rate of the
    /// energy component of everything else.
    pub eur_per_kwh: Decimal,
    /// What the model is billed by.
    pub billing: Billing,
}

impl Default for Tariff {
    /// No price at all.
    fn default() -> Self {
        Self {
            input: None,
            cached_input: None,
            output: None,
            image: None,
            minute: None,
            eur_per_kwh: EUR_PER_KWH,
            billing: Billing::Credits,
        }
    }
}

impl Tariff {
    /// The price that a model of this kind cannot do without, if it is missing.
    /// A model billed in energy needs none.
    #[must_use]
    pub fn lacks(&self, kind: Kind) -> Option<&'static str> {
        if self.billing == Billing::Energy {
            return None;
        }
        let needed: &[(&'static str, Option<Decimal>)] = match kind {
            Kind::Chat => &[("input", self.input), ("output", self.output)],
            Kind::Embedding | Kind::Rerank => &[("input", self.input)],
            Kind::Image => &[("image", self.image)],
            Kind::Transcription => &[("minute", self.minute)],
        };
        needed.iter().find(|(_, price)| price.is_none()).map(|(name, _)| *name)
    }
}
