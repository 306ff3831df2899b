//! Queue of messages from the new process of an upgrade to the old process. A separate thread writes them. So no
//! request of the new process waits if the old process does not read, for example because a debugger has stopped it.

use super::handover_store::StoreResponse;
use super::messages::{self, NewToOld};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeSet, VecDeque};
use std::io::{ErrorKind, Write};

/// Queue of messages from the new process of an upgrade to the old process.
#[derive(Default)]
pub struct PredecessorOutbox {
    state: Mutex<OutboxState>,
    wake: Condvar,
}

/// Messages that are not written yet. There is at most one for each key, each account and each request in flight of the
/// old process.
#[derive(Default)]
struct OutboxState {
    changed_keys: BTreeSet<String>,
    changed_accounts: BTreeSet<String>,
    responses: VecDeque<NewToOld>,
    is_closed: bool,
}

impl OutboxState {
    fn pop(&mut self) -> Option<NewToOld> {
        let key = self.changed_keys.pop_first().map(NewToOld::Key);
        let change = key.or_else(|| self.changed_accounts.pop_first().map(NewToOld::Account));
        change.or_else(|| self.responses.pop_front())
    }
}

impl PredecessorOutbox {
    /// Adds the change of a key, unless it is queued already: the old process reads the record when it gets the
    /// message.
    pub fn push_key_change(&self, id: &str) {
        self.push(|state| {
            state.changed_keys.insert(id.to_owned());
        });
    }

    /// Adds the change of an account, unless it is queued already.
    pub fn push_account_change(&self, id: &str) {
        self.push(|state| {
            state.changed_accounts.insert(id.to_owned());
        });
    }

    /// Adds the response to a request.
    pub fn push_response(&self, response: NewToOld) {
        self.push(|state| state.responses.push_back(response));
    }

    fn push(&self, add: impl FnOnce(&mut OutboxState)) {
        let mut state = self.state.lock();
        if !state.is_closed {
            add(&mut state);
            self.wake.notify_one();
        }
    }

    /// Drops the messages that are not written, and all later ones.
    pub fn close(&self) {
        *self.state.lock() = OutboxState { is_closed: true, ..OutboxState::default() };
        self.wake.notify_all();
    }

    /// Writes the messages until the queue is closed or the connection is lost. Blocks.
    pub fn write_to(&self, out: &mut impl Write) {
        while let Some(message) = self.next() {
            let mut written = messages::write_message(out, &message);
            if let (Err(error), NewToOld::Answer(number, _)) = (&written, &message)
                && error.kind() == ErrorKind::FileTooLarge
            {
                written = messages::write_message(out, &NewToOld::Answer(*number, StoreResponse::Failed));
            }
            if written.is_err() {
                self.close();
            }
        }
    }

    /// Waits for the next message; `None` once the queue is closed.
    fn next(&self) -> Option<NewToOld> {
        let mut state = self.state.lock();
        loop {
            if let Some(message) = state.pop() {
                return Some(message);
            }
            if state.is_closed {
                return None;
            }
            self.wake.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn read(from: &mut UnixStream) -> NewToOld {
        messages::read_message(from).unwrap()
    }

    #[test]
    fn a_change_that_is_queued_already_is_sent_once() {
        let (mut out, mut other_end) = UnixStream::pair().unwrap();
        let outbox = Arc::new(PredecessorOutbox::default());
        for _ in 0..1_000 {
            outbox.push_key_change("k");
            outbox.push_account_change("a");
        }
        outbox.push_response(NewToOld::Persisted(1));
        let writer = outbox.clone();
        let writer = std::thread::spawn(move || writer.write_to(&mut out));
        assert!(matches!(read(&mut other_end), NewToOld::Key(id) if id == "k"));
        assert!(matches!(read(&mut other_end), NewToOld::Account(id) if id == "a"));
        assert!(matches!(read(&mut other_end), NewToOld::Persisted(1)));
        outbox.close();
        writer.join().unwrap();
        outbox.push_key_change("later");
        assert!(outbox.next().is_none());
    }

    #[test]
    fn nobody_waits_for_a_process_that_does_not_read() {
        let (mut out, mut other_end) = UnixStream::pair().unwrap();
        let outbox = Arc::new(PredecessorOutbox::default());
        let writer = outbox.clone();
        let writer = std::thread::spawn(move || writer.write_to(&mut out));
        // The messages exceed the buffers of the socket, and the other end does not read.
        outbox.push_response(NewToOld::Answer(1, StoreResponse::Row(Some(vec![u8::MAX; 4 << 20]))));
        for number in 0..100_000 {
            outbox.push_key_change(&number.to_string());
        }
        outbox.push_response(NewToOld::Persisted(2));
        let (mut changes, mut answers) = (0, 0);
        loop {
            match read(&mut other_end) {
                NewToOld::Key(_) => changes += 1,
                NewToOld::Answer(1, _) => answers += 1,
                message => break assert!(matches!(message, NewToOld::Persisted(2))),
            }
        }
        assert_eq!((changes, answers), (100_000, 1));
        outbox.close();
        writer.join().unwrap();
    }

    #[test]
    fn a_response_that_is_too_large_fails_and_the_connection_goes_on() {
        let (mut out, mut other_end) = UnixStream::pair().unwrap();
        let outbox = Arc::new(PredecessorOutbox::default());
        let writer = outbox.clone();
        let writer = std::thread::spawn(move || writer.write_to(&mut out));
        // As JSON, each byte becomes a number of three digits and a comma, so the message exceeds its maximum size.
        let row = StoreResponse::Row(Some(vec![u8::MAX; 17 << 20]));
        outbox.push_response(NewToOld::Answer(1, row));
        outbox.push_response(NewToOld::Persisted(2));
        assert!(matches!(read(&mut other_end), NewToOld::Answer(1, StoreResponse::Failed)));
        assert!(matches!(read(&mut other_end), NewToOld::Persisted(2)));
        outbox.close();
        writer.join().unwrap();
    }

    #[test]
    fn the_writer_ends_with_the_connection() {
        let (mut out, other_end) = UnixStream::pair().unwrap();
        drop(other_end);
        let outbox = PredecessorOutbox::default();
        outbox.push_key_change("k");
        outbox.write_to(&mut out);
        assert!(outbox.next().is_none());
    }
}
