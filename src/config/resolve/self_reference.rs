//! Providers whose base URL is a listener of the gateway itself: each request would return as a new request.

use super::super::settings::{BaseUrl, ListenSettings, Provider};
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::url::is_loopback_host;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

impl SettingsResolver<'_> {
    /// Reports providers whose base URL is an address of the gateway. Host names other than `localhost` are not
    /// resolved.
    pub fn check_self_references(
        &mut self,
        listen: Option<&ListenSettings>,
        providers: &[Option<Arc<Provider>>],
        top: &KeyPath<'_>,
    ) {
        let Some(listen) = listen else { return };
        let https = listen.https.as_ref().map(|https| https.address);
        let listeners: Vec<SocketAddr> =
            listen.http.iter().copied().chain(https).chain([listen.admin]).collect();
        for provider in providers.iter().flatten() {
            let own = listeners.iter().find(|listener| is_served_by(&provider.base_url, **listener));
            if let Some(listener) = own {
                let spot = top.child("providers").list_element(provider.index).child("base_url");
                let why =
                    format!("The gateway itself listens on {listener}, so requests would return to it.");
                self.report_mistake(&spot, why, "Write the address of the provider.");
            }
        }
    }
}

/// Returns true if a connection to this URL certainly reaches this listener.
fn is_served_by(base: &BaseUrl, listener: SocketAddr) -> bool {
    let own = listener.ip().to_canonical();
    let host = base.host.parse::<IpAddr>().map(|host| host.to_canonical());
    let is_reached = match host {
        _ if own.is_unspecified() => {
            is_loopback_host(&base.host) || host.is_ok_and(|host| host.is_unspecified())
        }
        Ok(host) => host == own,
        Err(_) => is_loopback_host(&base.host) && own.is_loopback(),
    };
    base.port == listener.port() && is_reached
}
