//! Members that would change generated images, speech or the results of a moderation, and that the request formats of
//! the gateway's providers cannot express.

use super::RefusedMember;
use super::RefusedValues::{NonEmpty, Present, ProviderConstraints, SeveralChoices};

/// End of the error message for members that choose a provider.
const PROVIDER_ADVICE: &str = "choose providers by `filters` or a flavor";

/// Members of an image request that are refused for every offer, because they would change the image.
pub const REFUSED_IMAGE_MEMBERS: &[RefusedMember] = &[
    ("aspect_ratio", NonEmpty, "send `size`, or `width` and `height`"),
    ("batch_size", SeveralChoices, "send `n`"),
    ("cfg_scale", Present, "the guidance of an image cannot be set"),
    ("guidance", Present, "the guidance of an image cannot be set"),
    ("guidance_scale", Present, "the guidance of an image cannot be set"),
    ("image", Present, "images are generated from a text alone"),
    ("image_size", NonEmpty, "send `size`, or `width` and `height`"),
    ("image_url", NonEmpty, "images are generated from a text alone"),
    ("image_urls", NonEmpty, "images are generated from a text alone"),
    ("images", NonEmpty, "images are generated from a text alone"),
    ("init_image", NonEmpty, "images are generated from a text alone"),
    ("input_image", NonEmpty, "images are generated from a text alone"),
    ("loras", NonEmpty, "adapters of image models are not supported"),
    ("mask", Present, "images are generated from a text alone"),
    ("negative_prompt", NonEmpty, "an image has one prompt; say there what it must not show"),
    ("num_images", SeveralChoices, "send `n`"),
    ("num_images_per_prompt", SeveralChoices, "send `n`"),
    ("num_outputs", SeveralChoices, "send `n`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("quantity", SeveralChoices, "send `n`"),
    ("reference_images", NonEmpty, "images are generated from a text alone"),
    ("resolution", NonEmpty, "send `size`, or `width` and `height`"),
    ("sampler", NonEmpty, "the sampler of an image cannot be set"),
    ("scheduler", NonEmpty, "the scheduler of an image cannot be set"),
    ("seed", Present, "the seed of an image cannot be set"),
    ("strength", Present, "images are generated from a text alone"),
    ("style_preset", NonEmpty, "say in the prompt what the image is to look like"),
    ("true_cfg_scale", Present, "the guidance of an image cannot be set"),
];

/// Members of a speech request that are refused for every offer. Other members are accepted or refused depending on
/// the offer.
pub const REFUSED_SPEECH_MEMBERS: &[RefusedMember] = &[
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("n", SeveralChoices, "a request has one audio"),
    ("prompt", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("stream_options", NonEmpty, "send `stream_format`"),
    ("text", NonEmpty, "this endpoint reads `input`"),
];

/// Members of a moderation request that are refused, because they would change the result.
pub const REFUSED_MODERATION_MEMBERS: &[RefusedMember] = &[
    ("categories", NonEmpty, "the categories are the model's"),
    ("messages", NonEmpty, "this endpoint reads `input`"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("threshold", Present, "the thresholds are the model's"),
    ("thresholds", NonEmpty, "the thresholds are the model's"),
];
