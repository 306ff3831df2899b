//! Simulated usage of the demo's first week, so that its console has something to show.

use crate::billing::BackdatedCharge;
use crate::state::AppState;
use crate::upstream::config_snapshot::ConfigSnapshot;
use crate::upstream::offer::OfferState;
use crate::upstream::pricing::ChargeContext;
use penstock_core::calendar::{UtcDay, UtcMonth};
use penstock_core::{TokenUsage, WorkDone};
use penstock_pricing::PayingWallet;
use penstock_storage::spend::{SpendAddition, SpendOwner, SpendRecord};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::sync::Arc;
use std::time::Duration;

const HOUR_SECONDS: u64 = 3_600;
/// Length of the simulated usage history, in hours.
const HISTORY_HOURS: u64 = 7 * 24;
/// Requests of the busiest hour of a model.
const MAX_HOURLY_REQUESTS: f64 = 6.0;
/// Generated tokens per second, for the duration of an answer.
const TOKENS_PER_SECOND: u64 = 90;

/// Records a week of simulated charges of an account's key in a ledger without entries; otherwise does nothing.
pub async fn record_demo_history(app: &Arc<AppState>, account: &str, key: &Arc<str>) {
    let charges = charges(&app.config_snapshot(), app.clock.unix_seconds());
    let last = charges.last().map(|charge| charge.at);
    let spent = spent_by(&charges, app.clock.unix_seconds());
    if app.ledger.import_backdated_charges(account, key, charges).await
        && let Some(last) = last
    {
        record_key_usage(app, account, key, spent, last).await;
    }
}

/// Returns the micro-credits of charges in the current day and month.
fn spent_by(charges: &[BackdatedCharge], now: u64) -> SpendRecord {
    let sum = |start: u64| {
        let within = charges.iter().filter(|charge| charge.at >= start);
        within.filter_map(|charge| u64::try_from(charge.settlement.amount).ok()).sum()
    };
    let (day, month) = (UtcDay::from_unix(now), UtcMonth::from_unix(now).first_day());
    SpendRecord { day: sum(day.start()), month: sum(month.start()), at: now }
}

/// Records the time of the key's last use, and the spending of the key and its account, as a request does.
async fn record_key_usage(
    app: &Arc<AppState>,
    account: &str,
    key: &Arc<str>,
    spent: SpendRecord,
    last_used: u64,
) {
    let Some(principal) = app.key_cache.find_principal(key) else { return };
    let owners = [SpendOwner::Key(key.to_string()), SpendOwner::Account(account.to_owned())];
    let rows = owners.map(|owner| SpendAddition::from((owner, spent)));
    let spends = app.stores.spends.clone();
    let written = tokio::task::spawn_blocking(move || spends.add(&rows)).await;
    if !matches!(written, Ok(Ok(()))) {
        return;
    }
    let now = app.clock.calendar_now();
    principal.limiter().replace_written_spend(spent, now);
    if let Some(account) = app.key_cache.account(account) {
        account.limiter.replace_written_spend(spent, now);
    }
    principal.record_use(last_used);
}

/// Returns charges of every chat model in ascending order of their times. Most of them are in the daytime of working
/// days. The charges of an hour are always the same.
fn charges(config: &ConfigSnapshot, now: u64) -> Vec<BackdatedCharge> {
    let mut all = Vec::new();
    for hour in (now / HOUR_SECONDS).saturating_sub(HISTORY_HOURS)..now / HOUR_SECONDS {
        let mut rng = StdRng::seed_from_u64(hour);
        let mut charges: Vec<BackdatedCharge> = Vec::new();
        for model in config.models().filter(|model| model.model.card.kind.generates_tokens()) {
            let offers: Vec<_> = model.offers.iter().filter_map(|index| config.offers.get(*index)).collect();
            let expected = (MAX_HOURLY_REQUESTS * load_at(hour)).round() as u64;
            for _ in 0..rng.random_range(expected / 2..=expected) {
                let Some(offer) = offers.get(rng.random_range(0..offers.len().max(1))) else { continue };
                let at = hour * HOUR_SECONDS + rng.random_range(0..HOUR_SECONDS);
                charges.extend(charge(config, offer, at, &mut rng));
            }
        }
        charges.sort_by_key(|charge| charge.at);
        all.append(&mut charges);
    }
    all
}

/// Returns the load of an hour as a share of the busiest load: low at night, half at weekends. `hour` is the number of
/// hours since the Unix epoch (UTC).
fn load_at(hour: u64) -> f64 {
    // 1 January 1970 was a Thursday.
    let is_weekend = (hour / 24 + 3) % 7 >= 5;
    let by_day = match hour % 24 {
        0..=5 => 0.1,
        6 | 7 | 20..=23 => 0.4,
        12 => 0.7,
        _ => 1.0,
    };
    if is_weekend { by_day / 2.0 } else { by_day }
}

/// Prices one request of the past; `None` if the offer is not billed in credits.
fn charge(config: &ConfigSnapshot, offer: &OfferState, at: u64, rng: &mut StdRng) -> Option<BackdatedCharge> {
    if offer.pricing.is_priced_by_energy(at) {
        return None;
    }
    let (input, output) = (rng.random_range(40..2_000), rng.random_range(20..800));
    let usage = TokenUsage { input, output, ..TokenUsage::default() };
    let done = WorkDone::Tokens(usage);
    let settings = &config.settings;
    let terms = ChargeContext {
        eur_per_credit: settings.billing.eur_per_credit,
        provenance: settings.impact.provenance,
        amounts: settings.compatibility.amount_format(),
        batch: false,
        wallet: PayingWallet::Credits,
        at,
    };
    let took = Duration::from_secs(1 + output / TOKENS_PER_SECOND);
    let priced = offer.pricing.price_answer(done, done, None, took, None, terms);
    let request = format!("history-{at:x}-{:08x}", rng.random::<u32>());
    Some(BackdatedCharge {
        at,
        request: request.into(),
        settlement: offer.pricing.settlement(&priced, &done, false),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// 2026-11-26T12:34:56Z, a Thursday.
    const NOW: u64 = 1_795_696_496;

    #[test]
    fn nights_and_weekends_have_less_load() {
        let hour = NOW / HOUR_SECONDS;
        assert_eq!((load_at(hour), load_at(hour + 1), load_at(hour - 10)), (0.7, 1.0, 0.1));
        assert_eq!(load_at(hour + 49), 0.5, "Saturday");
    }
}
