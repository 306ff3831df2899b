//! Energy profiles of models.

use super::super::raw;
use super::SettingsResolver;
use super::key_path::KeyPath;
use penstock_core::ModelKind;
use penstock_footprint::{EnergyMethod, EnergyProfile, OfferFactors, ServiceSite};
use rust_decimal::Decimal;

impl SettingsResolver<'_> {
    /// Resolves the energy profile of a model; `None` if it has impossible figures, which are reported.
    pub(super) fn resolve_energy(
        &mut self,
        raw: &raw::ModelConfig,
        kind: ModelKind,
        spot: &KeyPath<'_>,
    ) -> Option<EnergyProfile> {
        let energy = &raw.energy;
        let exact = |value: Option<raw::ExactDecimal>| value.map(|value| value.0);
        let card = EnergyProfile {
            active_params_b: exact(energy.active_params_b),
            total_params_b: exact(energy.total_params_b),
            weight_bits: energy.weight_bits,
            joules_per_input_token: exact(energy.joules_per_input_token),
            joules_per_output_token: exact(energy.joules_per_output_token),
            joules_per_image: exact(energy.joules_per_image),
            image_steps: energy.image_steps,
            joules_per_audio_second: exact(energy.joules_per_audio_second),
            method: energy.method.map(|method| match method {
                raw::EnergyMethodConfig::ProviderAverage => EnergyMethod::ProviderAverage,
                raw::EnergyMethodConfig::Benchmark => EnergyMethod::Benchmark,
                raw::EnergyMethodConfig::Parametric => EnergyMethod::Parametric,
                raw::EnergyMethodConfig::ClassDefault => EnergyMethod::ClassDefault,
            }),
            ..EnergyProfile::new(kind)
        };
        // The site is a placeholder without mistakes, which the check of the profile requires. The sites of providers
        // are checked elsewhere.
        let nowhere = ServiceSite {
            pue: None,
            wue: None,
            g_per_kwh: Decimal::ONE,
            water_l_per_kwh: Decimal::ONE,
            boundary: None,
            bills_measured: false,
        };
        match OfferFactors::new(&card, &nowhere) {
            Ok(_) => Some(card),
            Err(mistakes) => {
                for mistake in mistakes {
                    self.report_mistake(
                        &spot.child(mistake.field),
                        format!("It must be {}.", mistake.expected),
                        "Write the figure of the model's card, or take it out.",
                    );
                }
                None
            }
        }
    }
}
