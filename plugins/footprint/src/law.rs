//! The constants of the method, each with where it comes from.
//!
//! A change here is a change of the published method: raise [`METHODOLOGY`].

use rust_decimal::Decimal;

/// The version of the method; changes with any constant, formula or range.
pub const METHODOLOGY: &str = "penstock-1.0";

const fn decimal(mantissa: u32, scale: u32) -> Decimal {
    Decimal::from_parts(mantissa, 0, 0, false, scale)
}

/// Joules per input token and 1e9 active parameters: 2e9 FLOP at 39 % of an
/// H100's BF16 peak and 700 W. Derived.
pub const INPUT_JOULES_PER_B: Decimal = decimal(36, 4);
/// The same for encoders (embedding, rerank), which have no second phase to
/// fill the machine. Derived.
pub const ENCODER_JOULES_PER_B: Decimal = decimal(72, 4);
/// Prompt tokens at which attention has doubled the cost of one. Derived from
/// published ratios for long prompts (91 000) and attention FLOPs (107 000).
pub const CONTEXT_TOKENS: u64 = 100_000;
/// A cached prompt token costs this share of a fresh one. Assumption, on
/// purpose not zero.
pub const CACHED_SHARE: Decimal = decimal(1, 1);
/// Output energy under confirmed throughput-tier scheduling, against ordinary
/// batching. Measured 0.59 (0.32 to 0.84).
pub const THROUGHPUT_TIER: Decimal = decimal(6, 1);
/// The server beside its GPUs: 150 W beside a measured 514 W.
pub const HOST: Decimal = decimal(130, 2);
/// Machines kept ready and idle: 10 parts beside 83 busy ones.
pub const IDLE: Decimal = decimal(112, 2);
/// Grams embodied per watt-hour of GPU energy: 985.5 kg per GPU's share of a
/// server, three years, 514 W.
pub const EMBODIED_G_PER_WH: Decimal = decimal(730, 4);
/// Watts of a busy GPU.
pub const GPU_WATTS: u32 = 514;
/// Watts of a server's rest for each of its GPUs.
pub const HOST_WATTS: u32 = 150;
/// Joules per second of audio where the model is not known: 0.7 at 64 requests
/// at a time, 2.7 at eight. Derived.
pub const AUDIO_JOULES: Decimal = decimal(20, 1);
/// Joules per image of a mebipixel where the model is not known: 1.2 Wh, the
/// typical of the models measured (0.11 to 2.2 Wh).
pub const IMAGE_JOULES: Decimal = decimal(4320, 0);
/// Pixels that an image's joules are stated for.
pub const IMAGE_PIXELS: u64 = 1_048_576;
/// Power usage effectiveness where none is published. Assumption; flagged.
pub const DEFAULT_PUE: Decimal = decimal(140, 2);
/// Litres per kWh on site where none is published. Assumption; flagged.
pub const DEFAULT_WUE: Decimal = decimal(40, 2);
/// A measurement beyond this many times the high end of the formula's range is
/// no measurement of this answer …
pub const MEASURED_SPREAD: Decimal = decimal(10, 0);
/// … unless it is at most this many joules at the building's meter: 1 Wh. Small
/// answers draw little beside what a machine draws anyway.
pub const MEASURED_SMALL: Decimal = decimal(3600, 0);
/// Measured energy never bills more than this many times the list.
pub const MEASURED_CAP: Decimal = decimal(2, 0);
/// Joules in a kilowatt-hour.
pub const JOULES_PER_KWH: u32 = 3_600_000;
/// Above this a count is no count (a provider's mistake): it counts as this
/// many, which keeps every product inside a `Decimal`.
pub const MOST: u64 = 1_000_000_000_000;
