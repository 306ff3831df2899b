//! Property tests: output text equals input text for any text, any JSON escapes and any splits.

use super::super::TRANSLATOR;
use crate::test_support;
use penstock_core::*;
use proptest::prelude::*;
use serde_json::Value;
use std::fmt::Write;

/// Returns a JSON string of `text`; `escape` selects the characters to escape.
fn spell_json(text: &str, escape: u8) -> String {
    let mut out = String::from("\"");
    for (at, character) in text.chars().enumerate() {
        let forced = (character as u32) < 0x20 || matches!(character, '"' | '\\');
        if forced || (escape >> (at % 8)) & 1 == 1 {
            for unit in character.encode_utf16(&mut [0; 2]) {
                write!(out, "\\u{unit:04x}").unwrap();
            }
        } else {
            out.push(character);
        }
    }
    out.push('"');
    out
}

/// Builds a stream with texts split at UTF-16 units, so that surrogate pairs are separated.
fn build_stream(parts: &[(String, u8)], line: &str) -> String {
    let mut out = String::new();
    for (text, escape) in parts {
        let spelled = spell_json(text, *escape);
        let halves = match spelled.find("\\ud8").filter(|_| escape % 3 == 0) {
            Some(at) => {
                let (first, second) = spelled.split_at(at + 6);
                vec![format!("{first}\""), format!("\"{second}")]
            }
            None => vec![spelled],
        };
        for half in halves {
            write!(
                out,
                "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
                 \"choices\":[{{\"index\":0,\"delta\":{{\"content\":{half}}},\"finish_reason\":null}}]}}{line}{line}"
            )
            .unwrap();
        }
    }
    write!(
        out,
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{}},\"finish_reason\":\"stop\"}}]}}{line}{line}"
    )
    .unwrap();
    out + "data: [DONE]" + line + line
}

fn content_of(out: &[u8]) -> String {
    let text = std::str::from_utf8(out).unwrap();
    text.split("\n\n")
        .filter_map(|event| serde_json::from_str::<Value>(event.strip_prefix("data: ")?).ok())
        .map(|chunk| chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default().to_owned())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn text_is_neither_lost_nor_changed(
        parts in prop::collection::vec(("\\PC{0,12}|[\"\\\\\\n\u{1f600}\u{2028}é]{0,6}", any::<u8>()), 1..12),
        line in prop::sample::select(vec!["\n", "\r\n", "\r"]),
        cuts in prop::collection::vec(1_usize..60, 1..20),
    ) {
        let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true}"#);
        let abilities = OfferCapabilities::default();
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let stream = build_stream(&parts, line);
        let whole = test_support::run_stream(&mut *TRANSLATOR.translate_stream(&ask, &target), [stream.as_bytes()]);
        let mut pieces = Vec::new();
        let (mut rest, mut sizes) = (stream.as_bytes(), cuts.iter().cycle());
        while !rest.is_empty() {
            let (piece, more) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            pieces.push(piece);
            rest = more;
        }
        let cut = test_support::run_stream(&mut *TRANSLATOR.translate_stream(&ask, &target), pieces);
        prop_assert_eq!(&cut, &whole);
        let text: String = parts.iter().map(|(text, _)| text.as_str()).collect();
        prop_assert_eq!(content_of(&whole.out), text.as_str());
        prop_assert_eq!(whole.output_bytes, text.len());
        prop_assert_eq!(crate::conformance::check_chat_stream(&whole.out, false), Ok(()));
    }

    #[test]
    fn no_bytes_at_all_make_it_panic_or_depend_on_cuts(
        parts in prop::collection::vec(
            prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                prop::sample::select(vec![
                    &b"data: "[..], b"\n\n", b"\r\n", b"event: error\n", b": energy {\"energy_joules\":1}\n\n",
                    b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n",
                    b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]}}]}\n\n",
                    b"data: {\"choices\":[{\"index\":99999999999,\"delta\":{}}]}\n\n",
                    b"data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n", b"{", b"}", b"[", b"]", b"\"", b"\\",
                    b"\"choices\":", b"data: [DONE]\n\n",
                ]).prop_map(<[u8]>::to_vec),
            ],
            0..12,
        ),
        size in 1_usize..9,
    ) {
        let ask = test_support::sample_request(Dialect::Chat, br#"{"model":"m","messages":[],"stream":true,"stop":["ab"]}"#);
        let abilities = OfferCapabilities { max_stop: Some(0), ..OfferCapabilities::default() };
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let stream = parts.concat();
        let whole = test_support::run_stream(&mut *TRANSLATOR.translate_stream(&ask, &target), [&stream[..]]);
        let cut = test_support::run_stream(&mut *TRANSLATOR.translate_stream(&ask, &target), stream.chunks(size));
        prop_assert_eq!(&cut, &whole);
        if !whole.out.is_empty() {
            prop_assert_eq!(crate::conformance::check_chat_stream(&whole.out, false), Ok(()));
        }
        let _ = TRANSLATOR.translate_buffered(&ask, &target, stream.into());
    }
}
