//! Records of the journal:
//!
//! ```text
//! A  exposed amount (8 bytes LE), line of an entry with the number 1, whose hash proves that it is complete
//! T  id of terms, newline, their text
//! C  number of the last operation that the database had (8 bytes LE)
//! ```

use super::super::write_op::{LedgerAction, SaleTerms};
use penstock_ledger::{HashChain, LedgerEntry};
use std::sync::Arc;

const ACTION: u8 = b'A';
const TERMS: u8 = b'T';
const COMMITTED: u8 = b'C';

/// Record as read from a journal.
pub(super) enum DecodedRecord {
    /// Action without its terms.
    Action(LedgerAction),
    Terms(SaleTerms),
    /// Number of the last operation that the database had.
    Committed(u64),
}

/// Encodes an action without its terms; `None` if it is not a valid entry.
pub(super) fn encode_action(action: &LedgerAction) -> Option<Vec<u8>> {
    let (account, kind) = (action.account.clone(), action.act.clone());
    let entry = LedgerEntry { seq: 1, at: action.at, account, kind };
    let mut bytes = vec![ACTION];
    bytes.extend_from_slice(&action.exposed_eur.to_le_bytes());
    HashChain::default().append(&entry, &mut bytes).ok()?;
    Some(bytes)
}

/// Encodes pricing terms, which actions refer to by id.
pub(super) fn encode_terms(terms: &SaleTerms) -> Vec<u8> {
    [&[TERMS], terms.id.as_bytes(), b"\n", terms.text.as_bytes()].concat()
}

/// Encodes the number of the last operation that the database has.
pub(super) fn encode_committed_number(number: u64) -> Vec<u8> {
    [&[COMMITTED], number.to_le_bytes().as_slice()].concat()
}

/// Decodes a record with its number; `None` if it is damaged or of an unknown format.
pub(super) fn decode_record(number: u64, bytes: &[u8]) -> Option<DecodedRecord> {
    match bytes.split_first()? {
        (&ACTION, rest) => {
            let (exposed, line) = rest.split_first_chunk()?;
            let LedgerEntry { at, account, kind, .. } = HashChain::default().verify_next(line).ok()?;
            let exposed = i64::from_le_bytes(*exposed);
            Some(DecodedRecord::Action(LedgerAction {
                at,
                account,
                act: kind,
                terms: None,
                exposed_eur: exposed,
                number,
            }))
        }
        (&TERMS, rest) => {
            let (id, text) = std::str::from_utf8(rest).ok()?.split_once('\n')?;
            Some(DecodedRecord::Terms(SaleTerms { id: Arc::from(id), text: Arc::from(text) }))
        }
        (&COMMITTED, rest) => Some(DecodedRecord::Committed(u64::from_le_bytes(rest.try_into().ok()?))),
        _ => None,
    }
}
