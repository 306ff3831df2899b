//! Audio whose timestamps start after 0, or state more than the bytes of the file can hold.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use penstock_media::audio::AudioMeter;
use sounds::{known, length, page, shifted};

fn ogg_files() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    vec![
        ("Opus", sounds::opus(100, 2000), "2"),
        ("Opus, trimmed", sounds::opus(100, 1900), "1.9"),
        ("FLAC", sounds::ogg_flac(20), "5.12"),
        ("Vorbis", sounds::vorbis(33, |number| number * 1000), "2"),
        ("Speex", sounds::speex(100), "2"),
    ]
}

#[test]
fn positions_of_ogg_are_relative_to_the_first_one() {
    for (name, file, seconds) in ogg_files() {
        assert_eq!(length(&file), known(seconds), "{name}");
        // Ten minutes, a day, and positions that no file reaches.
        for by in [48_000 * 600, 48_000 * 86_400, 1 << 62] {
            // A Vorbis stream that starts at 0 has a page of position 0, so it is not shifted as a whole.
            let file = if name == "Vorbis" {
                sounds::vorbis(33, |number| number * 1000 + by)
            } else {
                shifted(&file, by)
            };
            assert_eq!(length(&file), known(seconds), "{name} {by}");
        }
    }
}

#[test]
fn the_end_of_an_ogg_file_behind_its_headers_is_as_long_as_its_packets() {
    let file = sounds::opus(90, 1800);
    let pages: Vec<usize> = (0..file.len()).filter(|at| file[*at..].starts_with(b"OggS")).collect();
    // The headers and the last thirty of ninety packets, of which the first 312 samples are not played.
    let cut = [&file[..pages[2]], &file[pages[2 + 60]..]].concat();
    assert_eq!(length(&cut), known("0.594"));
}

#[test]
fn a_packet_that_continues_on_the_next_page_does_not_move_the_start() {
    let file = sounds::opus(1, 20);
    let headers = file.windows(4).rposition(|bytes| bytes == b"OggS").unwrap();
    let packet = [&[0xf8, 3][..], &[0xf8; 98]].concat();
    // Two packets of which the second one continues on the next page.
    let mut first = page(0, 9, 100_960, &[&packet[..], &vec![0xf8; 255]].concat());
    first.splice(26..29, [2, 100, 255]);
    let rest = page(1, 9, 101_920, &[7; 10]);
    assert_eq!(length(&[&file[..headers], &first, &rest].concat()), known("0.034"));
}

#[test]
fn times_of_webm_are_relative_to_the_first_block() {
    for start in [0, 10_000, 100_000, 300_000, u32::MAX - 10_000] {
        for (name, file) in [
            ("counted packets", sounds::webm_from(start, 130, None, 1_000_000, 0xf8)),
            ("packets of 10 ms", sounds::webm_from(start, 130, None, 1_000_000, 0)),
        ] {
            assert_eq!(length(&file), known("2.6"), "{name} {start}");
        }
    }
}

#[test]
fn an_absurd_position_leaves_the_counted_packets() {
    for (name, file, _) in ogg_files() {
        let counted = match name {
            "FLAC" => "5.12",
            "Vorbis" => "2.048",
            _ => "2",
        };
        let last = file.windows(4).rposition(|bytes| bytes == b"OggS").unwrap();
        for position in [1 << 62, i64::MAX as u64] {
            let mut absurd = file.clone();
            absurd[last + 6..last + 14].copy_from_slice(&position.to_le_bytes());
            assert_eq!(length(&absurd), known(counted), "{name} {position}");
        }
    }
    // An absurd time of the last cluster of WebM.
    let mut file = sounds::webm_from(0, 130, None, 1_000_000, 0xf8);
    let cluster = file.windows(4).rposition(|bytes| bytes == [0x1f, 0x43, 0xb6, 0x75]).unwrap();
    file[cluster + 15..cluster + 19].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(length(&file), known("2.6"));
}

#[test]
fn a_stated_length_counts_up_to_what_the_bytes_can_hold() {
    // The longest accepted length is a second for each 100 bytes, plus one.
    let size = sounds::opus(100, 2000).len() as u64;
    let most = size / 100 + 1;
    let with_end = |samples: u64| {
        let mut file = sounds::opus(100, 2000);
        let last = file.windows(4).rposition(|bytes| bytes == b"OggS").unwrap();
        file[last + 6..last + 14].copy_from_slice(&(samples + 312).to_le_bytes());
        length(&file)
    };
    assert_eq!(with_end(most * 48_000 - 48), known(&format!("{}.999", most - 1)));
    assert_eq!(with_end(most * 48_000), known(&most.to_string()));
    assert_eq!(with_end(most * 48_000 + 48), known("2"));
}

#[test]
fn a_count_is_cut_to_what_the_bytes_can_hold() {
    // Packets of 120 ms in two bytes: six frames of 20 ms without content.
    let mut file = sounds::opus(1, 20);
    let headers = file.windows(4).rposition(|bytes| bytes == b"OggS").unwrap();
    file.truncate(headers);
    for index in 0..20u64 {
        let mut silent = page(0, 9, 5760 * 250 * (index + 1), &[0xfb, 6].repeat(250));
        silent.splice(26..26 + 1 + usize::from(silent[26]), std::iter::once(250).chain([2; 250]));
        file.extend(silent);
    }
    let most = file.len() / 100 + 1;
    assert!(most < 20 * 250 * 120 / 1000);
    assert_eq!(length(&file), known(&most.to_string()));
}

#[test]
fn an_absurd_table_of_an_mp4_leaves_the_counted_frames() {
    let aac = sounds::aac;
    // A hundred frames of 1,024 samples at 16 kHz, in 21,000 bytes.
    let most = aac(100, 1024, b"stsz", 0).len() as u32 / 100 + 1;
    let ticks = most * 160;
    for (ticks, seconds) in [
        (ticks - 1, known("210.994")),
        (ticks, known("211")),
        (ticks + 1, known("6.4")),
        (0x7fff_ffff, known("6.4")),
    ] {
        assert_eq!(length(&aac(100, ticks, b"stsz", 0)), seconds, "{ticks}");
    }
    assert_eq!(most, 211);
    // A header that states an absurd length, without a table of durations.
    let mut file = aac(100, 1024, b"stsz", 0);
    let table = file.windows(4).position(|bytes| bytes == b"stts").unwrap();
    file[table..table + 4].copy_from_slice(b"none");
    let header = file.windows(4).position(|bytes| bytes == b"mdhd").unwrap();
    file[header + 20..header + 24].copy_from_slice(&0x7fff_ffffu32.to_be_bytes());
    assert_eq!(length(&file), known("6.4"));
    // More samples than bytes of media are cut as well.
    let mut file = aac(100, 0x7fff_ffff, b"stsz", 0);
    let sizes = file.windows(4).position(|bytes| bytes == b"stsz").unwrap();
    file[sizes + 12..sizes + 16].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(length(&file), known("211"));
}

#[test]
fn an_absurd_count_of_adpcm_leaves_the_samples_of_the_data() {
    let mut file = sounds::wav(1000);
    file[20..22].copy_from_slice(&0x11u16.to_le_bytes());
    for (samples, seconds) in [(32_000u32, "4"), (31_999, "4"), (32_001, "4"), (u32::MAX, "4")] {
        let mut file = file.clone();
        file.splice(36..36, [&b"fact\x04\0\0\0"[..], &samples.to_le_bytes()].concat());
        assert_eq!(length(&file), known(seconds), "{samples}");
    }
}

#[test]
fn no_claim_makes_a_file_of_counted_packets_unknown() {
    let mut meter = AudioMeter::default();
    meter.push(&sounds::opus(1, 0));
    assert_eq!(meter.end().unwrap().seconds.unwrap().normalize().to_string(), "0.02");
}
