//! JSON format of an entry: a flat object with members in a fixed order; absent members are omitted. Members are only
//! ever added.

use crate::entry::{CorrectedKind, EntryKind, LedgerEntry, RequestFootprint, SaleDetails, Wallet};
use crate::error::EntryError;
use penstock_core::{TokenUsage, UsageSource};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::sync::Arc;

/// Members of entries, without those of the hash chain. The CSV export has a column for each, so that a new member is
/// added at the end.
pub const ENTRY_MEMBERS: [&str; 34] = [
    "seq",
    "at",
    "act",
    "account",
    "key",
    "request",
    "id",
    "wallet",
    "amount",
    "held",
    "of",
    "what",
    "was",
    "eur",
    "model",
    "provider",
    "terms",
    "batch",
    "input",
    "cached",
    "output",
    "reasoning",
    "counted",
    "images",
    "seconds",
    "billable_kwh",
    "kwh",
    "g_co2",
    "litres",
    "why",
    "by",
    "g_co2_low",
    "g_co2_high",
    "failed_kwh",
];

/// Upper bound on the characters of a number with up to twenty digits, a scale of at most 28 and a decimal point.
const MAX_DECIMAL_CHARS: usize = 48;

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct EntryLine<'a> {
    seq: u64,
    at: u64,
    #[serde(borrow)]
    act: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    account: Cow<'a, str>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    request: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "str::is_empty")]
    wallet: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    amount: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<i64>,
    // Ledgers of 2026-11-26 to 2026-11-30 have the second name.
    #[serde(rename = "of", alias = "from_entry", skip_serializing_if = "Option::is_none")]
    corrected_entry: Option<u64>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    what: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    was: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "exact_if")]
    eur: Option<Decimal>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    model: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    provider: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    terms: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    batch: bool,
    #[serde(skip_serializing_if = "zero")]
    input: u64,
    #[serde(skip_serializing_if = "zero")]
    cached: u64,
    #[serde(skip_serializing_if = "zero")]
    output: u64,
    #[serde(skip_serializing_if = "zero")]
    reasoning: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    counted: bool,
    #[serde(skip_serializing_if = "none")]
    images: u32,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    seconds: Decimal,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "exact_if")]
    billable_kwh: Option<Decimal>,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    kwh: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    g_co2: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    litres: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    g_co2_low: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    g_co2_high: Decimal,
    #[serde(skip_serializing_if = "Decimal::is_zero", serialize_with = "exact")]
    failed_kwh: Decimal,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    why: Option<Cow<'a, str>>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    by: Option<Cow<'a, str>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn zero(count: &u64) -> bool {
    *count == 0
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands references")]
const fn none(count: &u32) -> bool {
    *count == 0
}

#[allow(clippy::ref_option, reason = "serde hands references")]
fn exact_if<S: Serializer>(decimal: &Option<Decimal>, serializer: S) -> Result<S::Ok, S::Error> {
    exact(&decimal.unwrap_or_default(), serializer)
}

/// Serializes a [`Decimal`] like its own implementation, in a third of the time.
fn exact<S: Serializer>(decimal: &Decimal, serializer: S) -> Result<S::Ok, S::Error> {
    let scale = decimal.scale() as usize;
    let mut digits = itoa::Buffer::new();
    let digits = match u64::try_from(decimal.mantissa()) {
        Ok(small) => digits.format(small).as_bytes(),
        Err(_) => return serializer.collect_str(decimal),
    };
    // At least one digit precedes the decimal point.
    let (length, point) = (digits.len().max(scale + 1), usize::from(scale > 0));
    let mut text = [b'0'; MAX_DECIMAL_CHARS];
    let whole = length - scale;
    for (index, digit) in (length - digits.len()..).zip(digits) {
        let index = if index < whole { index } else { index + point };
        match text.get_mut(index) {
            Some(slot) => *slot = *digit,
            None => return serializer.collect_str(decimal),
        }
    }
    if let (1, Some(slot)) = (point, text.get_mut(whole)) {
        *slot = b'.';
    }
    let text = text.get(..length + point).and_then(|text| std::str::from_utf8(text).ok());
    match text {
        Some(text) => serializer.serialize_str(text),
        None => serializer.collect_str(decimal),
    }
}

impl<'a> EntryLine<'a> {
    fn of(entry: &'a LedgerEntry) -> Self {
        let mut line = Self {
            seq: entry.seq,
            at: entry.at,
            act: entry.kind.name().into(),
            account: (&*entry.account).into(),
            ..Self::default()
        };
        match &entry.kind {
            EntryKind::Grant { id, wallet, amount, note, by } => {
                line.by = Some((&**by).into());
                line.id = Some((&**id).into());
                line.wallet = wallet.name().into();
                line.amount = Some(*amount);
                line.why = Some((&**note).into());
            }
            EntryKind::Reserve { request, key, wallet, amount } => {
                line.set_request(request, key, *wallet);
                line.amount = Some(*amount);
            }
            EntryKind::Settle { request, key, wallet, amount, held, sale, footprint } => {
                line.set_request(request, key, *wallet);
                (line.amount, line.held) = (Some(*amount), Some(*held));
                line.sale(sale);
                line.set_footprint(footprint);
            }
            EntryKind::Void { request, key, wallet, held, why, footprint } => {
                line.set_request(request, key, *wallet);
                line.held = Some(*held);
                line.why = Some((&**why).into());
                line.set_footprint(footprint);
            }
            EntryKind::Correct {
                id,
                of,
                what,
                key,
                wallet,
                previous_amount: was,
                new_amount: instead,
                eur,
                note,
                by,
            } => {
                line.by = Some((&**by).into());
                line.id = Some((&**id).into());
                line.key = key.as_deref().map(Cow::from);
                line.wallet = wallet.name().into();
                (line.corrected_entry, line.was, line.amount) = (Some(*of), Some(*was), Some(*instead));
                line.what = Some(corrected_kind_name(*what).into());
                line.eur = Some(*eur);
                line.why = Some((&**note).into());
            }
            EntryKind::Terms { id, terms } => {
                line.id = Some((&**id).into());
                line.terms = Some((&**terms).into());
            }
        }
        line
    }

    fn set_request(&mut self, request: &'a str, key: &'a str, wallet: Wallet) {
        self.request = Some(request.into());
        self.key = Some(key.into());
        self.wallet = wallet.name().into();
    }

    fn sale(&mut self, sale: &'a SaleDetails) {
        self.model = Some((&*sale.model).into());
        self.provider = Some((&*sale.provider).into());
        self.terms = Some((&*sale.terms).into());
        self.batch = sale.batch;
        let usage = &sale.usage;
        (self.input, self.cached) = (usage.input, usage.cached);
        (self.output, self.reasoning) = (usage.output, usage.reasoning);
        self.counted = usage.source.is_gateway_count();
        (self.images, self.seconds) = (sale.images, sale.seconds);
        self.billable_kwh = sale.billable_kwh;
        self.eur = Some(sale.eur);
    }

    fn set_footprint(&mut self, footprint: &RequestFootprint) {
        (self.kwh, self.g_co2, self.litres) = (footprint.kwh, footprint.carbon_g, footprint.water_l);
        (self.g_co2_low, self.g_co2_high) = (footprint.carbon_low_g, footprint.carbon_high_g);
        self.failed_kwh = footprint.failed_kwh;
    }

    fn footprint(&self) -> RequestFootprint {
        RequestFootprint {
            kwh: self.kwh,
            carbon_g: self.g_co2,
            carbon_low_g: self.g_co2_low,
            carbon_high_g: self.g_co2_high,
            water_l: self.litres,
            failed_kwh: self.failed_kwh,
        }
    }

    fn to_entry(&self) -> Option<LedgerEntry> {
        let text = |text: &Option<Cow<'a, str>>| text.as_deref().map(Arc::<str>::from);
        let wallet = || Wallet::from_name(&self.wallet);
        let footprint = self.footprint();
        let act = match &*self.act {
            "grant" => EntryKind::Grant {
                id: text(&self.id)?,
                wallet: wallet()?,
                amount: self.amount?,
                note: text(&self.why)?,
                by: text(&self.by)?,
            },
            "reserve" => EntryKind::Reserve {
                request: text(&self.request)?,
                key: text(&self.key)?,
                wallet: wallet()?,
                amount: self.amount?,
            },
            "settle" => EntryKind::Settle {
                request: text(&self.request)?,
                key: text(&self.key)?,
                wallet: wallet()?,
                amount: self.amount?,
                held: self.held?,
                sale: Box::new(self.to_sale()?),
                footprint,
            },
            "void" => EntryKind::Void {
                request: text(&self.request)?,
                key: text(&self.key)?,
                wallet: wallet()?,
                held: self.held?,
                why: text(&self.why)?,
                footprint,
            },
            "correct" => EntryKind::Correct {
                id: text(&self.id)?,
                of: self.corrected_entry?,
                what: match self.what.as_deref()? {
                    "settle" => CorrectedKind::Settle,
                    "grant" => CorrectedKind::Grant,
                    _ => return None,
                },
                key: text(&self.key),
                wallet: wallet()?,
                previous_amount: self.was?,
                new_amount: self.amount?,
                eur: self.eur?,
                note: text(&self.why)?,
                by: text(&self.by)?,
            },
            "terms" => EntryKind::Terms { id: text(&self.id)?, terms: text(&self.terms)? },
            _ => return None,
        };
        Some(LedgerEntry { seq: self.seq, at: self.at, account: (&*self.account).into(), kind: act })
    }

    fn to_sale(&self) -> Option<SaleDetails> {
        Some(SaleDetails {
            model: self.model.as_deref()?.into(),
            provider: self.provider.as_deref()?.into(),
            terms: self.terms.as_deref()?.into(),
            batch: self.batch,
            usage: TokenUsage {
                input: self.input,
                cached: self.cached,
                output: self.output,
                reasoning: self.reasoning,
                mean_prompt_length: None,
                source: if self.counted { UsageSource::Gateway } else { UsageSource::Provider },
            },
            images: self.images,
            seconds: self.seconds,
            billable_kwh: self.billable_kwh,
            eur: self.eur?,
        })
    }
}

const fn corrected_kind_name(kind: CorrectedKind) -> &'static str {
    match kind {
        CorrectedKind::Settle => "settle",
        CorrectedKind::Grant => "grant",
    }
}

/// Appends the JSON object of an entry to `out`.
pub(crate) fn write_entry(entry: &LedgerEntry, out: &mut Vec<u8>) -> Result<(), EntryError> {
    serde_json::to_writer(out, &EntryLine::of(entry)).map_err(|_| EntryError::InvalidFormat)
}

/// Parses the JSON object of an entry.
pub(crate) fn parse_entry(line: &[u8]) -> Result<LedgerEntry, EntryError> {
    let line: EntryLine<'_> = serde_json::from_slice(line).map_err(|_| EntryError::InvalidFormat)?;
    line.to_entry().ok_or(EntryError::InvalidFormat)
}

#[cfg(test)]
mod tests;
