//! Keys: only generated keys are accepted, unchanged; a key taken from a header is never longer than the header.

use penstock_auth::{ApiKey, KeyScopes, presented_keys};

pub fn check(bytes: &[u8]) {
    let (one, other) = bytes.split_at(bytes.len() / 2);
    for text in presented_keys(Some(one), Some(other)).chain(presented_keys(Some(bytes), None)) {
        assert!(text.len() <= bytes.len() && text == text.trim_ascii());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(key) = ApiKey::parse(text) {
            assert_eq!(key.reveal(), text);
            assert!(text.contains(key.public_id()) && !format!("{key:?}").contains(key.public_id()));
        }
        if let Ok(scopes) = KeyScopes::parse(text.split(',')) {
            let names: Vec<_> = scopes.names().collect();
            assert_eq!(KeyScopes::parse(&names).ok(), Some(scopes));
            assert_eq!(KeyScopes::parse_lenient(text.split(',')), scopes);
        }
    }
    // A key generated from these bytes is accepted. The same key with one character changed is refused.
    let mut at = 0;
    let key = ApiKey::generate(&mut |buffer: &mut [u8]| {
        for byte in buffer {
            *byte = bytes.get(at % bytes.len().max(1)).copied().unwrap_or(7).wrapping_add((at / 13) as u8);
            at += 1;
        }
    });
    assert_eq!(
        ApiKey::parse(key.reveal()).map(|again| again.reveal().to_owned()),
        Ok(key.reveal().to_owned())
    );
    let mut typo = key.reveal().as_bytes().to_vec();
    let index = 7 + bytes.len() % 62;
    typo[index] = bytes.first().copied().unwrap_or(b'0');
    if typo != key.reveal().as_bytes() {
        assert!(
            std::str::from_utf8(&typo).is_ok_and(|typo| ApiKey::parse(typo).is_err()) || !typo.is_ascii()
        );
    }
}
