//! Tokens: neither the estimate nor the bound computed from the bytes is below the exact count; parsers of engine
//! answers never panic.

use crate::bit;
use penstock_tokens::engine::{self, CountInput, TokenizeApi};
use penstock_tokens::{
    ImageTokenSettings, PromptConversation, TokenCounter, max_conversation_tokens, max_prompt_tokens,
    max_text_tokens, render_prompt,
};
use std::sync::LazyLock;

static COUNTER: LazyLock<TokenCounter> = LazyLock::new(TokenCounter::o200k_harmony);

const TEMPLATE: &str = "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] | trim }}\
    {% if message.tool_calls %}{{ message.tool_calls | tojson }}{% endif %}{% endfor %}{{ tools | tojson(indent=2) if tools }}";

pub fn check(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let exact = COUNTER.count_text(&text);
    assert!(exact <= text.len() as u64, "no token is less than a byte");
    assert!(max_text_tokens(&text) >= exact, "the estimate is below the count");
    for conversation in
        [PromptConversation::from_chat(bytes), PromptConversation::from_messages(bytes)].into_iter().flatten()
    {
        let guess = max_conversation_tokens(&conversation, None::<&ImageTokenSettings>);
        if let Ok(count) = COUNTER.count(&conversation) {
            assert!(guess.tokens >= count.tokens, "the estimate is below the count");
            assert!(max_prompt_tokens(bytes.len(), 0, 0) >= count.tokens, "the bound is below the count");
        }
        if let Ok(prompt) = render_prompt(TEMPLATE, None, &conversation) {
            assert!(prompt.len() <= 64 * (bytes.len() + 64));
        }
    }
    let shapes =
        [TokenizeApi::Vllm, TokenizeApi::LlamaCpp, TokenizeApi::Sglang, TokenizeApi::Tgi, TokenizeApi::Tei];
    let first = u16::from(bytes.first().copied().unwrap_or_default());
    for shape in shapes {
        let _ = engine::parse_count_response(shape, if bit(first, 0) { 200 } else { 503 }, bytes);
        let inputs = [
            CountInput::Chat(bytes),
            CountInput::Messages(bytes),
            CountInput::Prompt(&text),
            CountInput::Document(&text),
        ];
        for call in inputs.into_iter().flat_map(|input| engine::build_call(shape, "m", input)) {
            assert!(serde_json::from_slice::<serde_json::Value>(&call.body).is_ok());
        }
    }
}
