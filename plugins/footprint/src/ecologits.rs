//! Model of `EcoLogits` 0.11.3 for text generation: from the size of a model to the energy, carbon and water of an
//! answer.
//!
//! The gateway uses it once, when it reads its configuration, to compute the joules per output token of a model without
//! measurements ([`joules_per_output_token`]); the rest serves to compare the model with the published results. This is
//! the only module with floats: it needs an exponential, and its output is rounded to a `Decimal`.
//!
//! Sizes in billions of parameters (`P_a` active, `P_t` total), `T` output
//! tokens, `B` requests at a time, `Q` bits per weight:
//!
//! ```text
//! f_E   = α·exp(β·B)·P_a + γ                        Wh per output token and GPU
//! N     = 2^ceil(log2(ceil(1.2·P_t·Q/8 / 80)))      GPUs of 80 GB
//! dT    = min(cap, T·t + TTFT)                      s; t = 1/TPS or a regression
//! E_srv = dT/3600 · 1.2 kW · N/8 / B
//! E_it  = E_srv + N·T·f_E/1000                      kWh
//! ```

use rust_decimal::Decimal;
use rust_decimal::prelude::FromPrimitive;

const ALPHA: f64 = 1.1665273170451914e-6;
const BETA: f64 = -0.011205921025579175;
const GAMMA: f64 = 4.052928146734005e-5;
const GPU_GB: f64 = 80.0;
/// Coefficients of the seconds per output token: by active parameters, by batch size, and a constant.
const LATENCY: [f64; 3] = [0.0006785088094353663, 0.0003119310311688259, 0.019473717579473387];
const SERVER_KW: f64 = 1.2;
const SERVER_GPUS: f64 = 8.0;
const SERVER_KG: f64 = 5700.0;
const GPU_KG: f64 = 273.0;
const LIFE_SECONDS: f64 = 94_608_000.0;

/// Default number of concurrent requests.
pub const DEFAULT_BATCH_SIZE: f64 = 64.0;
/// Default bits per weight.
pub const DEFAULT_WEIGHT_BITS: f64 = 16.0;

/// Size of a model and conditions under which it is served.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcologitsModel {
    /// Active parameters per token, in billions.
    pub active_b: f64,
    /// Number of all parameters of the model, in billions.
    pub total_b: f64,
    /// Bits per weight.
    pub weight_bits: f64,
    /// Number of concurrent requests.
    pub batch_size: f64,
}

/// Measured speed and times of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AnswerTiming {
    /// Upper limit on the duration of the answer, in seconds; `None` for no limit.
    pub cap: Option<f64>,
    /// Output tokens per second; if `None`, the speed is estimated from the model's size and the batch size.
    pub tokens_per_second: Option<f64>,
    /// Seconds to the first token.
    pub first_token: f64,
}

/// Data centre that serves the model, with its efficiency and its grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcologitsSite {
    /// Power usage effectiveness.
    pub pue: f64,
    /// Water used in the data centre, litres per kWh of IT energy.
    pub water_on_site: f64,
    /// Water of electricity generation, litres per kWh.
    pub water_off_site: f64,
    /// Carbon intensity of the electricity, kilograms of CO2 equivalent per kWh.
    pub kg_per_kwh: f64,
}

/// Environmental impacts of an answer of the model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EcologitsImpacts {
    /// Number of GPUs that hold the model.
    pub gpus: f64,
    /// Energy including the overhead of the building, kWh.
    pub energy_kwh: f64,
    /// CO2 equivalent of `energy_kwh`, in kg.
    pub usage_kg: f64,
    /// CO2 equivalent of making the hardware, kg.
    pub embodied_kg: f64,
    /// Water, litres.
    pub water_l: f64,
}

/// Returns the number of GPUs of 80 GB that hold a model, a power of two.
#[must_use]
pub fn gpu_count(total_b: f64, weight_bits: f64) -> f64 {
    let needed = (1.2 * total_b * weight_bits / 8.0 / GPU_GB).ceil().max(1.0);
    needed.log2().ceil().exp2()
}

/// Returns the watt-hours per output token and GPU.
fn watt_hours_per_token(model: &EcologitsModel) -> f64 {
    ALPHA * (BETA * model.batch_size).exp() * model.active_b + GAMMA
}

/// Returns the joules of GPU energy per output token, `N·f_E·3600`, to the sixth place. `None` if a size is not a
/// positive finite number.
#[must_use]
pub fn joules_per_output_token(model: &EcologitsModel) -> Option<Decimal> {
    let sizes = [model.active_b, model.total_b, model.weight_bits, model.batch_size];
    if sizes.iter().any(|size| !size.is_finite() || *size <= 0.0) {
        return None;
    }
    let joules = gpu_count(model.total_b, model.weight_bits) * watt_hours_per_token(model) * 3600.0;
    Decimal::from_f64(joules).map(|joules| joules.round_dp(6))
}

/// Returns energy, emissions and water of one answer.
#[must_use]
pub fn compute_impacts(
    model: &EcologitsModel,
    output_tokens: f64,
    timing: &AnswerTiming,
    site: &EcologitsSite,
) -> EcologitsImpacts {
    let gpus = gpu_count(model.total_b, model.weight_bits);
    let [by_size, by_batch, constant] = LATENCY;
    let per_token = timing
        .tokens_per_second
        .map_or(by_size * model.active_b + by_batch * model.batch_size + constant, |speed| 1.0 / speed);
    let seconds = output_tokens * per_token + timing.first_token;
    let seconds = timing.cap.map_or(seconds, |cap| seconds.min(cap));
    let server = seconds / 3600.0 * SERVER_KW * gpus / SERVER_GPUS / model.batch_size;
    let it = server + gpus * output_tokens * watt_hours_per_token(model) / 1000.0;
    let energy = site.pue * it;
    let hardware = gpus / SERVER_GPUS * SERVER_KG + gpus * GPU_KG;
    EcologitsImpacts {
        gpus,
        energy_kwh: energy,
        usage_kg: energy * site.kg_per_kwh,
        embodied_kg: seconds * hardware / (LIFE_SECONDS * model.batch_size),
        water_l: it * (site.water_on_site + site.pue * site.water_off_site),
    }
}
