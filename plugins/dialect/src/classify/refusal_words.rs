//! Words that tell the refusal of a member from that of its value or of a combination, in lower case.

/// Further phrases about a member that the provider does not know.
pub(super) const MORE_UNKNOWN_PHRASES: [&str; 10] = [
    "unknown param",
    "unknown key",
    "unknown name",
    "unknown request",
    "unrecognized param",
    "unrecognized key",
    "unsupported param",
    "unexpected keyword",
    "unexpected key",
    "no such parameter",
];
/// Further phrases about a member that the provider does not support.
pub(super) const MORE_UNSUPPORTED_PHRASES: [&str; 13] = [
    "not support",
    "not recognized",
    "not recognised",
    "unrecognised",
    "not accept",
    "not available",
    "not a valid parameter",
    "not a valid field",
    "not a valid argument",
    "deprecated",
    "forbidden",
    "only supports max_completion_tokens",
    "不支持",
];
/// Words of a message about a value. With one of them, a phrase such as "not allowed" refuses the value.
pub(super) const VALUE_WORDS: [&str; 34] = [
    "value", "values", "variant", "must", "should", "between", "range", "maximum", "minimum", "exceed",
    "exceeds", "exceeded", "less", "greater", "larger", "smaller", "higher", "lower", "above", "below",
    "over", "under", "than", "most", "least", "too", "big", "long", "large", "expected", "one of", "out of",
    "up to", "got",
];
/// Signs of a message about a value.
pub(super) const VALUE_SIGNS: [&str; 4] = ["=", " < ", " > ", "取值"];
/// Words of a message about a combination of members, or about the mode of a request.
pub(super) const COMBINATION_WORDS: [&str; 25] = [
    "when",
    "if",
    "while",
    "unless",
    "until",
    "together",
    "both",
    "combination",
    "combine",
    "combined",
    "conflict",
    "conflicts",
    "mutually",
    "require",
    "requires",
    "required",
    "without",
    "simultaneously",
    "alongside",
    "mode",
    "modes",
    "neither",
    "same time",
    "in addition",
    "once",
];
/// Words before the context in which a member is refused, if one of [`CONTEXT_WORDS`] follows.
pub(super) const CONTEXT_PREFIXES: [&str; 5] = [" with ", " for ", " in ", " by ", " during "];
/// Beginnings of words that are a context of a request.
pub(super) const CONTEXT_WORDS: [&str; 12] = [
    "stream",
    "non",
    "tool",
    "think",
    "reason",
    "function",
    "json_",
    "structured",
    "logprob",
    "beam",
    "greedy",
    "response_format",
];
/// Phrases before a list of names or values that the provider accepts.
pub(super) const ACCEPTED_NAMES_PREFIXES: [&str; 12] = [
    "expected one of",
    "did you mean",
    "supported parameters",
    "supported fields",
    "supported arguments",
    "allowed parameters",
    "allowed fields",
    "accepted parameters",
    "accepted fields",
    "valid parameters",
    "valid fields",
    "known fields",
];
