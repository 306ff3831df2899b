//! Encodings of WAV files by their format tag. Sources of the ratios: RFC 3551 and the ITU recommendations.

/// Encoding of the audio data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WavEncoding {
    /// Encoding with one value per sample: PCM and floats.
    Plain,
    /// Encoding with one byte per sample: A-law and µ-law.
    Companded,
    /// ADPCM with this number of bits per sample.
    Adpcm { bits: u8 },
    /// Blocks of a fixed number of bytes and samples, mono.
    Blocks(CodecBlock),
    /// MPEG audio.
    Mpeg,
    /// Encoding with frames of varying length, which has at most this number of bytes per second.
    Other { max_byte_rate: u64 },
    /// Any other encoding.
    #[default]
    Unknown,
}

/// Block of a speech codec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CodecBlock {
    pub bytes: u64,
    pub samples: u64,
    /// Sample rate of the codec, in hertz; a header may state a lower one. `None` if the header alone states it.
    pub rate: Option<u32>,
}

/// Returns a block of a codec with a sample rate of its own.
const fn block(bytes: u64, samples: u64, rate: u32) -> WavEncoding {
    WavEncoding::Blocks(CodecBlock { bytes, samples, rate: Some(rate) })
}

/// Returns ADPCM with the stated bits of a sample; those of the usual variant if the header states impossible ones.
const fn adpcm(stated: u16, usual: u8) -> WavEncoding {
    match stated {
        2..=5 => WavEncoding::Adpcm { bits: stated as u8 },
        _ => WavEncoding::Adpcm { bits: usual },
    }
}

impl WavEncoding {
    /// Returns the encoding of a format tag, in a file that states this number of bits per sample.
    pub(super) const fn from_tag(tag: u16, bits: u16) -> Self {
        match tag {
            1 | 3 | 0xfffe => Self::Plain,
            6 | 7 => Self::Companded,
            // Microsoft, IMA and Yamaha ADPCM, OKI and Dialogic ADPCM, Creative ADPCM, and G.722, which is ADPCM of two
            // bands.
            2 | 0x10 | 0x11 | 0x17 | 0x20 | 0x65 | 0x200 | 0x28f => Self::Adpcm { bits: 4 },
            // The tag of Antex is G.723 (ADPCM) if the header states the bits of a sample, and else G.723.1.
            0x14 if matches!(bits, 2..=5) => adpcm(bits, 5),
            // G.721.
            0x40 => adpcm(bits, 4),
            // G.726.
            0x45 | 0x64 | 0x85 | 0x140 => adpcm(bits, 5),
            // G.723.1 at 6.3 kbit/s.
            0x14 | 0x42 | 0x59 | 0x111 | 0x123 | 0xa100 => block(24, 240, 8_000),
            // TrueSpeech of DSP Group.
            0x22 => block(32, 240, 8_000),
            // GSM 6.10, two frames a block.
            0x31 | 0x32 | 0x1500 => Self::Blocks(CodecBlock { bytes: 65, samples: 320, rate: None }),
            // G.728.
            0x41 => block(5, 20, 8_000),
            0x50 | 0x55 => Self::Mpeg,
            // G.729.
            0x83 | 0x133 | 0x134 => block(10, 80, 8_000),
            // Siren 7 at 16 kbit/s.
            0x28e => block(40, 320, 16_000),
            // AMR: 12.2 kbit/s, and wideband 23.85 kbit/s, in frames of whole bytes.
            0x57 | 0x4500 => Self::Other { max_byte_rate: 1_600 },
            0x58 | 0x4501 => Self::Other { max_byte_rate: 3_050 },
            // Windows Media Audio Voice and ACELP of Sipro Lab.
            0x0a | 0x130 => Self::Other { max_byte_rate: 2_500 },
            // Speex, ultra-wideband in stereo.
            0xa109 => Self::Other { max_byte_rate: 5_600 },
            // G.722.1 with Annex C.
            0x112 | 0xa112 | 0xa113 => Self::Other { max_byte_rate: 6_000 },
            _ => Self::Unknown,
        }
    }
}
