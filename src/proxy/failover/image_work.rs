//! Work of image requests: the number of images, their pixels and their diffusion steps.
//!
//! Clients may leave out the size of the images, and providers then choose one. The pixels of the delivered images are
//! read from their headers, and count up to the largest size that the model is known to make: a header may claim any
//! size.

use crate::upstream::offer::OfferState;
use penstock_core::{ImageSize, ImageTask, InferenceRequest, WorkDone};
use penstock_footprint::constants::REFERENCE_IMAGE_PIXELS;
use penstock_media::image::diffusion_steps_member;
use penstock_tokens::{base64_image_size, image_size};

/// Most pixels of an image if neither the request nor the model states a size: 2048 by 2048.
const MAX_UNSTATED_PIXELS: u64 = 1 << 22;

/// Most base64 characters that are decoded to find the size of a JPEG, whose header may follow long metadata.
pub const MAX_MEASURED_CHARS: usize = 256 << 10;

/// Returns the work of all requested images of a failed attempt: in the size of the images that it returned (`done`), or
/// else in the requested size, or else in the first size of the model.
pub fn attempted_image_work(
    draw: &ImageTask,
    ask: &InferenceRequest,
    offer: &OfferState,
    done: Option<WorkDone>,
) -> WorkDone {
    let returned = match done {
        Some(WorkDone::Images { pixels, .. }) => pixels,
        _ => None,
    };
    let first = || draw.size.or_else(|| offer.offer.model.image_sizes.first().copied());
    image_work(draw.n, returned.or_else(|| first().map(ImageSize::pixel_count)), ask, offer)
}

/// Returns the most work of the requested images: in the requested size, or else in the largest size.
pub fn max_image_work(draw: &ImageTask, ask: &InferenceRequest, offer: &OfferState) -> WorkDone {
    let pixels = draw.size.map_or_else(|| largest_size(offer), ImageSize::pixel_count);
    image_work(draw.n, Some(pixels), ask, offer)
}

/// Returns the work of delivered images: in the requested size, or else in their own. `measured` has the pixels of each
/// image, `None` where they are unknown; such an image counts with the first size of the model.
pub fn delivered_image_work(
    measured: &[Option<u64>],
    draw: &ImageTask,
    ask: &InferenceRequest,
    offer: &OfferState,
) -> WorkDone {
    let count = u32::try_from(measured.len()).unwrap_or(u32::MAX);
    let pixels = draw.size.map_or_else(|| mean_pixels(measured, offer), ImageSize::pixel_count);
    image_work(count, Some(pixels), ask, offer)
}

/// Returns the mean of the pixels, rounded up.
fn mean_pixels(measured: &[Option<u64>], offer: &OfferState) -> u64 {
    let first = offer.offer.model.image_sizes.first();
    let usual = first.map_or(REFERENCE_IMAGE_PIXELS, |size| size.pixel_count());
    let most = largest_size(offer);
    let sum: u64 = measured.iter().map(|pixels| pixels.map_or(usual, |pixels| pixels.min(most))).sum();
    sum.div_ceil(u64::try_from(measured.len()).unwrap_or(u64::MAX).max(1))
}

/// Returns the pixels of the largest image that the model makes if the request states no size.
fn largest_size(offer: &OfferState) -> u64 {
    let sizes = offer.offer.model.image_sizes.iter().map(|size| size.pixel_count());
    sizes.max().unwrap_or(MAX_UNSTATED_PIXELS)
}

/// Returns the work of `count` images. The number of steps is that of the request if the offer accepts it, else that
/// of the offer.
fn image_work(count: u32, pixels: Option<u64>, ask: &InferenceRequest, offer: &OfferState) -> WorkDone {
    let takes = |shape| diffusion_steps_member(shape, &offer.offer.capabilities).is_some();
    let steps =
        ask.diffusion_steps().filter(|_| offer.offer.shape.is_some_and(takes)).or(offer.offer.image_steps);
    WorkDone::Images { count, steps, pixels }
}

/// Returns the pixels of an image according to its header; `None` if its size is unknown or zero.
pub fn measure_image(image: &[u8]) -> Option<u64> {
    pixel_count(image_size(image)?)
}

/// Returns the pixels of an image in base64 according to its header; `None` if its size is unknown or zero.
pub fn measure_base64_image(text: &[u8]) -> Option<u64> {
    let start = text.get(..text.len().min(MAX_MEASURED_CHARS))?;
    pixel_count(base64_image_size(std::str::from_utf8(start).ok()?)?)
}

fn pixel_count((width, height): (u32, u32)) -> Option<u64> {
    Some(u64::from(width) * u64::from(height)).filter(|pixels| *pixels > 0)
}
