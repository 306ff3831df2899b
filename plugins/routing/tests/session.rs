//! Tests of the session of a request.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use bytes::Bytes;
use penstock_core::{
    BodyMember, BodyMembers, InferenceRequest, InferenceTask, ModelKind, ResponsesDetails, SessionHints,
};
use penstock_json_scan::json;
use penstock_routing::{SESSION_HEADERS, SessionKey, request_session};

fn request(body: &str) -> InferenceRequest {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let members = json::members(&body)
        .map(|span| BodyMember {
            name: std::str::from_utf8(&body[span.key.start + 1..span.key.end - 1]).unwrap().into(),
            member_range: span.key.start..span.value.end,
            value_range: span.value,
            long_strings: Vec::new(),
        })
        .collect();
    InferenceRequest::from_non_chat_task(
        ModelKind::Chat,
        body.clone(),
        BodyMembers(members),
        "m".into(),
        InferenceTask::Chat,
    )
}

fn key(body: &str, headers: &[(&str, &'static str)]) -> Option<SessionKey> {
    let fields = headers.iter().map(|(name, value)| (*name, value.as_bytes()));
    request_session("acct_1", &request(body), fields).map(|session| session.key)
}

const FIRST: &str =
    r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"}]}"#;
const SECOND: &str = r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hello"},
    {"role":"assistant","content":"Hi"},{"role":"user","content":"And now?"}]}"#;

#[test]
fn a_conversation_is_known_by_its_beginning() {
    let first = key(FIRST, &[]);
    assert!(first.is_some());
    assert_eq!(key(SECOND, &[]), first);
    assert_ne!(key(&SECOND.replace("Hello", "Good day"), &[]), first);
    assert_ne!(key(&SECOND.replace("brief", "long"), &[]), first);
}

#[test]
fn the_beginning_of_a_messages_request_ignores_marks_of_the_cache() {
    let body = |mark: &str, more: &str| {
        format!(
            r#"{{"system":[{{"type":"text","text":"Be brief."{mark}}}],"messages":[{{"role":"user","content":[
                {{"type":"text","text":"Hello"{mark}}}]}}{more}]}}"#
        )
    };
    let first = key(&body(r#","cache_control":{"type":"ephemeral"}"#, ""), &[]);
    assert!(first.is_some());
    assert_eq!(
        key(&body("", r#",{"role":"assistant","content":"Hi"},{"role":"user","content":"?"}"#), &[]),
        first
    );
    assert_ne!(key(&body("", "").replace("Hello", "Hallo"), &[]), first);
}

#[test]
fn members_that_the_chat_form_of_a_responses_request_lacks_name_a_session() {
    let converted = |session: SessionHints| {
        let details = ResponsesDetails { session, ..ResponsesDetails::default() };
        let request = InferenceRequest { responses: Some(Box::new(details)), ..request(FIRST) };
        request_session("acct_1", &request, std::iter::empty()).map(|session| session.key)
    };
    let json = |text: &str| Some(text.as_bytes().into());
    let by_key =
        converted(SessionHints { prompt_cache_key: json("\"k\""), metadata: json(r#"{"thread_id":"t"}"#) });
    assert_eq!(by_key, key(r#"{"prompt_cache_key":"k"}"#, &[]));
    for name in ["session_id", "thread_id", "conversation_id"] {
        let metadata = json(&format!(r#"{{"a":"b","{name}":"t"}}"#));
        let session = converted(SessionHints { prompt_cache_key: json("null"), metadata });
        assert_eq!(session, key(r#"{"metadata":{"thread_id":"t"}}"#, &[]), "{name}");
    }
    assert_eq!(converted(SessionHints::default()), key(FIRST, &[]));
}

#[test]
fn the_id_of_the_previous_response_is_no_name_because_it_differs_from_turn_to_turn() {
    let turn = |id: &str| SECOND.replacen('{', &format!(r#"{{"previous_response_id":"{id}","#), 1);
    assert_eq!(key(&turn("resp_1"), &[]), key(FIRST, &[]));
    assert_eq!(key(&turn("resp_2"), &[]), key(FIRST, &[]));
}

#[test]
fn the_sources_have_an_order() {
    let all = r#"{"prompt_cache_key":"k","metadata":{"session_id":"s","user_id":"u"},
        "messages":[{"role":"user","content":"Hello"}]}"#;
    let headers = [("session_id", "h")];
    let by_key = key(all, &headers);
    assert_eq!(key(r#"{"prompt_cache_key":"k"}"#, &[]), by_key);
    let without_key = all.replace(r#""prompt_cache_key":"k","#, "");
    assert_eq!(key(&without_key, &headers), key("{}", &headers));
    assert_eq!(key(&without_key, &[]), key(r#"{"metadata":{"session_id":"s"}}"#, &[]));
    let without_session = without_key.replace(r#""session_id":"s","#, "");
    let keys = [by_key, key("{}", &headers), key(&without_key, &[]), key(&without_session, &[])];
    for (at, one) in keys.iter().enumerate() {
        assert!(one.is_some() && !keys[..at].contains(one), "equal names of two sources are two sessions");
    }
}

#[test]
fn each_header_of_an_agent_names_a_session() {
    for name in SESSION_HEADERS {
        let first = key(FIRST, &[(name, "ses_1")]);
        assert_ne!(first, key(FIRST, &[]), "{name}");
        assert_eq!(first, key(r#"{"messages":[]}"#, &[(name, "ses_1")]), "{name}");
        assert_ne!(first, key(FIRST, &[(name, "ses_2")]), "{name}");
    }
    assert_eq!(key(FIRST, &[("session_id", "")]), key(FIRST, &[]), "an empty name is none");
    let both = [("x-session-id", "later"), ("accept", "x"), ("session-id", "first"), ("session-id", "again")];
    assert_eq!(key(FIRST, &both), key(FIRST, &[("session-id", "first")]), "the order is that of the list");
}

#[test]
fn a_user_may_have_several_conversations_but_a_session_in_its_name_is_one() {
    let body = |user: &str, text: &str| {
        format!(r#"{{"metadata":{{"user_id":"{user}"}},"messages":[{{"role":"user","content":"{text}"}}]}}"#)
    };
    assert_ne!(key(&body("user_7", "Hello"), &[]), key(&body("user_7", "Good day"), &[]));
    assert_ne!(key(&body("user_7", "Hello"), &[]), key(&body("user_8", "Hello"), &[]));
    let agent = "user_1_account__session_0b7e";
    assert_eq!(key(&body(agent, "Hello"), &[]), key(&body(agent, "Good day"), &[]));
}

#[test]
fn equal_names_of_two_accounts_are_two_sessions() {
    let of = |account| request_session(account, &request(FIRST), std::iter::empty());
    assert_ne!(of("acct_1"), of("acct_2"));
}

#[test]
fn work_without_a_conversation_has_no_session() {
    assert_eq!(key(r#"{"messages":[]}"#, &[]), None);
    assert_eq!(key(r#"{"messages":[{"role":"system","content":"Be brief."}]}"#, &[]), None);
    assert!(key(r#"{"prompt_cache_key":null,"metadata":null,"messages":"x"}"#, &[]).is_some());
    let embed = InferenceTask::Rerank(penstock_core::RerankTask {
        query: Bytes::new(),
        documents: Vec::new(),
        top_n: None,
        return_documents: false,
    });
    let rerank = InferenceRequest { task: embed, ..request(r#"{"prompt_cache_key":"k"}"#) };
    assert_eq!(request_session("acct_1", &rerank, std::iter::empty()), None);
}

#[test]
fn long_texts_are_distinguished_by_their_ends() {
    let body = |text: &str| format!(r#"{{"messages":[{{"role":"user","content":"{text}"}}]}}"#);
    let long = "x".repeat(100_000);
    let first = key(&body(&format!("{long}a")), &[]);
    assert_ne!(first, key(&body(&format!("{long}b")), &[]));
    assert_ne!(first, key(&body(&format!("{long}xa")), &[]));
    assert_eq!(first, key(&body(&format!("{long}a")), &[]));
}

#[test]
fn a_request_with_no_more_than_the_beginning_is_a_first_turn() {
    let is_first =
        |body: &str| request_session("acct_1", &request(body), std::iter::empty()).unwrap().is_first_turn;
    assert!(is_first(r#"{"messages":[{"role":"user","content":"Hi"}]}"#));
    assert!(is_first(r#"{"messages":[{"role":"system","content":"S"},{"role":"user","content":"Hi"}]}"#));
    assert!(is_first(r#"{"input":"Hi"}"#));
    for later in [
        r#"{"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"},{"role":"user","content":"a"}]}"#,
        r#"{"messages":[{"role":"user","content":"Hi"},{}]}"#,
        r#"{"prompt_cache_key":"k","messages":[{"role":"user","content":"Hi"}]}"#,
    ] {
        assert!(!is_first(later), "{later}");
    }
}
