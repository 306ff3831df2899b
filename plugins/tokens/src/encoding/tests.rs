//! The packed vocabularies, compared with the published ones.
#![allow(clippy::unwrap_used)]

use super::*;
use proptest::prelude::*;
use tiktoken_rs::{CoreBPE, cl100k_base, o200k_base};

fn reference(encoding: PublishedEncoding) -> &'static CoreBPE {
    static CL100K: OnceLock<CoreBPE> = OnceLock::new();
    static O200K: OnceLock<CoreBPE> = OnceLock::new();
    match encoding {
        PublishedEncoding::Cl100k => CL100K.get_or_init(|| cl100k_base().unwrap()),
        PublishedEncoding::O200k => O200K.get_or_init(|| o200k_base().unwrap()),
    }
}

#[test]
fn cl100k_is_the_published_one() {
    let ours = PublishedEncoding::Cl100k.vocabulary();
    for token in 0..u32::try_from(CL100K_TOKENS).unwrap() {
        let published = reference(PublishedEncoding::Cl100k).decode_bytes(&[token]).unwrap();
        assert_eq!(ours.bytes(token), published, "token {token}");
    }
}

#[test]
fn ids_that_are_no_token_of_a_text_are_found() {
    // In cl100k_base, the last ordinary token is 100 255, 100 256 is unused, and the special tokens begin at 100 257.
    for (encoding, most) in [(PublishedEncoding::Cl100k, 100_255), (PublishedEncoding::O200k, 199_997)] {
        assert!(encoding.decode_token_ids(&[most]).is_ok(), "{}", encoding.name());
        for unknown in [most + 1, most + 2, u32::MAX] {
            assert_eq!(
                encoding.decode_token_ids(&[1, 2, unknown, 3]),
                Err(2),
                "{} {unknown}",
                encoding.name()
            );
        }
    }
}

#[test]
fn a_text_cut_within_a_character_keeps_the_rest() {
    let ids = reference(PublishedEncoding::Cl100k).encode_ordinary("ab 🦦");
    let cut = ids.split_last().unwrap().1;
    let text = PublishedEncoding::Cl100k.decode_token_ids(cut).unwrap();
    assert!(text.starts_with("ab ") && text.ends_with('\u{fffd}'), "{text:?}");
}

proptest! {
    #[test]
    fn any_text_comes_back_from_its_ids(text in "\\PC{0,120}") {
        for encoding in [PublishedEncoding::Cl100k, PublishedEncoding::O200k] {
            let ids = reference(encoding).encode_ordinary(&text);
            prop_assert_eq!(&encoding.decode_token_ids(&ids).unwrap(), &text);
        }
    }
}
