//! Small files of every format, built byte by byte.
#![allow(dead_code)]

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

pub fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend(name);
    bytes.extend(content);
    bytes
}

fn header(name: &[u8; 4], rate: u32, ticks: u32) -> Vec<u8> {
    let mut content = vec![0; 12];
    content.extend(rate.to_be_bytes());
    content.extend(ticks.to_be_bytes());
    content.resize(24, 0);
    boxed(name, &content)
}

fn track(id: u32, kind: &[u8; 4], rate: u32, ticks: u32) -> Vec<u8> {
    track_with(id, kind, rate, ticks, &[])
}

/// Returns a track box whose sample table contains the boxes `table`.
fn track_with(id: u32, kind: &[u8; 4], rate: u32, ticks: u32, table: &[u8]) -> Vec<u8> {
    let mut tkhd = vec![0; 12];
    tkhd.extend(id.to_be_bytes());
    tkhd.resize(84, 0);
    let mut hdlr = vec![0; 8];
    hdlr.extend(kind);
    hdlr.resize(24, 0);
    let mut media = [header(b"mdhd", rate, ticks), boxed(b"hdlr", &hdlr)].concat();
    if !table.is_empty() {
        media.extend(boxed(b"minf", &boxed(b"stbl", table)));
    }
    boxed(b"trak", &[boxed(b"tkhd", &tkhd), boxed(b"mdia", &media)].concat())
}

/// Returns an M4A file whose index follows its media; the picture track is longer.
pub fn mp4(millis: u32) -> Vec<u8> {
    let mut large = 1u32.to_be_bytes().to_vec();
    large.extend(b"mdat");
    large.extend((16u64 + 500).to_be_bytes());
    large.resize(16 + 500, 9);
    let moov = [
        header(b"mvhd", 600, 600_000),
        track(1, b"vide", 90_000, 90_000_000),
        track(2, b"soun", 44_100, millis * 441 / 10),
    ];
    [boxed(b"ftyp", b"M4A \0\0\0\0"), large, boxed(b"moov", &moov.concat())].concat()
}

/// Returns an M4A with sample tables. Arguments: the rate and length stated in its head, the lengths of samples
/// (count, ticks), the codec, the number of samples, and the number of bytes of media.
pub fn m4a(
    rate: u32,
    stated: u32,
    lengths: &[(u32, u32)],
    codec: &[u8; 4],
    samples: u32,
    media: usize,
) -> Vec<u8> {
    let mut stsz = vec![0; 8];
    stsz.extend(samples.to_be_bytes());
    let moov = m4a_index(rate, stated, lengths, codec, &boxed(b"stsz", &stsz));
    [boxed(b"ftyp", b"M4A \0\0\0\0"), moov, boxed(b"mdat", &vec![9; media])].concat()
}

/// Returns the index of an M4A, with the boxes `more` in its sample table.
pub fn m4a_index(rate: u32, stated: u32, lengths: &[(u32, u32)], codec: &[u8; 4], more: &[u8]) -> Vec<u8> {
    let mut stts = vec![0; 4];
    stts.extend((lengths.len() as u32).to_be_bytes());
    for (count, ticks) in lengths {
        stts.extend(count.to_be_bytes());
        stts.extend(ticks.to_be_bytes());
    }
    let mut stsd = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 36];
    stsd.extend(codec);
    stsd.resize(44, 0);
    let table = [boxed(b"stsd", &stsd), boxed(b"stts", &stts), more.to_vec()].concat();
    boxed(b"moov", &[header(b"mvhd", 600, 1), track_with(1, b"soun", rate, stated, &table)].concat())
}

/// Returns a fragmented MP4 with fragments of one second each; the last fragment states the lengths of its samples
/// itself.
pub fn fragmented(seconds: u32) -> Vec<u8> {
    let mut trex = vec![0; 4];
    trex.extend([0, 0, 0, 7, 0, 0, 0, 1]);
    trex.extend(960u32.to_be_bytes());
    trex.resize(24, 0);
    let moov =
        [header(b"mvhd", 1000, 0), track(7, b"soun", 48_000, 0), boxed(b"mvex", &boxed(b"trex", &trex))];
    let mut bytes = [boxed(b"ftyp", b"iso5\0\0\0\0"), boxed(b"moov", &moov.concat())].concat();
    for index in 0..seconds {
        let tfhd = boxed(b"tfhd", &[0, 2, 0, 0, 0, 0, 0, 7]);
        let mut trun = if index + 1 < seconds { vec![0, 0, 2, 1] } else { vec![0, 0, 3, 1] };
        trun.extend(50u32.to_be_bytes());
        trun.extend([0, 0, 0, 99]);
        for _ in 0..50 {
            if index + 1 == seconds {
                trun.extend(960u32.to_be_bytes());
            }
            trun.extend(20u32.to_be_bytes());
        }
        let fragment = boxed(b"traf", &[tfhd, boxed(b"trun", &trun)].concat());
        bytes.extend(boxed(b"moof", &fragment));
        bytes.extend(boxed(b"mdat", &[3; 1000]));
    }
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
            bytes.extend(element(&[0xe7], &(cluster * 1000).to_be_bytes()));
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

/// Returns Opus in Ogg, with 312 samples to skip.
pub fn ogg(millis: u64) -> Vec<u8> {
    let mut head = b"OpusHead\x01\x01".to_vec();
    head.extend(312u16.to_le_bytes());
    head.extend([0; 7]);
    let mut bytes = page(2, 9, 0, &head);
    bytes.extend(page(0, 9, 0, b"OpusTags"));
    for part in 1..=4u64 {
        bytes.extend(page(0, 9, millis * 12 * part + 312, &[5; 400]));
    }
    bytes.extend(page(4, 8, 1 << 40, b"another stream"));
    bytes
}

/// Returns a frame of FLAC: 4096 samples at the rate of the stream, in this number of bytes.
pub fn flac_frame(number: u8, length: usize, sample_size: u8) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xf8, 0xc0, 0x10 | sample_size << 1, number & 0x7f];
    let crc = bytes.iter().fold(0u8, |sum, byte| {
        (0..8).fold(sum ^ byte, |sum, _| if sum & 0x80 == 0 { sum << 1 } else { sum << 1 ^ 7 })
    });
    bytes.push(crc);
    bytes.resize(length, 0x11);
    bytes
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
        bytes.extend(page(0, 9, millis * 48 * number / packets + 312, &packet));
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
