//! Hash chain of the ledger: every kind of entry survives a round trip, and every change to the text is detected.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use penstock_core::{TokenUsage, UsageSource};
use penstock_ledger::{
    CorrectedKind, EntryError, EntryKind, HashChain, LedgerEntry, MAX_LINE_BYTES, RequestFootprint,
    SaleDetails, Statement, Wallet, split_lines,
};
use rust_decimal::Decimal;
use sha2::{Digest, Sha256};

fn acts() -> Vec<EntryKind> {
    let usage = TokenUsage {
        input: 12,
        cached: 4,
        output: 30,
        reasoning: 3,
        mean_prompt_length: None,
        source: UsageSource::Gateway,
    };
    let sale = SaleDetails {
        model: "m\"1".into(),
        provider: "p".into(),
        terms: "0011223344556677".into(),
        batch: true,
        usage,
        images: 2,
        seconds: Decimal::new(15, 1),
        billable_kwh: Some(Decimal::new(77, 9)),
        eur: Decimal::new(123, 8),
    };
    let footprint = RequestFootprint {
        kwh: Decimal::new(5, 6),
        carbon_g: Decimal::new(7, 4),
        carbon_low_g: Decimal::new(5, 4),
        carbon_high_g: Decimal::new(11, 4),
        water_l: Decimal::new(9, 5),
        failed_kwh: Decimal::new(1, 6),
    };
    vec![
        EntryKind::Terms { id: "0011223344556677".into(), terms: "{\"input\":\"0.05\"}".into() },
        EntryKind::Grant {
            id: "g1".into(),
            wallet: Wallet::Credits,
            amount: 500,
            note: "invoice 7, größer".into(),
            by: "me".into(),
        },
        EntryKind::Reserve { request: "req_a".into(), key: "k".into(), wallet: Wallet::Credits, amount: 40 },
        EntryKind::Settle {
            request: "req_a".into(),
            key: "k".into(),
            wallet: Wallet::Credits,
            amount: 30,
            held: 40,
            sale: Box::new(sale),
            footprint,
        },
        EntryKind::Reserve { request: "req_b".into(), key: "k".into(), wallet: Wallet::Energy, amount: 1 },
        EntryKind::Void {
            request: "req_b".into(),
            key: "k".into(),
            wallet: Wallet::Energy,
            held: 1,
            why: "left".into(),
            footprint,
        },
        EntryKind::Correct {
            id: "c1".into(),
            of: 4,
            what: CorrectedKind::Settle,
            key: Some("k".into()),
            wallet: Wallet::Credits,
            previous_amount: 30,
            new_amount: 10,
            eur: Decimal::new(82, 8),
            note: "counted wrong".into(),
            by: "me".into(),
        },
        EntryKind::Correct {
            id: "c2".into(),
            of: 2,
            what: CorrectedKind::Grant,
            key: None,
            wallet: Wallet::Credits,
            previous_amount: 500,
            new_amount: 0,
            eur: Decimal::ZERO,
            note: "".into(),
            by: "me".into(),
        },
    ]
}

fn entries() -> Vec<LedgerEntry> {
    let numbered = acts().into_iter().zip(1..);
    numbered
        .map(|(act, seq)| LedgerEntry { seq, at: 1_795_305_600 + seq, account: "acme".into(), kind: act })
        .collect()
}

fn text() -> Vec<u8> {
    let (mut chain, mut text) = (HashChain::default(), Vec::new());
    entries().iter().for_each(|entry| chain.append(entry, &mut text).unwrap());
    text
}

fn read(text: &[u8]) -> Result<Vec<LedgerEntry>, (u64, EntryError)> {
    let mut chain = HashChain::default();
    split_lines(text).map(|line| chain.verify_next(line).map_err(|why| (chain.seq + 1, why))).collect()
}

#[test]
fn every_kind_of_entry_comes_back() {
    assert_eq!(read(&text()).unwrap(), entries());
    for line in split_lines(&text()) {
        let value: serde_json::Value = serde_json::from_slice(line).unwrap();
        assert!(value["hash"].as_str().unwrap().len() == 64);
    }
}

#[test]
fn a_hash_follows_the_documentation() {
    let text = text();
    let first = split_lines(&text).next().unwrap();
    let words = std::str::from_utf8(first).unwrap();
    let (before, rest) = words.split_once(",\"hash\":\"").unwrap();
    let hash = Sha256::new().chain_update([0; 32]).chain_update(before).finalize();
    let digits: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(rest, format!("{digits}\"}}\n"));
    let (entry, chain) = HashChain::parse_unverified(first).unwrap();
    assert_eq!((entry, chain.seq, &chain.hash[..]), (entries()[0].clone(), 1, &hash[..]));
    // Uppercase digits, and characters that are not digits.
    for other in [digits.to_uppercase(), format!("+{}", &digits[1..]), format!("{}z", &digits[1..])] {
        assert_ne!(other, digits);
        let line = words.replace(&digits, &other);
        assert_eq!(HashChain::parse_unverified(line.as_bytes()), Err(EntryError::InvalidFormat), "{other}");
    }
}

#[test]
fn any_flipped_bit_is_found_at_its_entry() {
    let whole = text();
    let starts: Vec<usize> = split_lines(&whole)
        .scan(0, |at, line| {
            *at += line.len();
            Some(*at)
        })
        .collect();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut text = whole.clone();
            text[at] ^= 1 << bit;
            let (found, _) = read(&text).expect_err("a changed ledger was read");
            let in_entry = starts.iter().position(|end| at < *end).unwrap() as u64 + 1;
            assert_eq!(found, in_entry, "byte {at}, bit {bit}");
        }
    }
}

#[test]
fn missing_moved_added_and_cut_lines_are_found() {
    let whole = text();
    let all: Vec<&[u8]> = split_lines(&whole).collect();
    for at in 0..all.len() - 1 {
        let mut without = all.clone();
        without.remove(at);
        assert_eq!(read(&without.concat()).unwrap_err().0, at as u64 + 1);
        let mut swapped = all.clone();
        swapped.swap(at, at + 1);
        assert_eq!(read(&swapped.concat()).unwrap_err().0, at as u64 + 1);
        let mut twice = all.clone();
        twice.insert(at, all[at]);
        assert_eq!(read(&twice.concat()).unwrap_err().0, at as u64 + 2);
    }
    for cut in 1..all[all.len() - 1].len() {
        assert!(read(&whole[..whole.len() - cut]).is_err(), "{cut} bytes cut");
    }
}

#[test]
fn an_entry_out_of_order_or_too_long_is_not_sealed() {
    let (mut chain, mut text) = (HashChain::default(), Vec::new());
    let entry = |seq, note: &str| LedgerEntry {
        seq,
        at: 0,
        account: "a".into(),
        kind: EntryKind::Grant {
            id: "g".into(),
            wallet: Wallet::Credits,
            amount: 1,
            note: note.into(),
            by: "me".into(),
        },
    };
    assert_eq!(chain.append(&entry(2, ""), &mut text), Err(EntryError::UnexpectedNumber { expected: 1 }));
    assert_eq!(
        chain.append(&entry(1, &"x".repeat(MAX_LINE_BYTES)), &mut text),
        Err(EntryError::InvalidFormat)
    );
    assert!(text.is_empty() && chain == HashChain::default());
}

#[test]
fn a_statement_adds_up_by_account_and_key() {
    let mut statement = Statement::default();
    entries().iter().for_each(|entry| statement.add_entry(entry));
    let rows: Vec<_> = statement.rows().collect();
    assert_eq!(rows.len(), 2, "one for the key, one for grants");
    let key = &rows[1];
    assert_eq!((&*key.account, &*key.key), ("acme", "k"));
    let sums = &key.sums;
    assert_eq!((sums.requests, sums.uncharged, sums.counted), (1, 1, 1));
    assert_eq!((sums.input, sums.cached, sums.output, sums.images), (12, 4, 30, 2));
    assert_eq!((sums.credits, sums.energy), (10, 0));
    assert_eq!(sums.eur, Decimal::new(41, 8));
    assert_eq!(sums.kwh, Decimal::new(10, 6));
    assert_eq!(rows[0].sums.granted_credits, 0, "a grant taken back");
    let account = statement.account_sums("acme");
    assert_eq!((account.requests, account.credits), (1, 10));
    assert_eq!(account.rounded_eur().to_string(), "0.00");
    assert_eq!(statement.model_sums("acme").count(), 1);
    assert!(statement.pricing_terms_ids().contains("0011223344556677"));
}
