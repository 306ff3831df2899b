//! Token counts of images.
//!
//! Guarantees: sizes are read from the header and no pixel is decoded. An image of unknown size counts the maximum of
//! its rule, or the number that the operator configured.

mod header;

#[cfg(test)]
mod tests;

pub use header::{base64_image_size, image_size};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Image of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptImage {
    /// Width and height in pixels, if the bytes were sent and contain them.
    pub size: Option<(u32, u32)>,
}

impl PromptImage {
    /// Creates an image of unknown size.
    #[must_use]
    pub const fn with_unknown_size() -> Self {
        Self { size: None }
    }

    /// Creates an image from its URL: of the size in the image header if it is a `data:` URI, else of unknown size.
    #[must_use]
    pub fn from_url(url: &str) -> Self {
        match url.split_once(";base64,") {
            Some((head, data))
                if head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:")) =>
            {
                Self::from_base64(data)
            }
            _ => Self::with_unknown_size(),
        }
    }

    /// Creates an image from its base64 bytes.
    #[must_use]
    pub fn from_base64(data: &str) -> Self {
        Self { size: base64_image_size(data) }
    }
}

/// Upper limit of [`ImageRule::Tiles`]' maximum number of tiles; all grids up to this maximum are compared one by
/// one.
pub const MAX_TILES: u32 = 256;

/// Maximum ratio of the sides of an image that the processor of Qwen-VL accepts.
const MAX_ASPECT_RATIO: f64 = 200.0;

fn tile_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let max = u32::deserialize(deserializer)?;
    let is_valid = (1..=MAX_TILES).contains(&max);
    is_valid.then_some(max).ok_or_else(|| D::Error::custom(format!("max: expected 1 to {MAX_TILES}")))
}

/// Rule that computes the tokens of an image for a model.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "rule", rename_all = "snake_case", deny_unknown_fields)]
pub enum ImageRule {
    /// Constant number: Gemma 3 (256), Llama 3.2 Vision (1).
    Fixed {
        /// Tokens of an image.
        tokens: u64,
    },
    /// Qwen-VL: both sides are rounded to full patches of `px` pixels (half to even), then the image is scaled so
    /// that it has between `min` and `max` patches; each patch is a token. With unusual values of `min` and `max`, a
    /// thin image can have more patches than `max`. Qwen2.5-VL: 28, 4, 16384; Qwen3-VL: 32, 4, 16384.
    Patches {
        /// Side of a patch in pixels.
        px: u32,
        /// Minimum number of patches.
        min: u64,
        /// Maximum number of patches.
        max: u64,
    },
    /// Pixtral and Mistral: the longer side is scaled down to `longest` pixels; each patch is a token, and each row of
    /// patches ends with one more token. Pixtral: 16, 1024; Mistral Small 3: 28, 1540.
    Rows {
        /// Side of a patch in pixels.
        px: u32,
        /// Maximum length of the longer side in pixels; larger images are scaled down.
        longest: u32,
    },
    /// InternVL: the image is split into at most `max` tiles, in the grid whose aspect ratio is closest to that of
    /// the image. With more than one tile, a thumbnail of the image is added as one more tile. Usual values of `px`,
    /// tokens per tile and `max`: 448, 256, 12.
    Tiles {
        /// Side of a tile in pixels.
        px: u32,
        /// Tokens of a tile.
        tokens: u64,
        /// Maximum number of tiles, at most [`MAX_TILES`].
        #[serde(deserialize_with = "tile_count")]
        max: u32,
    },
}

impl ImageRule {
    /// Returns the tokens of an image, or the maximum if the size is unknown.
    #[must_use]
    pub fn tokens(&self, image: PromptImage) -> u64 {
        let Some((width, height)) = image.size else { return self.max_tokens() };
        match *self {
            Self::Fixed { tokens } => tokens,
            Self::Patches { px, min, max } => patches(width, height, px, min, max).min(max_patches(min, max)),
            Self::Rows { px, longest } => rows(width, height, px, longest),
            Self::Tiles { px, tokens, max } => match tiles(width, height, px, max) {
                1 => tokens,
                count => tokens.saturating_mul(count + 1),
            },
        }
    }

    /// Returns the maximum number of tokens of an image: [`ImageRule::tokens`] never exceeds it.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        match *self {
            Self::Fixed { tokens } => tokens,
            Self::Patches { min, max, .. } => max_patches(min, max),
            Self::Rows { px, longest } => rows(longest, longest, px, longest),
            Self::Tiles { tokens, max, .. } => tokens.saturating_mul(u64::from(max) + 1),
        }
    }
}

/// Returns the maximum number of patches of an image whose aspect ratio is at most [`MAX_ASPECT_RATIO`]. It can exceed
/// `max`: a thin image that is shrunk keeps at least one patch across, and an image that is enlarged to `min` patches
/// has both sides rounded up.
fn max_patches(min: u64, max: u64) -> u64 {
    let (least, most) = (min as f64, max as f64);
    let shrunk = (MAX_ASPECT_RATIO * most).sqrt();
    let enlarged = least + (least / MAX_ASPECT_RATIO).sqrt() + (least * MAX_ASPECT_RATIO).sqrt() + 1.0;
    max.max(shrunk as u64).max(enlarged as u64)
}

/// Returns the number of patches by the formula of the processor, also for an image that it rejects as too thin.
fn patches(width: u32, height: u32, px: u32, min: u64, max: u64) -> u64 {
    let px = f64::from(px.max(1));
    let (width, height) = (f64::from(width.max(1)) / px, f64::from(height.max(1)) / px);
    let (min, max) = (min as f64, max as f64);
    // A side shorter than half a patch is rounded to 0 here; the image is enlarged later.
    let (mut across, mut down) = (width.round_ties_even(), height.round_ties_even());
    if across * down > max {
        let shrink = (width * height / max).sqrt();
        (across, down) = ((width / shrink).floor().max(1.0), (height / shrink).floor().max(1.0));
    } else if across * down < min {
        let grow = (min / (width * height)).sqrt();
        (across, down) = ((width * grow).ceil(), (height * grow).ceil());
    }
    (across * down) as u64
}

fn rows(width: u32, height: u32, px: u32, longest: u32) -> u64 {
    let ratio = f64::from(width.max(height).max(1)) / f64::from(longest.max(1));
    let scaled = |side: u32| {
        if ratio > 1.0 { (f64::from(side) / ratio).round_ties_even() as u64 } else { u64::from(side) }
    };
    let count = |side: u32| scaled(side).max(1).div_ceil(u64::from(px.max(1)));
    count(height).saturating_mul(count(width) + 1)
}

fn tiles(width: u32, height: u32, px: u32, max: u32) -> u64 {
    let max = max.min(MAX_TILES);
    let shape = f64::from(width.max(1)) / f64::from(height.max(1));
    let area = f64::from(width) * f64::from(height);
    let mut grids: Vec<(u32, u32)> =
        (1..=max).flat_map(|across| (1..=max / across).map(move |down| (across, down))).collect();
    grids.sort_by_key(|(across, down)| across * down);
    let mut best = (f64::INFINITY, 1);
    for (across, down) in grids {
        let distance = (shape - f64::from(across) / f64::from(down)).abs();
        let count = across * down;
        let roomy = area > 0.5 * f64::from(px) * f64::from(px) * f64::from(count);
        if distance < best.0 || (distance == best.0 && roomy) {
            best = (distance, count);
        }
    }
    u64::from(best.1)
}

/// Image settings of a model: the rule, and the placeholder of an image in the rendered prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImageTokenSettings {
    /// Rule for the number of tokens of one image.
    pub rule: ImageRule,
    /// Text that the chat template writes for an image and that the engine replaces by the image's tokens, such as
    /// `<|image_pad|>`. Markers around it are text and counted as such.
    #[serde(default)]
    pub placeholder: Option<String>,
    /// Tokens of an image whose size is unknown; if not set, the maximum of the rule.
    #[serde(default)]
    pub unknown: Option<u64>,
}

impl ImageTokenSettings {
    /// Maximum number of tokens that templates write around an image.
    const MARK_TOKENS: u64 = 16;

    /// Returns the maximum number of prompt tokens for one image, the marks around it included.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        self.rule.max_tokens().max(self.unknown.unwrap_or(0)).saturating_add(Self::MARK_TOKENS)
    }

    /// Returns the tokens of an image.
    #[must_use]
    pub fn tokens(&self, image: PromptImage) -> u64 {
        match (image.size, self.unknown) {
            (None, Some(tokens)) => tokens,
            _ => self.rule.tokens(image),
        }
    }
}
