//! Image generation: the client's request is converted to the API of a provider, the returned images are read in any
//! form, and the answer is written in the form that the client requests.

mod base64;
mod format;
mod read;
mod shape;
mod write;

pub use base64::{decode_base64, encode_base64};
pub use format::{content_type, is_image};
pub use read::{count_image_items, count_images, image_data};
pub use shape::{IMAGE_ADAPTERS, diffusion_steps_member};
pub use write::{DeliveredImage, write_image_response};
