//! Requests for embeddings, rerank, images, speech and moderation: an accepted one can be sent to every shape of
//! provider, as valid JSON.

use crate::{abilities, choice, json, target};
use bytes::Bytes;
use penstock_core::{Dialect, ModelKind};
use penstock_request_validation::{
    RequestLimits, validate_embeddings, validate_images, validate_rerank, validate_speech, validate_texts,
};

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let limits = RequestLimits { max_body: 1 << 20, max_values: 1 << 14, ..RequestLimits::default() };
    let body = Bytes::copy_from_slice(body);
    let asks = [
        validate_embeddings(body.clone(), &limits),
        validate_rerank(body.clone(), &limits),
        validate_speech(body.clone(), &limits),
        validate_texts(body.clone(), &limits, ModelKind::Moderation, None),
        validate_images(body, &limits),
    ];
    let abilities = abilities(choice);
    for ask in asks.into_iter().flatten() {
        let target = target(Dialect::Chat, &abilities);
        let all = penstock_embeddings::ADAPTERS.iter().chain(penstock_media::image::ADAPTERS);
        for shape in all.chain(penstock_media::speech::ADAPTERS) {
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
