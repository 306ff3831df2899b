//! Connection of the old process to the new process of an upgrade, from the handover until the old process ends.

use super::messages::SentAction;
use super::messages::{self, NewToOld, OldToNew};
use crate::upgrade::remote::{StoreRequest, StoreResponse};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::Result;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// Connection from the old process to the new process: sends store requests and ledger actions, and receives responses
/// and events.
pub struct ControlChannel {
    out: Mutex<UnixStream>,
    pending: Mutex<HashMap<u64, mpsc::Sender<Option<StoreResponse>>>>,
    next: AtomicU64,
    lost: AtomicBool,
}

/// Event that the new process sends by itself, not as a response.
pub enum PeerEvent {
    /// Change of the API key with this id.
    KeyChanged(String),
    /// Change of the account with this id.
    AccountChanged(String),
}

impl ControlChannel {
    /// Starts the thread that reads responses and events from the connection; it calls `news` for each event. Also
    /// returns a channel that receives a value once the new process serves, and that closes with the connection.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(
        stream: UnixStream,
        mut news: impl FnMut(PeerEvent) + Send + 'static,
    ) -> Result<(Arc<Self>, mpsc::Receiver<()>)> {
        let mut from = stream.try_clone()?;
        let link = Arc::new(Self {
            out: Mutex::new(stream),
            pending: Mutex::default(),
            next: AtomicU64::new(1),
            lost: AtomicBool::new(false),
        });
        let (reader, (serving, is_serving)) = (link.clone(), mpsc::channel());
        std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            while let Ok(frame) = messages::read_message::<NewToOld>(&mut from) {
                match frame {
                    NewToOld::Persisted(number) => reader.on_response(number, None),
                    NewToOld::Answer(number, answer) => reader.on_response(number, Some(answer)),
                    NewToOld::Key(id) => news(PeerEvent::KeyChanged(id)),
                    NewToOld::Account(id) => news(PeerEvent::AccountChanged(id)),
                    NewToOld::Ready => {
                        serving.send(()).ok();
                    }
                    NewToOld::Prepared => {}
                }
            }
            reader.lost.store(true, Ordering::Release);
            reader.pending.lock().clear();
        })?;
        Ok((link, is_serving))
    }

    fn on_response(&self, number: u64, answer: Option<StoreResponse>) {
        if let Some(asker) = self.pending.lock().remove(&number) {
            asker.send(answer).ok();
        }
    }

    /// Sends a request and waits for its response; `None` if the connection is lost.
    fn request(&self, frame: impl FnOnce(u64) -> OldToNew) -> Option<Option<StoreResponse>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = mpsc::channel();
        self.pending.lock().insert(number, asker);
        let sent = messages::write_message(&mut *self.out.lock(), &frame(number));
        if sent.is_err() || self.is_lost() {
            self.pending.lock().remove(&number);
        }
        answer.recv().ok()
    }

    /// Sends a request to the store of the new process and waits for the response; `None` if the connection is lost.
    /// Blocks.
    pub fn store_request(&self, call: StoreRequest) -> Option<StoreResponse> {
        self.request(|number| OldToNew::Call { number, call }).flatten()
    }

    /// Sends ledger actions and waits until the new process has them on the disk. Returns false if the connection is
    /// lost. Blocks.
    pub fn send_actions(&self, acts: Vec<SentAction>) -> bool {
        self.request(|number| OldToNew::Acts { number, acts }).is_some()
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
