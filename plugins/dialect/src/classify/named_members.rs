//! Members that an error message refuses by name, and the requests to which the refusal applies.
//!
//! A provider refuses a member in each request if it does not know or support the member. It may also refuse only the
//! value in one request, or its combination with other members. A message counts as a refusal of the member itself only
//! if it has a phrase for that and no word about a value or a combination.

use super::error_signals::{
    ErrorSignals, STATEMENT_SEPARATOR, contains_phrase, contains_word, word_positions,
};
use super::phrases::{ENGINE_CRASH_PHRASES, UNKNOWN_MEMBER_PHRASES, UNSUPPORTED_MEMBER_PHRASES};
use super::refusal_words::{
    ACCEPTED_NAMES_PREFIXES, COMBINATION_WORDS, CONTEXT_PREFIXES, CONTEXT_WORDS, MORE_UNKNOWN_PHRASES,
    MORE_UNSUPPORTED_PHRASES, VALUE_SIGNS, VALUE_WORDS,
};
use crate::json_cursor;
use penstock_core::{
    AdjustableMember, AdjustableMemberSet, MEMBER_ERROR_WORDS, NamedMembers, RefusedMembers,
};
use std::ops::RangeInclusive;

/// Maximum bytes of a value of the request that is looked for in an error message.
const MAX_VALUE_BYTES: usize = 40;
/// Numbers in a message that may be a number of choices: the message then does not refuse every number above 1.
const CHOICE_COUNTS: RangeInclusive<u64> = 2..=128;
/// Maximum words between a preposition and the context that it introduces.
const MAX_CONTEXT_WORDS: usize = 3;

impl ErrorSignals {
    /// Returns the members added by the gateway that the provider refuses, by name or as unknown members without a
    /// name. `body` is the error, and `sent` the body of the request.
    pub(super) fn refused_extra_members(&self, body: &[u8], sent: &[u8]) -> RefusedMembers {
        let named = self.named_extra_members(body, sent);
        let is_nameless =
            self.mentioned_members().is_empty() && self.blamed_field().is_none() && !self.is_member_named;
        if is_nameless && self.contains_any(UNKNOWN_MEMBER_PHRASES) {
            RefusedMembers::Unnamed
        } else {
            RefusedMembers::Named(named)
        }
    }

    /// Returns the members that the gateway may add (see [`AdjustableMemberSet`]) and that a failed engine names as not
    /// supported.
    pub(super) fn unsupported_extra_members(&self, body: &[u8], sent: &[u8]) -> RefusedMembers {
        if !self.contains_any(UNSUPPORTED_MEMBER_PHRASES) || self.contains_any(ENGINE_CRASH_PHRASES) {
            return RefusedMembers::NONE;
        }
        RefusedMembers::Named(self.named_extra_members(body, sent))
    }

    /// Returns the members added by the gateway that the message or the path in `param` names.
    fn mentioned_members(&self) -> AdjustableMemberSet {
        let param = self.param.as_deref().unwrap_or_default();
        let text = self.statements().collect::<Vec<_>>().join("\n");
        AdjustableMemberSet::named_in_message(|word| names_member(&text, word) || names_member(param, word))
    }

    /// Returns the mentioned members, without a cap on tokens of which only the value is refused: its name must not
    /// change then.
    fn named_extra_members(&self, body: &[u8], sent: &[u8]) -> NamedMembers {
        let mut named = NamedMembers { all: self.mentioned_members(), lasting: AdjustableMemberSet::NONE };
        if named.all.is_empty() {
            return named;
        }
        let stated = stated_values(body, sent);
        for member in named.all.iter() {
            let single = AdjustableMemberSet::from_member(member);
            let refusal = self.refusal_of(member, stated.contains(member));
            if refusal == Refusal::Member {
                named.lasting = named.lasting.union(single);
            } else if member == AdjustableMember::CapName && refusal == Refusal::Value {
                named.all = named.all.difference(single);
            }
        }
        named
    }

    /// Returns the kind of the refusal: that of the first statement about the member that refuses the member itself, or
    /// else that of the last statement about it. A message that names the member only in `param` is one statement.
    fn refusal_of(&self, member: AdjustableMember, is_value_stated: bool) -> Refusal {
        let words = member_words(member);
        let about = self.statements().filter(|text| words.iter().any(|word| names_member(text, word)));
        let kinds: Vec<Refusal> =
            about.map(|text| Statement { text, member, is_value_stated }.refusal()).collect();
        if kinds.is_empty() {
            return Statement { text: &self.text, member, is_value_stated }.refusal();
        }
        let found = kinds.iter().find(|kind| **kind == Refusal::Member);
        found.or(kinds.last()).copied().unwrap_or(Refusal::Value)
    }

    /// Returns the parts of the message that are about one error each, without lists of accepted names.
    fn statements(&self) -> impl Iterator<Item = &str> {
        let objects = self.text.split(STATEMENT_SEPARATOR);
        let entries = objects.flat_map(|text| text.split("}, {")).flat_map(|text| text.split("},{"));
        entries.flat_map(validation_errors).map(without_accepted_names)
    }
}

/// Object of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The member itself, in each request.
    Member,
    /// The member beside others, or in a mode.
    Combination,
    /// The value of the member.
    Value,
}

/// Part of an error message about a member.
struct Statement<'t> {
    text: &'t str,
    member: AdjustableMember,
    /// True if the error states the value that the request has.
    is_value_stated: bool,
}

impl Statement<'_> {
    fn refusal(&self) -> Refusal {
        let is_refused = match self.member {
            _ if self.is_unknown_member() => true,
            AdjustableMember::MultipleChoices => !self.has_choice_count(),
            // Times of words are requested only if the client wants them.
            AdjustableMember::MediaFormat if contains_word(self.text, "timestamp_granularities") => {
                self.is_unsupported_member()
            }
            AdjustableMember::CapName if self.states_other_cap_name() => true,
            member => member.has_constant_value() || self.is_unsupported_member(),
        };
        match (is_refused, self.is_about_combination()) {
            (false, _) => Refusal::Value,
            (true, true) => Refusal::Combination,
            (true, false) => Refusal::Member,
        }
    }

    /// Returns true if the provider does not know the member. Phrases about an unknown value do not count.
    fn is_unknown_member(&self) -> bool {
        let phrases = UNKNOWN_MEMBER_PHRASES.iter().chain(&MORE_UNKNOWN_PHRASES);
        phrases.filter(|phrase| !phrase.starts_with("additional")).any(|phrase| {
            let rest =
                self.text.match_indices(phrase).filter_map(|(at, _)| self.text.get(at + phrase.len()..));
            rest.into_iter().any(|rest| !rest.trim_start_matches(char::is_alphabetic).starts_with(" value"))
        })
    }

    /// Returns true if the provider does not support the member, and does not mean only a value of it.
    fn is_unsupported_member(&self) -> bool {
        let phrases = UNSUPPORTED_MEMBER_PHRASES.iter().chain(&MORE_UNSUPPORTED_PHRASES);
        let is_about_value = self.is_value_stated
            || VALUE_WORDS.iter().any(|word| contains_word(self.text, word))
            || VALUE_SIGNS.iter().any(|sign| self.text.contains(sign));
        !is_about_value && phrases.into_iter().any(|phrase| contains_phrase(self.text, phrase))
    }

    /// Returns true for a message such as "max_tokens is deprecated, use max_completion_tokens instead".
    fn states_other_cap_name(&self) -> bool {
        let is_number = |word: &str| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_digit());
        contains_word(self.text, "instead")
            && ["max_tokens", "max_completion_tokens"].iter().all(|name| contains_word(self.text, name))
            && !self.words().any(is_number)
    }

    /// Returns true if the message has a number above 1 that may be a number of choices.
    fn has_choice_count(&self) -> bool {
        self.words().filter_map(|word| word.parse().ok()).any(|number: u64| CHOICE_COUNTS.contains(&number))
    }

    fn is_about_combination(&self) -> bool {
        let own = member_words(self.member);
        let is_context = |word: &str| {
            !own.contains(&word) && CONTEXT_WORDS.iter().any(|context| word.starts_with(context))
        };
        let introduces = |prefix: &str| {
            let rest =
                self.text.match_indices(prefix).filter_map(|(at, _)| self.text.get(at + prefix.len()..));
            rest.into_iter().any(|rest| words_of(rest).take(MAX_CONTEXT_WORDS).any(is_context))
        };
        COMBINATION_WORDS.iter().any(|word| contains_word(self.text, word))
            || CONTEXT_PREFIXES.iter().any(|prefix| introduces(prefix))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        words_of(self.text)
    }
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| !word.is_empty())
}

/// Returns the words that identify a member. Reasoning is identified by its name.
fn member_words(member: AdjustableMember) -> &'static [&'static str] {
    MEMBER_ERROR_WORDS.iter().find(|(row, _)| *row == member).map_or(&[], |(_, words)| *words)
}

/// Returns true if a text has a name. A message may also write a name with blanks instead of underscores.
fn names_member(text: &str, name: &str) -> bool {
    contains_word(text, name) || name.contains('_') && contains_word(text, &name.replace('_', " "))
}

/// Returns the members whose value in the request `sent` is a number or a short string that the error `body` contains.
/// Members inside the top-level members count too.
fn stated_values(body: &[u8], sent: &[u8]) -> AdjustableMemberSet {
    // The text of the signals no longer contains what it repeats from the request.
    let text = ErrorSignals::parse(body).text;
    let is_stated = |value: &[u8]| {
        let is_scalar = value.len() <= MAX_VALUE_BYTES && !matches!(value.first(), None | Some(b'{' | b'['));
        let value = String::from_utf8_lossy(value).to_lowercase();
        is_scalar && contains_word(&text, value.trim_matches('"'))
    };
    let mut stated = AdjustableMemberSet::NONE;
    let mut add = |name: &str, value: &[u8]| {
        let rows = MEMBER_ERROR_WORDS.iter().filter(|(_, words)| words.contains(&name));
        for (member, _) in rows.filter(|_| is_stated(value)) {
            stated = stated.union(AdjustableMemberSet::from_member(*member));
        }
    };
    for (name, value) in json_cursor::members(sent) {
        match value.first() {
            Some(b'{') => json_cursor::members(value).for_each(|(name, value)| add(&name, value)),
            _ => add(&name, value),
        }
    }
    stated
}

/// Returns the single errors of a list such as "2 validation errors for Request", in which the indented lines after a
/// path are about this path. Returns any other text whole.
fn validation_errors(text: &str) -> Vec<&str> {
    if !text.contains("validation error") {
        return vec![text];
    }
    let mut starts = vec![0];
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if !line.starts_with(' ') {
            starts.push(at);
        }
        at += line.len();
    }
    starts.push(text.len());
    starts.windows(2).filter_map(|pair| text.get(*pair.first()?..*pair.last()?)).collect()
}

/// Returns the start of a text up to a list of the names that the provider accepts.
fn without_accepted_names(text: &str) -> &str {
    let is_list = |at: &usize| text.get(..*at).is_some_and(|before| !before.ends_with("not "));
    let lists =
        ACCEPTED_NAMES_PREFIXES.iter().filter_map(|prefix| word_positions(text, prefix).find(is_list));
    lists.min().and_then(|end| text.get(..end)).unwrap_or(text)
}
