//! Ledger balances against a simple model: after any sequence of grants, reserves, settles, voids, corrections and
//! crashes, sums are conserved, no request is charged twice, and an ended reserve stays ended.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use penstock_core::TokenUsage;
use penstock_ledger::{
    ChainBalances, CorrectedKind, EntryError, EntryKind, HashChain, LedgerEntry, OpenReserves,
    RequestFootprint, SaleDetails, Wallet, split_lines,
};
use proptest::prelude::*;
use rust_decimal::Decimal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const ACCOUNTS: u8 = 3;

#[derive(Clone, Debug)]
enum Step {
    Grant {
        account: u8,
        energy: bool,
        amount: i64,
    },
    Reserve {
        account: u8,
        energy: bool,
        amount: i64,
    },
    /// Settles the n-th request, open or not.
    Settle {
        nth: usize,
        amount: i64,
    },
    Void {
        nth: usize,
    },
    Correct {
        nth: usize,
        instead: i64,
    },
    /// Kills the process: the next one voids all open reserves.
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let amount = 0..1_000_000_i64;
    prop_oneof![
        2 => (0..ACCOUNTS, any::<bool>(), 1..1_000_000_i64)
            .prop_map(|(account, energy, amount)| Step::Grant { account, energy, amount }),
        4 => (0..ACCOUNTS, any::<bool>(), amount.clone())
            .prop_map(|(account, energy, amount)| Step::Reserve { account, energy, amount }),
        4 => (0..40_usize, amount.clone()).prop_map(|(nth, amount)| Step::Settle { nth, amount }),
        2 => (0..40_usize).prop_map(|nth| Step::Void { nth }),
        1 => (0..40_usize, amount).prop_map(|(nth, instead)| Step::Correct { nth, instead }),
        1 => Just(Step::Crash),
    ]
}

/// Request in the model, with its account, wallet, amount and end.
struct Request {
    account: u8,
    wallet: Wallet,
    held: i64,
    ended: bool,
    /// Entry number and amount of the settle, if the request was settled.
    charge: Option<(u64, i64)>,
}

#[derive(Default)]
struct Model {
    requests: Vec<Request>,
    balance: BTreeMap<(u8, Wallet), i128>,
    granted: BTreeMap<Wallet, i128>,
    charged: BTreeMap<Wallet, i128>,
    corrected: BTreeSet<u64>,
}

fn name(account: u8) -> Arc<str> {
    format!("account-{account}").into()
}

fn wallet(energy: bool) -> Wallet {
    if energy { Wallet::Energy } else { Wallet::Credits }
}

fn sale() -> Box<SaleDetails> {
    Box::new(SaleDetails {
        model: "m".into(),
        provider: "p".into(),
        terms: "t".into(),
        batch: false,
        usage: TokenUsage::default(),
        images: 0,
        seconds: Decimal::ZERO,
        billable_kwh: None,
        eur: Decimal::ZERO,
    })
}

fn settle(request: &Request, nth: usize, amount: i64) -> (Arc<str>, EntryKind) {
    let act = EntryKind::Settle {
        request: format!("r{nth}").into(),
        key: "k".into(),
        wallet: request.wallet,
        amount,
        held: request.held,
        sale: sale(),
        footprint: RequestFootprint::default(),
    };
    (name(request.account), act)
}

fn void(request: &Request, nth: usize) -> (Arc<str>, EntryKind) {
    let act = EntryKind::Void {
        request: format!("r{nth}").into(),
        key: "k".into(),
        wallet: request.wallet,
        held: request.held,
        why: "failed".into(),
        footprint: RequestFootprint::default(),
    };
    (name(request.account), act)
}

struct World {
    books: ChainBalances,
    chain: HashChain,
    text: Vec<u8>,
    model: Model,
}

impl World {
    /// Applies a valid entry to the balances and appends its line to the text.
    fn write(&mut self, account: Arc<str>, act: EntryKind) -> Result<u64, EntryError> {
        let entry = LedgerEntry { seq: self.books.last_seq() + 1, at: 1_000, account, kind: act };
        self.books.apply_entry(&entry)?;
        self.chain.append(&entry, &mut self.text)?;
        Ok(entry.seq)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Grant { account, energy, amount } => {
                let wallet = wallet(energy);
                let act =
                    EntryKind::Grant { id: "g".into(), wallet, amount, note: "".into(), by: "me".into() };
                self.write(name(account), act).unwrap();
                *self.model.balance.entry((account, wallet)).or_default() += i128::from(amount);
                *self.model.granted.entry(wallet).or_default() += i128::from(amount);
            }
            Step::Reserve { account, energy, amount } => {
                let (wallet, nth) = (wallet(energy), self.model.requests.len());
                let act =
                    EntryKind::Reserve { request: format!("r{nth}").into(), key: "k".into(), wallet, amount };
                self.write(name(account), act.clone()).unwrap();
                assert_eq!(self.write(name(account), act), Err(EntryError::AlreadyReserved));
                self.model.requests.push(Request {
                    account,
                    wallet,
                    held: amount,
                    ended: false,
                    charge: None,
                });
            }
            Step::Settle { nth, amount } => self.settle(nth, amount),
            Step::Void { nth } => {
                let Some(request) = self.model.requests.get(nth) else { return };
                let (ended, (account, act)) = (request.ended, void(request, nth));
                assert_eq!(self.write(account, act).is_ok(), !ended);
                self.model.requests[nth].ended = true;
            }
            Step::Correct { nth, instead } => self.correct(nth, instead),
            Step::Crash => {
                // After a crash, the next process has only the text of the ledger.
                let mut open = OpenReserves::default();
                let mut chain = HashChain::default();
                split_lines(&self.text).for_each(|line| open.apply_entry(&chain.verify_next(line).unwrap()));
                let left: Vec<String> = open.iter().map(|(request, _)| request.to_string()).collect();
                for request in left {
                    self.step(Step::Void { nth: request[1..].parse().unwrap() });
                }
            }
        }
    }

    fn settle(&mut self, nth: usize, amount: i64) {
        let Some(request) = self.model.requests.get(nth) else { return };
        let (wallet, owner, ended) = (request.wallet, request.account, request.ended);
        let (account, act) = settle(request, nth, amount);
        let written = self.write(account, act);
        assert_eq!(written.is_ok(), !ended, "settled twice, or not at all");
        let Ok(seq) = written else { return };
        self.model.requests[nth].ended = true;
        self.model.requests[nth].charge = Some((seq, amount));
        *self.model.balance.entry((owner, wallet)).or_default() -= i128::from(amount);
        *self.model.charged.entry(wallet).or_default() += i128::from(amount);
    }

    fn correct(&mut self, nth: usize, instead: i64) {
        let Some(request) = self.model.requests.get(nth) else { return };
        let Some((of, was)) = request.charge else { return };
        let (wallet, owner) = (request.wallet, request.account);
        let act = EntryKind::Correct {
            id: "c".into(),
            of,
            what: CorrectedKind::Settle,
            key: Some("k".into()),
            wallet,
            previous_amount: was,
            new_amount: instead,
            eur: Decimal::ZERO,
            note: "".into(),
            by: "me".into(),
        };
        let written = self.write(name(owner), act);
        assert_eq!(written.is_ok(), self.model.corrected.insert(of), "corrected twice, or not at all");
        if written.is_ok() {
            let back = i128::from(was - instead);
            *self.model.balance.entry((owner, wallet)).or_default() += back;
            *self.model.charged.entry(wallet).or_default() -= back;
        }
    }

    fn check(&self) {
        for wallet in Wallet::ALL {
            let totals = self.books.book_totals(wallet);
            let held: i128 = self.open(wallet).map(|request| i128::from(request.held)).sum();
            assert_eq!(totals.sum(), 0, "the books do not add up: {totals:?}");
            assert_eq!(-totals.issued, self.model.granted.get(&wallet).copied().unwrap_or(0));
            assert_eq!(totals.revenue, self.model.charged.get(&wallet).copied().unwrap_or(0));
            assert_eq!(totals.held, held);
            for account in 0..ACCOUNTS {
                let balance = *self.books.account_balances(&name(account)).wallet(wallet);
                let own: i128 = self
                    .open(wallet)
                    .filter(|request| request.account == account)
                    .map(|request| i128::from(request.held))
                    .sum();
                let should = self.model.balance.get(&(account, wallet)).copied().unwrap_or(0);
                assert_eq!(i128::from(balance.amount), should);
                assert_eq!(i128::from(balance.held), own);
                assert_eq!(balance.available(), balance.amount - balance.held);
            }
        }
    }

    fn open(&self, wallet: Wallet) -> impl Iterator<Item = &Request> {
        self.model.requests.iter().filter(move |request| !request.ended && request.wallet == wallet)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_order_of_steps_equals_the_model(steps in prop::collection::vec(step(), 0..120)) {
        let mut world =
            World { books: ChainBalances::default(), chain: HashChain::default(), text: Vec::new(), model: Model::default() };
        for step in steps {
            world.step(step);
            world.check();
        }
        // The text alone yields the same balances.
        let (mut again, mut chain) = (ChainBalances::default(), HashChain::default());
        for line in split_lines(&world.text) {
            again.apply_entry(&chain.verify_next(line).unwrap()).unwrap();
        }
        prop_assert_eq!(again.balances_by_account(), world.books.balances_by_account());
        prop_assert_eq!(chain, world.chain);
    }
}

#[test]
fn an_end_has_to_be_that_of_its_reserve() {
    let mut books = ChainBalances::default();
    let entry = |seq, account: &str, act| LedgerEntry { seq, at: 5, account: account.into(), kind: act };
    let reserve =
        EntryKind::Reserve { request: "r".into(), key: "k".into(), wallet: Wallet::Credits, amount: 10 };
    books.apply_entry(&entry(1, "a", reserve)).unwrap();
    let end = |key: &str, wallet, held| EntryKind::Void {
        request: "r".into(),
        key: key.into(),
        wallet,
        held,
        why: "failed".into(),
        footprint: RequestFootprint::default(),
    };
    let refused =
        |books: &mut ChainBalances, account, act| books.apply_entry(&entry(2, account, act)).unwrap_err();
    assert_eq!(refused(&mut books, "b", end("k", Wallet::Credits, 10)), EntryError::ReserveMismatch);
    assert_eq!(refused(&mut books, "a", end("j", Wallet::Credits, 10)), EntryError::ReserveMismatch);
    assert_eq!(refused(&mut books, "a", end("k", Wallet::Energy, 10)), EntryError::ReserveMismatch);
    assert_eq!(refused(&mut books, "a", end("k", Wallet::Credits, 9)), EntryError::ReserveMismatch);
    books.apply_entry(&entry(2, "a", end("k", Wallet::Credits, 10))).unwrap();
    assert_eq!(
        books.apply_entry(&entry(3, "a", end("k", Wallet::Credits, 10))),
        Err(EntryError::NotReserved)
    );
}

#[test]
fn an_impossible_entry_changes_nothing() {
    let mut books = ChainBalances::default();
    let grant = |amount| EntryKind::Grant {
        id: "g".into(),
        wallet: Wallet::Credits,
        amount,
        note: "".into(),
        by: "me".into(),
    };
    let entry = |seq, at, act| LedgerEntry { seq, at, account: "a".into(), kind: act };
    assert_eq!(books.apply_entry(&entry(2, 0, grant(1))), Err(EntryError::UnexpectedNumber { expected: 1 }));
    assert_eq!(books.apply_entry(&entry(1, 0, grant(0))), Err(EntryError::InvalidAmount));
    assert_eq!(books.apply_entry(&entry(1, 0, grant(-1))), Err(EntryError::InvalidAmount));
    books.apply_entry(&entry(1, 9, grant(i64::MAX))).unwrap();
    assert_eq!(books.apply_entry(&entry(2, 8, grant(1))), Err(EntryError::TimeDecreased));
    assert_eq!(books.apply_entry(&entry(2, 9, grant(1))), Err(EntryError::Overflow));
    assert_eq!((books.last_seq(), books.account_balances("a").credits.amount), (1, i64::MAX));
}
