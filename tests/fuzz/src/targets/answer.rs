//! Complete plain answers of chat providers: the translated answer is valid JSON in the client's dialect, with the
//! complete content.

use crate::stream::{ask, heard, heard_in_response};
use crate::{choice, json, target};
use bytes::Bytes;
use penstock_core::{Dialect, OfferCapabilities};
use penstock_dialect::{DecodedAnswer, conformance, decode, translators};
use penstock_response_metadata::insert_members;

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let body = Bytes::copy_from_slice(body);
    let abilities =
        OfferCapabilities { max_stop: Some(usize::from(choice & 16 == 0)), ..OfferCapabilities::default() };
    for pair in translators() {
        let ask = ask(pair.client_dialect(), choice);
        let target = target(pair.provider_dialect(), &abilities);
        let Ok(whole) = pair.translate_buffered(&ask, &target, body.clone()) else { continue };
        let value = json(&whole.body);
        assert_eq!(value["model"], "org/model");
        assert_eq!(
            pair.translate_buffered(&ask, &target, body.clone()).ok().as_ref(),
            Some(&whole),
            "the same each time"
        );
        let annotated = json(&insert_members(whole.body.clone(), br#""billing_cost":{"credits":0.034}"#));
        assert_eq!(annotated["billing_cost"]["credits"].as_f64(), Some(0.034));
        let answer =
            DecodedAnswer::decode(&ask, &target, body.clone()).expect("what is translated can be read");
        let got = if pair.client_dialect() == Dialect::Responses {
            assert_eq!(conformance::check_response(&value), Ok(()));
            vec![heard_in_response(&value)]
        } else {
            let mut events = Vec::new();
            let read = decode::decode_buffered(
                pair.client_dialect(),
                Bytes::from(whole.body.concat()),
                "4b8e",
                &mut events,
            );
            assert!(read.is_ok(), "{value}");
            heard(&events, ask.n as usize)
        };
        for (candidate, got) in answer.choices.iter().zip(&got) {
            let text: String = candidate.text.iter().map(|text| text.decoded().into_owned()).collect();
            if pair.client_dialect() != Dialect::Messages || candidate.refusal.is_empty() {
                assert_eq!(got.text, text, "{value}");
            }
            let names: Vec<String> =
                candidate.tool_calls.iter().map(|call| call.name.decoded().into_owned()).collect();
            assert_eq!(got.tools.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
        }
    }
}
