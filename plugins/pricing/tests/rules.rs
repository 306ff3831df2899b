//! Pricing rules that the published vectors do not cover, and limits of the number range.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use penstock_core::{MicroCredits, ModelKind, NanoKwh, TokenUsage};
use penstock_pricing::{
    BilledWork, BillingMode, DEFAULT_EUR_PER_CREDIT, PayingWallet, RequestCharge, Tariff, compute_charge,
};
use proptest::prelude::*;
use rust_decimal::Decimal;

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

fn tokens(input: u64, cached: u64, output: u64) -> BilledWork {
    BilledWork::Tokens(TokenUsage { input, cached, output, ..TokenUsage::default() })
}

fn chat() -> Tariff {
    Tariff {
        input: Some(decimal("0.05")),
        cached_input: Some(decimal("0.01")),
        output: Some(decimal("0.15")),
        ..Tariff::default()
    }
}

fn energy() -> Tariff {
    Tariff { eur_per_kwh: decimal("5"), billing: BillingMode::Energy, ..Tariff::default() }
}

fn with_credits(tariff: &Tariff, sold: &BilledWork) -> RequestCharge {
    compute_charge(tariff, sold, PayingWallet::Credits, false, Decimal::ZERO, DEFAULT_EUR_PER_CREDIT)
}

#[test]
fn a_batch_costs_half_in_credits_and_in_energy() {
    let kwh = decimal("0.000496139054");
    let at = |tariff: &Tariff, wallet, batch| {
        compute_charge(tariff, &tokens(1200, 0, 800), wallet, batch, kwh, DEFAULT_EUR_PER_CREDIT)
    };
    let (once, batch) = (at(&chat(), PayingWallet::Credits, false), at(&chat(), PayingWallet::Credits, true));
    assert_eq!((once.credits, batch.credits), (MicroCredits(18_000), MicroCredits(9_000)));
    let (once, batch) =
        (at(&energy(), PayingWallet::Energy, false), at(&energy(), PayingWallet::Energy, true));
    assert_eq!((once.energy_eur, batch.energy_eur), (decimal("0.00248070"), decimal("0.00124035")));
    assert_eq!((once.energy, batch.energy), (NanoKwh(496_139), NanoKwh(248_070)));
    assert_eq!(batch.credits, MicroCredits(0));
}

#[test]
fn the_energy_balance_pays_only_models_billed_in_energy() {
    let ours = compute_charge(
        &chat(),
        &tokens(500, 0, 300),
        PayingWallet::Energy,
        false,
        decimal("1"),
        DEFAULT_EUR_PER_CREDIT,
    );
    assert_eq!(
        (ours.paid_with, ours.credits, ours.energy),
        (PayingWallet::Credits, MicroCredits(7000), NanoKwh(0))
    );
    assert_eq!(ours.energy_eur, decimal("0.2"));
}

#[test]
fn an_empty_energy_wallet_leaves_the_unit_price_or_else_the_energys() {
    let kwh = decimal("0.001");
    let at = |tariff: &Tariff| {
        compute_charge(
            tariff,
            &tokens(500, 0, 300),
            PayingWallet::Credits,
            false,
            kwh,
            DEFAULT_EUR_PER_CREDIT,
        )
    };
    let by_energy = at(&energy());
    assert_eq!((by_energy.credits, by_energy.energy), (MicroCredits(500_000), NanoKwh(0)));
    assert_eq!((by_energy.energy_eur, by_energy.eur), (decimal("0.005"), decimal("0.005")));
    let by_unit = at(&Tariff { billing: BillingMode::Energy, ..chat() });
    assert_eq!(by_unit.credits, MicroCredits(7000));
}

#[test]
fn images_and_minutes_have_their_own_prices() {
    let tariff = Tariff { image: Some(decimal("0.03")), minute: Some(decimal("0.004")), ..Tariff::default() };
    assert_eq!(with_credits(&tariff, &BilledWork::Images(4)).credits, MicroCredits(12_000_000));
    assert_eq!(with_credits(&tariff, &BilledWork::Audio(decimal("90.5"))).credits, MicroCredits(603_333));
    assert_eq!(with_credits(&tariff, &tokens(1, 0, 1)).credits, MicroCredits(0), "no price for tokens");
}

#[test]
fn cached_tokens_cost_as_fresh_ones_where_no_price_is_set_and_never_exceed_the_input() {
    let tariff = Tariff { cached_input: None, ..chat() };
    assert_eq!(with_credits(&tariff, &tokens(500, 400, 0)), with_credits(&tariff, &tokens(500, 0, 0)));
    assert_eq!(with_credits(&chat(), &tokens(500, 900, 0)), with_credits(&chat(), &tokens(500, 500, 0)));
}

#[test]
fn ties_go_to_the_even_digit_once_per_request() {
    let tariff = |price: &str| Tariff { input: Some(decimal(price)), ..Tariff::default() };
    for (price, credits) in [("0.005", 0), ("0.015", 2), ("0.025", 2), ("0.0250001", 3), ("0.035", 4)] {
        assert_eq!(with_credits(&tariff(price), &tokens(1, 0, 0)).credits, MicroCredits(credits), "{price}");
    }
    let both = Tariff { output: Some(decimal("0.005")), ..tariff("0.005") };
    assert_eq!(
        with_credits(&both, &tokens(1, 0, 1)).credits,
        MicroCredits(1),
        "the sum is rounded, not its parts"
    );
}

#[test]
fn a_charge_that_fits_nothing_is_the_greatest_and_not_zero() {
    let dear = Tariff { input: Some(Decimal::MAX), eur_per_kwh: Decimal::MAX, ..energy() };
    let at = |wallet| {
        compute_charge(
            &dear,
            &tokens(u64::MAX, 0, u64::MAX),
            wallet,
            false,
            Decimal::MAX,
            DEFAULT_EUR_PER_CREDIT,
        )
    };
    assert_eq!(at(PayingWallet::Credits).credits, MicroCredits(i64::MAX));
    assert_eq!(at(PayingWallet::Energy).energy, NanoKwh(i64::MAX));
    let no_rate =
        compute_charge(&chat(), &tokens(1, 0, 1), PayingWallet::Credits, false, Decimal::ZERO, Decimal::ZERO);
    assert_eq!(no_rate.credits, MicroCredits(i64::MAX));
}

#[test]
fn nothing_is_ever_paid_out() {
    let negative = Tariff { input: Some(decimal("-1")), minute: Some(decimal("-1")), ..chat() };
    assert_eq!(with_credits(&negative, &tokens(1000, 0, 0)).credits, MicroCredits(0));
    assert_eq!(with_credits(&negative, &BilledWork::Audio(decimal("60"))).credits, MicroCredits(0));
    let ours = compute_charge(
        &energy(),
        &tokens(1, 0, 1),
        PayingWallet::Energy,
        false,
        decimal("-1"),
        DEFAULT_EUR_PER_CREDIT,
    );
    assert_eq!((ours.energy, ours.eur), (NanoKwh(0), Decimal::ZERO));
    assert_eq!(RequestCharge::zero(PayingWallet::Energy).eur, Decimal::ZERO);
}

#[test]
fn a_tariff_says_which_price_it_lacks() {
    let none = Tariff::default();
    let lacks = [
        ModelKind::Chat,
        ModelKind::Embedding,
        ModelKind::Rerank,
        ModelKind::Image,
        ModelKind::Transcription,
    ]
    .map(|kind| none.missing_price(kind).unwrap());
    assert_eq!(lacks, ["input", "input", "input", "image", "minute"]);
    assert_eq!(Tariff { output: None, ..chat() }.missing_price(ModelKind::Chat), Some("output"));
    assert_eq!(
        (chat().missing_price(ModelKind::Chat), energy().missing_price(ModelKind::Image)),
        (None, None)
    );
    assert_eq!((BillingMode::Credits.name(), BillingMode::Energy.name()), ("credits", "energy"));
}

proptest! {
    #[test]
    fn any_charge_stands_and_more_work_never_costs_less(
        input in any::<u64>(), cached in any::<u64>(), output in any::<u64>(), more in any::<u64>(),
        price in 0_i64..i64::MAX, scale in 0_u32..12, kwh in 0_i64..i64::MAX, batch in any::<bool>(),
    ) {
        let price = Some(Decimal::new(price, scale));
        let tariff = Tariff { input: price, output: price, ..Tariff::default() };
        let kwh = Decimal::new(kwh, 12);
        let cost = |output| {
            let sold = tokens(input, cached, output);
            compute_charge(&tariff, &sold, PayingWallet::Credits, batch, kwh, DEFAULT_EUR_PER_CREDIT)
        };
        let (less, greater) = (cost(output), cost(output.saturating_add(more)));
        prop_assert!(less.credits >= MicroCredits(0) && less.credits <= greater.credits);
    }

    #[test]
    fn credits_are_the_nearest_of_the_exact_integer_sum(
        input in 0_u64..10_000_000, output in 0_u64..10_000_000, p in 0_u32..1_000_000, q in 0_u32..1_000_000,
    ) {
        // Prices in units of 1e-4 EUR per million tokens. One unit is 1e-10 EUR, or 1e-8 credits, per token.
        let tariff = Tariff {
            input: Some(Decimal::new(p.into(), 4)),
            output: Some(Decimal::new(q.into(), 4)),
            ..Tariff::default()
        };
        let exact = i128::from(input) * i128::from(p) + i128::from(output) * i128::from(q);
        let (whole, rest) = (exact / 100, exact % 100);
        let up = rest > 50 || (rest == 50 && whole % 2 == 1);
        let ours = with_credits(&tariff, &tokens(input, 0, output)).credits;
        prop_assert_eq!(i128::from(ours.0), whole + i128::from(up));
    }
}
