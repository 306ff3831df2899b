//! Multiple choices of one answer: missing choices, usage of all choices, and the join of answers that were requested
//! separately.

use crate::json_cursor;
use bytes::Bytes;
use penstock_core::{TokenUsage, UsageSource};
use penstock_json_scan::json;

/// Returns the number of complete choices if the provider returned fewer choices than requested: at least one choice is
/// complete, and the others after it have not started. `choices` states for each choice whether it is finished, and its
/// bytes of text.
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

/// Replaces usage that covers only one of several choices with the gateway's estimate; returns true if it was replaced.
/// `sizes` are the bytes of text of each choice.
///
/// Output below two thirds of the estimate, which itself is low, is assumed to be that of one choice, and so is output
/// of fewer tokens than there are choices with text.
pub(crate) fn correct_usage(usage: &mut TokenUsage, sizes: &[usize]) -> bool {
    if sizes.len() < 2 || usage.source != UsageSource::Provider {
        return false;
    }
    let counted: u64 = sizes.iter().map(|bytes| TokenUsage::estimate(0, *bytes).output).sum();
    let spoken = sizes.iter().filter(|bytes| **bytes > 0).count() as u64;
    if usage.output >= spoken && usage.output.saturating_mul(3) >= counted.saturating_mul(2) {
        return false;
    }
    usage.output = counted;
    usage.source = UsageSource::Gateway;
    true
}

/// Joins completions of one choice each, in order, to one completion with the total usage. Returns `None` if one of the
/// completions has no list of choices.
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

/// Returns the range of the list of choices.
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

    #[test]
    fn usage_of_a_single_choice_is_replaced_by_the_estimate() {
        let correct = |output, sizes: &[usize]| {
            let mut usage = TokenUsage { input: 9, output, ..TokenUsage::default() };
            let corrected = super::correct_usage(&mut usage, sizes);
            assert_eq!(corrected, usage.source == UsageSource::Gateway);
            assert_eq!(usage.input, 9);
            (corrected, usage.output)
        };
        let four = [40, 40, 40, 40];
        assert_eq!(correct(10, &four), (true, 40), "as llama.cpp counts");
        assert_eq!(correct(26, &four), (true, 40));
        assert_eq!(correct(27, &four), (false, 27));
        assert_eq!(correct(u64::MAX, &four), (false, u64::MAX));
        assert_eq!(correct(0, &four), (true, 40));
        assert_eq!(correct(1, &[2, 3]), (true, 2), "fewer tokens than choices");
        assert_eq!(correct(2, &[2, 3]), (false, 2));
        assert_eq!(correct(0, &[0, 0]), (false, 0), "nothing was said");
        assert_eq!(correct(1, &[4000]), (false, 1), "one choice is another rule's");
        let mut own = TokenUsage { output: 1, source: UsageSource::Gateway, ..TokenUsage::default() };
        assert!(!super::correct_usage(&mut own, &four));
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
