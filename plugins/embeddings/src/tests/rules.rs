//! Tests only: rules over all answers.

use super::*;
use crate::floats;
use proptest::prelude::*;
use serde_json::json;

fn embed(count: usize, base64: bool) -> InferenceRequest {
    let inputs: Vec<String> = (0..count).map(|index| format!("text {index}")).collect();
    let format = if base64 { "base64" } else { "float" };
    ask(ModelKind::Embedding, &json!({"model": "m", "input": inputs, "encoding_format": format}).to_string())
}

fn answer(body: String) -> UpstreamAnswer {
    UpstreamAnswer { body: Bytes::from(body), ..UpstreamAnswer::default() }
}

fn openai(ask: &InferenceRequest, body: String) -> Result<BufferedResponse, UpstreamErrorKind> {
    let abilities = OfferCapabilities::default();
    shape(ModelKind::Embedding, "openai")
        .translate(ask, &target(&abilities), vec![answer(body)])
        .map_err(|fault| fault.kind)
}

fn base64(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|value| value.to_le_bytes()).collect();
    let mut out = Vec::new();
    floats::encode_base64(&bytes, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Returns the vectors of an answer, in either form.
fn vectors(whole: &BufferedResponse) -> Vec<Vec<f32>> {
    let value: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
    let items = value["data"].as_array().unwrap();
    let read = |(position, item): (usize, &Value)| {
        assert_eq!((&item["object"], item["index"].as_u64()), (&"embedding".into(), Some(position as u64)));
        let json = item["embedding"].to_string();
        let mut bytes = Vec::new();
        match json.strip_prefix('"') {
            Some(text) => {
                floats::decode_base64(text.trim_end_matches('"').as_bytes(), &mut bytes).unwrap();
            }
            None => drop(floats::read_array(json.as_bytes(), &mut bytes).unwrap()),
        }
        bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    };
    items.iter().enumerate().map(read).collect()
}

fn finite() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |value| value.is_finite())
}

proptest! {
    #[test]
    fn a_vector_survives_any_number_of_conversions(vector in prop::collection::vec(finite(), 1..40)) {
        let mut bytes = Vec::new();
        vector.iter().for_each(|value| bytes.extend_from_slice(&value.to_le_bytes()));
        let mut json = Vec::new();
        floats::write_array(&bytes, &mut json).unwrap();
        prop_assert!(serde_json::from_slice::<Vec<f64>>(&json).is_ok());
        let mut again = Vec::new();
        prop_assert_eq!(floats::read_array(&json, &mut again), Some(json.len()));
        prop_assert_eq!(&again, &bytes);
        let (taken, count) = floats::measure_array(&json).unwrap();
        prop_assert_eq!((taken, count), (json.len(), vector.len()));
        // The shortest form: no decimal with fewer digits parses to the same number.
        for value in &vector {
            let mut one = Vec::new();
            floats::write_array(&value.to_le_bytes(), &mut one).unwrap();
            let digits = |text: &str| text.split(['e', 'E']).next().unwrap().chars()
                .filter(char::is_ascii_digit).collect::<String>().trim_matches('0').len();
            let ours = digits(std::str::from_utf8(&one).unwrap());
            prop_assert!(ours <= digits(&format!("{value:e}")), "{value:e} {}", String::from_utf8_lossy(&one));
        }
        let mut text = Vec::new();
        floats::encode_base64(&bytes, &mut text).unwrap();
        let mut back = Vec::new();
        prop_assert_eq!(floats::decode_base64(&text[1..text.len() - 1], &mut back), Some(vector.len()));
        prop_assert_eq!(back, bytes);
    }

    #[test]
    fn any_form_and_any_order_give_the_same_vectors(
        vectors_in in prop::collection::vec(prop::collection::vec(finite(), 3), 1..6),
        strings in any::<u8>(),
        rotation in any::<usize>(),
        spaces in any::<bool>(),
    ) {
        let mut items: Vec<String> = vectors_in.iter().enumerate().map(|(index, vector)| {
            let value = if strings >> index & 1 == 1 { base64(vector) } else { serde_json::to_string(vector).unwrap() };
            let value = if spaces { value.replace(',', " , ") } else { value };
            format!(r#"{{"object":"embedding","index":{index},"embedding":{value}}}"#)
        }).collect();
        let count = items.len();
        items.rotate_left(rotation % count);
        let body = format!(r#"{{"object":"list","data":[{}],"usage":{{"prompt_tokens":5,"total_tokens":5}}}}"#, items.join(","));
        for wanted in [false, true] {
            let whole = openai(&embed(count, wanted), body.clone()).unwrap();
            prop_assert_eq!(&vectors(&whole), &vectors_in);
            let value: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
            prop_assert!(value["data"].as_array().unwrap().iter().all(|item| item["embedding"].is_string() == wanted));
            prop_assert_eq!(whole.usage().unwrap().input, 5);
        }
    }

    #[test]
    fn no_answer_is_too_strange(body in "[\\[\\]{}\",:0-9.eE+ \\-a-z]{0,60}", cut in any::<usize>()) {
        let _ = openai(&embed(1, true), body.clone());
        let good = r#"{"data":[{"index":0,"embedding":[0.5,-1e-3]}],"usage":{"total_tokens":3}}"#;
        let cut = cut % good.len();
        prop_assert!(openai(&embed(1, true), good[..cut].to_owned()).is_err());
        let abilities = OfferCapabilities::default();
        for shape in crate::ADAPTERS.iter().filter(|shape| shape.kind() == ModelKind::Rerank) {
            let ask = ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a"]}"#);
            let _ = shape.translate(&ask, &target(&abilities), vec![answer(body.clone())]);
        }
    }

    #[test]
    fn scores_are_sorted_and_within_bounds(logits in prop::collection::vec(-40.0..40.0f64, 1..12), top in 1..20usize) {
        let documents: Vec<String> = (0..logits.len()).map(|index| format!("document {index}")).collect();
        let results: Vec<Value> = logits.iter().enumerate()
            .map(|(index, logit)| json!({"index": index, "relevance_score": logit})).collect();
        let request = json!({"model": "m", "query": "q", "documents": documents, "top_n": top});
        let ask = ask(ModelKind::Rerank, &request.to_string());
        let abilities = OfferCapabilities { score_transform: RerankScoreTransform::Sigmoid, ..OfferCapabilities::default() };
        let body = json!({"results": results}).to_string();
        let whole = shape(ModelKind::Rerank, "vllm").translate(&ask, &target(&abilities), vec![answer(body)]).unwrap();
        let value: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
        let results = value["results"].as_array().unwrap();
        prop_assert_eq!(results.len(), top.min(logits.len()));
        let mut before = 1.0;
        for result in results {
            let (index, score) = (result["index"].as_u64().unwrap(), result["relevance_score"].as_f64().unwrap());
            prop_assert!((0.0..=before).contains(&score));
            let expected = 1.0 / (1.0 + (-logits[usize::try_from(index).unwrap()]).exp());
            prop_assert!((score - expected).abs() < 1e-12);
            before = score;
        }
    }
}

#[test]
fn vectors_that_fit_are_the_providers_own_bytes() {
    let body = Bytes::from_static(
        br#"{"id":"x","data":[{"object":"embedding","index":0,"embedding":[ 0.10, 1E0 ]}, {"index":1,"object":"embedding","embedding":[2,3.50]}],"model":"e","usage":{"prompt_tokens":4,"total_tokens":4}}"#,
    );
    let abilities = OfferCapabilities::default();
    let answers = vec![UpstreamAnswer { body: body.clone(), ..UpstreamAnswer::default() }];
    let whole = shape(ModelKind::Embedding, "openai")
        .translate(&embed(2, false), &target(&abilities), answers)
        .unwrap();
    let inside = body.as_ptr_range();
    let own = whole.body.iter().filter(|piece| inside.contains(&piece.as_ptr())).map(|piece| piece.len());
    let own: usize = own.sum();
    let array = body.windows(8).position(|eight| eight == br#""model":"#).unwrap()
        - 1
        - body.iter().position(|byte| *byte == b'[').unwrap();
    assert_eq!(own, array, "the whole list, not copied");
}

#[test]
fn a_member_that_strict_parsers_refuse_is_left_out() {
    for member in [r#""own":1e400"#, r#""own":"\ud800""#, r#""own":1,"own":2"#, r#""object":"x""#] {
        let data = format!(r#"{{"data":[{{"object":"embedding","index":0,"embedding":[1,2],{member}}}]}}"#);
        let abilities = OfferCapabilities::default();
        let whole = shape(ModelKind::Embedding, "openai")
            .translate(&embed(1, false), &target(&abilities), vec![answer(data)])
            .unwrap();
        let body = String::from_utf8(whole.body.concat()).unwrap();
        let item = r#""data":[{"object":"embedding","index":0,"embedding":[1,2]}]"#;
        assert!(body.contains(item), "{member}: {body}");
    }
}

#[test]
fn two_scores_or_indices_of_one_document_are_malformed() {
    let ask = ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a"]}"#);
    let abilities = OfferCapabilities::default();
    for (result, is_valid) in [
        (r#"{"index":0,"score":0.5,"relevance_score":0.5}"#, true),
        (r#"{"index":0,"score":null,"relevance_score":0.5}"#, true),
        (r#"{"index":0,"relevance_score":0.5,"relevance_score":0.25}"#, false),
        (r#"{"index":0,"score":0.5,"relevance_score":0.25}"#, false),
        (r#"{"index":0,"index":0,"relevance_score":0.5}"#, false),
        (r#"{"index":0,"relevance_score":0.5,"score":"0.5"}"#, false),
    ] {
        let body = answer(format!(r#"{{"results":[{result}]}}"#));
        let read = shape(ModelKind::Rerank, "vllm").translate(&ask, &target(&abilities), vec![body]);
        assert_eq!(read.is_ok(), is_valid, "{result}");
    }
}

#[test]
fn an_invalid_vector_is_a_provider_failure() {
    let data = |data: &str| openai(&embed(2, true), format!(r#"{{"data":{data}}}"#)).map(drop);
    let one = r#"{"index":0,"embedding":[1,2]}"#;
    for bad in [
        "null",
        "[]",
        "[1,2]",
        one,
        &format!("[{one}]"),
        &format!("[{one},{one}]"),
        &format!(r#"[{one},{{"index":2,"embedding":[1,2]}}]"#),
        &format!(r#"[{one},{{"embedding":[1,2]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,2,3]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":null}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,null]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,NaN]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,1e39]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,2,]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1 2]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":[1,2],"embedding":[1,2]}}]"#),
        &format!(r#"[{one},{{"index":1,"index":1,"embedding":[1,2]}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":"AACAPw"}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":"AACAPwAAAEA"}}]"#),
        &format!(r#"[{one},{{"index":1,"embedding":"AACA PwAAAEA="}}]"#),
    ] {
        assert_eq!(data(bad), Err(UpstreamErrorKind::Malformed), "{bad}");
    }
    assert_eq!(data(&format!(r#"[{one},{{"index":1,"embedding":"AACAPwAAAEA="}}]"#)), Ok(()));
    assert_eq!(
        openai(&embed(1, true), r#"{"error":{"message":"no"}}"#.to_owned()),
        Err(UpstreamErrorKind::InBandError)
    );
}

#[test]
fn vectors_of_another_length_than_asked_are_refused() {
    let ask = ask(ModelKind::Embedding, r#"{"model":"m","input":"x","dimensions":3}"#);
    let body =
        |vector: &str| format!(r#"{{"data":[{{"object":"embedding","index":0,"embedding":{vector}}}]}}"#);
    assert_eq!(openai(&ask, body("[1,2]")).map(drop), Err(UpstreamErrorKind::Caller));
    assert!(openai(&ask, body("[1,2,3]")).is_ok());
}

#[test]
fn logits_and_probabilities_are_never_confused() {
    let ask = ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a","b"]}"#);
    let whole = |score: RerankScoreTransform, body: &str| {
        let abilities = OfferCapabilities { score_transform: score, ..OfferCapabilities::default() };
        let whole = shape(ModelKind::Rerank, "jina").translate(
            &ask,
            &target(&abilities),
            vec![answer(body.to_owned())],
        );
        whole.map(|whole| String::from_utf8(whole.body.concat()).unwrap()).map_err(|fault| fault.kind)
    };
    let both = r#"{"results":[{"index":0,"relevance_score":0.2},{"index":1,"relevance_score":0.9}]}"#;
    assert!(
        whole(RerankScoreTransform::Identity, both).unwrap().contains(r#"{"index":1,"relevance_score":0.9}"#)
    );
    assert!(
        whole(RerankScoreTransform::Sigmoid, both)
            .unwrap()
            .contains(r#"{"index":1,"relevance_score":0.7109"#)
    );
    let null_beside = both.replace(r#"0.9}"#, r#"0.9,"score":null}"#);
    assert_eq!(
        whole(RerankScoreTransform::Identity, &null_beside),
        whole(RerankScoreTransform::Identity, both)
    );
    let raw = r#"{"results":[{"index":0,"relevance_score":-3.5},{"index":1,"relevance_score":0.9}]}"#;
    assert_eq!(whole(RerankScoreTransform::Identity, raw), Err(UpstreamErrorKind::Malformed));
    assert!(whole(RerankScoreTransform::Sigmoid, raw).is_ok());
}

/// Returns the answer of an engine that implements `raw_scores` in the same way as text-embeddings-inference.
fn engine_scores(request: &UpstreamRequest, logits: &[f64]) -> UpstreamAnswer {
    let request: Value = serde_json::from_slice(&request.body.concat()).unwrap();
    let raw = request["raw_scores"] == true;
    let score = |logit: f64| if raw { logit } else { 1.0 / (1.0 + (-logit).exp()) };
    let results: Vec<Value> = logits
        .iter()
        .enumerate()
        .map(|(index, logit)| json!({"index": index, "score": score(*logit)}))
        .collect();
    answer(json!(results).to_string())
}

#[test]
fn a_refused_member_does_not_change_the_scale_of_scores() {
    let ask = ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a","b","c"]}"#);
    let logits = [-4.0, 6.0, 0.0];
    for score_transform in [RerankScoreTransform::Identity, RerankScoreTransform::Sigmoid] {
        let abilities = OfferCapabilities { score_transform, ..OfferCapabilities::default() };
        for omitted in AdjustableMemberSet::ADDED_BY_GATEWAY
            .iter()
            .map(AdjustableMemberSet::from_member)
            .chain([AdjustableMemberSet::NONE])
        {
            let mut target = target(&abilities);
            target.adjustment.omitted = omitted;
            let shape = shape(ModelKind::Rerank, "tei");
            let requests = shape.build_requests(&ask, &target).unwrap();
            let answers = requests.iter().map(|request| engine_scores(request, &logits)).collect();
            let whole = shape.translate(&ask, &target, answers).unwrap();
            let value: Value = serde_json::from_slice(&whole.body.concat()).unwrap();
            for (position, index) in [1_usize, 2, 0].into_iter().enumerate() {
                let result = &value["results"][position];
                assert_eq!(result["index"], index, "{omitted:?}");
                let expected = 1.0 / (1.0 + (-logits[index]).exp());
                let score = result["relevance_score"].as_f64().unwrap();
                assert!((score - expected).abs() < 1e-12, "{omitted:?} {score_transform:?}: {score}");
            }
        }
    }
}

#[test]
fn a_number_that_is_not_finite_is_refused_in_every_form() {
    let body =
        |vector: &str| format!(r#"{{"data":[{{"object":"embedding","index":0,"embedding":{vector}}}]}}"#);
    let long = "9".repeat(400);
    for number in ["1e400", "-1E+400", "1e39", "0.1e40", &long] {
        for base64 in [false, true] {
            let read = openai(&embed(1, base64), body(&format!("[0.5,{number}]"))).map(drop);
            assert_eq!(read, Err(UpstreamErrorKind::Malformed), "{number} {base64}");
        }
    }
    for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        for form in [false, true] {
            let vector = format!("\"{}\"", base64(&[0.5, value]).trim_matches('"'));
            let read = openai(&embed(1, form), body(&vector)).map(drop);
            assert_eq!(read, Err(UpstreamErrorKind::Malformed), "{value} {form}");
        }
    }
    let small = format!("0.{long}");
    for number in ["3.4e38", "1e-400", "-0.0", "12345678901234567890123456789012345678901234", &small] {
        let expected = if number.len() == 44 { Err(UpstreamErrorKind::Malformed) } else { Ok(()) };
        assert_eq!(openai(&embed(1, false), body(&format!("[{number}]"))).map(drop), expected, "{number}");
    }
}

#[test]
fn an_index_is_an_integer() {
    let rerank = ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a"]}"#);
    let abilities = OfferCapabilities::default();
    for (index, is_valid) in
        [("0", true), (r#""0""#, false), ("0.0", false), ("-0", false), ("null", false), ("1", false)]
    {
        let scores = answer(format!(r#"{{"results":[{{"index":{index},"relevance_score":0.5}}]}}"#));
        let ranked = shape(ModelKind::Rerank, "jina").translate(&rerank, &target(&abilities), vec![scores]);
        assert_eq!(ranked.is_ok(), is_valid, "rerank: {index}");
        let body = format!(r#"{{"data":[{{"object":"embedding","index":{index},"embedding":[1]}}]}}"#);
        assert_eq!(openai(&embed(1, false), body).is_ok(), is_valid, "embedding: {index}");
    }
}

#[test]
fn a_cap_for_each_document_is_sent_where_the_api_has_it_or_the_offer_lists_it() {
    let ask =
        ask(ModelKind::Rerank, r#"{"model":"m","query":"q","documents":["a"],"max_tokens_per_doc":512}"#);
    for name in ["vllm", "jina", "cohere_v1", "cohere_v2", "infinity", "tei"] {
        for listed in [&[][..], &["max_tokens_per_doc"]] {
            let abilities = abilities(&json!({"supported_parameters": listed}));
            let requests = shape(ModelKind::Rerank, name).build_requests(&ask, &target(&abilities)).unwrap();
            let body = String::from_utf8(requests[0].body.concat()).unwrap();
            let count = usize::from(name == "cohere_v2" || !listed.is_empty());
            assert_eq!(body.matches(r#""max_tokens_per_doc":512"#).count(), count, "{name}: {body}");
        }
    }
}

#[test]
fn parameters_that_change_the_result_are_sent_to_an_offer_that_lists_them() {
    let members = r#""input_type":"query","instruction":"x","truncate":false"#;
    let embedding = format!(r#"{{"model":"m","input":["a"],{members}}}"#);
    let rerank = format!(r#"{{"model":"m","query":"q","documents":["a"],{members}}}"#);
    for (kind, name, body, sent) in [
        (ModelKind::Embedding, "openai", &embedding, &["input_type", "instruction"][..]),
        (ModelKind::Embedding, "tei", &embedding, &["input_type", "instruction"]),
        (ModelKind::Rerank, "vllm", &rerank, &["instruction"]),
        (ModelKind::Rerank, "tei", &rerank, &["instruction"]),
    ] {
        let ask = ask(kind, body);
        for listed in [&[][..], &["input_type", "instruction"]] {
            let abilities = abilities(&json!({"supported_parameters": listed}));
            let requests = shape(kind, name).build_requests(&ask, &target(&abilities)).unwrap();
            let body: Value = serde_json::from_slice(&requests[0].body.concat()).unwrap();
            for parameter in ["input_type", "instruction", "truncate"] {
                let is_sent = listed.contains(&parameter) && sent.contains(&parameter);
                assert_eq!(body.get(parameter).is_some(), is_sent, "{name} {parameter}: {body}");
            }
        }
    }
}
