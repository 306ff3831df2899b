//! Aliases that match many names: `*` stands for any text.

use std::cmp::Reverse;

/// Maximum number of pairs of positions in the search for a name that two patterns match; longer patterns are not
/// compared.
const MAX_STEPS: usize = 1 << 16;

/// An alias with `*`, compared without regard to case.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AliasPattern(String);

impl AliasPattern {
    /// Parses an alias. Returns `None` if it has no `*` and so is a plain name.
    #[must_use]
    pub fn new(alias: &str) -> Option<Self> {
        if !alias.contains('*') {
            return None;
        }
        let mut text = alias.to_lowercase();
        while text.contains("**") {
            text = text.replace("**", "*");
        }
        Some(Self(text))
    }

    /// Returns the normalized text: lower case, with each run of `*` reduced to one. Two patterns with the same text
    /// are equal.
    #[must_use]
    pub fn normalized_text(&self) -> &str {
        &self.0
    }

    /// Returns true if the pattern matches a name, which is given in lower case.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.0.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let mut parts: Vec<&str> = parts.collect();
        let last = parts.pop().unwrap_or_default();
        for part in parts {
            let Some((_, after)) = rest.split_once(part) else { return false };
            rest = after;
        }
        rest.ends_with(last)
    }

    /// Returns the sort key of patterns that match the same name. The smallest key wins: the pattern with the most
    /// characters other than `*`, then the one with the fewest `*`.
    #[must_use]
    pub fn rank(&self) -> (Reverse<usize>, usize) {
        let stars = self.0.matches('*').count();
        (Reverse(self.0.chars().count().saturating_sub(stars)), stars)
    }

    /// Returns true if the pattern fixes neither the start nor the end of a name.
    fn is_loose(&self) -> bool {
        self.0.starts_with('*') && self.0.ends_with('*')
    }

    /// Returns a name that both patterns match; `None` if there is none, or if the patterns are not compared: because
    /// they are too long, or because both start and end with `*`. For example, `*opus*` and `*haiku*` both match
    /// `opushaiku`, but no client uses this name.
    #[must_use]
    pub fn common_matching_name(&self, other: &Self) -> Option<String> {
        if self.is_loose() && other.is_loose() {
            return None;
        }
        let (left, right): (Vec<char>, Vec<char>) = (self.0.chars().collect(), other.0.chars().collect());
        let width = right.len() + 1;
        let size = (left.len() + 1).checked_mul(width).filter(|size| *size <= MAX_STEPS)?;
        // Breadth-first search over the positions in both patterns; each step may add one character to the name.
        let mut from: Vec<Option<(usize, Option<char>)>> = vec![None; size];
        let mut open = std::collections::VecDeque::from([0]);
        if let Some(start) = from.first_mut() {
            *start = Some((0, None));
        }
        while let Some(at) = open.pop_front() {
            let (one, two) = (left.get(at / width).copied(), right.get(at % width).copied());
            let (down, across) = (at + width, at + 1);
            let steps = match (one, two) {
                (None, None) => return Some(collect_name(&from, at)),
                (Some('*'), Some('*')) => vec![(down, None), (across, None)],
                (Some('*'), Some(letter)) => vec![(down, None), (across, Some(letter))],
                (Some(letter), Some('*')) => vec![(across, None), (down, Some(letter))],
                (Some('*'), None) => vec![(down, None)],
                (None, Some('*')) => vec![(across, None)],
                (Some(one), Some(two)) if one == two => vec![(down + 1, Some(one))],
                _ => Vec::new(),
            };
            for (to, letter) in steps {
                if let Some(unseen @ None) = from.get_mut(to) {
                    *unseen = Some((at, letter));
                    open.push_back(to);
                }
            }
        }
        None
    }
}

/// Collects the characters on the path to a position.
fn collect_name(from: &[Option<(usize, Option<char>)>], mut position: usize) -> String {
    let mut letters = Vec::new();
    while position > 0 {
        let Some((before, letter)) = from.get(position).copied().flatten() else { break };
        letters.extend(letter);
        position = before;
    }
    letters.into_iter().rev().collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn pattern(text: &str) -> AliasPattern {
        AliasPattern::new(text).unwrap()
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (text, name, fits) in [
            ("*sonnet*", "claude-sonnet-4-5", true),
            ("*Sonnet*", "sonnet", true),
            ("*sonnet*", "claude-opus", false),
            ("claude-*", "claude-", true),
            ("claude-*", "my-claude-3", false),
            ("*-latest", "gpt-latest", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("ab*bc", "abc", false),
            ("a***c", "abbc", true),
            ("*", "", true),
            ("*", "anything", true),
            ("*aab", "aaab", true),
        ] {
            assert_eq!(pattern(text).matches(name), fits, "{text} {name}");
        }
        assert_eq!(AliasPattern::new("claude-sonnet-4-5"), None);
        assert_eq!(pattern("A**B"), pattern("a*b"));
    }

    #[test]
    fn the_pattern_that_says_more_counts() {
        let mut all = ["*", "*a*", "a*", "claude-*", "claude-*-4*"].map(pattern);
        all.sort_by_key(AliasPattern::rank);
        assert_eq!(
            all.each_ref().map(AliasPattern::normalized_text),
            ["claude-*-4*", "claude-*", "a*", "*a*", "*"]
        );
    }

    #[test]
    fn a_name_that_two_patterns_fit_is_found() {
        for (one, other) in
            [("claude-*", "*sonnet*"), ("claude-*", "claude-s*"), ("*-4", "gpt*"), ("*", "a*")]
        {
            let name = pattern(one).common_matching_name(&pattern(other)).unwrap();
            assert!(pattern(one).matches(&name) && pattern(other).matches(&name), "{one} {other}: {name}");
        }
        for (one, other) in [("claude-*", "gpt-*"), ("*-4", "*-5"), ("*opus*", "*haiku*"), ("a*b", "a*c")] {
            assert_eq!(pattern(one).common_matching_name(&pattern(other)), None, "{one} {other}");
        }
        let long = pattern(&format!("{}*", "a".repeat(1 << 9)));
        assert_eq!(
            long.common_matching_name(&pattern(&format!("*{}", "a".repeat(1 << 9)))),
            None,
            "not looked for"
        );
    }
}
