//! Seats tried in turn and by many threads: who gets one, in which order, and that none is lost.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

fn placed(queued: AcquireOutcome) -> ConcurrencyPermit {
    match queued {
        AcquireOutcome::Place(permit) => permit,
        AcquireOutcome::Turn(_) => panic!("no seat"),
    }
}

fn waiter(queued: AcquireOutcome) -> PermitWaiter {
    match queued {
        AcquireOutcome::Place(_) => panic!("a seat"),
        AcquireOutcome::Turn(waiter) => waiter,
    }
}

fn came(waiter: &mut PermitWaiter) -> Option<ConcurrencyPermit> {
    waiter.hand.try_recv().ok()
}

#[test]
fn batch_work_leaves_a_fifth_and_is_served_in_order() {
    let concurrency = ConcurrencyLimit::new(Some(5), 1);
    let mut places: Vec<ConcurrencyPermit> =
        (0..4).map(|_| placed(concurrency.acquire_or_queue(&"a".into(), None))).collect();
    let mut turns: Vec<PermitWaiter> =
        (0..3).map(|_| waiter(concurrency.acquire_or_queue(&"a".into(), None))).collect();
    let urgent = concurrency.try_acquire().unwrap();
    assert!(
        concurrency.try_acquire().is_none() && concurrency.enqueue_retry(&"a".into()).is_none(),
        "nobody here is a line"
    );
    drop(urgent);
    assert!(turns.iter_mut().all(|waiter| came(waiter).is_none()), "the fifth seat is not for them");
    places.pop();
    let first = came(&mut turns[0]).unwrap();
    assert!(came(&mut turns[1]).is_none());
    drop(turns.remove(1));
    drop(first);
    assert!(came(&mut turns[1]).is_some(), "who left the queue is passed over");
    drop((places, turns));
    assert_eq!((concurrency.working(), concurrency.waiting()), (0, 0));
}

#[test]
fn the_youngest_line_is_preempted_for_the_waiting_request() {
    let concurrency = ConcurrencyLimit::new(Some(2), 1);
    let signals: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::default()).collect();
    let old = placed(concurrency.acquire_or_queue(&"a".into(), Some(signals[0].clone())));
    let young = placed(concurrency.acquire_or_queue(&"a".into(), Some(signals[1].clone())));
    let mut later = waiter(concurrency.acquire_or_queue(&"a".into(), Some(signals[2].clone())));
    let mut first = concurrency.enqueue_retry(&"a".into()).unwrap();
    let mut second = concurrency.enqueue_retry(&"a".into()).unwrap();
    assert!(concurrency.enqueue_retry(&"a".into()).is_none(), "all were asked");
    assert!(signals[0].is_cancelled() && signals[1].is_cancelled() && !signals[2].is_cancelled());
    drop(young);
    assert!(concurrency.try_acquire().is_none(), "it was never free");
    let held = came(&mut first).unwrap();
    // Who asked gives up: the line's seat goes to the next in the queue.
    drop(second.hand.try_recv());
    drop(second);
    drop(old);
    let permit = came(&mut later).unwrap();
    drop((held, permit, first, later));
    assert_eq!((concurrency.working(), concurrency.queues.lock().seated.len()), (0, 0));
}

#[test]
fn a_permit_for_a_cancelled_waiter_goes_to_the_next_one() {
    let concurrency = ConcurrencyLimit::new(Some(1), 1);
    let permit = concurrency.try_acquire().unwrap();
    let (gone, mut next) = (
        waiter(concurrency.acquire_or_queue(&"a".into(), None)),
        waiter(concurrency.acquire_or_queue(&"a".into(), None)),
    );
    drop(permit);
    drop(gone);
    drop(came(&mut next).unwrap());
    assert_eq!(concurrency.working(), 0);
}

#[test]
fn queued_requests_are_served_by_account_before_all_batch_lines() {
    let concurrency = ConcurrencyLimit::new(Some(1), 1);
    let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
    let permit = concurrency.try_acquire().unwrap();
    let mut batch = waiter(concurrency.acquire_or_queue(&"a".into(), None));
    let mut greedy_turns: Vec<PermitWaiter> =
        (0..3).map(|_| concurrency.enqueue(&greedy, 3).unwrap()).collect();
    assert!(concurrency.enqueue(&greedy, 3).is_none(), "three wait already");
    let mut late = concurrency.enqueue(&modest, 3).unwrap();
    assert!(greedy_turns[2].hand.try_recv().is_err(), "the youngest of the greedy had to go");
    assert_eq!(concurrency.waiting(), 4);
    drop(permit);
    let first = came(&mut greedy_turns[0]).unwrap();
    drop(first);
    let second = came(&mut late).unwrap();
    assert!(came(&mut greedy_turns[1]).is_none() && came(&mut batch).is_none());
    drop(greedy_turns);
    drop(second);
    assert!(came(&mut batch).is_some());
    assert_eq!((concurrency.working(), concurrency.waiting()), (0, 0));
}

#[test]
fn without_a_limit_lines_alone_are_bounded() {
    let concurrency = ConcurrencyLimit::new(None, 2);
    let line =
        |account: &str| concurrency.acquire_or_queue(&account.into(), Some(CancellationToken::default()));
    let (one, _two) = (placed(line("a")), placed(line("a")));
    let (mut third, mut fourth, mut other) = (waiter(line("a")), waiter(line("a")), waiter(line("b")));
    // A request does not wait for lines that wait.
    assert!(concurrency.try_acquire().is_some());
    drop(placed(concurrency.acquire_or_queue(&"a".into(), None)));
    drop(one);
    let third = came(&mut third).unwrap();
    assert!(came(&mut fourth).is_none() && came(&mut other).is_none());
    drop(third);
    let _other = came(&mut other).unwrap();
    assert!(came(&mut fourth).is_none());
}

#[test]
fn batch_lines_and_requests_share_slots_by_account() {
    let concurrency = ConcurrencyLimit::new(Some(1), 1);
    let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
    let permit = placed(concurrency.acquire_or_queue(&greedy, None));
    let signal = || Some(CancellationToken::default());
    let mut theirs: Vec<PermitWaiter> = (0..150)
        .map(|number| {
            waiter(concurrency.acquire_or_queue(&greedy, if number % 2 == 0 { None } else { signal() }))
        })
        .collect();
    let mut line = waiter(concurrency.acquire_or_queue(&modest, signal()));
    let mut request = waiter(concurrency.acquire_or_queue(&modest, None));
    assert_eq!(concurrency.waiting(), 152);
    let mut held = permit;
    let mut order = String::new();
    for _ in 0..4 {
        drop(held);
        let next =
            theirs.iter_mut().map(|waiter| ('g', waiter)).chain([('l', &mut line), ('r', &mut request)]);
        let (who, permit) = next.filter_map(|(who, waiter)| Some((who, came(waiter)?))).next().unwrap();
        order.push(who);
        held = permit;
    }
    assert_eq!(order, "glgr", "150 of another account delay it by one each");
    drop((theirs, held));
    assert_eq!((concurrency.working(), concurrency.waiting()), (0, 0));
}

#[test]
fn many_threads_lose_no_permit_and_leave_no_waiter() {
    let concurrency = ConcurrencyLimit::new(Some(5), 1);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..64)
            .map(|task| {
                let concurrency = concurrency.clone();
                tokio::spawn(async move {
                    for round in 0..300 {
                        let account: Arc<str> = if task % 8 < 4 { "a".into() } else { "b".into() };
                        if task % 4 == 0 {
                            let permit = match concurrency.try_acquire() {
                                Some(permit) => Some(permit),
                                None => {
                                    match concurrency
                                        .enqueue_retry(&account)
                                        .or_else(|| concurrency.enqueue(&account, 4))
                                    {
                                        Some(mut waiter) => waiter.acquire().await,
                                        None => None,
                                    }
                                }
                            };
                            assert!(concurrency.working() <= 5);
                            tokio::task::yield_now().await;
                            drop(permit);
                            continue;
                        }
                        let signal = CancellationToken::default();
                        let permit = match concurrency
                            .acquire_or_queue(&account, (task % 4 == 1).then(|| signal.clone()))
                        {
                            AcquireOutcome::Place(permit) => Some(permit),
                            AcquireOutcome::Turn(waiter) if round % 7 == 0 => {
                                drop(waiter);
                                None
                            }
                            AcquireOutcome::Turn(mut waiter) => waiter.acquire().await,
                        };
                        tokio::task::yield_now().await;
                        drop(permit);
                    }
                })
            })
            .collect();
        let all = async {
            for task in tasks {
                task.await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), all).await.unwrap();
    });
    assert_eq!((concurrency.working(), concurrency.waiting()), (0, 0));
}
