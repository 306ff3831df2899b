//! Duration of Matroska audio from its packets, if the times of the blocks do not give it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use sounds::{element, known, length, matroska};

#[test]
fn packets_of_matroska_count_without_times() {
    let blocks = |packet: &[u8]| vec![[&[0x80][..], packet].concat(); 101];
    let headers = sounds::vorbis_headers();
    let lengths = [2, headers[0].len() as u8, headers[1].len() as u8];
    let private = [&lengths[..], &headers.concat()].concat();
    assert_eq!(length(&matroska(b"A_VORBIS", &private, &[], &blocks(&[2; 20]))), known("6.4"));
    // 101 · 1,024 / 16,000 seconds.
    assert_eq!(length(&matroska(b"A_AAC", &[0x14, 8], &[], &blocks(&[2; 200]))), known("6.464"));
    let rate = element(&[0xb5], &16_000f32.to_be_bytes());
    assert_eq!(length(&matroska(b"A_AAC/MPEG4/LC", &[], &rate, &blocks(&[2; 200]))), known("6.464"));
    let samples = [rate, element(&[0x9f], &[1]), element(&[0x62, 0x64], &[16])].concat();
    assert_eq!(length(&matroska(b"A_PCM/INT/LIT", &[], &samples, &blocks(&[2; 320]))), known("1.01"));
    let mp3 = sounds::mp3(1);
    assert_eq!(length(&matroska(b"A_MPEG/L3", &[], &[], &blocks(&mp3))), known("2.638"));
    assert_eq!(length(&matroska(b"A_OPUS", &[], &[], &blocks(&[0xf8; 20]))), known("2.02"));
}

#[test]
fn packets_of_a_laced_block_count() {
    let packet = [0xf8; 20];
    let three = packet.repeat(3);
    for (name, block, seconds) in [
        ("Xiph", [&[0x82, 2, 20, 20][..], &three].concat(), "3"),
        ("fixed", [&[0x84, 2][..], &three].concat(), "3"),
        ("EBML", [&[0x86, 2, 0x80 | 20, 0xbf][..], &three].concat(), "3"),
        // The packet lengths are unusable, so three packets count like the first one, which here begins with the
        // bytes of the lengths: 120 ms each.
        ("broken", [&[0x82, 2, 255, 255][..], &three].concat(), "18"),
    ] {
        assert_eq!(length(&matroska(b"A_OPUS", &[], &[], &vec![block; 50])), known(seconds), "{name}");
    }
}
