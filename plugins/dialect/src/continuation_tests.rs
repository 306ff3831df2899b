//! Tests of the members by which a chat provider knows that it must continue the last message.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use crate::{find_translator, test_support};
use penstock_core::*;
use serde_json::{Value, json};

/// Member of the request that marks the message to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Refused,
    Absent,
    Prefix,
    Switch,
}

/// Returns the mark in the request to a chat provider. With `delivered` text the request continues a broken answer;
/// without, the last message of the client.
fn mark(client: Dialect, target: &AttemptTarget<'_>, delivered: Option<&str>) -> Mark {
    let mut messages = vec![json!({"role": "user", "content": "q"})];
    if delivered.is_none() {
        messages.push(json!({"role": "assistant", "content": "So"}));
    }
    let body = json!({"model": "m", "max_tokens": 9, "messages": messages});
    let mut ask = test_support::sample_request(client, body.to_string().as_bytes());
    ask.required.prefill = delivered.is_none();
    let pair = find_translator(client, Dialect::Chat).unwrap();
    let sent = match delivered {
        Some(text) => pair.build_continuation(&ask, target, text),
        None => pair.build_request(&ask, target),
    };
    let Ok(sent) = sent else { return Mark::Refused };
    let sent: Value = serde_json::from_slice(&sent.concat()).unwrap();
    let last = sent["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["content"], "So", "{sent}");
    let has_switch = sent["continue_final_message"] == true;
    assert_eq!(has_switch, sent["add_generation_prompt"] == false, "{sent}");
    match (last["prefix"] == true, has_switch) {
        (false, false) => Mark::Absent,
        (true, false) => Mark::Prefix,
        (false, true) => Mark::Switch,
        (true, true) => panic!("{client:?}: both marks: {sent}"),
    }
}

#[test]
fn a_message_to_continue_has_exactly_the_mark_of_the_chosen_method() {
    use ContinuationMethod as Continue;
    use PrefillMethod as Prefill;
    let methods = [None, Some(Continue::ContinueFinalMessage), Some(Continue::Prefill)];
    let prefills = [Prefill::None, Prefill::ContinueFinalMessage, Prefill::Prefix, Prefill::Automatic];
    for (continuation, prefill) in
        methods.iter().flat_map(|method| prefills.map(|prefill| (*method, prefill)))
    {
        let abilities = OfferCapabilities { continuation, prefill, ..OfferCapabilities::default() };
        let target = test_support::sample_target(Dialect::Chat, &abilities);
        let continued = match (continuation, prefill) {
            (None, _) => Mark::Refused,
            (Some(Continue::ContinueFinalMessage), _) => Mark::Switch,
            (Some(Continue::Prefill), Prefill::Automatic) => Mark::Absent,
            (Some(Continue::Prefill), _) => Mark::Prefix,
        };
        let prefilled = match prefill {
            Prefill::None => Mark::Refused,
            Prefill::ContinueFinalMessage => Mark::Switch,
            Prefill::Prefix => Mark::Prefix,
            Prefill::Automatic => Mark::Absent,
        };
        for client in [Dialect::Chat, Dialect::Messages, Dialect::Responses] {
            let what = format!("{client:?} {continuation:?} {prefill:?}");
            assert_eq!(mark(client, &target, Some("So")), continued, "{what}");
            assert_eq!(mark(client, &target, None), prefilled, "{what}");
        }
    }
}

#[test]
fn a_mark_that_the_provider_has_rejected_is_not_written() {
    let abilities = OfferCapabilities {
        continuation: Some(ContinuationMethod::ContinueFinalMessage),
        prefill: PrefillMethod::Prefix,
        ..OfferCapabilities::default()
    };
    for client in [Dialect::Chat, Dialect::Messages] {
        for (member, expected) in [
            (AdjustableMember::ContinueFinal, (Mark::Refused, Mark::Prefix)),
            (AdjustableMember::Prefix, (Mark::Switch, Mark::Refused)),
        ] {
            let mut target = test_support::sample_target(Dialect::Chat, &abilities);
            target.adjustment.omitted = AdjustableMemberSet::from_member(member);
            let marks = (mark(client, &target, Some("So")), mark(client, &target, None));
            assert_eq!(marks, expected, "{client:?} {member:?}");
        }
    }
}

#[test]
fn an_engine_that_continues_by_itself_gets_one_message_with_the_clients_beginning() {
    let abilities = OfferCapabilities {
        continuation: Some(ContinuationMethod::Prefill),
        prefill: PrefillMethod::Automatic,
        ..OfferCapabilities::default()
    };
    let target = test_support::sample_target(Dialect::Chat, &abilities);
    let messages =
        json!([{"role": "user", "content": "q"}, {"role": "assistant", "content": "Hello", "name": "a"}]);
    let body = json!({"model": "m", "messages": messages}).to_string();
    let ask = test_support::sample_request(Dialect::Chat, body.as_bytes());
    assert!(!ask.required.prefill, "the chat dialect has no mark of its own");
    let pair = find_translator(Dialect::Chat, Dialect::Chat).unwrap();
    let sent = pair.build_continuation(&ask, &target, " wonderful").unwrap().concat();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    assert_eq!(sent["messages"].as_array().unwrap().len(), 2, "{sent}");
    assert_eq!(sent["messages"][1]["content"], "Hello wonderful", "{sent}");
}
