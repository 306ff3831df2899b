//! Tests that the gateway reads the energy that a messages provider reports, at every position of the stream, as it
//! does for a chat provider.

use super::admitted_request;
use crate::{find_translator, test_support};
use bytes::Bytes;
use penstock_core::*;

const STREAM: &str = r#"event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}MEMBER}

COMMENTevent: message_stop
data: {"type":"message_stop"}

"#;
const MESSAGE: &str = r#"{"type":"message","model":"m","content":[{"type":"text","text":"Hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2}MEMBER}"#;

#[test]
fn energy_measured_by_a_native_provider_is_recorded() {
    let abilities = OfferCapabilities::default();
    let joules =
        |measured: Option<MeasuredEnergy>| measured.map(|measured| measured.joules.normalize().to_string());
    for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
        let pair = find_translator(client, Dialect::Messages).unwrap();
        let target = test_support::sample_target(Dialect::Messages, &abilities);
        let ask = admitted_request(client, br#"{"model":"m","max_tokens":9,"messages":[],"stream":true}"#);
        let streamed = |member: &str, comment: &str| {
            let stream = STREAM.replace("MEMBER", member).replace("COMMENT", comment);
            let run =
                test_support::run_all_splits(&|| pair.translate_stream(&ask, &target), stream.as_bytes());
            assert_eq!(run.fault, None);
            let out = String::from_utf8(run.out).unwrap();
            assert!(!out.contains("energy_joules") && !out.contains("Wms"), "{out}");
            joules(run.measured_energy)
        };
        let whole = |member: &str| {
            let body = Bytes::from(MESSAGE.replace("MEMBER", member));
            joules(pair.translate_buffered(&ask, &target, body).unwrap().measured_energy)
        };
        let (energy, impact) =
            (r#","energy":{"energy_joules":12.5}"#, r#","impact":{"energy":{"total":12500,"unit":"Wms"}}"#);
        let measured = Some("12.5".to_owned());
        assert_eq!(streamed("", ": energy {\"energy_joules\":12.5}\n\n"), measured);
        assert_eq!((streamed(energy, ""), whole(energy)), (measured.clone(), measured.clone()));
        assert_eq!((streamed(impact, ""), whole(impact)), (measured.clone(), measured));
        assert_eq!((streamed("", ""), whole("")), (None, None));
    }
}
