//! Tests of the record of delivered text.
#![allow(clippy::indexing_slicing)]
use super::*;

#[test]
fn delivered_text_allocates_at_most_a_quarter_more_than_its_bytes() {
    let mut escaped = Vec::new();
    for number in 0..20_000_u32 {
        append(&mut escaped, number.to_string().as_bytes());
        let most = escaped.len() + (escaped.len() / 4).max(MIN_GROWTH) + MIN_GROWTH;
        assert!(escaped.capacity() <= most, "{} of {}", escaped.capacity(), escaped.len());
    }
    assert_eq!(escaped.len(), 88_890);
}

fn text_of(delivered: &DeliveredText) -> usize {
    delivered.choices.iter().flatten().map(|segment| segment.escaped.len()).sum()
}

#[test]
fn the_memory_of_the_record_is_bounded_however_the_text_alternates() {
    let text = EscapedText::new("a");
    let events: [&dyn Fn(u32) -> AnswerEvent; 3] = [
        &|_| AnswerEvent::Text { choice: 0, text: text.clone(), logprobs: None },
        &|_| AnswerEvent::Reasoning { choice: 0, text: text.clone(), signature: None },
        &|number| AnswerEvent::ToolCallArguments { choice: 0, tool: number % 2, fragment: text.clone() },
    ];
    // The segments have two fragments each, or one fragment each, or the arguments of two calls alternate.
    for pattern in [&[0, 0, 1, 1][..], &[0, 1], &[2]] {
        let mut delivered = DeliveredText::new(1, ThinkingDisplay::Shown);
        let (mut most, mut count) = (0, 0_u32);
        for kind in pattern.iter().cycle().take(300_000) {
            delivered.record_event(&events[*kind](count));
            count += 1;
            let segments = delivered.choices.iter().flatten();
            let memory = |segment: &TextSegment| size_of::<TextSegment>() + segment.escaped.capacity();
            // Memory is measured only for the first events, because the pattern repeats.
            if count < 4000 {
                most = most.max(segments.map(memory).sum());
            }
        }
        assert!(most <= MAX_BYTES + SEGMENT_BYTES, "{most}");
        assert!(
            !delivered.is_fully_recorded()
                && text_of(&delivered) == 0
                && delivered.prefix_matcher().is_none()
        );
    }
}

#[test]
fn one_text_is_recorded_up_to_the_maximum() {
    let text = EscapedText::new(&"a".repeat(1024));
    let mut delivered = DeliveredText::new(1, ThinkingDisplay::Shown);
    let event = AnswerEvent::Text { choice: 0, text, logprobs: None };
    for _ in 0..MAX_BYTES / 1024 - 1 {
        delivered.record_event(&event);
    }
    assert_eq!(delivered.plain_text().map(|text| text.len()), Some(MAX_BYTES - 1024));
    delivered.record_event(&event);
    assert!(!delivered.is_fully_recorded() && delivered.plain_text().is_none());
}
