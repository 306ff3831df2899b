//! Comparison of the batch lifecycle with a model of four numbers: after any sequence of events, an ended batch does
//! not change, and its line counts add up.
#![allow(missing_docs)]

use penstock_batch::state::{BatchLifecycle, EarlyEndReason, LifecycleState};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(u32),
    Finish(bool),
    End(EarlyEndReason),
}

fn event() -> impl Strategy<Value = Event> {
    let why = prop_oneof![
        Just(EarlyEndReason::Cancelled),
        Just(EarlyEndReason::InvalidInput),
        Just(EarlyEndReason::InputDeleted),
        Just(EarlyEndReason::Expired),
        Just(EarlyEndReason::KeyRevoked),
        Just(EarlyEndReason::OutputDamaged)
    ];
    prop_oneof![
        2 => (1u32..6).prop_map(Event::Begin),
        8 => any::<bool>().prop_map(Event::Finish),
        1 => why.prop_map(Event::End),
    ]
}

/// Simple model of a batch.
#[derive(Default)]
struct Model {
    total: Option<u32>,
    good: u32,
    bad: u32,
    end: Option<LifecycleState>,
}

impl Model {
    fn take(&mut self, event: Event) -> bool {
        if self.end.is_some() {
            return false;
        }
        match (event, self.total) {
            (Event::Begin(lines), None) => self.total = Some(lines),
            (Event::Begin(_), Some(_)) | (Event::Finish(_), None) => return false,
            (Event::Finish(good), Some(total)) => {
                if good {
                    self.good += 1;
                } else {
                    self.bad += 1;
                }
                if self.good + self.bad == total {
                    self.end = Some(LifecycleState::Completed);
                }
            }
            (Event::End(EarlyEndReason::Cancelled), _) => self.end = Some(LifecycleState::Cancelled),
            (Event::End(_), _) => self.end = Some(LifecycleState::Failed),
        }
        true
    }
}

proptest! {
    #[test]
    fn every_order_of_events_matches_the_model(events in proptest::collection::vec(event(), 0..24)) {
        let (mut life, mut model) = (BatchLifecycle::default(), Model::default());
        for (now, event) in (1u64..).zip(events) {
            let before = life;
            let taken = match event {
                Event::Begin(lines) => life.start(lines, now),
                Event::Finish(good) => life.finish_line(good, now),
                Event::End(why) => life.end_early(why, now),
            };
            prop_assert_eq!(taken, model.take(event));
            if !taken {
                prop_assert_eq!(life, before, "what is not taken changes nothing");
            }
            let counts = life.counts;
            prop_assert_eq!((counts.completed, counts.failed), (model.good, model.bad));
            prop_assert_eq!(counts.total, model.total.unwrap_or(0));
            let sum = counts.completed + counts.failed + counts.cancelled + counts.expired;
            prop_assert_eq!(sum + counts.pending_count(), counts.total);
            match model.end {
                Some(end) => {
                    prop_assert_eq!(life.state, end);
                    prop_assert_eq!(counts.pending_count(), 0, "the counts of an end add up");
                    let ends = [life.times.completed, life.times.failed, life.times.cancelled];
                    prop_assert_eq!(ends.iter().flatten().count(), 1, "it ends once");
                }
                None if model.total.is_some() => prop_assert_eq!(life.state, LifecycleState::InProgress),
                None => prop_assert_eq!(life.state, LifecycleState::Validating),
            }
        }
    }
}
