//! Small files of every format, built byte by byte.
#![allow(dead_code, unused_imports)]

mod mp4;

pub use mp4::{aac, boxed, fragmented, m4a, m4a_index, mp4};
use penstock_media::audio::AudioMeter;

/// Returns the measured duration in seconds, and asserts that it does not depend on how the file is split.
pub fn length(bytes: &[u8]) -> Option<String> {
    let measure = |pieces: &[&[u8]]| {
        let mut meter = AudioMeter::default();
        pieces.iter().for_each(|piece| meter.push(piece));
        meter.end().map(|sound| sound.seconds)
    };
    let whole = measure(&[bytes]);
    let (all, step) = if bytes.len() < 20_000 { (1500, 197) } else { (100, 2999) };
    for cut in (0..bytes.len()).filter(|cut| *cut < all || cut % step == 0) {
        assert_eq!(measure(&[&bytes[..cut], &bytes[cut..]]), whole, "cut at {cut}");
    }
    assert_eq!(measure(&bytes.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole.unwrap().map(|seconds| seconds.normalize().to_string())
}

pub fn known(seconds: &str) -> Option<String> {
    Some(seconds.to_owned())
}

/// Returns a WAV file of this many milliseconds, 8 kHz, 16 bits, mono.
pub fn wav(millis: u32) -> Vec<u8> {
    let data = millis * 16;
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data).to_le_bytes());
    bytes.extend(b"WAVEfmt ");
    bytes.extend(16u32.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(8000u32.to_le_bytes());
    bytes.extend(16000u32.to_le_bytes());
    bytes.extend([2, 0, 16, 0]);
    bytes.extend(b"LIST\x05\0\0\0INFOx\0");
    bytes.extend(b"data");
    bytes.extend(data.to_le_bytes());
    bytes.resize(bytes.len() + data as usize, 7);
    bytes
}

/// Returns MPEG-1 layer III frames of 1152 samples each at 44.1 kHz, alternately with 128 and 64 kbit/s.
pub fn mp3(frames: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for index in 0..frames {
        let (head, length) = if index % 2 == 0 { (0x90, 417) } else { (0x50, 208) };
        bytes.extend([0xff, 0xfb, head, 0x64]);
        bytes.resize(bytes.len() + length - 4, 0x55);
    }
    bytes
}

/// Returns the same frames, with a tag and a descriptive frame in front of them and a tag after them.
pub fn tagged_mp3(frames: usize) -> Vec<u8> {
    let mut bytes = b"ID3\x04\0\0\0\0\x02\x10".to_vec();
    bytes.resize(10 + 272, 0xff);
    let mut first = vec![0xff, 0xfb, 0x90, 0x64];
    first.resize(36, 0);
    first.extend(b"Xing");
    first.resize(417, 0);
    bytes.extend(first);
    bytes.extend(mp3(frames));
    bytes.extend(b"TAG");
    bytes.resize(bytes.len() + 125, b' ');
    bytes
}

/// Returns the frames in an MPEG-2 program stream.
pub fn program(frames: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in mp3(frames).chunks(300) {
        bytes.extend([0, 0, 1, 0xba, 0x44, 0, 4, 0, 4, 1, 0, 0, 3, 0xf8]);
        bytes.extend([0, 0, 1, 0xe0, 0, 3, 1, 2, 3]);
        bytes.extend([0, 0, 1, 0xc0]);
        bytes.extend((chunk.len() as u16 + 8).to_be_bytes());
        bytes.extend([0x80, 0x80, 5, 0x21, 0, 1, 0, 1]);
        bytes.extend(chunk);
    }
    bytes.extend([0, 0, 1, 0xb9]);
    bytes
}

pub fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    let mut bytes = id.to_vec();
    bytes.extend((0x4000 | content.len() as u16).to_be_bytes());
    bytes.extend(content);
    bytes
}

const UNKNOWN: [u8; 8] = [1, 255, 255, 255, 255, 255, 255, 255];

/// Returns a recording as browsers write it: unknown sizes, blocks of 20 ms, clusters of a second.
pub fn webm(blocks: u32, duration: Option<f64>) -> Vec<u8> {
    webm_with(blocks, duration, 1_000_000, 4)
}

/// Returns the same recording with this number of nanoseconds per tick, and packets that begin with this byte.
pub fn webm_with(blocks: u32, duration: Option<f64>, tick: u32, first: u8) -> Vec<u8> {
    webm_from(0, blocks, duration, tick, first)
}

/// Returns the same recording, whose first cluster starts at this number of ticks.
pub fn webm_from(start: u32, blocks: u32, duration: Option<f64>, tick: u32, first: u8) -> Vec<u8> {
    let mut bytes = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    bytes.extend([0x18, 0x53, 0x80, 0x67]);
    bytes.extend(UNKNOWN);
    let mut info = element(&[0x2a, 0xd7, 0xb1], &tick.to_be_bytes()[1..]);
    if let Some(duration) = duration {
        info.extend(element(&[0x44, 0x89], &duration.to_be_bytes()));
    }
    bytes.extend(element(&[0x15, 0x49, 0xa9, 0x66], &info));
    let entry = [element(&[0xd7], &[1]), element(&[0x83], &[2]), element(&[0x86], b"A_OPUS")].concat();
    bytes.extend(element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &entry)));
    for block in 0..blocks {
        let (cluster, inside) = (block / 50, block % 50);
        if inside == 0 {
            bytes.extend([0x1f, 0x43, 0xb6, 0x75]);
            bytes.extend(UNKNOWN);
            bytes.extend(element(&[0xe7], &(start + cluster * 1000).to_be_bytes()));
        }
        let mut content = vec![0x81];
        content.extend((inside as u16 * 20).to_be_bytes());
        content.push(0x80);
        content.resize(60, first);
        bytes.extend(element(&[0xa3], &content));
    }
    bytes
}

pub fn page(kind: u8, serial: u32, position: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'O', b'g', b'g', b'S', 0, kind];
    bytes.extend(position.to_le_bytes());
    bytes.extend(serial.to_le_bytes());
    bytes.extend([0; 8]);
    let segments: Vec<u8> = body.chunks(255).map(|chunk| chunk.len() as u8).collect();
    bytes.push(segments.len() as u8);
    bytes.extend(segments);
    bytes.extend(body);
    bytes
}

/// Returns Opus in Ogg, with 312 samples to skip and a gap between the first page and the others.
pub fn ogg(millis: u64) -> Vec<u8> {
    let mut head = b"OpusHead\x01\x01".to_vec();
    head.extend(312u16.to_le_bytes());
    head.extend([0; 7]);
    let mut bytes = page(2, 9, 0, &head);
    bytes.extend(page(0, 9, 0, b"OpusTags"));
    for part in 0..4u64 {
        let position = if part == 0 { 960 } else { millis * 16 * part + 312 };
        bytes.extend(page(0, 9, position, &[5; 400]));
    }
    bytes.extend(page(4, 8, 1 << 40, b"another stream"));
    bytes
}

/// Returns an Ogg file in which this much is added to each position above 0.
pub fn shifted(file: &[u8], by: u64) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for at in 0..bytes.len() - 14 {
        if bytes[at..].starts_with(b"OggS") {
            let position = u64::from_le_bytes(bytes[at + 6..at + 14].try_into().unwrap());
            if position > 0 && position != u64::MAX {
                bytes[at + 6..at + 14].copy_from_slice(&position.wrapping_add(by).to_le_bytes());
            }
        }
    }
    bytes
}

/// Returns a frame of FLAC: 4096 samples at the rate of the stream, in this number of bytes.
pub fn flac_frame(number: u8, length: usize, sample_size: u8) -> Vec<u8> {
    let mut bytes = flac_frame_header(&[0xff, 0xf8, 0xc0, 0x10 | sample_size << 1, number & 0x7f]);
    bytes.resize(length, 0x11);
    bytes
}

/// Returns the header of a frame of FLAC with its checksum.
pub fn flac_frame_header(header: &[u8]) -> Vec<u8> {
    let crc = header.iter().fold(0u8, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 })
    });
    [header, &[crc]].concat()
}

/// Returns FLAC whose head states `rate` and `stated` samples, followed by `frames` frames of 4096 samples of 16
/// bits.
pub fn framed_flac(rate: u32, stated: u64, frames: u8) -> Vec<u8> {
    flac_of_sample_size(rate, stated, frames, 4)
}

/// Same as [`framed_flac`], with this code of the sample size in the headers of the frames.
pub fn flac_of_sample_size(rate: u32, stated: u64, frames: u8, sample_size: u8) -> Vec<u8> {
    let mut bytes = b"fLaC\x80\0\0\x22".to_vec();
    bytes.extend([16, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((u64::from(rate) << 44 | 1 << 41 | 15 << 36 | stated).to_be_bytes());
    bytes.resize(42, 0);
    for number in 0..frames {
        bytes.extend(flac_frame(number, 700, sample_size));
    }
    bytes
}

/// Returns Opus in Ogg: this number of packets of 20 ms, each in its own page. The page positions state `millis`
/// instead of the duration of the packets.
pub fn opus(packets: u64, millis: u64) -> Vec<u8> {
    let mut head = b"OpusHead\x01\x01".to_vec();
    head.extend(312u16.to_le_bytes());
    head.extend([0; 7]);
    let mut bytes = [page(2, 9, 0, &head), page(0, 9, 0, b"OpusTags")].concat();
    for number in 1..=packets {
        let mut packet = vec![0xf8; 160];
        packet[1] = 3;
        // The first page ends with its packet, so the audio starts at 0.
        let most = if number == 1 { 960 } else { u64::MAX };
        bytes.extend(page(0, 9, (millis * 48 * number / packets + 312).min(most), &packet));
    }
    bytes
}

/// Returns FLAC at 44.1 kHz.
pub fn flac(samples: u64) -> Vec<u8> {
    let mut bytes = b"fLaC\0\0\0\x22".to_vec();
    bytes.extend([16, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend((44_100u64 << 44 | 1 << 41 | 15 << 36 | samples).to_be_bytes());
    bytes.resize(200, 0);
    bytes
}

/// Returns FLAC in Ogg at 16 kHz: this number of frames of 4,096 samples, one per page.
pub fn ogg_flac(frames: u8) -> Vec<u8> {
    let mut head = b"\x7fFLAC\x01\0\0\x01fLaC\0\0\0\x22".to_vec();
    head.extend([16, 0, 16, 0, 0, 0, 0, 0, 0, 0]);
    head.extend((16_000u64 << 44 | 15 << 36).to_be_bytes());
    head.resize(51, 0);
    let mut bytes = [page(2, 9, 0, &head), page(0, 9, 0, b"\x84\0\0\0")].concat();
    for number in 0..frames {
        bytes.extend(page(0, 9, 4096 * (u64::from(number) + 1), &flac_frame(number, 200, 4)));
    }
    bytes
}

/// Returns Speex in Ogg at 16 kHz: this number of packets of 20 ms, one per page.
pub fn speex(packets: u64) -> Vec<u8> {
    let mut head = b"Speex   ".to_vec();
    head.resize(80, 0);
    head[36..40].copy_from_slice(&16_000u32.to_le_bytes());
    head[40] = 1;
    head[64] = 1;
    let mut bytes = [page(2, 9, 0, &head), page(0, 9, 0, b"comments")].concat();
    for number in 1..=packets {
        bytes.extend(page(0, 9, 320 * number, &[7; 42]));
    }
    bytes
}

/// Returns Vorbis in Ogg at 16 kHz, with blocks of 256 and 2,048 samples: this number of packets of long blocks, 1,024
/// samples each, one per page, with these positions.
pub fn vorbis(packets: u64, position: impl Fn(u64) -> u64) -> Vec<u8> {
    let [identification, comment, setup] = vorbis_headers();
    let mut bytes = [page(2, 9, 0, &identification), page(0, 9, 0, &comment), page(0, 9, 0, &setup)].concat();
    for number in 0..packets {
        bytes.extend(page(0, 9, position(number), &vorbis_packet()));
    }
    bytes
}

/// Returns a packet of a long block, of mode 1.
pub fn vorbis_packet() -> Vec<u8> {
    vec![2; 20]
}

/// Returns the three headers of Vorbis.
pub fn vorbis_headers() -> [Vec<u8>; 3] {
    let mut identification = b"\x01vorbis\0\0\0\0\x01".to_vec();
    identification.extend(16_000u32.to_le_bytes());
    identification.extend([0; 12]);
    identification.extend([0xb8, 1]);
    // Bits from the lowest: number of modes less one; for each mode the flag, two types and the mapping; a framing bit.
    let mut bits = vec![true, false, false, false, false, false];
    for long in [false, true] {
        bits.push(long);
        bits.extend([false; 40]);
    }
    bits.push(true);
    let mut setup = [&b"\x05vorbis"[..], &[0x55; 40]].concat();
    let tail = bits.chunks(8).map(|byte| byte.iter().rev().fold(0, |sum, bit| sum << 1 | u8::from(*bit)));
    setup.extend(tail);
    [identification, b"\x03vorbis and comments".to_vec(), setup]
}

/// Returns a Matroska file whose blocks all have the time 0, with this codec, private data, and audio elements.
pub fn matroska(codec: &[u8], private: &[u8], audio: &[u8], blocks: &[Vec<u8>]) -> Vec<u8> {
    let entry = [
        element(&[0xd7], &[1]),
        element(&[0x83], &[2]),
        element(&[0x86], codec),
        element(&[0x63, 0xa2], private),
        element(&[0xe1], audio),
    ];
    let mut bytes = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"matroska"));
    bytes.extend([0x18, 0x53, 0x80, 0x67, 1, 255, 255, 255, 255, 255, 255, 255]);
    bytes.extend(element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &entry.concat())));
    bytes.extend([0x1f, 0x43, 0xb6, 0x75, 1, 255, 255, 255, 255, 255, 255, 255]);
    bytes.extend(element(&[0xe7], &[0]));
    blocks.iter().for_each(|block| bytes.extend(element(&[0xa3], &[&[0x81, 0, 0][..], block].concat())));
    bytes
}
