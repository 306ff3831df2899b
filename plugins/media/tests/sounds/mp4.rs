//! MP4 files, built box by box.

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

/// Returns AAC at 16 kHz with `samples` samples, whose table states `ticks` as the duration of each. `sizes` is the
/// name of the table of sample sizes; `padding` is the number of bytes after the entries of each table.
pub fn aac(samples: u32, ticks: u32, sizes: &[u8; 4], padding: usize) -> Vec<u8> {
    let mut stts = vec![0, 0, 0, 0];
    stts.extend(samples.to_be_bytes());
    for _ in 0..samples {
        stts.extend([0, 0, 0, 1]);
        stts.extend(ticks.to_be_bytes());
    }
    stts.resize(stts.len() + padding, 0);
    let esds = [
        0, 0, 0, 0, 3, 0x80, 0x80, 0x80, 25, 0, 1, 0, 4, 17, 0x40, 0x15, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5,
        2, 0x14, 8,
    ];
    let mut stsd = vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 75];
    stsd.extend(b"mp4a");
    stsd.resize(44, 0);
    stsd.extend(boxed(b"esds", &esds));
    let mut count = vec![0, 0, 0, 0, 0, 0, 0, 16];
    count.extend(samples.to_be_bytes());
    let table = [boxed(b"stsd", &stsd), boxed(b"stts", &stts), boxed(sizes, &count)].concat();
    let mut mdhd = vec![0; 12];
    mdhd.extend(16_000u32.to_be_bytes());
    mdhd.extend([0, 0, 0, 1, 0, 0, 0, 0]);
    let hdlr = [&[0; 8][..], b"soun", &[0; 12]].concat();
    let media =
        [boxed(b"mdhd", &mdhd), boxed(b"hdlr", &hdlr), boxed(b"minf", &boxed(b"stbl", &table))].concat();
    let moov = boxed(b"moov", &boxed(b"trak", &boxed(b"mdia", &media)));
    [boxed(b"ftyp", b"M4A \0\0\0\0"), moov, boxed(b"mdat", &vec![9; 20_000])].concat()
}
