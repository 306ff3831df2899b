//! Detection of every format by its content, and measurement of its duration, independent of how the file is split;
//! and bytes that are no audio.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use penstock_media::audio::{AudioError, AudioFormat, AudioInfo, AudioMeter};
use proptest::prelude::*;
use rust_decimal::Decimal;
use sounds::{known, length, mp3};

fn measure(pieces: &[&[u8]]) -> Result<AudioInfo, AudioError> {
    let mut meter = AudioMeter::default();
    pieces.iter().for_each(|piece| meter.push(piece));
    meter.end()
}

fn seconds(text: &str) -> Option<Decimal> {
    Some(text.parse().unwrap())
}

fn all() -> Vec<(&'static str, Vec<u8>, AudioFormat, &'static str)> {
    vec![
        ("wav", sounds::wav(1250), AudioFormat::Wav, "1.250"),
        // 40 frames of 1152 samples at 44.1 kHz.
        ("mp3", sounds::mp3(40), AudioFormat::Mp3, "1.045"),
        ("tagged mp3", sounds::tagged_mp3(40), AudioFormat::Mp3, "1.045"),
        ("program stream", sounds::program(40), AudioFormat::Mpeg, "1.045"),
        ("m4a", sounds::mp4(2500), AudioFormat::Mp4, "2.500"),
        ("fragmented mp4", sounds::fragmented(3), AudioFormat::Mp4, "3"),
        ("webm of a browser", sounds::webm(130, None), AudioFormat::Webm, "2.600"),
        ("ogg", sounds::ogg(1500), AudioFormat::Ogg, "1.500"),
        ("flac", sounds::flac(44_100 * 3 / 2), AudioFormat::Flac, "1.5"),
    ]
}

#[test]
fn every_format_is_known_and_measured() {
    for (name, bytes, format, length) in all() {
        let found = measure(&[&bytes]).unwrap();
        assert_eq!((found.format, found.seconds), (format, seconds(length)), "{name}");
    }
}

#[test]
fn every_cut_gives_the_same_length() {
    for (name, bytes, ..) in all() {
        let whole = measure(&[&bytes]);
        let steps = (0..bytes.len()).filter(|at| *at < 3000 || at % 97 == 0);
        for cut in steps {
            assert_eq!(measure(&[&bytes[..cut], &bytes[cut..]]), whole, "{name} cut at {cut}");
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(measure(&single), whole, "{name} byte by byte");
    }
}

/// First bytes of every known format, and of files that only look similar: as many bytes as the detection needs.
fn beginnings() -> Vec<(Vec<u8>, Option<AudioFormat>)> {
    let ape = [&b"APETAGEX\xd0\x07\0\0\x08\0\0\0\x01\0\0\0\0\0\0\xa0\0\0\0\0\0\0\0\0"[..], &[7; 8]].concat();
    let id3 = [&b"ID3\x04\0\0\0\0\0\x05"[..], &[7; 5]].concat();
    let old = [&b"TAG"[..], &[7; 125]].concat();
    let mut all: Vec<(Vec<u8>, Option<AudioFormat>)> = [
        (&b"RIFF\0\0\0\0WAVE"[..], Some(AudioFormat::Wav)),
        (b"RF64\0\0\0\0WAVE", Some(AudioFormat::Wav)),
        (b"BW64\0\0\0\0WAVE", Some(AudioFormat::Wav)),
        (b"RIFF\0\0\0\0AVI ", None),
        (b"fLaC", Some(AudioFormat::Flac)),
        (b"OggS", Some(AudioFormat::Ogg)),
        (b"\x1a\x45\xdf\xa3", Some(AudioFormat::Webm)),
        (b"\0\0\x01\xba", Some(AudioFormat::Mpeg)),
        (b"\xff\xfb\x90\x64", Some(AudioFormat::Mp3)),
        (b"APETAG", None),
        (b"ID3\x04\0\0\xff\0\0\0", None),
        (b"", None),
    ]
    .map(|(bytes, format)| (bytes.to_vec(), format))
    .into();
    for name in [b"ftyp", b"styp", b"moov", b"mdat", b"wide", b"free", b"skip"] {
        all.push(([b"\0\0\0\x20", &name[..]].concat(), Some(AudioFormat::Mp4)));
    }
    // An ID3 tag marks content of unknown format as MPEG audio, and does not change a known format. Other tags belong
    // to MPEG audio.
    let bare = all.clone();
    for (tag, only) in [
        (&id3, None),
        (&[&id3[..], &id3].concat(), None),
        (&ape, Some(AudioFormat::Mp3)),
        (&old, Some(AudioFormat::Mp3)),
    ] {
        let tagged = |(bytes, format): &(Vec<u8>, Option<AudioFormat>)| {
            ([tag, &bytes[..]].concat(), only.or(*format).or(Some(AudioFormat::Mp3)))
        };
        all.extend(bare.iter().map(tagged));
    }
    all
}

#[test]
fn every_known_beginning_is_named_the_same_at_every_cut() {
    let named = |pieces: &[&[u8]]| match measure(pieces) {
        Ok(sound) => Some(sound.format),
        Err(AudioError::NoAudio(format)) => Some(format),
        Err(_) => None,
    };
    for (mut bytes, format) in beginnings() {
        bytes.resize(bytes.len() + 64, b'-');
        assert_eq!(named(&[&bytes]), format, "{}", bytes.escape_ascii());
        let whole = measure(&[&bytes]);
        for cut in 0..=bytes.len() {
            assert_eq!(
                measure(&[&bytes[..cut], &bytes[cut..]]),
                whole,
                "cut at {cut}: {}",
                bytes.escape_ascii()
            );
        }
        let single: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(measure(&single), whole, "byte by byte: {}", bytes.escape_ascii());
    }
}

#[test]
fn a_beginning_that_is_all_there_is_says_the_same_at_every_cut() {
    for (bytes, _) in beginnings() {
        for end in 0..bytes.len() {
            let bytes = &bytes[..end];
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(measure(&single), measure(&[bytes]), "{}", bytes.escape_ascii());
        }
    }
}

#[test]
fn a_tag_amid_noise_is_noise_at_every_cut() {
    // The noise contains the start of a tag, which must not hide the frames.
    let noisy =
        [&sounds::mp3(4)[..], &[b'-'; 16], b"ID3\x04\0\0\0\0\x08\0", &[b'-'; 64], &sounds::mp3(20)].concat();
    let whole = measure(&[&noisy]);
    assert_eq!(whole.unwrap().seconds, seconds("0.627"));
    let single: Vec<&[u8]> = noisy.chunks(1).collect();
    assert_eq!(measure(&single), whole);
}

#[test]
fn received_bytes_count_and_not_the_announced_ones() {
    let wav = sounds::wav(1000);
    assert_eq!(measure(&[&wav[..wav.len() - 8000]]).unwrap().seconds, seconds("0.5"));
    let mut open = sounds::wav(1000);
    let at = open.len() - 16_000 - 4;
    open[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(measure(&[&open]).unwrap().seconds, seconds("1"));
    // The blocks of a recording determine its duration; a wrong duration in its head does not count.
    assert_eq!(measure(&[&sounds::webm(130, Some(999_999.0))]).unwrap().seconds, seconds("2.6"));
}

#[test]
fn a_head_that_promises_more_than_bytes_can_hold_is_not_believed() {
    let sound = measure(&[&sounds::flac(44_100 * 3600 * 10)]).unwrap();
    assert_eq!((sound.format, sound.seconds), (AudioFormat::Flac, None));
}

#[test]
fn a_tag_that_exceeds_the_file_is_searched_for_frames() {
    let stating = |size: [u8; 4], audio: &[u8]| [b"ID3\x04\0\0", &size[..], audio].concat();
    // A hundred frames of 1,152 samples at 44.1 kHz. Fewer than four frames may appear by chance.
    let (audio, picture) = (mp3(100), vec![0x5a; 90_000]);
    let huge = [0, 127, 127, 127];
    assert_eq!(length(&stating(huge, &audio)), known("2.612"));
    assert_eq!(length(&stating(huge, &[&picture[..], &audio].concat())), known("2.612"));
    // The complete tag before it is no audio.
    let after = [&stating([0, 5, 63, 16], &picture)[..], &stating(huge, &audio)].concat();
    assert_eq!(length(&after), known("2.612"));
    for audio in [&mp3(2), &picture] {
        let mut meter = AudioMeter::default();
        meter.push(&stating(huge, audio));
        assert_eq!(meter.end(), Err(AudioError::NoAudio(AudioFormat::Mp3)));
    }
}

#[test]
fn noise_between_frames_is_passed_over() {
    let frames = sounds::mp3(20);
    let noisy = [&frames[..417 + 208], &[0xff; 100], &[0; 3000], &frames].concat();
    assert_eq!(measure(&[&noisy]).unwrap().seconds, seconds("0.575"));
}

#[test]
fn frames_of_mpeg_audio_are_found_behind_the_start() {
    let frames = sounds::mp3(40);
    let info = |bytes: &[u8]| {
        let whole = measure(&[bytes]);
        for cut in (0..bytes.len()).filter(|cut| cut % 13 == 0 || cut.abs_diff(8 << 10) < 3) {
            assert_eq!(measure(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
        }
        assert_eq!(measure(&bytes.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
        whole
    };
    let mp3 = |expected| Ok((AudioFormat::Mp3, seconds(expected)));
    let found = |bytes: &[u8]| info(bytes).map(|info| (info.format, info.seconds));
    // A stream that begins inside a frame has one frame less.
    for cut in [1, 4, 100, 416] {
        assert_eq!(found(&frames[cut..]), mp3("1.019"), "{cut}");
    }
    for padding in [1, 2000, 4095] {
        assert_eq!(found(&[&vec![0; padding], &frames[..]].concat()), mp3("1.045"), "{padding}");
    }
    assert_eq!(found(&[&vec![0; 4096], &frames[..]].concat()), Err(AudioError::UnknownFormat));
    // A single frame is no proof, and neither are two frames of different kinds.
    assert_eq!(found(&frames[208..417 + 208]), Err(AudioError::UnknownFormat));
    let mut other = frames[208..417 + 208 + 417].to_vec();
    other[209 + 208 + 2] |= 4;
    assert_eq!(found(&other), Err(AudioError::UnknownFormat));
    let short = [&[0; 50], &sounds::mp3(2)[..417 + 4]].concat();
    assert!(found(&short).is_ok(), "two headers at the end of a short file");
}

#[test]
fn a_non_audio_file_is_reported() {
    assert_eq!(measure(&[]), Err(AudioError::Empty));
    assert_eq!(measure(&[b""]), Err(AudioError::Empty));
    for text in
        ["a", "just some text that calls itself song.mp3", "%PDF-1.7 and so on", "\u{89}PNG\r\n\u{1a}\n....."]
    {
        assert_eq!(measure(&[text.as_bytes()]), Err(AudioError::UnknownFormat), "{text}");
    }
    assert_eq!(measure(&[&sounds::wav(0)]), Err(AudioError::NoAudio(AudioFormat::Wav)));
    assert_eq!(
        measure(&[b"ID3\x04\0\0\0\0\0\x05tags!and then no frame at all"]),
        Err(AudioError::NoAudio(AudioFormat::Mp3))
    );
    assert_eq!(measure(&[b"\0\0\0\x10ftypisom\0\0\0\0"]), Err(AudioError::NoAudio(AudioFormat::Mp4)));
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(start in 0usize..9, cut in 0usize..400, junk in proptest::collection::vec(any::<u8>(), 0..300)) {
        let good = all()[start].1.clone();
        let bytes = [&good[..cut.min(good.len())], &junk[..]].concat();
        measure(&[&bytes]).ok();
    }

    #[test]
    fn a_damaged_file_makes_nothing_panic(which in 0usize..9, damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..20), size in 1usize..200) {
        let mut bytes = all()[which].1.clone();
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        let whole = measure(&[&bytes]);
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        prop_assert_eq!(measure(&pieces), whole);
    }
}
