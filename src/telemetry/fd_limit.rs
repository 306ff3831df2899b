//! File descriptors: each connection takes one, and the system limits their number. The soft limit is raised at
//! startup, a limit that is too low is logged, and exhaustion is never counted against a provider.

use crate::config::settings::Settings;
use crate::telemetry::throttle::ThrottledLog;
use pingora_error::Error;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::time::Instant;

/// Number of descriptors for other purposes than connections of clients and requests to providers: the store, open
/// files, listeners, idle connections to providers.
const OTHER_DESCRIPTORS: usize = 1024;

/// Raises the soft limit to the hard limit.
pub fn raise_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }) {
        tracing::warn!(name: "descriptors_not_raised", why = %error);
    }
}

/// Logs a warning if the configuration may need more descriptors than allowed.
pub fn log_if_insufficient(settings: &Settings) {
    if let Some(why) = insufficient_reason(settings, getrlimit(Resource::Nofile).current) {
        tracing::warn!(name: "descriptor_limit_low", why);
    }
}

/// Returns the hard limit on open file descriptors; `None` if there is no limit.
#[must_use]
pub fn max_descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).maximum
}

/// Returns a sentence with the reason and the remedy if `limit`, the maximum number of open descriptors, is too low for
/// the configuration; `None` if it is sufficient. A `limit` of `None` means no limit.
#[must_use]
pub fn insufficient_reason(settings: &Settings, limit: Option<u64>) -> Option<String> {
    let limit = limit.filter(|limit| *limit < needed_descriptors(settings))?;
    Some(format!(
        "This configuration may need {}, and the process may have {limit} here: beyond that, clients wait and \
         providers are not reached. Raise it (LimitNOFILE= under systemd, else ulimit -Hn), or lower \
         limits.connections.",
        required_descriptors_summary(settings)
    ))
}

/// Returns the number of descriptors that the configuration may need, with its parts.
#[must_use]
pub fn required_descriptors_summary(settings: &Settings) -> String {
    format!(
        "{} descriptors: limits.connections = {}, overload.requests = {}, batches.concurrency = {}, and {OTHER_DESCRIPTORS} others",
        needed_descriptors(settings),
        settings.limits.connections,
        settings.overload.requests,
        settings.batches.concurrency,
    )
}

/// Returns the number of descriptors that are needed: one for each client connection, and one for each request in
/// flight at a provider.
fn needed_descriptors(settings: &Settings) -> u64 {
    let parts = [
        settings.limits.connections,
        settings.overload.requests,
        settings.batches.concurrency,
        OTHER_DESCRIPTORS,
    ];
    parts.iter().fold(0, |sum: u64, part| sum.saturating_add(u64::try_from(*part).unwrap_or(u64::MAX)))
}

/// Returns true if the error means that the process or the system has no free descriptor; then also logs the error.
pub fn log_if_fd_exhaustion(error: &io::Error) -> bool {
    static THROTTLED_LOG: ThrottledLog = ThrottledLog::new();
    let codes = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(rustix::io::Errno::raw_os_error);
    let gone = error.raw_os_error().is_some_and(|code| codes.contains(&code));
    if gone {
        THROTTLED_LOG.log(Instant::now(), |times| {
            tracing::error!(name: "connect_failed", reason = %error, times);
        });
    }
    gone
}

/// Returns true if an error of Pingora's connector has the cause that no descriptor is free; then also logs the error.
pub fn log_if_pingora_fd_exhaustion(error: &Error) -> bool {
    error.root_cause().downcast_ref::<io::Error>().is_some_and(log_if_fd_exhaustion)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::config::ConfigSource;
    use pingora_error::ErrorType;

    #[test]
    fn too_few_descriptors_are_reported_with_the_setting() {
        let settings = ConfigSource::Demo.load().unwrap().settings;
        let wanted = needed_descriptors(&settings);
        assert_eq!(insufficient_reason(&settings, Some(wanted)), None);
        assert_eq!(insufficient_reason(&settings, None), None, "as many as it likes");
        let why = insufficient_reason(&settings, Some(wanted - 1)).unwrap();
        for word in ["LimitNOFILE", "ulimit", "limits.connections", &wanted.to_string()] {
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn exhausted_descriptors_are_recognised_at_any_error_depth() {
        let gone = || io::Error::from_raw_os_error(24);
        assert!(log_if_fd_exhaustion(&gone()) && log_if_fd_exhaustion(&io::Error::from_raw_os_error(23)));
        assert!(!log_if_fd_exhaustion(&io::Error::from_raw_os_error(111)));
        let inner = Error::because(ErrorType::SocketError, "failed to create socket", gone());
        let outer = Error::because(ErrorType::InternalError, "Fail to connect", inner);
        assert!(log_if_pingora_fd_exhaustion(&outer));
        assert!(!log_if_pingora_fd_exhaustion(&Error::explain(ErrorType::ConnectRefused, "refused")));
    }
}
