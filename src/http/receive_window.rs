//! Long bodies that are read at the same time from the streams of one
//! connection. Its window is as wide as they need: what nobody reads yet, or
//! ever will, is not let in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Bodies of a connection that are read now.
#[derive(Debug, Default)]
pub struct Bodies {
    read: AtomicUsize,
    news: Notify,
}

/// The body of one stream.
#[derive(Debug)]
pub struct Body {
    bodies: Arc<Bodies>,
    read: bool,
}

impl Bodies {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.read.load(Ordering::Acquire)
    }

    /// Ends when there are more or less of them than so many.
    pub async fn other_than(&self, count: usize) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if self.count() != count {
                return;
            }
            news.await;
        }
    }
}

impl Body {
    /// One that nobody reads yet.
    #[must_use]
    pub fn new(bodies: &Arc<Bodies>) -> Self {
        Self { bodies: bodies.clone(), read: false }
    }

    /// Whether it is read from now on.
    pub fn reads(&mut self, read: bool) {
        if self.read == read {
            return;
        }
        self.read = read;
        match read {
            true => self.bodies.read.fetch_add(1, Ordering::AcqRel),
            false => self.bodies.read.fetch_sub(1, Ordering::AcqRel),
        };
        self.bodies.news.notify_waiters();
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        self.reads(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn bodies_are_counted_while_they_are_read() {
        let bodies = Arc::new(Bodies::default());
        let (mut one, mut two) = (Body::new(&bodies), Body::new(&bodies));
        one.reads(true);
        one.reads(true);
        two.reads(true);
        bodies.other_than(0).await;
        assert_eq!(bodies.count(), 2);
        two.reads(false);
        let fewer = tokio::spawn({
            let bodies = bodies.clone();
            async move { bodies.other_than(1).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        assert!(fewer.await.is_ok());
        assert_eq!(bodies.count(), 0);
    }
}
