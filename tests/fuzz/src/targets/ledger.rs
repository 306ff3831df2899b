//! Lines of the ledger: they survive a round trip, a change breaks the chain, and balances never panic.

use penstock_ledger::{ChainBalances, HashChain, split_lines};

pub fn check(bytes: &[u8]) {
    let mut books = ChainBalances::default();
    for line in split_lines(bytes) {
        let Ok((entry, after)) = HashChain::parse_unverified(line) else { continue };
        let _ = books.apply_entry(&entry);
        let Some(seq) = entry.seq.checked_sub(1) else { continue };
        let before = HashChain { seq, hash: after.hash };
        // An entry that was appended to one hash chain is accepted in that chain only.
        let (mut own, mut out) = (before, Vec::new());
        if own.append(&entry, &mut out).is_err() {
            continue;
        }
        let mut reading = before;
        let again = reading.verify_next(&out).expect("what was written can be read");
        assert_eq!(again, entry);
        assert_eq!(reading, own);
        let mut other = HashChain { seq, hash: [1; 32] };
        assert!(other.hash == before.hash || other.verify_next(&out).is_err());
    }
    let mut chain = HashChain::default();
    for line in split_lines(bytes) {
        let stood = chain;
        if chain.verify_next(line).is_err() {
            assert_eq!(chain, stood, "a line that is refused moves nothing");
            break;
        }
    }
}
