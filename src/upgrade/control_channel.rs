//! Connection of the old process to the new process of an upgrade, from the handover until the old process ends.

use super::messages::SentLedgerAction;
use super::messages::{self, NewToOld, OldToNew};
use crate::upgrade::handover_store::{StoreRequest, StoreResponse};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{ErrorKind, Result};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// Maximum size of the actions in one message, in bytes; a single larger action has a message of its own. The encoding
/// as JSON makes the message larger than the actions by a small factor.
const MAX_ACTION_BYTES: usize = 4 << 20;

/// Connection from the old process to the new process: sends store requests and ledger actions, and receives responses
/// and events.
pub struct ControlChannel {
    out: Mutex<UnixStream>,
    pending: Mutex<HashMap<u64, mpsc::Sender<Option<StoreResponse>>>>,
    next: AtomicU64,
    lost: AtomicBool,
}

/// Event that the new process sends by itself, not as a response.
pub enum SuccessorEvent {
    /// Change of the API key with this id.
    KeyChanged(String),
    /// Change of the account with this id.
    AccountChanged(String),
}

impl ControlChannel {
    /// Starts the thread that reads responses and events from the connection; the thread calls `news` for each event.
    /// Also returns a channel that receives a value once the new process serves, and that closes with the connection.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        stream: UnixStream,
        mut news: impl FnMut(SuccessorEvent) + Send + 'static,
    ) -> Result<(Arc<Self>, mpsc::Receiver<()>)> {
        let mut from = stream.try_clone()?;
        let link = Arc::new(Self {
            out: Mutex::new(stream),
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            lost: AtomicBool::new(false),
        });
        let (reader, (serving, served)) = (link.clone(), mpsc::channel());
        std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            while let Ok(frame) = messages::read_message::<NewToOld>(&mut from) {
                match frame {
                    NewToOld::Persisted(number) => reader.on_response(number, None),
                    NewToOld::Answer(number, answer) => reader.on_response(number, Some(answer)),
                    NewToOld::Key(id) => news(SuccessorEvent::KeyChanged(id)),
                    NewToOld::Account(id) => news(SuccessorEvent::AccountChanged(id)),
                    NewToOld::Ready => {
                        serving.send(()).ok();
                    }
                    NewToOld::Prepared => {}
                }
            }
            reader.lost.store(true, Ordering::Release);
            reader.pending.lock().clear();
        })?;
        Ok((link, served))
    }

    fn on_response(&self, number: u64, answer: Option<StoreResponse>) {
        if let Some(asker) = self.pending.lock().remove(&number) {
            asker.send(answer).ok();
        }
    }

    /// Sends a message and waits for its response. Returns `None` if the response is the acknowledgement of ledger
    /// actions.
    fn request(&self, frame: impl FnOnce(u64) -> OldToNew) -> Result<Option<StoreResponse>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = mpsc::channel();
        self.pending.lock().insert(number, asker);
        let sent = messages::write_message(&mut *self.out.lock(), &frame(number));
        if sent.is_err() || self.is_lost() {
            self.pending.lock().remove(&number);
        }
        sent?;
        answer.recv().map_err(|_| ErrorKind::BrokenPipe.into())
    }

    /// Sends a request to the store of the new process and waits for the response; `None` if the connection is lost.
    /// Blocks.
    pub fn call_remote_store(&self, call: StoreRequest) -> Option<StoreResponse> {
        match self.request(|number| OldToNew::Call { number, call }) {
            Ok(response) => response,
            Err(error) if error.kind() == ErrorKind::FileTooLarge => Some(StoreResponse::Failed),
            Err(_) => None,
        }
    }

    /// Sends ledger actions and waits until the new process has them on the disk. Returns false if the connection is
    /// lost. Blocks.
    pub fn send_ledger_actions(&self, acts: Vec<SentLedgerAction>) -> bool {
        let mut acts = acts.into_iter().peekable();
        while acts.peek().is_some() {
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some(act) =
                acts.next_if(|act| bytes + act.size_estimate() <= MAX_ACTION_BYTES || bytes == 0)
            {
                bytes += act.size_estimate();
                part.push(act);
            }
            if self.request(|number| OldToNew::Acts { number, acts: part }).is_err() {
                return false;
            }
        }
        true
    }

    /// Tells the new process that the connection ends.
    pub fn close(&self) {
        messages::write_message(&mut *self.out.lock(), &OldToNew::Bye).ok();
    }

    /// Returns true if the connection to the other process is lost.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn act(number: usize) -> SentLedgerAction {
        let text = format!("{number}{}", "x".repeat(1 << 20));
        SentLedgerAction { line: String::new(), terms: Some((String::new(), text)), eur: 0, counted: false }
    }

    #[test]
    fn many_large_actions_are_sent_in_order_in_several_messages() {
        const COUNT: usize = 10;
        let (stream, mut other_end) = UnixStream::pair().unwrap();
        let (channel, _serving) = ControlChannel::start(stream, |_| {}).unwrap();
        let peer = std::thread::spawn(move || {
            let (mut parts, mut received) = (0, Vec::new());
            while let Ok(OldToNew::Acts { number, acts }) = messages::read_message(&mut other_end) {
                parts += 1;
                received.extend(acts.into_iter().filter_map(|act| act.terms.map(|(_, text)| text)));
                messages::write_message(&mut other_end, &NewToOld::Persisted(number)).unwrap();
            }
            (parts, received)
        });
        assert!(channel.send_ledger_actions((0..COUNT).map(act).collect()));
        assert!(channel.send_ledger_actions(Vec::new()));
        channel.close();
        let (parts, received) = peer.join().unwrap();
        assert!(parts > 1);
        assert_eq!(received.len(), COUNT);
        assert!(received.iter().enumerate().all(|(number, text)| text.starts_with(&format!("{number}x"))));
    }

    #[test]
    fn a_request_that_is_too_large_fails_and_the_connection_goes_on() {
        let (stream, mut other_end) = UnixStream::pair().unwrap();
        let (channel, _serving) = ControlChannel::start(stream, |_| {}).unwrap();
        let peer = std::thread::spawn(move || {
            let Ok(OldToNew::Call { number, .. }) = messages::read_message(&mut other_end) else { return };
            messages::write_message(&mut other_end, &NewToOld::Answer(number, StoreResponse::Done)).unwrap();
        });
        let large = StoreRequest::Get(0, vec![u8::MAX; 17 << 20]);
        assert!(matches!(channel.call_remote_store(large), Some(StoreResponse::Failed)));
        let small = StoreRequest::Get(0, Vec::new());
        assert!(matches!(channel.call_remote_store(small), Some(StoreResponse::Done)));
        peer.join().unwrap();
        assert!(channel.call_remote_store(StoreRequest::Get(0, Vec::new())).is_none());
    }
}
