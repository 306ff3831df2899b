//! Connection of the old process to the one that took over.

use super::messages::Sent;
use super::messages::{self, ToNew, ToOld};
use crate::upgrade::remote::{Answer, Call};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::Result;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

/// Control channel to the new process.
pub struct Link {
    out: Mutex<UnixStream>,
    waiting: Mutex<HashMap<u64, mpsc::Sender<Option<Answer>>>>,
    next: AtomicU64,
    lost: AtomicBool,
}

/// Event that the other process sends unasked.
pub enum News {
    /// Change of a key.
    Key(String),
    /// Change of an account.
    Account(String),
}

impl Link {
    /// Starts the reader thread; it calls `news` for each event.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(stream: UnixStream, mut news: impl FnMut(News) + Send + 'static) -> Result<Arc<Self>> {
        let mut from = stream.try_clone()?;
        let link = Arc::new(Self {
            out: Mutex::new(stream),
            waiting: Mutex::default(),
            next: AtomicU64::new(1),
            lost: AtomicBool::new(false),
        });
        let heard = link.clone();
        std::thread::Builder::new().name("handover".to_owned()).spawn(move || {
            while let Ok(frame) = messages::read::<ToOld>(&mut from) {
                match frame {
                    ToOld::Kept(number) => heard.answered(number, None),
                    ToOld::Answer(number, answer) => heard.answered(number, Some(answer)),
                    ToOld::Key(id) => news(News::Key(id)),
                    ToOld::Account(id) => news(News::Account(id)),
                    ToOld::Prepared | ToOld::Ready => {}
                }
            }
            heard.lost.store(true, Ordering::Release);
            heard.waiting.lock().clear();
        })?;
        Ok(link)
    }

    fn answered(&self, number: u64, answer: Option<Answer>) {
        if let Some(asker) = self.waiting.lock().remove(&number) {
            asker.send(answer).ok();
        }
    }

    /// Sends a request and waits for its response; `None` if the connection is lost.
    fn ask(&self, frame: impl FnOnce(u64) -> ToNew) -> Option<Option<Answer>> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (asker, answer) = mpsc::channel();
        self.waiting.lock().insert(number, asker);
        let sent = messages::write(&mut *self.out.lock(), &frame(number));
        if sent.is_err() || self.is_lost() {
            self.waiting.lock().remove(&number);
        }
        answer.recv().ok()
    }

    /// Sends a request to the store. Blocks.
    pub fn call(&self, call: Call) -> Option<Answer> {
        self.ask(|number| ToNew::Call { number, call }).flatten()
    }

    /// Sends ledger actions and waits until they are on the disk; false if they never will be.
    pub fn send(&self, acts: Vec<Sent>) -> bool {
        self.ask(|number| ToNew::Acts { number, acts }).is_some()
    }

    /// Announces the end of the connection.
    pub fn bye(&self) {
        messages::write(&mut *self.out.lock(), &ToNew::Bye).ok();
    }

    /// Returns true if the other process is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }
}
