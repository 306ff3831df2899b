//! Requests for embeddings and rerank.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

use bytes::Bytes;
use penstock_core::{
    ApiError, EmbeddingInputs, EmbeddingTask, ErrorCode, InferenceRequest, InferenceTask, ModelKind,
    RerankTask,
};
use penstock_request_validation::{RequestLimits, validate_embeddings_request, validate_rerank_request};
use proptest::prelude::*;
use serde_json::{Value, json};

fn embed(body: &str) -> Result<(InferenceRequest, EmbeddingTask), ApiError> {
    let ask =
        validate_embeddings_request(Bytes::copy_from_slice(body.as_bytes()), &RequestLimits::default())?;
    let InferenceTask::Embed(embed) = ask.task.clone() else { panic!("{:?}", ask.task) };
    Ok((ask, embed))
}

fn rank(body: &Value) -> Result<(InferenceRequest, RerankTask), ApiError> {
    let ask = validate_rerank_request(Bytes::from(body.to_string()), &RequestLimits::default())?;
    let InferenceTask::Rerank(rerank) = ask.task.clone() else { panic!("{:?}", ask.task) };
    Ok((ask, rerank))
}

fn strings(values: &[Bytes]) -> Vec<String> {
    values.iter().map(|value| serde_json::from_slice(value).unwrap()).collect()
}

#[test]
fn inputs_are_slices_of_the_body() {
    let body = r#"{"model":"e:eco","input":[ "a\n" ,"é"],"encoding_format":"base64","user":null,"x":{"input":[1,[2]]}}"#;
    let (ask, task) = embed(body).unwrap();
    assert_eq!((ask.kind, &*ask.model, ask.prompt_bytes), (ModelKind::Embedding, "e:eco", 5));
    assert!(task.as_base64 && task.is_verbatim && task.dimensions.is_none());
    let EmbeddingInputs::Texts(texts) = &task.inputs else { panic!("{:?}", task.inputs) };
    assert_eq!(texts, &[Bytes::from_static(br#""a\n""#), Bytes::from("\"é\"")]);
    let inside = ask.body.as_ptr_range();
    assert!(texts.iter().all(|text| inside.contains(&text.as_ptr())), "nothing is copied");
}

#[test]
fn one_text_and_token_ids() {
    assert_eq!(
        embed(r#"{"model":"e","input":"x"}"#).unwrap().1.inputs,
        EmbeddingInputs::Texts(vec![Bytes::from_static(b"\"x\"")])
    );
    let (ask, task) = embed(r#"{"model":"e","input":[1, 2],"dimensions":8}"#).unwrap();
    assert_eq!(task.inputs, EmbeddingInputs::TokenIds(vec![Bytes::from_static(b"[1, 2]")]));
    assert_eq!((task.dimensions, ask.prompt_bytes), (Some(8), 8));
    let (_, task) = embed(r#"{"model":"e","input":[[1],[2,3]]}"#).unwrap();
    assert_eq!(task.inputs.values(), [Bytes::from_static(b"[1]"), Bytes::from_static(b"[2,3]")]);
}

#[test]
fn lists_may_mix_the_forms_of_their_elements() {
    let (ask, task) = embed(r#"{"model":"e","input":["ab",[1,2],"c",[3]]}"#).unwrap();
    let values = ["\"ab\"", "[1,2]", "\"c\"", "[3]"].map(|value| Bytes::from_static(value.as_bytes()));
    assert_eq!(task.inputs, EmbeddingInputs::Mixed(values.to_vec()));
    assert_eq!(ask.prompt_bytes, 3 + 3 * 4);
    let (_, task) = embed(r#"{"model":"e","input":[[1],"x"]}"#).unwrap();
    assert_eq!(task.inputs.len(), 2);
    for (documents, texts) in [
        (json!(["x", {"text": "y"}]), ["x", "y"]),
        (json!([{"text": "x"}, "y"]), ["x", "y"]),
        (json!([{"text": "x", "id": 1}, {"text": "y"}]), ["x", "y"]),
    ] {
        let (_, task) = rank(&json!({"model": "r", "query": "q", "documents": documents})).unwrap();
        assert_eq!(strings(&task.documents), texts);
    }
    // The error names the first input that fits neither form: texts and arrays of ids, or ids only.
    for (input, param) in [
        (json!(["x", 5]), "input[1]"),
        (json!(["x", null]), "input[1]"),
        (json!(["x", []]), "input[1]"),
        (json!([[1], ""]), "input[1]"),
        (json!([[1], ["x"]]), "input[1][0]"),
        (json!([1, "x"]), "input[1]"),
        (json!([1, [2]]), "input[1]"),
    ] {
        let refusal = embed(&json!({"model": "e", "input": input}).to_string()).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some(param), "{input}");
    }
    for (documents, param) in [
        (json!(["x", 5]), "documents[1]"),
        (json!(["x", ["y"]]), "documents[1]"),
        (json!(["x", null]), "documents[1]"),
        (json!(["x", {"text": ""}]), "documents[1].text"),
        (json!([{"text": "x"}, {}]), "documents[1].text"),
    ] {
        let refusal = rank(&json!({"model": "r", "query": "q", "documents": documents})).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some(param), "{documents}");
    }
}

#[test]
fn lists_have_bounds() {
    let ask = |count: usize| json!({"model": "e", "input": vec!["x"; count]}).to_string();
    assert_eq!(embed(&ask(2048)).unwrap().1.inputs.len(), 2048);
    let refusal = embed(&ask(2049)).unwrap_err();
    assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::InvalidRequest, Some("input")));
    assert!(refusal.message.contains("at most 2048"), "{}", refusal.message);
    let ask = |count: usize| json!({"model": "r", "query": "q", "documents": vec!["x"; count]});
    assert_eq!(rank(&ask(10_000)).unwrap().1.documents.len(), 10_000);
    assert_eq!(rank(&ask(10_001)).unwrap_err().param.as_deref(), Some("documents"));
}

#[test]
fn sentences_name_the_field_and_never_the_content() {
    let secret = "secret-of-the-client";
    for (body, param) in [
        (json!({"model": "e", "input": [secret, 5]}), "input[1]"),
        (json!({"model": "e", "input": {secret: secret}}), "input"),
        (json!({"model": "e", "input": secret, "encoding_format": secret}), "encoding_format"),
    ] {
        let refusal = embed(&body.to_string()).unwrap_err();
        assert_eq!(refusal.param.as_deref(), Some(param));
        assert!(
            refusal.message.starts_with(param) && !refusal.message.contains(secret),
            "{}",
            refusal.message
        );
    }
    let refusal =
        rank(&json!({"model": "r", "query": secret, "documents": [secret, {"title": secret}]})).unwrap_err();
    assert_eq!(refusal.param.as_deref(), Some("documents[1].text"));
    assert!(!refusal.message.contains(secret) && refusal.message.contains("a string"), "{}", refusal.message);
}

#[test]
fn a_rerank_is_read_out() {
    let documents = json!([{"text": "a", "metadata": {"deep": [1]}}, {"text": "b\"c"}]);
    let body = json!({"model": "r", "query": "q", "documents": documents, "top_n": 1, "return_documents": true,
        "rank_fields": ["text"], "max_chunks_per_doc": 10});
    let (ask, task) = rank(&body).unwrap();
    assert_eq!((ask.kind, task.top_n, task.return_documents), (ModelKind::Rerank, Some(1), true));
    assert_eq!(strings(&task.documents), ["a", "b\"c"]);
    assert_eq!(task.query, Bytes::from_static(b"\"q\""));
    let (_, bare) = rank(&json!({"model": "r", "query": "q", "documents": ["a"], "top_n": null})).unwrap();
    assert_eq!((bare.top_n, bare.return_documents), (None, false));
    let most = |most: serde_json::Value| {
        let mut body = json!({"model": "r", "query": "q", "documents": ["a", "b", "c"]});
        body.as_object_mut().unwrap().extend(most.as_object().unwrap().clone());
        rank(&body).map(|(_, task)| task.top_n).map_err(|refusal| refusal.param)
    };
    // `top_k` is the older name of `top_n`.
    assert_eq!(most(json!({"top_k": 2})), Ok(Some(2)));
    assert_eq!(most(json!({"top_n": 1, "top_k": 2})), Ok(Some(1)));
    assert_eq!(most(json!({"top_n": null, "top_k": 3})), Ok(Some(3)));
    assert_eq!(most(json!({"top_k": 0})), Err(Some("top_k".into())));
    assert_eq!(most(json!({"top_k": "2"})), Err(Some("top_k".into())));
}

proptest! {
    #[test]
    fn any_texts_come_back(texts in prop::collection::vec("\\PC{1,30}", 1..8)) {
        let (_, task) = embed(&json!({"model": "e", "input": texts}).to_string()).unwrap();
        prop_assert_eq!(&strings(task.inputs.values()), &texts);
        let (_, task) = rank(&json!({"model": "r", "query": "q", "documents": texts})).unwrap();
        prop_assert_eq!(strings(&task.documents), texts);
    }

    #[test]
    fn nothing_is_too_strange(middle in "[\\[\\]{}\",:0-9.a-z\\\\ ]{0,40}") {
        let _ = embed(&format!(r#"{{"model":"e","input":{middle}}}"#));
        let body = format!(r#"{{"model":"r","query":"q","documents":{middle}}}"#);
        let _ = validate_rerank_request(Bytes::from(body), &RequestLimits::default());
    }
}

#[test]
fn members_that_change_the_result_are_refused_or_kept_for_the_offer() {
    let embedding = |members: &str| embed(&format!(r#"{{"model":"e","input":"x",{members}}}"#));
    let rerank = |members: &str| {
        let body = format!(r#"{{"model":"r","query":"q","documents":["a","b"],{members}}}"#);
        rank(&serde_json::from_str(&body).unwrap())
    };
    for (members, param) in [
        (r#""normalize":false"#, "normalize"),
        (r#""embedding_types":["int8"]"#, "embedding_types"),
        (r#""output_dtype":"binary""#, "output_dtype"),
        (r#""output_dimension":8"#, "output_dimension"),
        (r#""late_chunking":true"#, "late_chunking"),
        (r#""embed_dtype":"float16""#, "embed_dtype"),
        (r#""endianness":"big""#, "endianness"),
        (r#""use_activation":false"#, "use_activation"),
        (r#""output_dimensionality":8"#, "output_dimensionality"),
    ] {
        let refusal = embedding(members).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some(param)));
    }
    for (members, param) in [
        (r#""raw_scores":true"#, "raw_scores"),
        (r#""score_threshold":0.5"#, "score_threshold"),
        (r#""activation":false"#, "activation"),
    ] {
        let refusal = rerank(members).unwrap_err();
        assert_eq!((refusal.code, refusal.param.as_deref()), (ErrorCode::Unsupported, Some(param)));
    }
    let idle = r#""normalize":true,"embedding_types":["float"],"output_dtype":"float","late_chunking":false,
        "embed_dtype":"float32","endianness":"native","modality":"text","add_special_tokens":true,
        "output_type":"dense","truncation_side":"right","truncate_prompt_tokens":-1,"activation":null"#;
    assert_eq!(embedding(idle).unwrap().0.task_parameters().count(), 0);
    let (ask, _) = embedding(r#""input_type":"query","truncate":false,"prompt_name":"""#).unwrap();
    let named: Vec<_> = ask.task_parameters().map(|(parameter, value)| (parameter.name, value)).collect();
    assert_eq!(named, [("input_type", &br#""query""#[..])]);
    for members in [
        r#""modality":"image""#,
        r#""text_type":"query""#,
        r#""output_type":"sparse""#,
        r#""truncate_dim":64"#,
        r#""truncate_prompt_tokens":8"#,
        r#""add_special_tokens":false"#,
        r#""truncation_side":"left""#,
        r#""chat_template":"x""#,
    ] {
        let (ask, _) = embedding(members).unwrap();
        let name = members.split('"').nth(1);
        assert_eq!(ask.unlisted_task_parameter(|_| false), name, "{members}");
        assert_eq!(ask.unlisted_task_parameter(|_| true), None, "{members}");
    }
    // A token cap per document does not need an offer that supports it.
    assert_eq!(rerank(r#""max_tokens_per_doc":512"#).unwrap().0.unlisted_task_parameter(|_| false), None);
    assert_eq!(rerank(r#""max_tokens_per_doc":0"#).unwrap_err().param.as_deref(), Some("max_tokens_per_doc"));
    assert_eq!(ask.unlisted_task_parameter(|name| name == "input_type"), None);
    assert_eq!(ask.unlisted_task_parameter(|_| false), Some("input_type"));
    let (ask, task) = rerank(r#""instruction":"x","limit":1,"return_text":true"#).unwrap();
    assert_eq!(ask.unlisted_task_parameter(|_| false), Some("instruction"));
    assert_eq!((task.top_n, task.return_documents), (Some(1), true));
    assert_eq!(rerank(r#""top_n":2,"limit":1"#).unwrap().1.top_n, Some(2));
}
