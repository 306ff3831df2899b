//! Warnings about entries that are valid and have no effect, or not the one that their author expects.

use super::super::raw;
use super::super::settings::{BaseUrl, ModelSettings, OfferSettings, Provider};
use super::SettingsResolver;
use super::key_path::KeyPath;
use super::parameters::MIN_PLAUSIBLE_PRICE;
use super::provider::unique_dialects;
use penstock_core::ModelKind;
use penstock_pricing::Tariff;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds from 1970 to the year 2100. A larger creation time was probably written in milliseconds.
const YEAR_2100: u64 = 4_102_444_800;
/// Seconds by which clocks may differ before a creation time counts as a mistake.
const CLOCK_TOLERANCE: u64 = 24 * 3600;
/// Number of free input tokens from which the price of a credit is reported as too high.
const FREE_TOKENS: u64 = 10;

impl SettingsResolver<'_> {
    /// Warns about a base URL without a path, or with a repeated version, and about a path of health checks that
    /// repeats the end of the base URL.
    pub fn warn_implausible_provider_paths(
        &mut self,
        raw: &raw::ProviderConfig,
        base: Option<&BaseUrl>,
        spot: &KeyPath<'_>,
    ) {
        let Some(base) = base else { return };
        let path = &*base.path_prefix;
        if path.is_empty() {
            self.report_warning(
                &spot.child("base_url"),
                "It has no path, so the gateway requests `/chat/completions` at its root; most engines serve `/v1/chat/completions`.",
                "Add `/v1`, unless this provider has none.",
            );
        }
        let (before, version) = path.rsplit_once('/').unwrap_or_default();
        if version.is_empty() {
            return;
        }
        if before.rsplit('/').next() == Some(version) {
            let why = format!("Its path has `/{version}` twice, which no provider serves.");
            self.report_warning(&spot.child("base_url"), why, format!("Write `/{version}` once."));
        }
        let check = raw.health.as_ref().map(|health| health.path.as_str()).unwrap_or_default();
        let repeated = check.strip_prefix('/').and_then(|rest| rest.strip_prefix(version));
        if let Some(rest) = repeated.filter(|rest| rest.starts_with('/')) {
            let why = format!("It follows the path of `base_url`, so checks go to `{path}{check}`.");
            self.report_warning(&spot.child("health").child("path"), why, format!("Write \"{rest}\"."));
        }
    }

    /// Warns about a creation time, a price and a pattern that are probably mistakes.
    pub fn warn_implausible_model_entries(
        &mut self,
        raw: &raw::ModelConfig,
        tariff: &Tariff,
        spot: &KeyPath<'_>,
    ) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(u64::MAX, |now| now.as_secs());
        if raw.created > YEAR_2100 {
            let fix = format!("Write seconds: {}.", raw.created / 1000);
            self.report_warning(&spot.child("created"), "It is a time in milliseconds.", fix);
        } else if raw.created > now.saturating_add(CLOCK_TOLERANCE) {
            let fix = "Write the seconds from 1970 to the release of the model.";
            self.report_warning(&spot.child("created"), "It is a time in the future.", fix);
        }
        self.check_cached_price(tariff, &spot.child("price"));
        for (index, _) in raw.aliases.iter().enumerate().filter(|(_, alias)| matches_every_name(alias)) {
            self.report_warning(
                &spot.child("aliases").list_element(index),
                "It matches every name, so this model answers requests with a misspelled one.",
                "Write a pattern with letters, such as \"claude-*\".",
            );
        }
    }

    /// Warns about a price of a credit so high that small requests are free, because charges are rounded to millionths
    /// of a credit. Lower prices than plausible ones have a warning of their own.
    pub fn warn_free_small_requests(
        &mut self,
        raw: &raw::ConfigFile,
        offers: &[Arc<OfferSettings>],
        top: &KeyPath<'_>,
    ) {
        let prices = |offer: &OfferSettings| {
            let tariffs =
                std::iter::once(offer.tariff).chain(offer.later_tariffs.iter().map(|(_, tariff)| *tariff));
            tariffs.filter_map(|tariff| tariff.input).filter(|input| *input >= MIN_PLAUSIBLE_PRICE).min()
        };
        let cheapest = offers.iter().filter_map(|offer| Some((prices(offer)?, offer)));
        let Some((input, offer)) = cheapest.min_by_key(|(input, _)| *input) else { return };
        // Half a millionth of a credit, divided by the price of a token.
        let half = raw.billing.eur_per_credit.0.checked_div(Decimal::TWO);
        let tokens = half.and_then(|half| half.checked_div(input)).and_then(|tokens| tokens.trunc().to_u64());
        if let Some(tokens) = tokens.filter(|tokens| *tokens >= FREE_TOKENS) {
            let why = format!(
                "Charges are rounded to millionths of a credit, so {tokens} input tokens of {} are free.",
                offer.model.card.id
            );
            let fix = "Write a lower price of a credit, such as 0.01.";
            self.report_warning(&top.child("billing").child("eur_per_credit"), why, fix);
        }
    }

    /// Warns about cached input that costs more than other input.
    fn check_cached_price(&mut self, tariff: &Tariff, spot: &KeyPath<'_>) {
        if let (Some(cached), Some(input)) = (tariff.cached_input, tariff.input)
            && cached > input
        {
            let why = format!("It is more than the price of other input, {}.", input.normalize());
            let fix = format!("Write at most {}.", input.normalize());
            self.report_warning(&spot.child("cached_input"), why, fix);
        }
    }

    /// Warns about settings of an offer that its model or its dialects do not use.
    pub fn warn_unused_offer_settings(
        &mut self,
        raw: &raw::OfferConfig,
        model: &ModelSettings,
        provider: &Provider,
        spot: &KeyPath<'_>,
    ) {
        if raw.price.cached_input.is_some() || raw.price.input.is_some() {
            let tariff = super::catalogue::merge_tariff(&raw.price, &model.tariff);
            self.check_cached_price(&tariff, &spot.child("price"));
        }
        let kind = model.kind.name();
        if raw.completions && model.kind != ModelKind::Chat {
            let why = format!("Text completions need a model for chat, and this is one for {kind}.");
            self.report_warning(&spot.child("completions"), why, "Take it out.");
        }
        let own = raw.dialects.as_ref().map(|dialects| unique_dialects(dialects));
        let dialects = own.as_ref().unwrap_or(&provider.dialects);
        if raw.continuation.is_some() && !dialects.iter().any(|dialect| dialect.spec().continues_messages) {
            self.report_warning(
                &spot.child("continuation"),
                "No dialect of this offer continues an answer, so it has no effect.",
                "Take it out, or add \"chat\" to `dialects` if the provider speaks it.",
            );
        }
    }
}

/// Returns true for a pattern of stars only.
fn matches_every_name(alias: &str) -> bool {
    !alias.is_empty() && alias.bytes().all(|byte| byte == b'*')
}
