//! Listener of the account holders' dashboard. It serves only the dashboard, with one request per connection.

use super::api::{AdminApi, check_head};
use super::pages;
use super::sending::{ListenerPermits, close_connection};
use crate::config::ConfigLoader;
use crate::console::dashboard::DASHBOARD;
use crate::console::{AnswerStream, Console};
use crate::proxy::{GatewayProxy, PlaygroundRequestExecutor};
use crate::server::listener::{BoundListener, serve_app, serve_tls_app};
use crate::state::AppState;
use crate::state::admin_requests::{StorePermitGroup, too_many_requests};
use crate::telemetry::request_id::RequestId;
use async_trait::async_trait;
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Timeout of a request, from the end of its head to the last byte of its response; a download has its own limits.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Serves the dashboard on its sockets until `stop`.
///
/// # Errors
/// Returns one sentence if a socket cannot be served.
pub fn serve(
    sockets: Vec<BoundListener>,
    app: &Arc<AppState>,
    proxy: &GatewayProxy,
    source: &ConfigLoader,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<JoinHandle<()>>, String> {
    let state = Arc::new(DashboardState {
        api: AdminApi {
            app: app.clone(),
            source: source.clone(),
            store_permit_group: StorePermitGroup::Dashboard,
        },
        console: Console::new(app.clone(), &DASHBOARD, Some(PlaygroundRequestExecutor::new(app, proxy))),
        permits: ListenerPermits::default(),
    });
    let has_tls = app.dashboard_tls().is_some();
    let open = |bound| {
        let (listener, stop) = (DashboardListener(state.clone()), stop.clone());
        if has_tls {
            let app = app.clone();
            return serve_tls_app(bound, listener, move || app.dashboard_tls(), stop);
        }
        Ok(serve_app(bound, "dashboard", listener, stop))
    };
    sockets.into_iter().map(open).collect()
}

/// State that all listening sockets of the dashboard share.
struct DashboardState {
    api: AdminApi,
    console: Console,
    permits: ListenerPermits,
}

struct DashboardListener(Arc<DashboardState>);

#[async_trait]
impl HttpServerApp for DashboardListener {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _shutdown: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        let DashboardState { api, console, permits } = &*self.0;
        let connection = permits.read_request_head(&mut session).await?;
        session.set_keepalive(None);
        let permit = permits.admit_request(false);
        let served = api.app.admin_requests.begin();
        let live = api.app.config_snapshot();
        let hosts = (&live.settings.console.hosts, "console.hosts");
        let host = check_head(&live.settings, hosts, session.req_header());
        let host = if permit.is_some() { host } else { Err(too_many_requests()) };
        let id = RequestId::random();
        let answered = timeout(REQUEST_TIMEOUT, async {
            let mut answer = pages::answer_site_page(console, api, host, &mut session).await;
            // The guard ends before the response is sent, so that a slow client does not delay the hand-over of the
            // store.
            drop(served);
            let stream = answer.stream.take();
            if stream.is_none() {
                pages::send_site_page(answer, &mut session, &id).await;
            }
            stream
        });
        if let Ok(Some(AnswerStream::File(file))) = answered.await {
            // A download takes no permit, so that long downloads do not block pages.
            drop((connection, permit));
            file.send(&mut session, &id).await;
        }
        close_connection(session).await;
        None
    }
}
