//! A connection at work on a thread, which may go on on another between two requests.

use super::load::{Counted, Seats, calmest};
use crate::clock;
use std::cell::{Cell, OnceCell};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    /// The thread's place among all.
    static OWN: OnceCell<(Seats, usize)> = const { OnceCell::new() };
    static AT_WORK: Cell<AtWork> = const { Cell::new(AtWork::Other) };
}

/// What this thread is at.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AtWork {
    /// No connection.
    Other,
    Connection,
    /// A connection that wants to go on elsewhere.
    Leaving,
}

/// This thread is one of those that serve.
pub(super) fn settle(seats: &Seats, own: usize) {
    OWN.with(|place| place.set((seats.clone(), own)).ok());
}

/// A connection leaves its thread here, if that has more to do than others: it goes on on another one, where its
/// socket has to be taken up anew. Whether it did. To be awaited by the connection's own task.
pub async fn ease() -> bool {
    let crowded = |(seats, own): &(Seats, usize)| seats.get(*own).is_some_and(|seat| seat.load.let_go());
    let connection = AT_WORK.get() == AtWork::Connection;
    if !connection || !OWN.with(|own| own.get().is_some_and(crowded)) {
        return false;
    }
    let mut left = false;
    poll_fn(|context| {
        if std::mem::replace(&mut left, true) {
            return Poll::Ready(());
        }
        AT_WORK.set(AtWork::Leaving);
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
    true
}

/// A connection, the clock held for it whenever it goes on.
struct Task<F> {
    // Boxed: a future that is handed another keeps it twice. It moves as it is.
    connection: Option<Pin<Box<F>>>,
    counted: Counted,
}

/// Lets a connection run on a thread.
pub(super) fn run<F>(seats: &Seats, at: usize, connection: Pin<Box<F>>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let Some(seat) = seats.get(at) else { return };
    seat.handle.spawn(Task { connection: Some(connection), counted: Counted::new(seats, at) });
}

impl<F> Future for Task<F>
where
    F: Future<Output = ()> + Send + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let task = &mut *self;
        let Some(connection) = &mut task.connection else { return Poll::Ready(()) };
        let at_work = Resting(AT_WORK.replace(AtWork::Connection));
        let polled = clock::hold(|| connection.as_mut().poll(context));
        let leaving = AT_WORK.get() == AtWork::Leaving;
        drop(at_work);
        match task.connection.take_if(|_| leaving && polled.is_pending()) {
            Some(connection) => {
                let Counted { seats, at } = &task.counted;
                run(seats, calmest(seats, *at), connection);
                Poll::Ready(())
            }
            None => polled,
        }
    }
}

/// Tells again what the thread was at before, also when the connection panics.
struct Resting(AtWork);

impl Drop for Resting {
    fn drop(&mut self) {
        AT_WORK.set(self.0);
    }
}
