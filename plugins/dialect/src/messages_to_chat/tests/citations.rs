//! Tests of citations, which only messages providers have.

use super::admitted_request;
use crate::{find_translator, test_support};
use penstock_core::*;

#[test]
fn citations_are_refused_by_name_at_providers_without_them() {
    let document = |citations: &str| {
        format!(
            r#"{{"model":"m","max_tokens":9,"messages":[{{"role":"user","content":[
            {{"type":"document","source":{{"type":"text","media_type":"text/plain","data":"D"}}{citations}}}]}}]}}"#
        )
    };
    let abilities = OfferCapabilities::default();
    for provider in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
        let target = test_support::sample_target(provider, &abilities);
        let pair = find_translator(Dialect::Messages, provider).unwrap();
        let build = |citations: &str| {
            let ask = admitted_request(Dialect::Messages, document(citations).as_bytes());
            pair.build_request(&ask, &target).map(|body| body.concat())
        };
        for none in ["", r#","citations":null"#, r#","citations":{"enabled":false}"#] {
            assert!(build(none).is_ok(), "{provider:?}: {none}");
        }
        let built = build(r#","citations":{"enabled":true}"#);
        if provider == Dialect::Messages {
            assert!(built.is_ok());
            continue;
        }
        let refusal = built.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::Unsupported, "{provider:?}");
        assert_eq!(refusal.param.as_deref(), Some("messages.0.content.0.citations.enabled"), "{provider:?}");
    }
}
