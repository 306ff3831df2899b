//! Frames of FLAC, told from bytes that only look like the header of a frame.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use sounds::{flac_frame_header, framed_flac, known, length};

/// Start of a FLAC file at this sample rate, without frames.
fn head(rate: u32) -> Vec<u8> {
    framed_flac(rate, 0, 0)
}

/// Returns the number of a frame, below 2^26, encoded like a character in UTF-8.
fn encoded(number: u32) -> Vec<u8> {
    if number < 0x80 {
        return vec![number as u8];
    }
    let length = (2..6).find(|length| number < 1 << (5 * length + 1)).unwrap();
    let first = (0xff00u32 >> length) as u8 | (number >> (6 * (length - 1))) as u8;
    let rest = (0..length - 1).rev().map(|place| 0x80 | (number >> (6 * place)) as u8 & 0x3f);
    std::iter::once(first).chain(rest).collect()
}

/// Returns a frame with this start of its header, in 700 bytes.
fn frame(start: &[u8], number: u32) -> Vec<u8> {
    let mut bytes = flac_frame_header(&[start, &encoded(number)].concat());
    bytes.resize(700, 0x11);
    bytes
}

/// Start of a header: 4,096 samples, rate and sample size of the stream.
const FIXED: &[u8] = &[0xff, 0xf8, 0xc0, 0x10];
const VARIABLE: &[u8] = &[0xff, 0xf9, 0xc0, 0x10];
/// Start of a header with 32,768 samples.
const FALSE: &[u8] = &[0xff, 0xf8, 0xf0, 0x10];

fn stream(start: &[u8], numbers: impl Iterator<Item = u32>) -> Vec<u8> {
    numbers.flat_map(|number| frame(start, number)).collect()
}

#[test]
fn bytes_that_look_like_a_header_are_no_frame() {
    // 200 frames of 4,096 samples at 16 kHz.
    for (start, step) in [(FIXED, 1), (VARIABLE, 4096)] {
        for from in [0, 77] {
            let frames = stream(start, (from..from + 200).map(|number| number * step));
            let file = [head(16_000), frames].concat();
            assert_eq!(length(&file), known("51.2"));
            for number in [0, 5, 300, 40_000] {
                // Between the first two frames of a stream that is cut at its start, no number is expected yet.
                let first = if from == 0 { 42 + 300 } else { 42 + 700 + 300 };
                for at in [first, 42 + 100 * 700 + 300, file.len() - 300] {
                    let mut misleading = file.clone();
                    let header = flac_frame_header(&[FALSE, &encoded(number)].concat());
                    misleading[at..at + header.len()].copy_from_slice(&header);
                    assert_eq!(length(&misleading), known("51.2"), "{number} at {at}");
                }
            }
        }
    }
}

#[test]
fn frames_with_any_numbers_count() {
    for (name, numbers) in [
        ("repeated", vec![0; 200]),
        ("falling", (0..200).rev().collect()),
        ("odd", (0..200).map(|number| 2 * number + 1).collect()),
        ("two streams", (0..100).chain(0..100).collect()),
        ("a gap", (0..100).chain(150..250).collect()),
    ] {
        let file = [head(16_000), stream(FIXED, numbers.into_iter())].concat();
        assert_eq!(length(&file), known("51.2"), "{name}");
    }
    assert_eq!(length(&[head(16_000), stream(FIXED, 9..10)].concat()), known("0.256"), "a single frame");
    // One frame may be a false header.
    let numbers = (0..100).flat_map(|number| [number, number + 5000]);
    assert_eq!(length(&[head(16_000), stream(FIXED, numbers)].concat()), known("50.944"), "interleaved");
}

#[test]
fn a_false_header_of_a_low_rate_is_no_frame() {
    // 65,536 samples at 1 Hz, which would last 18 hours.
    let header = flac_frame_header(&[0xff, 0xf8, 0xfd, 0x10, 9, 0, 1]);
    let mut file = [head(16_000), stream(FIXED, 0..200)].concat();
    file[42 + 300..42 + 300 + header.len()].copy_from_slice(&header);
    assert_eq!(length(&file), known("51.2"));
}

#[test]
fn of_two_rates_the_lower_one_counts_if_audio_can_have_it() {
    // Frames that state 48 kHz (code 10), in streams that state another rate.
    let frames = stream(&[0xff, 0xf8, 0xca, 0x10], 0..200);
    let with_rate = |rate| length(&[head(rate), frames.clone()].concat());
    for (rate, seconds) in [
        (48_000, "17.067"),
        (655_350, "17.067"),
        (8_000, "102.4"),
        (1_000, "819.2"),
        (999, "17.067"),
        (1, "17.067"),
    ] {
        assert_eq!(with_rate(rate), known(seconds), "{rate}");
    }
}
