//! Damaged files, and files that state less than they contain. Decoders continue after the damage, so the audio after
//! it counts too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use penstock_media::audio::AudioMeter;
use proptest::prelude::*;
use rust_decimal::Decimal;
use sounds::{aac, known, length, matroska, page};

/// Returns the positions at which this sequence begins.
fn all(bytes: &[u8], sequence: &[u8]) -> Vec<usize> {
    (0..bytes.len()).filter(|at| bytes[*at..].starts_with(sequence)).collect()
}

fn insert(bytes: &[u8], at: usize, piece: &[u8]) -> Vec<u8> {
    [&bytes[..at], piece, &bytes[at..]].concat()
}

#[test]
fn ogg_continues_with_the_next_page() {
    let files = [sounds::opus(100, 2000), sounds::vorbis(33, |number| number * 1000)];
    for file in files {
        let pages = all(&file, b"OggS");
        let whole = length(&file);
        assert_eq!(whole, known("2"));
        for junk in [
            &b"\0"[..],
            b"OggS",
            b"Ogg",
            b"OggS\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\xff",
            &[0; 4096],
        ] {
            assert_eq!(length(&insert(&file, pages[4], junk)), whole, "{}", junk.escape_ascii());
        }
        let mut corrupt = file.clone();
        corrupt[pages[5]] = b'X';
        assert_eq!(length(&corrupt), whole);
    }
}

#[test]
fn every_ogg_stream_counts() {
    let file = sounds::opus(100, 2000);
    let pages = all(&file, b"OggS");
    let head = &file[..pages[1]];
    let other = |serial: u32, bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        for at in all(&bytes, b"OggS") {
            bytes[at + 14..at + 18].copy_from_slice(&(serial + 1000).to_le_bytes());
        }
        bytes
    };
    let heads: Vec<u8> = (0..100).flat_map(|serial| other(serial, head)).collect();
    assert_eq!(length(&[&heads[..], &file].concat()), known("2"));
    // A hundred streams of two packets (40 ms) each, and one stream of 2 seconds.
    let chained: Vec<u8> = (0..100).flat_map(|serial| other(serial, &sounds::opus(2, 40))).collect();
    assert_eq!(length(&[&chained[..], &file].concat()), known("6"));
    // Each stream replaces the one with the same serial number, and all durations are added.
    assert_eq!(length(&[&file[..], &file, &file].concat()), known("6"));
    // The first page lacks the flag that marks the start of a stream.
    let mut unmarked = file.clone();
    unmarked[5] = 0;
    assert_eq!(length(&unmarked), known("2"));
}

#[test]
fn vorbis_is_no_shorter_than_its_packets() {
    // The first of 33 packets has no samples: 32 · 1,024 / 16,000 seconds.
    for (name, position) in [("rising", 1u64), ("all zero", 0), ("unknown", u64::MAX)] {
        let file = sounds::vorbis(33, |number| if position == 1 { number } else { position });
        assert_eq!(length(&file), known("2.048"), "{name}");
    }
    assert_eq!(length(&sounds::vorbis(33, |number| number * 1000)), known("2"), "a trimmed end");
}

/// Measures the same tags in one push and in pieces of 4 KiB: the time of one push must not grow with the square of
/// their number.
#[test]
fn many_tags_take_linear_time() {
    let tags = b"ID3\x04\0\0\0\0\0\0".repeat(640_000);
    let measure = |piece: usize| {
        let start = std::time::Instant::now();
        let mut meter = AudioMeter::default();
        tags.chunks(piece).for_each(|bytes| meter.push(bytes));
        assert!(meter.end().is_err());
        start.elapsed()
    };
    let (pieces, whole) = (measure(4096), measure(tags.len()));
    assert!(whole < pieces * 4 + std::time::Duration::from_secs(1), "{whole:?}, in pieces {pieces:?}");
}

#[test]
fn a_large_comment_of_ogg_is_no_audio() {
    let file = sounds::opus(100, 2000);
    let pages = all(&file, b"OggS");
    // Comment header with a large picture, in ten pages of 60 kB.
    let mut comments = page(0, 9, 0, &[&b"OpusTags"[..], &[1; 60 * 1020 - 8]].concat());
    for _ in 0..9 {
        comments.extend(page(1, 9, 0, &[1; 60 * 1020]));
    }
    for at in all(&comments, b"OggS") {
        comments[at + 26] = 240;
    }
    comments.extend(page(1, 9, 0, b"end"));
    let file = [&file[..pages[1]], &comments, &file[pages[2]..]].concat();
    let mut meter = AudioMeter::default();
    meter.push(&file);
    assert_eq!(meter.end().unwrap().seconds, Some(Decimal::from(2)));
}

#[test]
fn webm_continues_with_the_next_cluster() {
    for file in [sounds::webm(130, None), sounds::webm_with(130, None, 1, 0xf8)] {
        let cluster = all(&file, &[0x1f, 0x43, 0xb6, 0x75])[1];
        let whole = length(&file);
        assert_eq!(whole, known("2.6"));
        for junk in [
            &[0, 0][..],
            &[1],
            &[0x40],
            &[0xa3],
            &[0xec, 0x08, 0xff, 0xff, 0xff, 0xff],
            &[0x1f],
            &[0x1f, 0x43, 0xb6],
        ] {
            assert_eq!(length(&insert(&file, cluster, junk)), whole, "{junk:x?}");
        }
    }
}

#[test]
fn an_attachment_of_webm_is_no_audio() {
    let file = sounds::webm(130, None);
    let cluster = all(&file, &[0x1f, 0x43, 0xb6, 0x75])[0];
    let mut attachment = vec![0x19, 0x41, 0xa4, 0x69, 0x10, 0x10, 0, 0];
    attachment.resize(8 + 0x10_0000, 0x1f);
    let mut meter = AudioMeter::default();
    meter.push(&insert(&file, cluster, &attachment));
    assert_eq!(meter.end().unwrap().seconds.unwrap().normalize().to_string(), "2.6");
}

#[test]
fn a_tag_amid_frames_hides_none() {
    let frames = sounds::mp3(400);
    let whole = length(&frames);
    assert_eq!(whole, known("10.449"));
    let mut ape = b"APETAGEX".to_vec();
    for number in [2000, 2_000_000, 1, 0x8000_0000u32] {
        ape.extend(number.to_le_bytes());
    }
    ape.extend([0; 8]);
    let at = 417 + 208;
    for tag in [&ape[..], b"ID3\x04\0\0\x7f\x7f\x7f\x7f", b"ID3\x04\0\0\0\x7f\x7f\x7f"] {
        assert_eq!(length(&insert(&frames, at, tag)), whole, "{}", tag.escape_ascii());
    }
    let many: Vec<u8> = frames.chunks(at).flat_map(|pair| [&b"TAG"[..], pair].concat()).collect();
    assert_eq!(length(&many), known("10.449"), "a tag before each pair");
    let many: Vec<u8> = frames.chunks(at).flat_map(|pair| [&b"\0"[..], pair].concat()).collect();
    assert_eq!(length(&[&frames[..at], &many].concat()), known("10.501"), "noise before each pair");
}

#[test]
fn a_picture_in_a_tag_behind_the_frames_is_no_audio() {
    // 2 MB of noise, as from a compressed picture.
    let mut state = 1u64;
    let picture: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    })
    .take(2_000_000)
    .collect();
    let mut ape = b"APETAGEX".to_vec();
    for number in [2000, 2_000_000, 1, 0x8000_0000u32] {
        ape.extend(number.to_le_bytes());
    }
    ape.extend([0; 8]);
    let old = [&b"TAG"[..], &[b' '; 125]].concat();
    let measure = |bytes: &[u8]| {
        let mut meter = AudioMeter::default();
        bytes.chunks(1000).for_each(|piece| meter.push(piece));
        meter.end().unwrap().seconds.unwrap().normalize().to_string()
    };
    let frames = sounds::mp3(40);
    assert_eq!(measure(&[&frames[..], &ape, &picture, &old].concat()), "1.045");
    let lead = [&b"ID3\x04\0\0\0\x7a\x09\0"[..], &picture].concat();
    assert_eq!(measure(&[&lead[..], &frames].concat()), "1.045");
    // A tag that states more bytes than the file has does not count as a tag: its bytes count as audio, at 80,000
    // bytes per second.
    assert_eq!(measure(&[&frames[..], &ape, &picture[..1_000_000]].concat()), "12.657");
}

#[test]
fn an_end_code_does_not_end_a_program_stream() {
    let file = sounds::program(400);
    let whole = length(&file);
    assert_eq!(whole, known("10.449"));
    let packs = all(&file, &[0, 0, 1, 0xba]);
    for code in [&[0, 0, 1, 0xb9][..], &[0, 0, 1, 0xbb, 0xff, 0xff], &[0, 0, 1, 0xf0, 0xff, 0xff], &[0, 0, 1]]
    {
        assert_eq!(length(&insert(&file, packs[4], code)), whole, "{code:x?}");
    }
    // The audio stream changes its stream id after a few packets, so only the longer part counts.
    let mut other = file.clone();
    for at in all(&file, &[0, 0, 1, 0xc0]).into_iter().skip(3) {
        other[at + 3] = 0xc1;
    }
    assert_eq!(length(&other), known("10.371"));
}

#[test]
fn mpeg_audio_in_wav_is_as_long_as_its_frames() {
    let wav = |tag: u16, frames: &[u8], claim: u32| {
        let mut bytes = b"RIFF\0\0\0\0WAVEfmt ".to_vec();
        bytes.extend(if tag == 0xfffe { 40u32 } else { 18 }.to_le_bytes());
        bytes.extend(tag.to_le_bytes());
        bytes.extend([1, 0, 0x44, 0xac, 0, 0, 0, 0, 0xf, 0, 1, 0, 16, 0, 22, 0]);
        if tag == 0xfffe {
            bytes.extend([16, 0, 4, 0, 0, 0, 0x55, 0]);
            bytes.extend([0; 14]);
        }
        bytes.extend(b"fact\x04\0\0\0\x01\0\0\0data");
        bytes.extend(claim.to_le_bytes());
        bytes.extend(frames);
        bytes
    };
    let frames = sounds::mp3(400);
    for (tag, claim) in [(0x55, frames.len() as u32), (0x55, 10), (0x50, 0), (0xfffe, u32::MAX)] {
        assert_eq!(length(&wav(tag, &frames, claim)), known("10.449"), "{tag:x} {claim}");
    }
}

#[test]
fn every_table_of_an_mp4_counts() {
    // A hundred frames of 1,024 samples at 16 kHz.
    for (ticks, sizes) in [(1024, b"stsz"), (1024, b"stz2"), (1, b"stsz"), (1, b"stz2")] {
        assert_eq!(length(&aac(100, ticks, sizes, 0)), known("6.4"), "{ticks}");
    }
    let measure = |bytes: &[u8]| {
        let mut meter = AudioMeter::default();
        bytes.chunks(777).for_each(|piece| meter.push(piece));
        meter.end().unwrap().seconds.unwrap().normalize().to_string()
    };
    // Tables of more than 256 KiB.
    assert_eq!(measure(&aac(100, 1024, b"stsz", 300_000)), "6.4");
    assert_eq!(measure(&aac(40_000, 2, b"none", 0)), "5");
}

#[test]
fn an_mp4_continues_behind_what_is_no_box() {
    let file = sounds::fragmented(3);
    let fragments = all(&file, b"moof");
    assert_eq!(length(&file), known("3"));
    for junk in [&[0, 0, 0, 4, b'j', b'u', b'n', b'k'][..], &[0, 0, 0, 0, b'f', b'r', b'e', b'e'], b"\0\0"] {
        assert_eq!(length(&insert(&file, fragments[1] - 4, junk)), known("3"), "{junk:x?}");
    }
    // A run of samples with 300,000 additional bytes after its entries.
    let run = all(&file, b"trun")[2];
    let mut padded = insert(&file, run + 4 + 12 + 50 * 8, &vec![0; 300_000]);
    let (moof, traf) = (fragments[2] - 4, fragments[2] + 4);
    for at in [moof, traf, run - 4] {
        let size = u32::from_be_bytes(padded[at..at + 4].try_into().unwrap()) + 300_000;
        padded[at..at + 4].copy_from_slice(&size.to_be_bytes());
    }
    let mut meter = AudioMeter::default();
    meter.push(&padded);
    assert_eq!(meter.end().unwrap().seconds, Some(Decimal::from(3)), "a run of more than 256 KiB");
}

#[test]
fn a_metadata_block_without_end_hides_no_frames_of_flac() {
    let mut file = sounds::framed_flac(44_100, 1, 20);
    file[4] = 0;
    let hidden = insert(&file, 42, &[0x81, 0xff, 0xff, 0xff]);
    assert_eq!(length(&hidden), known("1.858"));
    // Frames inside a complete metadata block do not count, as in decoders.
    let complete = insert(&file, 42, &[0x81, 0, 0x02, 0xbc]);
    assert_eq!(length(&complete), known("1.765"));
}

fn files() -> Vec<Vec<u8>> {
    vec![
        sounds::wav(1250),
        sounds::mp3(40),
        sounds::tagged_mp3(40),
        sounds::program(40),
        sounds::mp4(2500),
        sounds::fragmented(3),
        sounds::webm(130, None),
        sounds::ogg(1500),
        sounds::opus(50, 1000),
        sounds::vorbis(40, |number| number * 1000),
        sounds::framed_flac(44_100, 0, 20),
        aac(20, 1024, b"stsz", 0),
        matroska(b"A_OPUS", &[], &[], &vec![[&[0x84, 2][..], &[0xf8; 60]].concat(); 20]),
    ]
}

#[test]
fn bytes_that_belong_to_nothing_count_as_audio() {
    let (lossy, plain) = (Decimal::from(38), Decimal::new(488, 3));
    for (index, file) in files().into_iter().enumerate() {
        // WAV, FLAC and MP4 of an unknown codec may be uncompressed.
        let least = if matches!(index, 0 | 4 | 5 | 10) { plain } else { lossy };
        for filler in [0u8, 1, 0x47, 0xff] {
            let bytes = [&file[..], &vec![filler; 3_100_000]].concat();
            let mut meter = AudioMeter::default();
            bytes.chunks(16_384).for_each(|piece| meter.push(piece));
            if let Some(seconds) = meter.end().unwrap().seconds {
                assert!(seconds >= least, "file {index}, {filler:x}: {seconds}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_file_is_shorter_than_its_bytes(
        which in 0usize..13,
        pieces in proptest::collection::vec((any::<usize>(), 0usize..13, any::<usize>(), 0usize..600), 0..6),
        damage in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..20),
        tail in proptest::collection::vec(any::<u8>(), 0..300),
        repeat in 0usize..30,
        size in 1usize..3000,
    ) {
        let files = files();
        let mut bytes = files[which].clone();
        // Inserts parts of other files, damages bytes, and appends noise.
        for (at, other, from, length) in pieces {
            let other = &files[other];
            let from = from % other.len();
            let at = at % bytes.len();
            bytes.splice(at..at, other[from..].iter().take(length).copied());
        }
        for (at, byte) in damage {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.extend(tail.repeat(repeat));
        let measure = |size: usize| {
            let mut meter = AudioMeter::default();
            bytes.chunks(size).for_each(|piece| meter.push(piece));
            meter.end()
        };
        let whole = measure(bytes.len());
        prop_assert_eq!(measure(size), whole);
        prop_assert_eq!(measure(1), whole);
        if let Ok(info) = whole && let Some(seconds) = info.seconds {
            let least = (Decimal::from(bytes.len() as u64) / Decimal::from(6_144_000)).round_dp(3);
            prop_assert!(seconds >= least, "{} of {} bytes", seconds, bytes.len());
        }
    }
}
