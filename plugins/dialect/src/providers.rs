//! Table of the dialects of providers.

use crate::decode::{chat, messages};
use crate::translator_def::ProviderDialect;
use crate::{
    any_to_responses, chat_to_chat, chat_to_messages, messages_to_chat, messages_to_messages,
    responses_to_any,
};
use penstock_core::Dialect;

/// Decoders and translators of each dialect of providers, in the order of [`Dialect`].
pub(crate) const PROVIDERS: &[&ProviderDialect] = &[&CHAT, &MESSAGES, &any_to_responses::PROVIDER_DIALECT];

const CHAT: ProviderDialect = ProviderDialect {
    new_decoder: |id| Box::new(chat::ChatDecoder::new(id)),
    decode_buffered: chat::decode_completion,
    has_message_boundaries: false,
    translators: &[chat_to_chat::TRANSLATOR, messages_to_chat::TRANSLATOR, responses_to_any::CHAT_TRANSLATOR],
};

const MESSAGES: ProviderDialect = ProviderDialect {
    new_decoder: |id| Box::new(messages::MessagesDecoder::new(id)),
    decode_buffered: |body, id, events| messages::decode_message(body, id, events).map(|()| None),
    has_message_boundaries: false,
    translators: &[
        chat_to_messages::TRANSLATOR,
        messages_to_messages::TRANSLATOR,
        responses_to_any::MESSAGES_TRANSLATOR,
    ],
};

/// Returns the decoders and translators for providers of a dialect.
pub(crate) const fn provider_dialect(dialect: Dialect) -> &'static ProviderDialect {
    // The index is valid: the test `each_dialect_has_its_row` proves that the table has a row for each dialect.
    #[allow(clippy::indexing_slicing, reason = "the table has a row for each variant")]
    PROVIDERS[dialect as usize]
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::{DIALECTS, Translator};

    #[test]
    fn each_dialect_has_its_row() {
        assert_eq!(PROVIDERS.len(), DIALECTS.len());
        for (row, spec) in PROVIDERS.iter().zip(DIALECTS) {
            let clients: Vec<_> = row.translators.iter().map(|pair| pair.client_dialect).collect();
            let expected =
                DIALECTS.iter().filter(|spec| spec.client_path_prefix.is_some()).map(|spec| spec.dialect);
            assert_eq!(clients, expected.collect::<Vec<_>>(), "{}", spec.name);
            for translator in row.translators {
                assert_eq!(
                    (translator.provider_dialect(), translator.path()),
                    (spec.dialect, spec.provider_path)
                );
            }
        }
    }
}
