//! Durations that only the head of a file states, because the frames of its codec are not counted.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use penstock_core::{AudioInput, DurationBasis};
use penstock_media::audio::{AudioInfo, AudioMeter};
use rust_decimal::Decimal;

fn measure(bytes: &[u8]) -> AudioInfo {
    let mut meter = AudioMeter::default();
    meter.push(bytes);
    meter.end().unwrap()
}

fn decimal(text: &str) -> Decimal {
    text.parse().unwrap()
}

/// Returns a WAV file with one second of data in the encoding `tag`, whose `fact` chunk states this number of
/// samples.
fn wav(tag: u16, samples: u32) -> Vec<u8> {
    let mut bytes = sounds::wav(1000);
    bytes[20..22].copy_from_slice(&tag.to_le_bytes());
    bytes.splice(36..36, [&b"fact\x04\0\0\0"[..], &samples.to_le_bytes()].concat());
    bytes
}

fn input(bytes: &[u8]) -> AudioInput {
    let AudioInfo { format, seconds, basis, .. } = measure(bytes);
    let length = bytes.len() as u64;
    AudioInput {
        extension: format.extension(),
        content_type: format.content_type(),
        seconds,
        basis,
        bytes: length,
    }
}

#[test]
fn codecs_without_countable_frames_only_state_a_duration() {
    let blocks = |packet: &[u8]| vec![[&[0x80][..], packet].concat(); 100];
    let matroska = |codec: &[u8]| sounds::matroska(codec, &[], &[], &blocks(&[2; 2000]));
    let m4a = |codec: &[u8; 4], samples: u32| sounds::m4a(44_100, 0, &[(1, 1)], codec, samples, 200_000);
    for (name, bytes, expected) in [
        ("AMR in WAV", wav(0x57, 3200), DurationBasis::Stated),
        ("AAC in WAV", wav(0xff, 3200), DurationBasis::Stated),
        ("AC-3 in WAV", wav(0x2000, 3200), DurationBasis::Stated),
        ("PCM in WAV", sounds::wav(1000), DurationBasis::Counted),
        ("A-law in WAV", wav(6, 1), DurationBasis::Counted),
        ("G.722 in WAV", wav(0x28f, 1), DurationBasis::Counted),
        ("TrueSpeech in WAV", wav(0x22, 1), DurationBasis::Counted),
        ("WavPack", matroska(b"A_WAVPACK4"), DurationBasis::Stated),
        ("ALAC in Matroska", matroska(b"A_ALAC"), DurationBasis::Stated),
        ("E-AC-3 in Matroska", matroska(b"A_EAC3"), DurationBasis::Stated),
        (
            "Opus in Matroska",
            sounds::matroska(b"A_OPUS", &[], &[], &blocks(&[0xf8; 20])),
            DurationBasis::Counted,
        ),
        ("FLAC in MP4", m4a(b"fLaC", 1), DurationBasis::Stated),
        ("MP3 in one sample of MP4", m4a(b".mp3", 1), DurationBasis::Stated),
        ("E-AC-3 in MP4", m4a(b"ec-3", 1), DurationBasis::Stated),
        ("PCM in MP4", m4a(b"sowt", 1), DurationBasis::Stated),
        ("MP3", sounds::mp3(40), DurationBasis::Counted),
        ("FLAC", sounds::framed_flac(44_100, 0, 10), DurationBasis::Counted),
        ("Ogg", sounds::ogg(1500), DurationBasis::Counted),
    ] {
        assert_eq!(measure(&bytes).basis, expected, "{name}");
    }
}

#[test]
fn a_reported_duration_raises_a_stated_one_within_the_bytes() {
    let bytes = wav(0xff, 3200);
    let audio = input(&bytes);
    assert_eq!(audio.seconds, Some(decimal("0.4")));
    // The longest accepted duration is a second for every 1,000 bytes.
    let longest = Decimal::from(bytes.len() as u64 / 1000 + 1);
    assert_eq!(audio.max_seconds(), longest);
    for (reported, charged) in [
        (None, decimal("0.4")),
        (Some("0"), decimal("0.4")),
        (Some("0.1"), decimal("0.4")),
        (Some("0.401"), decimal("0.401")),
        (Some("10"), decimal("10")),
        (Some("2678400"), longest),
    ] {
        assert_eq!(audio.charged_seconds(reported.map(decimal)), charged, "{reported:?}");
    }
    // A counted duration is charged, whatever the provider reports.
    let counted = input(&sounds::wav(1000));
    assert_eq!(
        (counted.max_seconds(), counted.charged_seconds(Some(decimal("10")))),
        (decimal("1"), decimal("1"))
    );
}
