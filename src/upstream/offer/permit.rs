//! Permits for attempts at an offer, and waiters for such permits.

use super::OfferState;
use crate::upstream::concurrency_limit::{ConcurrencyPermit, PermitWaiter};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Permit for one attempt at an offer within its provider's concurrency limit; released on drop.
pub struct OfferPermit {
    pub(super) offer: Arc<OfferState>,
    pub(super) _permit: ConcurrencyPermit,
}

impl OfferPermit {
    /// Returns the offer of the permit.
    #[must_use]
    pub const fn offer(&self) -> &Arc<OfferState> {
        &self.offer
    }
}

impl Drop for OfferPermit {
    fn drop(&mut self) {
        self.offer.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Waiters of one request in the queues of several offers. The request takes the first permit that becomes free. On
/// drop, all waiters leave their queues.
pub struct OfferWaiters(pub(super) Vec<(Arc<OfferState>, PermitWaiter)>);

impl OfferWaiters {
    /// Queues an interactive request of this account at the provider of each of these offers. The queue of a provider,
    /// which all its offers share, has at most `max_waiting` requests. Returns `None` if no provider queues the request.
    pub fn enqueue(
        offers: impl Iterator<Item = Arc<OfferState>>,
        account: &Arc<str>,
        max_waiting: usize,
    ) -> Option<Self> {
        let waiters = offers.filter_map(|offer| {
            let waiter = offer.provider.concurrency.enqueue(account, max_waiting)?;
            Some((offer, waiter))
        });
        let waiters: Vec<_> = waiters.collect();
        (!waiters.is_empty()).then_some(Self(waiters))
    }

    /// Waits for the first permit; `None` if no permit will come. Cancel-safe: the future may be dropped, and the
    /// function called again.
    pub async fn acquire(&mut self) -> Option<OfferPermit> {
        let (offer, permit) = poll_fn(|cx| self.poll(cx)).await?;
        Some(offer.permit(permit))
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<(Arc<OfferState>, ConcurrencyPermit)>> {
        let mut at = 0;
        while let Some((offer, waiter)) = self.0.get_mut(at) {
            match waiter.poll(cx) {
                Poll::Ready(Some(permit)) => return Poll::Ready(Some((offer.clone(), permit))),
                Poll::Ready(None) => drop(self.0.swap_remove(at)),
                Poll::Pending => at += 1,
            }
        }
        if self.0.is_empty() { Poll::Ready(None) } else { Poll::Pending }
    }
}
