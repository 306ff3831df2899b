//! Energy profile of a model: its known energy figures, and the coefficients derived from them.

use crate::{constants, ecologits, method::EnergyMethod};
use penstock_core::{EnergyFormula, ModelKind};
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;

/// Known energy figures of a model. A figure that is `None` is derived from others, or stays unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnergyProfile {
    /// Kind of the model.
    pub kind: ModelKind,
    /// Active parameters per token, in billions.
    pub active_params_b: Option<Decimal>,
    /// Number of all parameters, in billions; equal to the active ones if absent.
    pub total_params_b: Option<Decimal>,
    /// Bits per weight; 16 if absent.
    pub weight_bits: Option<u32>,
    /// Joules of GPU energy per input token.
    pub joules_per_input_token: Option<Decimal>,
    /// Joules of GPU energy per output token.
    pub joules_per_output_token: Option<Decimal>,
    /// Joules of GPU energy per image of a mebipixel, at `image_steps`.
    pub joules_per_image: Option<Decimal>,
    /// Number of diffusion steps to which `joules_per_image` refers; `None` if unknown.
    pub image_steps: Option<u32>,
    /// Joules of GPU energy per second of audio.
    pub joules_per_audio_second: Option<Decimal>,
    /// Origin of the joules; `benchmark` if absent.
    pub method: Option<EnergyMethod>,
}

/// Invalid field of an energy profile or of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Name of the field.
    pub field: &'static str,
    /// Description of the values that are valid.
    pub expected: String,
}

/// Joules of GPU energy per unit of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EnergyCoefficients {
    /// Joules per token; `context` is true if long prompts take additional energy per token. For encoders, the output
    /// takes 0 joules and `context` is false.
    Tokens { input: Decimal, output: Decimal, context: bool },
    /// Joules per image of one mebipixel with `steps` diffusion steps. They are scaled to the number of steps of the
    /// request if both numbers are known.
    Images { each: Decimal, steps: Option<u32> },
    /// Joules per second of audio.
    Audio { second: Decimal },
}

impl EnergyProfile {
    /// Creates an energy profile without figures.
    #[must_use]
    pub const fn new(kind: ModelKind) -> Self {
        Self {
            kind,
            active_params_b: None,
            total_params_b: None,
            weight_bits: None,
            joules_per_input_token: None,
            joules_per_output_token: None,
            joules_per_image: None,
            image_steps: None,
            joules_per_audio_second: None,
            method: None,
        }
    }

    /// Returns the number of GPUs of 80 GB that the model needs; one if its size is unknown.
    #[must_use]
    pub fn gpu_count(&self) -> u32 {
        let total = self.total_params_b.or(self.active_params_b).and_then(|total| total.to_f64());
        total.and_then(|total| ecologits::gpu_count(total, self.bits()).to_u32()).unwrap_or(1)
    }

    fn bits(&self) -> f64 {
        self.weight_bits.map_or(ecologits::DEFAULT_WEIGHT_BITS, f64::from)
    }

    /// Returns an error for every field of the profile whose value is out of range or contradicts another field.
    pub(crate) fn field_errors(&self) -> Vec<FieldError> {
        let numbers = [
            ("active_params_b", self.active_params_b, 100_000),
            ("total_params_b", self.total_params_b, 100_000),
            ("joules_per_input_token", self.joules_per_input_token, 10_000),
            ("joules_per_output_token", self.joules_per_output_token, 10_000),
            ("joules_per_image", self.joules_per_image, 10_000_000),
            ("joules_per_audio_second", self.joules_per_audio_second, 10_000),
            ("weight_bits", self.weight_bits.map(Decimal::from), 64),
            ("image_steps", self.image_steps.map(Decimal::from), 10_000),
        ];
        let invalid = numbers.into_iter().filter(|(_, value, most)| {
            value.is_some_and(|value| value <= Decimal::ZERO || value > Decimal::from(*most))
        });
        let mut mistakes: Vec<FieldError> = invalid
            .map(|(field, _, most)| FieldError { field, expected: format!("more than 0, at most {most}") })
            .collect();
        if let (Some(active), Some(total)) = (self.active_params_b, self.total_params_b)
            && active > total
        {
            let expected = "at least active_params_b".to_owned();
            mistakes.push(FieldError { field: "total_params_b", expected });
        }
        if matches!(self.method, Some(EnergyMethod::Measured)) {
            let expected =
                "provider_average, benchmark, parametric or class_default; measured is for energy \
                            that a provider reports"
                    .to_owned();
            mistakes.push(FieldError { field: "method", expected });
        }
        mistakes
    }

    /// Returns the coefficients and the method by which they were determined; `None` if energy can only be derived from
    /// time.
    pub(crate) fn coefficients(&self) -> Option<(EnergyCoefficients, EnergyMethod)> {
        let stated = self.method.unwrap_or(EnergyMethod::Benchmark);
        match self.kind.spec().energy_formula {
            EnergyFormula::Generator => self.generative(stated),
            EnergyFormula::Encoder => self.encoder(stated),
            EnergyFormula::Images => Some(match self.joules_per_image {
                Some(each) => (EnergyCoefficients::Images { each, steps: self.image_steps }, stated),
                None => (
                    EnergyCoefficients::Images { each: constants::IMAGE_JOULES, steps: None },
                    EnergyMethod::ClassDefault,
                ),
            }),
            EnergyFormula::Audio => Some(match self.joules_per_audio_second {
                Some(second) => (EnergyCoefficients::Audio { second }, stated),
                None => (
                    EnergyCoefficients::Audio { second: constants::AUDIO_JOULES_PER_SECOND },
                    EnergyMethod::ClassDefault,
                ),
            }),
        }
    }

    fn generative(&self, stated: EnergyMethod) -> Option<(EnergyCoefficients, EnergyMethod)> {
        let input = self.input(constants::INPUT_TOKEN_JOULES_PER_BILLION)?;
        let (output, method) = match self.joules_per_output_token {
            Some(output) => (output, stated),
            None => (self.output_joules_by_size()?, EnergyMethod::Parametric),
        };
        Some((EnergyCoefficients::Tokens { input, output, context: true }, method))
    }

    fn encoder(&self, stated: EnergyMethod) -> Option<(EnergyCoefficients, EnergyMethod)> {
        let input = self.input(constants::ENCODER_TOKEN_JOULES_PER_BILLION)?;
        let method = if self.joules_per_input_token.is_some() { stated } else { EnergyMethod::Parametric };
        Some((EnergyCoefficients::Tokens { input, output: Decimal::ZERO, context: false }, method))
    }

    fn input(&self, per_billion: Decimal) -> Option<Decimal> {
        self.joules_per_input_token
            .or_else(|| self.active_params_b.and_then(|active| active.checked_mul(per_billion)))
            .map(|joules| joules.normalize())
    }

    fn output_joules_by_size(&self) -> Option<Decimal> {
        let active_b = self.active_params_b?.to_f64()?;
        let total_b = self.total_params_b.or(self.active_params_b)?.to_f64()?;
        let model = ecologits::EcologitsModel {
            active_b,
            total_b,
            weight_bits: self.bits(),
            batch_size: ecologits::DEFAULT_BATCH_SIZE,
        };
        ecologits::joules_per_output_token(&model)
    }
}
