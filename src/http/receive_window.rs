//! Receive window of an HTTP/2 connection. Each long body that is being read enlarges the window, up to a maximum;
//! other bodies do not. This module counts the bodies that are being read.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Counter of the bodies of a connection that are being read.
#[derive(Debug, Default)]
pub struct ActiveBodyCounter {
    read: AtomicUsize,
    changed: Notify,
}

/// Guard of the body of one stream, which counts it while it is being read.
#[derive(Debug)]
pub struct ActiveBodyGuard {
    bodies: Arc<ActiveBodyCounter>,
    read: bool,
}

impl ActiveBodyCounter {
    /// Returns the number of bodies being read.
    #[must_use]
    pub fn reading_count(&self) -> usize {
        self.read.load(Ordering::Acquire)
    }

    /// Waits until the number of bodies being read differs from `count`.
    pub async fn wait_for_change(&self, count: usize) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.reading_count() != count {
                return;
            }
            changed.await;
        }
    }
}

impl ActiveBodyGuard {
    /// Creates the guard of a body that is not being read yet.
    #[must_use]
    pub fn new(bodies: &Arc<ActiveBodyCounter>) -> Self {
        Self { bodies: bodies.clone(), read: false }
    }

    /// Marks the body as being read (`true`) or not (`false`).
    pub fn set_reading(&mut self, is_reading: bool) {
        if self.read == is_reading {
            return;
        }
        self.read = is_reading;
        match is_reading {
            true => self.bodies.read.fetch_add(1, Ordering::AcqRel),
            false => self.bodies.read.fetch_sub(1, Ordering::AcqRel),
        };
        self.bodies.changed.notify_waiters();
    }
}

impl Drop for ActiveBodyGuard {
    fn drop(&mut self) {
        self.set_reading(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_counted_while_they_are_read() {
        let bodies = Arc::new(ActiveBodyCounter::default());
        let (mut one, mut two) = (ActiveBodyGuard::new(&bodies), ActiveBodyGuard::new(&bodies));
        one.set_reading(true);
        one.set_reading(true);
        two.set_reading(true);
        bodies.wait_for_change(0).await;
        assert_eq!(bodies.reading_count(), 2);
        two.set_reading(false);
        let fewer = tokio::spawn({
            let bodies = bodies.clone();
            async move { bodies.wait_for_change(1).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        assert!(fewer.await.is_ok());
        assert_eq!(bodies.reading_count(), 0);
    }
}
