//! Requests for embeddings, rerank, images, speech and moderation: an accepted request can be translated for every
//! provider adapter, as valid JSON.

use crate::{abilities, choice, json, target};
use bytes::Bytes;
use penstock_core::{Dialect, ModelKind};
use penstock_request_validation::{
    RequestLimits, validate_embeddings_request, validate_image_generation, validate_rerank_request,
    validate_speech_request, validate_text_input_request,
};

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let limits = RequestLimits { max_body: 1 << 20, max_values: 1 << 14, ..RequestLimits::default() };
    let body = Bytes::copy_from_slice(body);
    let asks = [
        validate_embeddings_request(body.clone(), &limits),
        validate_rerank_request(body.clone(), &limits),
        validate_speech_request(body.clone(), &limits),
        validate_text_input_request(body.clone(), &limits, ModelKind::Moderation, None),
        validate_image_generation(body, &limits),
    ];
    let abilities = abilities(choice);
    for ask in asks.into_iter().flatten() {
        let target = target(Dialect::Chat, &abilities);
        let all = penstock_embeddings::ADAPTERS.iter().chain(penstock_media::image::IMAGE_ADAPTERS);
        for shape in all.chain(penstock_media::speech::AUDIO_ADAPTERS) {
            if shape.kind() != ask.kind {
                continue;
            }
            let Ok(calls) = shape.build_requests(&ask, &target) else { continue };
            assert!(!calls.is_empty());
            assert_eq!(
                shape.build_requests(&ask, &target).ok(),
                Some(calls.clone()),
                "the same calls each time"
            );
            for call in calls {
                assert!(json(&call.body).is_object());
            }
        }
    }
}
