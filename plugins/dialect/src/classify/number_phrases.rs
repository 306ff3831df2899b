//! Phrases before and after the numbers of an error message, in lower case.

/// Phrases between the name of the limit on generated tokens and a refused number that is not positive: some engines
/// compute the limit as the window minus the input.
pub(super) const LOWER_BOUND_PHRASES: &[&str] = &[
    "at least 1",
    "greater than or equal to 1",
    "greater than 0",
    "greater than zero",
    "larger than 0",
    "more than 0",
    ">= 1",
    "> 0",
    "positive",
    "non-negative",
    "cannot be negative",
];
/// Names of the number of tokens in the input.
pub(super) const INPUT_LENGTH_NAMES: &[&str] = &[
    "prompt length",
    "input length",
    "sequence length",
    "prompt tokens",
    "prompt_tokens",
    "prompt token count",
    "input tokens",
    "input_tokens",
    "input token count",
    "input token number",
    "input_ids length",
    "length of the sequence",
    "requested tokens",
    "number of tokens",
    "num_tokens",
    "token count",
    "total tokens",
];
/// Words that make one of [`INPUT_LENGTH_NAMES`] the name of a limit if they precede it.
pub(super) const LIMIT_NAME_PREFIXES: &[&str] =
    &["maximum ", "max ", "allowed ", "minimum ", "stop ", "output "];
/// Phrases between the tokens of the input and a limit that they exceed.
pub(super) const EXCEEDING_PHRASES: &[&str] = &[
    "exceed",
    " > ",
    "too long",
    "too large",
    "longer than",
    "larger than",
    "greater than",
    "more than",
    "above",
    "over the",
];
/// Phrases that directly precede the number of tokens of the context window.
pub(super) const WINDOW_NUMBER_PREFIXES: &[&str] = &[
    "context length is only ",
    "max_total_tokens=",
    "maximum number of tokens allowed (",
    "maximum number of tokens is ",
    "model token limit: ",
    "exceeds limit of ",
    "cannot exceed ",
    "input length should be [1, ",
    "exceeds the limit of ",
    "batch size: ",
    "must be <= ",
    "must have less than ",
    "model with ",
    "while limit is ",
    "tokens, limit ",
    "`max_length` is set to ",
];
/// Names of the context window.
pub(super) const CONTEXT_WINDOW_NAMES: &[&str] = &[
    "max_input_len",
    "maximum input length",
    "maximum model length",
    "maximum prompt length",
    "maximum allowed length",
    "max_num_tokens",
    "max_seq_len",
    "n_ctx",
    "context length",
    "context window",
    "context size",
    "max_model_len",
    "session length",
    "session_len",
    "input length limit",
    "maximum sequence length",
];
/// Phrases that directly precede the number of tokens of the input.
pub(super) const INPUT_NUMBER_PREFIXES: &[&str] = &[
    "resulted in ",
    "prompt contains ",
    "request prompt has ",
    "current length is ",
    "input token length ",
    "input_ids is ",
    "prompt_len (",
    "too long: ",
    "too large for model: ",
    "the input (",
    "input (",
    "prompt length (",
    "input length (",
    "(length ",
    "(total length ",
    "prompt length of ",
    "prompt (",
    "token count (",
    "request contains ",
    "received ",
    "context limit: ",
    "request (",
    "(requested: ",
    "requested about ",
    "prompt tokens (",
    "for this model (",
    "keep the first ",
    "n_keep (",
    "you requested ",
    "given: ",
    "at least ",
];
/// Phrases that directly follow the number of tokens of the input.
pub(super) const INPUT_NUMBER_SUFFIXES: &[&str] = &[
    " in the messages",
    " in your prompt",
    " of text input",
    " tokens from the input",
    " input tokens",
    " tokens in the messages",
    " `inputs` tokens",
    " is greater than max_seq_len",
];
/// Words of a text that counts something other than tokens.
pub(super) const CHARACTER_WORDS: &[&str] = &["character", "byte"];
/// Phrases about the model's maximum of output tokens.
pub(super) const OUTPUT_MAXIMUM_PHRASES: &[&str] = &[
    "maximum output length",
    "max output length",
    "maximum output tokens",
    "max output tokens",
    "maximum number of output tokens",
    "maximum completion",
    "output token limit",
    "output limit",
];
/// Words of an error that is about the input, alone or together with the answer.
pub(super) const INPUT_WORDS: &[&str] = &["context", "prompt", "input"];
/// Phrases about a number that is too small.
pub(super) const MINIMUM_PHRASES: &[&str] =
    &["at least", "must be greater than", "should be greater than", "minimum"];
