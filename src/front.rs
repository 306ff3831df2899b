//! The front door: reads a request head within its deadline, lets one exchange
//! run, and hands the connection back if it can serve another.

use crate::exchange;
use crate::house::House;
use async_trait::async_trait;
use pingora_core::apps::{HttpPersistentSettings, HttpServerApp, HttpServerOptions, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::http::v2::server::{H2Options, default_h2_options};
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// Windows of a downstream HTTP/2 connection: with the default of 64 KiB a long
/// upload waits for a round trip at every window.
const H2_STREAM_WINDOW: u32 = 4 << 20;
const H2_CONNECTION_WINDOW: u32 = 16 << 20;
/// The biggest frame a client may send.
const H2_FRAME: u32 = 64 << 10;

/// What is read of a body that was refused, so that its client hears why …
const UNWANTED: usize = 64 << 20;
/// … how long that may take …
const PARTING: Duration = Duration::from_secs(10);
/// … and how long nothing may come meanwhile.
const SILENCE: Duration = Duration::from_secs(2);
/// How long an idle connection may still begin a request after the house started to drain.
pub const PARTING_IDLE: Duration = Duration::from_secs(1);
/// Bytes of it that are read at once.
const PIECE: usize = 16 << 10;

/// What Pingora hands connections to.
pub struct Front {
    house: Arc<House>,
    options: HttpServerOptions,
}

impl Front {
    /// A front door of this house.
    #[must_use]
    pub fn new(house: Arc<House>) -> Self {
        let mut options = HttpServerOptions::default();
        // Without HTTP/2 in clear text: its preface is awaited without a deadline.
        options.h2c = false;
        options.h2_idle_timeout = Some(house.live().settings.limits.keep_alive);
        Self { house, options }
    }

    /// How long a TLS handshake may take: as long as the head of a request.
    #[must_use]
    pub fn handshake(&self) -> Duration {
        self.house.live().settings.limits.request_head
    }

    /// Reads the head of the next request; `None` ends the connection.
    async fn head(&self, session: &mut ServerSession, shutdown: &ShutdownWatch) -> Option<()> {
        let live = self.house.live();
        let reused = session.take_connection_user_context().is_some();
        let deadline =
            if reused { live.settings.limits.keep_alive } else { live.settings.limits.request_head };
        drop(live);
        let mut shutdown = shutdown.clone();
        let read = tokio::select! {
            biased;
            read = timeout(deadline, session.read_request()) => read.ok()?.ok()?,
            // An idle connection ends with the house, a moment later; one that has begun is served.
            () = stopped(&mut shutdown), if reused => return None,
        };
        read.then_some(())
    }
}

/// Ends a connection whose client still sends a body that nobody wants. A connection that is closed over unread
/// bytes is reset, and a reset takes the refusal with it before the client has read it: so the answer is ended
/// first, and what comes is read and thrown away for a while.
async fn part(session: ServerSession) {
    let ServerSession::H1(mut session) = session else { return };
    session.finish_body().await.ok();
    let mut stream = session.into_inner();
    if AsyncWriteExt::shutdown(&mut stream).await.is_err() {
        return;
    }
    let unwanted = async {
        let mut piece = vec![0; PIECE];
        let mut left = UNWANTED;
        while left > 0
            && let Ok(Ok(read @ 1..)) = timeout(SILENCE, stream.read(&mut piece)).await
        {
            left = left.saturating_sub(read);
        }
    };
    timeout(PARTING, unwanted).await.ok();
}

/// Ends a moment after the house starts to drain: a request that its client was just sending is still answered,
/// and told that it is the last of its connection.
async fn stopped(shutdown: &mut ShutdownWatch) {
    if shutdown.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(PARTING_IDLE).await;
}

#[async_trait]
impl HttpServerApp for Front {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        self.head(&mut session, shutdown).await?;
        let open = self.house.open_exchange();
        let limits = self.house.live().settings.limits.clone();
        session.set_write_timeout(Some(limits.client_write));
        session.set_read_timeout(Some(limits.body_idle));
        let draining = *shutdown.borrow();
        let keep = (!draining).then(|| limits.keep_alive.as_secs().max(1));
        let reusable = exchange::run(&self.house, &mut session, keep).await;
        if !reusable {
            session.set_keepalive(None);
        }
        session.set_total_drain_timeout(Some(Duration::from_secs(5)));
        if session.is_http2() {
            session.finish().await.ok();
            return None;
        }
        if !reusable && !session.is_body_done() {
            drop(open);
            part(session).await;
            return None;
        }
        let mut settings = HttpPersistentSettings::for_session(&session);
        settings.set_user_context(Box::new(()));
        let stream = session.finish().await.ok().flatten()?;
        Some(ReusedHttpStream::from_reusable_stream(stream, settings))
    }

    fn h2_options(&self) -> Option<H2Options> {
        let mut options = default_h2_options();
        options
            .initial_window_size(H2_STREAM_WINDOW)
            .initial_connection_window_size(H2_CONNECTION_WINDOW)
            .max_frame_size(H2_FRAME);
        Some(options)
    }

    fn server_options(&self) -> Option<&HttpServerOptions> {
        Some(&self.options)
    }
}
