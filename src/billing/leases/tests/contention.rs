//! Members that want the same pool at the same time.

use super::*;

#[tokio::test]
async fn the_last_credits_are_spent_by_members_of_which_none_has_enough() {
    let gateways = Gateways::new();
    let members = ["1", "2", "3"].map(|name| gateways.open(name));
    grant(&members[0].1, 330).await;
    // Each member leases a third of the balance, and a request needs more than that.
    for (_, ledger) in &members {
        ledger.ensure_funded("acme", need(110), deadline()).await.unwrap();
    }
    let (price, mut served) = (115, 0);
    for second in 0..200 {
        for (index, (member, ledger)) in members.iter().enumerate() {
            let name = format!("r{second}-{index}");
            if let Ok(hold) = ledger.reserve_prepaid("acme", &"key".into(), &name, need(price)).await {
                let ticket = hold.settle(charge(2));
                assert!(ledger.wait_durable(ticket).await);
                served += 1;
            }
            return_unused(member, ledger);
            let leases =
                members.iter().map(|(member, ledger)| (member.member_number(), ledger.leases().unwrap()));
            let others = leases.filter(|(incarnation, _)| *incarnation != member.member_number());
            let wanted = others.flat_map(|(incarnation, leases)| {
                leases.pools_wanted_from_peers().into_iter().map(move |pool| (incarnation, pool))
            });
            ledger.leases().unwrap().set_pools_wanted_by_peers(wanted);
            // Ends the short time for which the member treats the pool as empty without reading it.
            let mut pools = ledger.leases().unwrap().pools.lock();
            pools.values_mut().for_each(LeaseState::forget_empty_pool);
        }
    }
    let left = members[0].1.current_balance("acme").await.unwrap().credits.amount;
    assert_eq!(left, 330 - 2 * served);
    assert!(left < price, "{left} are left");
}
