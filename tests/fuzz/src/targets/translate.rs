//! Requests in each dialect, translated for each provider: sound JSON, the same each time, and itself a request.

use crate::{abilities, choice, json, target};
use bytes::Bytes;
use penstock_admission::{Limits, Purpose, chat, messages};
use penstock_contract::{Ask, Dialect, Refusal};
use penstock_dialect::TRANSLATORS;

fn admit(dialect: Dialect, body: Bytes) -> Result<Ask, Refusal> {
    let limits = Limits { max_body: 4 << 20, max_values: 1 << 16, ..Limits::default() };
    match dialect {
        Dialect::Chat => chat(body, &limits),
        Dialect::Messages => messages(body, &limits, Purpose::Generate),
    }
}

pub fn check(bytes: &[u8]) {
    let Some((choice, body)) = choice(bytes) else { return };
    let abilities = abilities(choice);
    for translator in TRANSLATORS {
        let Ok(ask) = admit(translator.client(), Bytes::copy_from_slice(body)) else { continue };
        if ask.max_tokens == Some(0) {
            // No provider of the chat dialect takes that: there is nothing to ask for.
            continue;
        }
        let target = target(translator.provider(), &abilities);
        let Ok(sent) = translator.request(&ask, &target) else { continue };
        assert_eq!(translator.request(&ask, &target).map(|sent| sent.concat()).ok(), Some(sent.concat()));
        let value = json(&sent);
        assert_eq!(value["model"], "engine/model");
        assert_eq!(value["stream"] == true, ask.stream);
        // The chat dialect takes calls without results, and what engines make of them is theirs to say.
        let unanswered = |refusal: &Refusal| refusal.message.contains("tool_use");
        if let Err(refusal) = admit(translator.provider(), Bytes::from(sent.concat()))
            && !unanswered(&refusal)
        {
            panic!("{}: {value}", refusal.message);
        }
        if let Ok(sent) = translator.continuation(&ask, &target, "so \"far\"\n") {
            assert_eq!(json(&sent)["model"], "engine/model");
        }
    }
}
