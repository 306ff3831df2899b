//! Answers with several choices: detection of missing choices, correction of usage that covers only one choice, and
//! joining of choices that were requested separately into one completion.

use crate::event::AnswerEvent;
use crate::json_cursor;
use bytes::Bytes;
use penstock_core::{TokenUsage, UsageSource};
use penstock_json_scan::json;

/// Returns the number of complete choices if the provider returned fewer choices than requested: at least one choice
/// is complete, and none of the choices after the complete ones has started. Returns `None` for any other answer.
/// `choices` has two values for each choice: true if it has finished, and the number of bytes of its text.
pub(crate) fn complete_choice_count(choices: impl Iterator<Item = (bool, usize)>) -> Option<u32> {
    let (mut whole, mut others) = (0_u32, false);
    for (finished, bytes) in choices {
        match (finished, bytes) {
            (true, _) if !others => whole += 1,
            (false, 0) => others = true,
            _ => return None,
        }
    }
    (whole > 0 && others).then_some(whole)
}

/// Size of the generated text of one choice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ChoiceSize {
    pub(crate) bytes: usize,
    /// Number of words: runs without white space that have a letter or digit. A token never spans two of them, so a
    /// text has at least as many tokens as words.
    words: u64,
    is_in_word: bool,
}

impl ChoiceSize {
    /// Adds the text of an event.
    pub(crate) fn add_event(&mut self, event: &AnswerEvent) {
        self.bytes += event.generated_bytes();
        if let Some(text) = event.text() {
            self.add_text(&text.decoded());
        }
    }

    fn add_text(&mut self, text: &str) {
        for character in text.chars() {
            if character.is_whitespace() {
                self.is_in_word = false;
            } else if !self.is_in_word && character.is_alphanumeric() {
                self.is_in_word = true;
                self.words += 1;
            }
        }
    }
}

/// Replaces output tokens that the provider counted for only one of several choices; returns true if it replaced them.
///
/// The number of choices with text is `number`; the estimate is the gateway's own, from the bytes of all choices. The
/// reported tokens are replaced if they are fewer than `number`. They are also replaced if all of this holds: they are
/// fewer than the words of all choices; they are at least the words of one choice; and `number` times the reported
/// tokens is at most twice the estimate. The replacement is `number` times the reported tokens, but at most the
/// estimate; the estimate itself if the provider reported no tokens. A deviation from the estimate alone is no proof,
/// because in some languages a token has more than twice as many bytes as the estimate assumes.
pub(crate) fn correct_undercounted_output(usage: &mut TokenUsage, sizes: &[ChoiceSize]) -> bool {
    if sizes.len() < 2 || usage.source != UsageSource::Provider {
        return false;
    }
    let spoken = || sizes.iter().filter(|size| size.bytes > 0);
    let (number, counted) = spoken().fold((0_u64, 0_u64), |(number, counted), size| {
        (number + 1, counted.saturating_add(TokenUsage::estimate(0, size.bytes).output))
    });
    let all_words = spoken().map(|size| size.words).sum();
    let fits_one = spoken().any(|size| usage.output >= size.words)
        && usage.output.saturating_mul(number) <= counted.saturating_mul(2);
    if usage.output >= number && (usage.output >= all_words || !fits_one) {
        return false;
    }
    let of_all = Some(usage.output.saturating_mul(number)).filter(|tokens| *tokens >= number);
    usage.output = of_all.map_or(counted, |tokens| tokens.min(counted));
    usage.source = UsageSource::Gateway;
    true
}

/// Joins the bodies of chat completions with one choice each, in order, to one completion with this usage. The members
/// before `choices` are those of the first completion; members after `choices` are dropped. Returns `None` if there are
/// none, or if one of them has no list of choices.
#[must_use]
pub fn join_completions(completions: &[Bytes], usage: &TokenUsage) -> Option<Vec<Bytes>> {
    let first = completions.first()?;
    let start = choice_list_range(first)?;
    let mut body = vec![first.slice(..start.start + 1)];
    for (at, completion) in completions.iter().enumerate() {
        let list = choice_list_range(completion)?;
        if at > 0 {
            body.push(Bytes::from_static(b","));
        }
        body.push(completion.slice(list.start + 1..list.end - 1));
    }
    let mut end = b"],\"usage\":".to_vec();
    crate::write::chat::write_usage(&mut end, usage);
    end.push(b'}');
    body.push(Bytes::from(end));
    Some(body)
}

/// Returns the range of the array `choices` in a completion.
fn choice_list_range(completion: &Bytes) -> Option<std::ops::Range<usize>> {
    let members = json::members(completion);
    let mut values = members.filter(|member| completion.get(member.key.clone()) == Some(b"\"choices\""));
    let value = values.next()?.value;
    json_cursor::is_array(completion.get(value.clone())?).then_some(value)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn missing_choices_are_distinguished_from_truncated_ones() {
        let answered = |choices: &[(bool, usize)]| super::complete_choice_count(choices.iter().copied());
        assert_eq!(answered(&[(true, 5), (false, 0)]), Some(1));
        assert_eq!(answered(&[(true, 0), (true, 5), (false, 0), (false, 0)]), Some(2));
        for broken in [
            &[(true, 5), (false, 1)][..],
            &[(false, 0), (true, 5)],
            &[(true, 5), (false, 0), (true, 5)],
            &[(false, 0), (false, 0)],
            &[(true, 5), (true, 5)],
            &[(false, 3)],
            &[],
        ] {
            assert_eq!(answered(broken), None, "{broken:?}");
        }
    }

    /// Returns the sizes of choices with the given texts, which arrive in pieces of one character.
    fn sizes(texts: &[&str]) -> Vec<ChoiceSize> {
        let size = |text: &&str| {
            let mut size = ChoiceSize { bytes: text.len(), ..ChoiceSize::default() };
            text.chars().for_each(|character| size.add_text(&character.to_string()));
            size
        };
        texts.iter().map(size).collect()
    }

    fn correct(output: u64, texts: &[&str]) -> (bool, u64) {
        let mut usage = TokenUsage { input: 9, output, ..TokenUsage::default() };
        let corrected = super::correct_undercounted_output(&mut usage, &sizes(texts));
        assert_eq!(corrected, usage.source == UsageSource::Gateway);
        assert_eq!(usage.input, 9);
        (corrected, usage.output)
    }

    #[test]
    fn usage_of_a_single_choice_is_replaced() {
        let four = ["Forty bytes of text, and not one more .."; 4];
        assert_eq!(correct(10, &four), (true, 40), "as llama.cpp counts");
        assert_eq!(correct(9, &four), (true, 36), "less than the estimate");
        assert_eq!(correct(27, &four), (false, 27), "too much for one of them");
        assert_eq!(correct(7, &four), (false, 7), "too little for one of them, so it is another rule's");
        assert_eq!(correct(u64::MAX, &four), (false, u64::MAX));
        assert_eq!(correct(0, &four), (true, 40));
        assert_eq!(correct(1, &["ab", "abc"]), (true, 2), "fewer tokens than choices");
        assert_eq!(correct(2, &["ab", "abc"]), (false, 2));
        assert_eq!(correct(0, &["", ""]), (false, 0), "nothing was said");
        assert_eq!(correct(1, &["one and two"]), (false, 1), "one choice is another rule's");
        let mut own = TokenUsage { output: 1, source: UsageSource::Gateway, ..TokenUsage::default() };
        assert!(!super::correct_undercounted_output(&mut own, &sizes(&four)));
    }

    /// Checks that honest counts of texts with many bytes per token remain, and that the count of a single choice is
    /// corrected.
    #[test]
    fn usage_of_all_choices_stands_in_every_language() {
        let russian = "Напорный трубопровод подводит воду к турбине электростанции. ".repeat(20);
        let hindi = "पनबिजली घर में पानी एक बड़े पाइप से नीचे आता है और टरबाइन चलाता है। ".repeat(20);
        let row = "| Station      | Head (m) | Flow (m3/s) |\n|--------------|----------|-------------|\n";
        let table = row.repeat(20);
        let code = "        return   None\n".repeat(40);
        let spaces = format!("a{}b", " ".repeat(4_000));
        for (text, tenths) in [(&russian, 76), (&hindi, 93), (&table, 83), (&code, 50), (&spaces, 1_000)] {
            for n in [2, 3, 8] {
                let honest = (text.len() * n * 10 / tenths) as u64;
                let texts = vec![text.as_str(); n];
                assert_eq!(correct(honest, &texts), (false, honest), "{n} of {text:.40}");
            }
        }
        let english =
            "A penstock is a pipe that leads the water of a reservoir down to its turbines. ".repeat(20);
        let one = english.len() as u64 * 10 / 45;
        for n in [2_u64, 4] {
            let texts = vec![english.as_str(); usize::try_from(n).unwrap()];
            let (corrected, output) = correct(one, &texts);
            assert!(corrected && output > one * (n - 1) && output <= one * n, "{output}");
        }
    }

    #[test]
    fn completions_of_one_choice_are_joined() {
        let one = |index: u32| {
            Bytes::from(format!(r#"{{"id":"a","model":"m","choices":[{{"index":{index}}}],"usage":{{}}}}"#))
        };
        let usage = TokenUsage { input: 6, output: 4, ..TokenUsage::default() };
        let body = join_completions(&[one(0), one(1)], &usage).unwrap().concat();
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["choices"].as_array().unwrap().len(), 2);
        assert_eq!(value["choices"].get(1).unwrap()["index"], 1);
        assert_eq!((&value["id"], &value["usage"]["total_tokens"]), (&"a".into(), &10.into()));
        for invalid in ["{}", r#"{"choices":1}"#, "[]", ""] {
            assert_eq!(join_completions(&[one(0), Bytes::from(invalid)], &usage), None, "{invalid}");
        }
    }
}
