//! Tests of the order in which permits are granted, and of many threads at the same time: no permit is lost.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

use super::*;

fn expect_permit(queued: AcquireOutcome) -> ConcurrencyPermit {
    match queued {
        AcquireOutcome::Acquired(permit) => permit,
        AcquireOutcome::Queued(_) => panic!("no permit"),
    }
}

fn waiter(queued: AcquireOutcome) -> PermitWaiter {
    match queued {
        AcquireOutcome::Acquired(_) => panic!("a permit"),
        AcquireOutcome::Queued(waiter) => waiter,
    }
}

fn try_receive(waiter: &mut PermitWaiter) -> Option<ConcurrencyPermit> {
    waiter.receiver.try_recv().ok()
}

#[test]
fn batch_work_leaves_a_fifth_and_is_served_in_order() {
    let concurrency = ConcurrencyLimit::new(Some(5), 1);
    let mut permits: Vec<ConcurrencyPermit> =
        (0..4).map(|_| expect_permit(concurrency.acquire_or_queue(&"a".into(), None))).collect();
    let mut waiters: Vec<PermitWaiter> =
        (0..3).map(|_| waiter(concurrency.acquire_or_queue(&"a".into(), None))).collect();
    let urgent = concurrency.try_acquire().unwrap();
    assert!(
        concurrency.try_acquire().is_none() && concurrency.preempt_batch_line(&"a".into()).is_none(),
        "there is no batch line"
    );
    drop(urgent);
    assert!(
        waiters.iter_mut().all(|waiter| try_receive(waiter).is_none()),
        "the fifth permit is not for batch work"
    );
    permits.pop();
    let first = try_receive(&mut waiters[0]).unwrap();
    assert!(try_receive(&mut waiters[1]).is_none());
    drop(waiters.remove(1));
    drop(first);
    assert!(try_receive(&mut waiters[1]).is_some(), "a waiter that left the queue is skipped");
    drop((permits, waiters));
    assert_eq!((concurrency.in_flight(), concurrency.waiter_count()), (0, 0));
}

#[test]
fn the_youngest_line_is_preempted_for_the_waiting_request() {
    let concurrency = ConcurrencyLimit::new(Some(2), 1);
    let signals: Vec<CancellationToken> = (0..4).map(|_| CancellationToken::default()).collect();
    let old = expect_permit(concurrency.acquire_or_queue(&"a".into(), Some(signals[0].clone())));
    let young = expect_permit(concurrency.acquire_or_queue(&"a".into(), Some(signals[1].clone())));
    let mut later = waiter(concurrency.acquire_or_queue(&"a".into(), Some(signals[2].clone())));
    let mut first = concurrency.preempt_batch_line(&"a".into()).unwrap();
    let mut second = concurrency.preempt_batch_line(&"a".into()).unwrap();
    assert!(concurrency.preempt_batch_line(&"a".into()).is_none(), "all lines were asked");
    assert!(signals[0].is_cancelled() && signals[1].is_cancelled() && !signals[2].is_cancelled());
    drop(young);
    assert!(concurrency.try_acquire().is_none(), "the permit was never free");
    let held = try_receive(&mut first).unwrap();
    // The second request ends its wait, so the permit of the line goes to the next waiter in the queue.
    drop(second.receiver.try_recv());
    drop(second);
    drop(old);
    let permit = try_receive(&mut later).unwrap();
    drop((held, permit, first, later));
    assert_eq!((concurrency.in_flight(), concurrency.queues.lock().batch_lines.len()), (0, 0));
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
    drop(try_receive(&mut next).unwrap());
    assert_eq!(concurrency.in_flight(), 0);
}

#[test]
fn queued_requests_are_served_by_account_before_all_batch_lines() {
    let concurrency = ConcurrencyLimit::new(Some(1), 1);
    let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
    let permit = concurrency.try_acquire().unwrap();
    let mut batch = waiter(concurrency.acquire_or_queue(&"a".into(), None));
    let mut greedy_waiters: Vec<PermitWaiter> =
        (0..3).map(|_| concurrency.enqueue(&greedy, 3).unwrap()).collect();
    assert!(concurrency.enqueue(&greedy, 3).is_none(), "three wait already");
    let mut late = concurrency.enqueue(&modest, 3).unwrap();
    assert!(
        greedy_waiters[2].receiver.try_recv().is_err(),
        "the youngest waiter of the greedy account was displaced"
    );
    assert_eq!(concurrency.waiter_count(), 4);
    drop(permit);
    let first = try_receive(&mut greedy_waiters[0]).unwrap();
    drop(first);
    let second = try_receive(&mut late).unwrap();
    assert!(try_receive(&mut greedy_waiters[1]).is_none() && try_receive(&mut batch).is_none());
    drop(greedy_waiters);
    drop(second);
    assert!(try_receive(&mut batch).is_some());
    assert_eq!((concurrency.in_flight(), concurrency.waiter_count()), (0, 0));
}

#[test]
fn without_a_limit_only_batch_lines_are_bounded() {
    let concurrency = ConcurrencyLimit::new(None, 2);
    let line =
        |account: &str| concurrency.acquire_or_queue(&account.into(), Some(CancellationToken::default()));
    let (one, _two) = (expect_permit(line("a")), expect_permit(line("a")));
    let (mut third, mut fourth, mut other) = (waiter(line("a")), waiter(line("a")), waiter(line("b")));
    // Without a limit, a request does not wait behind batch lines that wait.
    assert!(concurrency.try_acquire().is_some());
    drop(expect_permit(concurrency.acquire_or_queue(&"a".into(), None)));
    drop(one);
    let third = try_receive(&mut third).unwrap();
    assert!(try_receive(&mut fourth).is_none() && try_receive(&mut other).is_none());
    drop(third);
    let _other = try_receive(&mut other).unwrap();
    assert!(try_receive(&mut fourth).is_none());
}

#[test]
fn batch_lines_and_requests_share_slots_by_account() {
    let concurrency = ConcurrencyLimit::new(Some(1), 1);
    let (greedy, modest): (Arc<str>, Arc<str>) = ("greedy".into(), "modest".into());
    let permit = expect_permit(concurrency.acquire_or_queue(&greedy, None));
    let signal = || Some(CancellationToken::default());
    let mut theirs: Vec<PermitWaiter> = (0..150)
        .map(|number| {
            waiter(concurrency.acquire_or_queue(&greedy, if number % 2 == 0 { None } else { signal() }))
        })
        .collect();
    let mut line = waiter(concurrency.acquire_or_queue(&modest, signal()));
    let mut request = waiter(concurrency.acquire_or_queue(&modest, None));
    assert_eq!(concurrency.waiter_count(), 152);
    let mut held = permit;
    let mut order = String::new();
    for _ in 0..4 {
        drop(held);
        let next =
            theirs.iter_mut().map(|waiter| ('g', waiter)).chain([('l', &mut line), ('r', &mut request)]);
        let (who, permit) =
            next.filter_map(|(who, waiter)| Some((who, try_receive(waiter)?))).next().unwrap();
        order.push(who);
        held = permit;
    }
    assert_eq!(order, "glgr", "150 of another account delay it by one each");
    drop((theirs, held));
    assert_eq!((concurrency.in_flight(), concurrency.waiter_count()), (0, 0));
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
                                        .preempt_batch_line(&account)
                                        .or_else(|| concurrency.enqueue(&account, 4))
                                    {
                                        Some(mut waiter) => waiter.acquire().await,
                                        None => None,
                                    }
                                }
                            };
                            assert!(concurrency.in_flight() <= 5);
                            tokio::task::yield_now().await;
                            drop(permit);
                            continue;
                        }
                        let signal = CancellationToken::default();
                        let permit = match concurrency
                            .acquire_or_queue(&account, (task % 4 == 1).then(|| signal.clone()))
                        {
                            AcquireOutcome::Acquired(permit) => Some(permit),
                            AcquireOutcome::Queued(waiter) if round % 7 == 0 => {
                                drop(waiter);
                                None
                            }
                            AcquireOutcome::Queued(mut waiter) => waiter.acquire().await,
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
    assert_eq!((concurrency.in_flight(), concurrency.waiter_count()), (0, 0));
}
