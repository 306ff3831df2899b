//! Constants of the method, each with its origin.
//!
//! A change here changes the published method: raise [`METHODOLOGY_VERSION`].

use rust_decimal::Decimal;

/// Version of the method; changes with any constant, formula or range.
pub const METHODOLOGY_VERSION: &str = "penstock-1.0";

const fn decimal(mantissa: u32, scale: u32) -> Decimal {
    Decimal::from_parts(mantissa, 0, 0, false, scale)
}

/// Joules per input token and 1e9 active parameters: 2e9 FLOP at 39 % of an
/// H100's BF16 peak and 700 W. Derived.
pub const INPUT_TOKEN_JOULES_PER_BILLION: Decimal = decimal(36, 4);
/// Joules per input token and 1e9 active parameters of encoders (embedding, rerank): they have no output phase that
/// uses the rest of the machine's power. Derived.
pub const ENCODER_TOKEN_JOULES_PER_BILLION: Decimal = decimal(72, 4);
/// Length of a prompt, in tokens, at which attention doubles the energy of each input token. Derived from published
/// ratios for long prompts (91 000) and attention FLOPs (107 000).
pub const ATTENTION_DOUBLING_TOKENS: u64 = 100_000;
/// Energy of a cached prompt token as a share of the energy of an uncached one. Assumption, on purpose not zero.
pub const CACHED_TOKEN_ENERGY_SHARE: Decimal = decimal(1, 1);
/// Ratio of the output energy under confirmed throughput-tier scheduling to the output energy under ordinary batching.
/// Measured 0.59 (0.32 to 0.84).
pub const THROUGHPUT_TIER_FACTOR: Decimal = decimal(6, 1);
/// Factor from the energy of the GPUs to that of the whole server: 150 W in addition to a measured 514 W.
pub const HOST_FACTOR: Decimal = decimal(130, 2);
/// Factor that adds machines which are ready but idle: 10 idle machines for 83 busy ones.
pub const IDLE_FACTOR: Decimal = decimal(112, 2);
/// Embodied grams of CO2 equivalent per watt-hour of GPU energy: 985.5 kg for the share of one GPU in a server, three
/// years of use, 514 W.
pub const EMBODIED_CO2E_GRAMS_PER_WH: Decimal = decimal(730, 4);
/// Watts of a busy GPU.
pub const GPU_WATTS: u32 = 514;
/// Watts of a server without its GPUs, divided by the number of its GPUs.
pub const HOST_WATTS_PER_GPU: u32 = 150;
/// Joules per second of audio if the model is unknown: 0.7 at 64 concurrent requests, 2.7 at eight. Derived.
pub const AUDIO_JOULES_PER_SECOND: Decimal = decimal(20, 1);
/// Joules per image of one mebipixel if the model is unknown: 1.2 Wh, the typical value of the models measured (0.11 to
/// 2.2 Wh).
pub const IMAGE_JOULES: Decimal = decimal(4320, 0);
/// Number of pixels of the image to which joules per image refer: one mebipixel.
pub const REFERENCE_IMAGE_PIXELS: u64 = 1_048_576;
/// Power usage effectiveness if none is published. Assumption; responses name it.
pub const DEFAULT_PUE: Decimal = decimal(140, 2);
/// Litres of water on site per kWh if none is published. Assumption; responses name it.
pub const DEFAULT_WUE_LITRES_PER_KWH: Decimal = decimal(40, 2);
/// Limit of plausible measurements. The formula gives a range: a measurement may be at most this many times the high
/// end, and must be at least the low end divided by this ratio. A measurement of at most [`ALWAYS_PLAUSIBLE_JOULES`]
/// is never too high.
pub const MAX_MEASURED_TO_FORMULA_RATIO: Decimal = decimal(10, 0);
/// Joules at the building's meter up to which a measurement is never too high: 1 Wh. The energy of small answers is
/// little compared to the idle power of a machine.
pub const ALWAYS_PLAUSIBLE_JOULES: Decimal = decimal(3600, 0);
/// Maximum billed measured energy, as a multiple of the energy by formula.
pub const MAX_BILLED_TO_FORMULA_RATIO: Decimal = decimal(2, 0);
/// Joules per kilowatt-hour.
pub const JOULES_PER_KWH: u32 = 3_600_000;
/// Maximum number that is accepted as a count. A larger number is a mistake of the provider and is reduced to this
/// maximum, so that every product fits into a `Decimal`.
pub const MAX_USAGE_COUNT: u64 = 1_000_000_000_000;
