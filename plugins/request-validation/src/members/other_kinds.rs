//! Members that would change generated images, speech or the results of a moderation, and that the request formats of
//! the gateway's providers cannot express.

use super::RefusedMember;
use super::RefusedValues::{NonEmpty, Present, ProviderConstraints, SeveralChoices};

/// End of the error message for members that choose a provider.
const PROVIDER_ADVICE: &str = "choose providers with `filters` or a flavor";

/// Members of an image request that are refused for every offer, because they would change the image.
pub const REFUSED_IMAGE_MEMBERS: &[RefusedMember] = &[
    ("aspect_ratio", NonEmpty, "use `size`, or `width` and `height`, instead"),
    ("batch_size", SeveralChoices, "use `n` instead"),
    ("cfg_scale", Present, "the guidance scale cannot be set"),
    ("guidance", Present, "the guidance scale cannot be set"),
    ("guidance_scale", Present, "the guidance scale cannot be set"),
    ("image", Present, "only text-to-image generation is supported"),
    ("image_size", NonEmpty, "use `size`, or `width` and `height`, instead"),
    ("image_url", NonEmpty, "only text-to-image generation is supported"),
    ("image_urls", NonEmpty, "only text-to-image generation is supported"),
    ("images", NonEmpty, "only text-to-image generation is supported"),
    ("init_image", NonEmpty, "only text-to-image generation is supported"),
    ("input_image", NonEmpty, "only text-to-image generation is supported"),
    ("loras", NonEmpty, "LoRA adapters are not supported for image models"),
    ("mask", Present, "only text-to-image generation is supported"),
    (
        "negative_prompt",
        NonEmpty,
        "negative prompts are not supported; describe in `prompt` what the image must not show",
    ),
    ("num_images", SeveralChoices, "use `n` instead"),
    ("num_images_per_prompt", SeveralChoices, "use `n` instead"),
    ("num_outputs", SeveralChoices, "use `n` instead"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("quantity", SeveralChoices, "use `n` instead"),
    ("reference_images", NonEmpty, "only text-to-image generation is supported"),
    ("resolution", NonEmpty, "use `size`, or `width` and `height`, instead"),
    ("sampler", NonEmpty, "the sampler cannot be set"),
    ("scheduler", NonEmpty, "the scheduler cannot be set"),
    ("seed", Present, "the seed cannot be set"),
    ("strength", Present, "only text-to-image generation is supported"),
    ("style_preset", NonEmpty, "describe the style in `prompt`"),
    ("true_cfg_scale", Present, "the guidance scale cannot be set"),
];

/// Members of a speech request that are refused for every offer. Other members are accepted or refused depending on
/// the offer.
pub const REFUSED_SPEECH_MEMBERS: &[RefusedMember] = &[
    ("messages", NonEmpty, "use `input` instead"),
    ("n", SeveralChoices, "each request returns one audio file"),
    ("prompt", NonEmpty, "use `input` instead"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("stream_options", NonEmpty, "use `stream_format` instead"),
    ("text", NonEmpty, "use `input` instead"),
];

/// Members of a moderation request that are refused, because they would change the result.
pub const REFUSED_MODERATION_MEMBERS: &[RefusedMember] = &[
    ("categories", NonEmpty, "the model defines the categories"),
    ("messages", NonEmpty, "use `input` instead"),
    ("provider", ProviderConstraints, PROVIDER_ADVICE),
    ("threshold", Present, "the model defines the thresholds"),
    ("thresholds", NonEmpty, "the model defines the thresholds"),
];
