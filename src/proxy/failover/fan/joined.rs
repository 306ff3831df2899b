//! Response that joins choices which were asked for one by one, as the response body filters see it.

use super::super::Run;
use super::super::attempt::Stop;
use super::sum::{self, Part};
use crate::proxy::filters::{Metered, ResponseContext};
use bytes::Bytes;
use penstock_contract::{Answer, Done, Finish, Noticed, Reply, Usage, Whole};

/// Joined response of several choices.
pub(super) struct JoinedResponse<'c, 'r, 'a> {
    pub(super) run: &'c mut Run<'r, 'a>,
    /// Usage of all choices.
    pub(super) total: Usage,
    /// Usage of each choice, until it is settled.
    pub(super) parts: Vec<Part>,
    /// Body of a buffered response.
    pub(super) joined: Vec<Bytes>,
}

impl ResponseContext for JoinedResponse<'_, '_, '_> {
    type Error = Stop;

    fn translation(&mut self) -> Option<&mut (dyn Reply + 'static)> {
        self.run.reply.as_deref_mut()
    }

    // Each choice has noted its own progress.
    fn note(&mut self, _bytes: usize) {}

    fn total_usage(&self) -> Option<Usage> {
        Some(self.total)
    }

    /// Returns the joined body: each choice has been translated already.
    async fn translate(&mut self, _: Vec<Answer>) -> Result<Whole, Stop> {
        Ok(Whole {
            body: std::mem::take(&mut self.joined),
            done: Some(Done::Tokens(self.total)),
            measured: None,
            finish: Finish::Stop,
            output_bytes: 0,
            pictures: Vec::new(),
            noticed: Noticed::default(),
        })
    }

    fn counted(&self, output_bytes: usize) -> Usage {
        self.run.ask.counted(output_bytes)
    }

    /// Settles the usage of all choices, each by the figures of its own offer.
    fn settle(&mut self, _: Metered) -> Vec<u8> {
        sum::settle(self.run, std::mem::take(&mut self.parts))
    }
}
