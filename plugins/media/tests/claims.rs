//! Durations that a file's header or a provider states, compared with those measured in frames, samples and bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod sounds;

use penstock_core::{AudioInput, DurationBasis};
use rust_decimal::Decimal;
use sounds::{known, length};

/// Returns a WAV file with one second of audio (8 kHz, 16 bits, mono), whose head states these values instead.
fn wav(tag: u16, channels: u16, rate: u32, byte_rate: u32, block: u16, bits: u16) -> Vec<u8> {
    let mut bytes = sounds::wav(1000);
    bytes[20..22].copy_from_slice(&tag.to_le_bytes());
    bytes[22..24].copy_from_slice(&channels.to_le_bytes());
    bytes[24..28].copy_from_slice(&rate.to_le_bytes());
    bytes[28..32].copy_from_slice(&byte_rate.to_le_bytes());
    bytes[32..34].copy_from_slice(&block.to_le_bytes());
    bytes[34..36].copy_from_slice(&bits.to_le_bytes());
    bytes
}

#[test]
fn the_byte_rate_of_a_wav_makes_it_no_shorter() {
    for byte_rate in [0, 1, 16_000, 16_001, u32::MAX] {
        assert_eq!(length(&wav(1, 1, 8000, byte_rate, 2, 16)), known("1"), "{byte_rate}");
    }
}

#[test]
fn of_two_sizes_of_a_sample_the_smaller_one_counts() {
    for (channels, block, bits) in
        [(1, 2, 16), (1, 65_535, 16), (1, 0, 16), (1, 2, 0), (65_535, 2, 16), (0, 2, 16)]
    {
        assert_eq!(
            length(&wav(1, channels, 8000, 16_000, block, bits)),
            known("1"),
            "{channels} {block} {bits}"
        );
    }
    assert_eq!(length(&wav(1, 0, 8000, 16_000, 0, 0)), None, "nothing tells");
    assert_eq!(length(&wav(1, 1, 0, 16_000, 2, 16)), None, "nothing tells");
}

#[test]
fn a_sample_of_a_law_and_u_law_is_a_byte_whatever_the_head_states() {
    for tag in [6, 7] {
        for (block, bits) in [(1, 8), (2, 16), (8, 64), (128, 1024), (8191, 65_528), (0, 0)] {
            assert_eq!(length(&wav(tag, 1, 8000, 8000, block, bits)), known("2"), "{tag} {block} {bits}");
        }
    }
}

#[test]
fn no_rate_makes_a_wav_shorter_than_bytes_can_be() {
    // 16,000 bytes of audio and 58 bytes of headers last 2.6 ms at 6,144,000 bytes a second, the maximum rate.
    for (rate, seconds) in [(192_000 * 8, "0.005"), (3_072_000, "0.003"), (u32::MAX, "0.003")] {
        assert_eq!(length(&wav(1, 1, rate, 16_000, 2, 16)), known(seconds), "{rate}");
    }
}

#[test]
fn the_count_of_a_compressed_wav_counts_within_its_bytes() {
    let with_fact = |tag, samples: u32| {
        let mut bytes = wav(tag, 1, 8000, 4000, 256, 4);
        let fact = [&b"fact\x04\0\0\0"[..], &samples.to_le_bytes()].concat();
        bytes.splice(36..36, fact);
        bytes
    };
    // IMA ADPCM: 16,000 bytes contain 32,000 samples, 4 seconds; some bytes of each block are no samples.
    for (samples, seconds) in [(31_500, "3.938"), (30_000, "3.75"), (29_999, "4"), (1, "4"), (0, "4")] {
        assert_eq!(length(&with_fact(0x11, samples)), known(seconds), "{samples}");
    }
    // For other codecs at most 320 kbit/s are accepted.
    for (samples, seconds) in [(16_000, known("2")), (3_201, known("0.4")), (3_199, None), (8, None)] {
        assert_eq!(length(&with_fact(0x2000, samples)), seconds, "{samples}");
    }
    // GSM: 16,000 bytes contain 246 blocks of 320 samples.
    assert_eq!(length(&with_fact(0x31, 1)), known("9.84"));
}

#[test]
fn blocks_of_a_speech_codec_have_their_length_whatever_the_header_states() {
    // 16,000 bytes of data.
    for (name, tag, bits, expected) in [
        ("G.723.1 under the tag of Antex", 0x14, 0, "19.98"),
        ("G.723.1", 0x42, 0, "19.98"),
        ("TrueSpeech", 0x22, 1, "15"),
        ("GSM of MSN", 0x32, 0, "9.84"),
        ("G.728", 0x41, 0, "8"),
        ("G.729", 0x83, 0, "16"),
        ("G.729A", 0x134, 16, "16"),
        ("Siren", 0x28e, 0, "16"),
        ("G.723 of 3 bits", 0x14, 3, "5.333"),
        ("G.723 of 5 bits", 0x14, 5, "3.2"),
        ("G.721", 0x40, 4, "4"),
        ("G.721 without bits", 0x40, 0, "4"),
        ("G.726 of 2 bits", 0x45, 2, "8"),
        ("G.726 of impossible bits", 0x64, 16, "3.2"),
        ("OKI ADPCM", 0x17, 4, "4"),
        ("G.722", 0x65, 0, "4"),
    ] {
        for byte_rate in [1, 800, 40_000, 6_144_000, u32::MAX] {
            assert_eq!(
                length(&wav(tag, 1, 8000, byte_rate, 24, bits)),
                known(expected),
                "{name} {byte_rate}"
            );
        }
    }
    // The codec has a sample rate of its own.
    for (rate, expected) in [(0, "15"), (4_000, "30"), (16_000, "15"), (800_000, "15")] {
        assert_eq!(length(&wav(0x22, 1, rate, 1_067, 32, 1)), known(expected), "{rate}");
    }
}

#[test]
fn no_byte_rate_makes_a_known_codec_shorter_than_at_its_maximum() {
    for (name, tag, shortest) in [
        ("AMR", 0x57, "10"),
        ("AMR wideband", 0x58, "5.246"),
        ("Windows Media Audio Voice", 0x0a, "6.4"),
        ("Speex", 0xa109, "2.857"),
        ("G.722.1", 0xa112, "2.667"),
    ] {
        for byte_rate in [0, 40_000, u32::MAX] {
            assert_eq!(length(&wav(tag, 1, 8000, byte_rate, 1, 0)), known(shortest), "{name} {byte_rate}");
        }
        let mut counted = wav(tag, 1, 8000, 40_000, 1, 0);
        counted.splice(36..36, [&b"fact\x04\0\0\0"[..], &1u32.to_le_bytes()].concat());
        assert_eq!(length(&counted), known(shortest), "{name}");
        assert_eq!(length(&wav(tag, 1, 8000, 500, 1, 0)), known("32"), "{name}");
    }
}

#[test]
fn data_behind_the_data_of_a_wav_counts_and_chunks_do_not() {
    let understated = |rest: &[u8]| {
        let mut bytes = sounds::wav(1000);
        let at = bytes.len() - 16_000 - 4;
        bytes[at..at + 4].copy_from_slice(&160u32.to_le_bytes());
        bytes.truncate(at + 4 + 160);
        bytes.extend(rest);
        bytes
    };
    assert_eq!(length(&understated(&[])), known("0.01"));
    assert_eq!(length(&understated(&[7; 15_840])), known("1"));
    assert_eq!(length(&understated(&[&b"LIST\x04\0\0\0INFO"[..], &[7; 15_840]].concat())), known("1"));
    assert_eq!(length(&understated(&[&b"LIST\x10\x27\0\0"[..], &[b'x'; 10_000]].concat())), known("0.01"));
    assert_eq!(length(&understated(&[&b"data\x10\x27\0\0"[..], &[7; 10_000]].concat())), known("0.635"));
}

#[test]
fn a_flac_is_as_long_as_its_frames() {
    // Twenty frames of 4096 samples at 44.1 kHz.
    for stated in [0, 1, 81_920, (1 << 36) - 1] {
        assert_eq!(length(&sounds::framed_flac(44_100, stated, 20)), known("1.858"), "{stated}");
    }
    // Code 7 are samples of 32 bits, code 3 is reserved (RFC 9639, section 9.1.4).
    for sample_size in [0, 1, 2, 4, 5, 6, 7] {
        let file = sounds::flac_of_sample_size(44_100, 1, 20, sample_size);
        assert_eq!(length(&file), known("1.858"), "code {sample_size}");
    }
    assert_eq!(length(&sounds::flac_of_sample_size(44_100, 44_100, 20, 3)), known("1"), "no valid frame");
    assert_eq!(length(&sounds::framed_flac(44_100, 44_100, 0)), known("1"), "only the head tells");
    assert_eq!(length(&sounds::framed_flac(44_100, 0, 0)), None, "nothing tells");
    assert_eq!(length(&sounds::framed_flac(44_100, 44_100 * 3600, 0)), None, "more than its bytes can hold");
}

#[test]
fn an_mp4_is_as_long_as_its_samples() {
    let m4a = sounds::m4a;
    // A hundred frames of AAC of 1024 samples at 44.1 kHz, in 20,000 bytes.
    for stated in [0, 1, 102_400, u32::MAX] {
        assert_eq!(
            length(&m4a(44_100, stated, &[(99, 1024), (1, 1024)], b"mp4a", 100, 20_000)),
            known("2.322")
        );
    }
    // Stated sample lengths, or a stated rate, that give less than the minimum duration of these frames.
    for (rate, lengths) in [(44_100, [(100, 1)]), (u32::MAX, [(100, 1024)]), (44_100, [(1, 1024)])] {
        assert_eq!(length(&m4a(rate, 0, &lengths, b"mp4a", 100, 20_000)), known("1"), "{rate} {lengths:?}");
    }
    // If the stated frames are fewer, the bytes determine the length, at most 640 kbit/s.
    assert_eq!(length(&m4a(44_100, 1, &[(1, 1)], b"mp4a", 1, 20_000)), known("0.25"));
    assert_eq!(length(&m4a(44_100, 1, &[(1, 1)], b"alac", 1, 614_400)), known("0.1"));
    // Stated duration that exceeds what the bytes can contain.
    assert_eq!(length(&m4a(44_100, 1, &[(u32::MAX, u32::MAX)], b"mp4a", 100, 20_000)), None);
}

/// Order of the index and the media in an MP4 file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    IndexFirst,
    IndexLast,
}

/// Returns an MP4 with Opus. Arguments: the stated lengths of samples (count, ticks of 48 kHz), the first byte of
/// each packet of 80 bytes, and the bytes in front of the packets.
fn opus_mp4(stated: &[(u32, u32)], packets: &[u8], front: &[u8], order: Order) -> Vec<u8> {
    let packets: Vec<&[u8]> = packets.chunks(1).collect();
    mp4_of_packets(b"Opus", stated, &packets, front, order)
}

/// Returns an MP4 with packets of 80 bytes, which begin with the given bytes. The other arguments are those of
/// [`opus_mp4`].
fn mp4_of_packets(
    codec: &[u8; 4],
    stated: &[(u32, u32)],
    packets: &[&[u8]],
    front: &[u8],
    order: Order,
) -> Vec<u8> {
    let packet = |start: &&[u8]| [start, &[7; 80][start.len()..]].concat();
    let samples: Vec<u8> = packets.iter().flat_map(packet).collect();
    let mdat = sounds::boxed(b"mdat", &[front, &samples].concat());
    let ftyp = sounds::boxed(b"ftyp", b"M4A \0\0\0\0");
    let moov = |chunk: usize| {
        let sizes =
            [&[0; 8][..], &(packets.len() as u32).to_be_bytes(), &[0, 0, 0, 80].repeat(packets.len())]
                .concat();
        let chunks = [&[0, 0, 0, 0, 0, 0, 0, 1][..], &(chunk as u32).to_be_bytes()].concat();
        let more = [sounds::boxed(b"stsz", &sizes), sounds::boxed(b"stco", &chunks)].concat();
        sounds::m4a_index(48_000, 0, stated, codec, &more)
    };
    let before = ftyp.len() + if order == Order::IndexFirst { moov(0).len() } else { 0 };
    let index = moov(before + 8 + front.len());
    match order {
        Order::IndexFirst => [ftyp, index, mdat].concat(),
        Order::IndexLast => [ftyp, mdat, index].concat(),
    }
}

#[test]
fn opus_in_an_mp4_is_no_shorter_than_its_packets() {
    // Packets of 20 ms whose table states less, packets that are as short as stated, and gaps between packets.
    for (toc, ticks, seconds) in [
        (0xf8, 960, "2"),
        (0xf8, 942, "1.962"),
        (0xf8, 120, "2"),
        (0xf8, 1, "2"),
        (0xf8, 0, "2"),
        (0x18, 120, "6"),
        (0x80, 120, "0.25"),
        (0x80, 60, "0.25"),
        (0xf8, 1_920, "4"),
    ] {
        for order in [Order::IndexFirst, Order::IndexLast] {
            // If the bytes in front of the packets were read as packets, they would last 120 ms.
            for front in [&[][..], &[0xff; 8]] {
                let file = opus_mp4(&[(100, ticks)], &[toc; 100], front, order);
                assert_eq!(length(&file), known(seconds), "{toc:x} {ticks} {order:?} {front:?}");
            }
        }
    }
}

#[test]
fn opus_in_an_mp4_is_no_longer_than_its_shortest_known_packet() {
    for order in [Order::IndexFirst, Order::IndexLast] {
        // A packet of 60 ms is followed by packets of 20 ms.
        let packets = [&[0x18][..], &[0xf8; 99]].concat();
        let file = opus_mp4(&[(1, 2_880), (99, 960)], &packets, &[], order);
        assert_eq!(length(&file), known("2.04"), "{order:?}");
        let file = opus_mp4(&[(100, 1)], &packets, &[], order);
        assert_eq!(length(&file), known("2"), "{order:?}");
        // At a chunk position outside of the media no packets are found, so the stated duration counts.
        let mut file = opus_mp4(&[(100, 960)], &[0xff; 100], &[], order);
        let chunk = file.windows(4).position(|name| name == b"stco").unwrap() + 12;
        for at in [0u32, 20, u32::MAX] {
            file[chunk..chunk + 4].copy_from_slice(&at.to_be_bytes());
            assert_eq!(length(&file), known("2"), "{order:?} {at}");
        }
    }
    // A sample has at least one byte, so 40 packets of 20 ms cannot be a million.
    let mut file = opus_mp4(&[(40, 0)], &[0xf8; 40], &[], Order::IndexFirst);
    let count = file.windows(4).position(|name| name == b"stsz").unwrap() + 12;
    file[count..count + 4].copy_from_slice(&1_000_000u32.to_be_bytes());
    let seconds: f64 = length(&file).map_or(0.0, |seconds| seconds.parse().unwrap());
    assert!(seconds < 70.0, "{seconds}");
}

#[test]
fn mpeg_audio_in_an_mp4_is_no_shorter_than_its_frames() {
    let (usual, slow): ([u8; 4], [u8; 4]) = ([0xff, 0xfb, 0x90, 0x64], [0xff, 0xe3, 0x18, 0xc4]);
    for (header, ticks, seconds) in [
        (&usual[..], 1_254, "2.612"),
        (&usual, 480, "2.612"),
        (&usual, 0, "2.612"),
        (&usual, 4_800, "10"),
        (&slow, 480, "7.2"),
        // Without a valid header a sample counts at least 10 ms.
        (&[0; 4], 480, "1"),
        (&[0; 4], 479, "2.612"),
    ] {
        for order in [Order::IndexFirst, Order::IndexLast] {
            let file = mp4_of_packets(b".mp3", &[(100, ticks)], &[header; 100], &[], order);
            assert_eq!(length(&file), known(seconds), "{header:x?} {ticks} {order:?}");
        }
    }
}

#[test]
fn opus_is_no_shorter_than_its_packets() {
    // A hundred packets of 20 ms; positions may omit samples that are trimmed at both ends.
    for (millis, seconds) in [(2000, "2"), (1800, "1.8"), (1759, "2"), (1, "2"), (0, "2")] {
        assert_eq!(length(&sounds::opus(100, millis)), known(seconds), "{millis}");
    }
    assert_eq!(length(&sounds::opus(100, 10_000_000)), known("2"), "more than its bytes can hold");
    for (tick, seconds) in [(1_000_000, "2.6"), (1, "2.6")] {
        assert_eq!(length(&sounds::webm_with(130, None, tick, 0xf8)), known(seconds), "{tick}");
    }
}

#[test]
fn frames_of_another_kind_count() {
    // The first frames are of another sample rate than all others.
    let mut first = sounds::mp3(2);
    for at in [0, 417] {
        first[at + 2] |= 4;
    }
    // At 48 kHz a frame of 128 kbit/s takes 384 bytes, one of 64 kbit/s takes 192.
    first.drain(417 + 192..);
    first.drain(384..417);
    let others = sounds::mp3(40);
    // 2 · 1152 / 48,000 and 40 · 1152 / 44,100 seconds.
    assert_eq!(length(&[first, others].concat()), known("1.093"));
}

#[test]
fn reserves_and_charges_are_positive_and_bounded_by_the_bytes() {
    let heard = |seconds: Option<Decimal>, bytes| AudioInput {
        extension: "m4a",
        content_type: "audio/mp4",
        seconds,
        basis: DurationBasis::Counted,
        bytes,
    };
    let decimal = |text: &str| text.parse::<Decimal>().unwrap();
    let measured = heard(Some(decimal("12.5")), 1_000_000);
    for claimed in [None, Some("0"), Some("0.001"), Some("12.6"), Some("2678400")] {
        assert_eq!(measured.charged_seconds(claimed.map(decimal)), decimal("12.5"));
    }
    assert_eq!(measured.max_seconds(), decimal("12.5"));
    let unknown = heard(None, 1_000_000);
    for (claimed, charged) in [
        (None, "62.5"),
        (Some("30"), "30"),
        (Some("0"), "0.163"),
        (Some("0.162"), "0.163"),
        (Some("0.164"), "0.164"),
        (Some("1001"), "1001"),
        (Some("1001.001"), "1001"),
        (Some("2678400"), "1001"),
    ] {
        assert_eq!(unknown.charged_seconds(claimed.map(decimal)), decimal(charged), "{claimed:?}");
    }
    assert_eq!(unknown.max_seconds(), decimal("1001"));
    assert_eq!(heard(None, 1).charged_seconds(None), decimal("0.001"));
}
