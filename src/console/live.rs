//! Live figures of the overview: one task takes a snapshot each second while a page is open, and every open page gets
//! the same snapshot. Without an open page there is no task.

use super::session;
use super::{BackendRequest, ConsoleBackend};
use crate::proxy::downstream::Downstream;
use crate::proxy::response::head::ResponseHead;
use crate::storage::stores::OpenStorage;
use crate::telemetry::request_id::RequestId;
use crate::time::clock::ProcessClock;
use bytes::Bytes;
use http::Method;
use parking_lot::Mutex;
use penstock_console::Language;
use penstock_console::pages::overview_figures_json;
use penstock_core::calendar::UtcDay;
use penstock_core::{ApiError, ErrorCode};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use serde_json::{Value, json};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Interval between two snapshots of the live figures.
const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of open event streams of live figures.
const MAX_STREAMS: usize = 256;
/// Number of events between two checks of the session of a stream.
const EVENTS_PER_SESSION_CHECK: u32 = 5;
/// Maximum time for which a client may accept no bytes.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Author of the task's requests to the admin API, in the audit log.
const ACTOR: &str = "console";
/// Number of seconds in a day.
const DAY_SECONDS: u64 = 86_400;

/// Status and usage at one moment.
struct LiveSnapshot {
    status: Value,
    hours: Value,
    now: u64,
    /// Encoded events by language, without and with money; each is encoded at most once, for all pages.
    events: [[OnceLock<Bytes>; 2]; Language::ALL.len()],
}

impl LiveSnapshot {
    fn new(status: Value, hours: Value, now: u64) -> Self {
        Self { status, hours, now, events: Default::default() }
    }

    /// Returns the encoded event with the live figures, in the language of the page.
    fn event(&self, view: FigureRenderOptions) -> Bytes {
        let write = || {
            let figures =
                overview_figures_json(&self.status, &self.hours, self.now, view.with_money, view.language);
            Bytes::from(format!("event: figures\ndata: {figures}\n\n"))
        };
        let language = Language::ALL.iter().position(|known| *known == view.language).unwrap_or(0);
        let slot = self.events.get(language).and_then(|of| of.get(usize::from(view.with_money)));
        slot.map_or_else(write, |slot| slot.get_or_init(write).clone())
    }
}

/// Options by which the live figures are rendered for a viewer.
#[derive(Clone, Copy, Debug)]
pub struct FigureRenderOptions {
    /// Language of the page.
    pub language: Language,
    /// True if the person sees amounts of money.
    pub with_money: bool,
}

/// Source of the live figures of one site.
pub struct LiveFigureSource {
    backend: Arc<dyn ConsoleBackend>,
    clock: ProcessClock,
    permits: Arc<Semaphore>,
    /// Sender of snapshots, whose value is `None` before the first snapshot; no sender while no task runs.
    running: Mutex<Option<watch::Sender<Option<Arc<LiveSnapshot>>>>>,
}

impl LiveFigureSource {
    /// Creates a source; the task is not started yet.
    pub fn new(backend: Arc<dyn ConsoleBackend>, clock: ProcessClock) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(MAX_STREAMS));
        Arc::new(Self { backend, clock, permits, running: Mutex::default() })
    }

    /// Subscribes a stream to the snapshots, and starts the task if it does not run.
    ///
    /// # Errors
    /// Returns 503 if there are too many streams.
    fn subscribe(self: &Arc<Self>) -> Result<Subscription, ApiError> {
        let permit = self.permits.clone().try_acquire_owned();
        let permit = permit.map_err(|_| ApiError::new(ErrorCode::Overloaded).with_retry_after(30))?;
        let mut running = self.running.lock();
        let snapshots = match &*running {
            Some(sender) => sender.subscribe(),
            None => {
                let (sender, snapshots) = watch::channel(None);
                *running = Some(sender);
                tokio::spawn(self.clone().produce());
                snapshots
            }
        };
        Ok(Subscription { snapshots, _permit: permit })
    }

    /// Takes a snapshot each second until no stream is open.
    async fn produce(self: Arc<Self>) {
        let _guard = RestartGuard(&self);
        let mut ticks = interval(SNAPSHOT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.stop_if_unused() {
                return;
            }
            // After a failed read, the next tick reads again; until then pages show the previous figures.
            let Ok(snapshot) = self.take_snapshot().await else { continue };
            if let Some(sender) = &*self.running.lock() {
                sender.send_replace(Some(Arc::new(snapshot)));
            }
        }
    }

    /// Ends the task if there is no stream; returns true if it ended. A stream that is opened later starts a new task.
    fn stop_if_unused(&self) -> bool {
        let mut running = self.running.lock();
        let unused = running.as_ref().is_none_or(|sender| sender.receiver_count() == 0);
        if unused {
            *running = None;
        }
        unused
    }

    async fn take_snapshot(&self) -> Result<LiveSnapshot, ApiError> {
        let now = self.clock.unix_seconds();
        let yesterday = UtcDay::from_unix(now.saturating_sub(DAY_SECONDS)).to_string();
        let query = vec![("from".to_owned(), yesterday), ("group_by".to_owned(), "hour,outcome".to_owned())];
        let read = |path: &str, query| BackendRequest {
            method: Method::GET,
            path: path.to_owned(),
            query,
            body: json!({}),
            actor: ACTOR,
        };
        let status = self.backend.call(read("/status", Vec::new())).await?;
        let hours = self.backend.call(read("/admin/usage", query)).await?;
        Ok(LiveSnapshot::new(status, hours, now))
    }
}

/// Guard of the task. If the task panics, its streams end, and the next stream starts a new task.
struct RestartGuard<'a>(&'a LiveFigureSource);

impl Drop for RestartGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.running.lock() = None;
        }
    }
}

/// Subscription of one stream to the snapshots.
struct Subscription {
    snapshots: watch::Receiver<Option<Arc<LiveSnapshot>>>,
    _permit: OwnedSemaphorePermit,
}

/// Stream of live figures to one page.
pub struct LiveStream {
    subscription: Subscription,
    view: FigureRenderOptions,
    session: StreamSession,
}

/// Session of the person who receives a stream of live figures.
pub struct StreamSession {
    /// Session id from the cookie.
    pub id: String,
    /// Store of the sessions.
    pub stores: OpenStorage,
    /// Clock of the process.
    pub clock: ProcessClock,
}

impl std::fmt::Debug for LiveStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveStream").field("view", &self.view).finish_non_exhaustive()
    }
}

impl StreamSession {
    /// Returns true if the session is still valid. The check does not postpone the end of the session.
    async fn is_valid(&self) -> bool {
        let (stores, id, now) = (self.stores.clone(), self.id.clone(), self.clock.unix_seconds());
        let found = session::run_blocking(move || session::find_session(&stores, &id, now, false)).await;
        // A store that cannot be read does not end the stream.
        !matches!(found, Ok(None))
    }
}

/// Event for which a stream of live figures waits.
enum Wake {
    /// New snapshot of the live figures.
    Figures,
    /// Disconnect of the client.
    Left,
    /// Stop of the process, or end of the task that takes the snapshots.
    Shutdown,
}

impl LiveStream {
    /// Opens a stream of live figures for a page.
    ///
    /// # Errors
    /// Returns 503 if there are too many streams.
    pub fn open(
        figures: &Arc<LiveFigureSource>,
        view: FigureRenderOptions,
        session: StreamSession,
    ) -> Result<Self, ApiError> {
        Ok(Self { subscription: figures.subscribe()?, view, session })
    }

    /// Sends events until the client disconnects, the session ends or the process stops.
    pub async fn send(mut self, head: ResponseHead, session: &mut ServerSession, shutdown: &ShutdownWatch) {
        let mut caller = Downstream::new(session, None);
        let mut shutdown = shutdown.clone();
        if head.start_event_stream(&mut caller).await.is_err() {
            return;
        }
        for number in 1_u32.. {
            match self.wake(&mut caller, &mut shutdown).await {
                Wake::Figures => {}
                Wake::Left => return,
                Wake::Shutdown => break,
            }
            let snapshot = self.subscription.snapshots.borrow_and_update().clone();
            let Some(snapshot) = snapshot else { continue };
            let is_over = number % EVENTS_PER_SESSION_CHECK == 0 && !self.session.is_valid().await;
            let event = if is_over {
                Bytes::from_static(b"event: end\ndata:\n\n")
            } else {
                snapshot.event(self.view)
            };
            let written = timeout(WRITE_TIMEOUT, caller.write_response_body(event, false)).await;
            if !matches!(written, Ok(Ok(()))) {
                return;
            }
            if is_over {
                break;
            }
        }
        timeout(WRITE_TIMEOUT, caller.write_response_body(Bytes::new(), true)).await.ok();
    }

    async fn wake(&mut self, caller: &mut Downstream<'_>, shutdown: &mut ShutdownWatch) -> Wake {
        tokio::select! {
            biased;
            _ = shutdown.wait_for(|stop| *stop) => Wake::Shutdown,
            () = caller.wait_for_disconnect() => Wake::Left,
            changed = self.subscription.snapshots.changed() => match changed {
                Ok(()) => Wake::Figures,
                Err(_) => Wake::Shutdown,
            },
        }
    }
}

/// Returns the response head of a stream of live figures.
pub fn stream_response_head(id: &RequestId) -> ResponseHead {
    super::RESPONSE_HEADERS
        .iter()
        .fold(ResponseHead::new(200, id), |head, (name, value)| head.with_field(*name, *value))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use async_trait::async_trait;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::time::sleep;

    #[derive(Default)]
    struct CountedBackend(AtomicUsize);

    #[async_trait]
    impl ConsoleBackend for CountedBackend {
        async fn call(&self, request: BackendRequest<'_>) -> Result<Value, ApiError> {
            if request.path == "/status" {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
            Ok(json!({ "ready": true }))
        }
    }

    fn figures() -> (Arc<CountedBackend>, Arc<LiveFigureSource>) {
        let backend = Arc::new(CountedBackend::default());
        (backend.clone(), LiveFigureSource::new(backend, ProcessClock::start()))
    }

    #[tokio::test(start_paused = true)]
    async fn one_snapshot_a_second_is_taken_for_all_and_none_for_nobody() {
        let (backend, figures) = figures();
        sleep(SNAPSHOT_INTERVAL * 10).await;
        assert_eq!(backend.0.load(Ordering::Relaxed), 0, "nobody looks");
        let mut open: Vec<Subscription> = (0..100).map(|_| figures.subscribe().unwrap()).collect();
        sleep(SNAPSHOT_INTERVAL * 10).await;
        let taken = backend.0.load(Ordering::Relaxed);
        assert!((10..=11).contains(&taken), "{taken} in ten seconds");
        let first = open.first().unwrap().snapshots.borrow().clone().unwrap();
        for one in &mut open {
            let other = one.snapshots.borrow_and_update().clone().unwrap();
            assert!(Arc::ptr_eq(&first, &other));
        }
        let view = FigureRenderOptions { language: Language::German, with_money: true };
        assert_eq!(first.event(view).as_ptr(), first.event(view).as_ptr(), "an event is written once");
        drop(open);
        sleep(SNAPSHOT_INTERVAL * 2).await;
        let taken = backend.0.load(Ordering::Relaxed);
        sleep(SNAPSHOT_INTERVAL * 10).await;
        assert_eq!(backend.0.load(Ordering::Relaxed), taken, "the task has ended");
        assert!(figures.running.lock().is_none());
        let mut again = figures.subscribe().unwrap();
        again.snapshots.changed().await.unwrap();
        assert_eq!(backend.0.load(Ordering::Relaxed), taken + 1);
    }

    /// Backend whose first answer panics.
    #[derive(Default)]
    struct PanickingBackend(AtomicUsize);

    #[async_trait]
    impl ConsoleBackend for PanickingBackend {
        async fn call(&self, _: BackendRequest<'_>) -> Result<Value, ApiError> {
            assert!(self.0.fetch_add(1, Ordering::Relaxed) > 0, "the first answer");
            Ok(json!({ "ready": true }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_streams_and_the_next_one_starts_again() {
        let figures = LiveFigureSource::new(Arc::new(PanickingBackend::default()), ProcessClock::start());
        let mut first = figures.subscribe().unwrap();
        assert!(first.snapshots.changed().await.is_err());
        let mut second = figures.subscribe().unwrap();
        second.snapshots.changed().await.unwrap();
        assert!(second.snapshots.borrow().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn streams_are_bounded() {
        let (_, figures) = figures();
        let open: Vec<Subscription> = (0..MAX_STREAMS).map(|_| figures.subscribe().unwrap()).collect();
        let refused = figures.subscribe().err().unwrap();
        assert_eq!((refused.spec().status, refused.retry_after), (503, Some(30)));
        drop(open);
        assert!(figures.subscribe().is_ok());
    }
}
