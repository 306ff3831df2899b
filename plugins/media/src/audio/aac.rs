//! AAC: samples per frame and sample rate, from the configuration of the decoder.

/// Frame format of an audio stream: samples per frame and sample rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameConfig {
    /// Number of samples in a frame.
    pub samples: u32,
    /// Samples per second.
    pub rate: u32,
}

const RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];

impl FrameConfig {
    /// Parses an `AudioSpecificConfig`; `None` for codecs other than AAC.
    pub(super) fn from_audio_specific_config(content: &[u8]) -> Option<Self> {
        let start = content.get(..content.len().min(8))?;
        let bits =
            start.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte)) << (64 - 8 * start.len().max(1));
        let (mut at, total) = (0, 8 * start.len());
        let mut take = |count: usize| {
            let value =
                bits.checked_shl(u32::try_from(at).ok()?)?.checked_shr(u32::try_from(64 - count).ok()?)?;
            at += count;
            (at <= total).then_some(value)
        };
        let mut kind = take(5)?;
        let core = sample_rate(&mut take)?;
        take(4)?;
        if matches!(kind, 5 | 29) {
            // With an extension (SBR, parametric stereo), the rate above is that of the core codec, and the rate of
            // the extension follows here.
            sample_rate(&mut take)?;
            kind = take(5)?;
        }
        let frame_length_flag = take(1)? == 1;
        let samples = match (kind, frame_length_flag) {
            (1..=4 | 17 | 19, false) => 1024,
            (1..=4 | 17 | 19, true) => 960,
            (23 | 39, false) => 512,
            (23 | 39, true) => 480,
            _ => return None,
        };
        (core > 0).then_some(Self { samples, rate: core })
    }
}

/// Reads a sample rate: an index into [`RATES`], or the rate itself; `None` if it is incomplete or the index is
/// reserved.
fn sample_rate(take: &mut impl FnMut(usize) -> Option<u64>) -> Option<u32> {
    match take(4)? {
        15 => u32::try_from(take(24)?).ok(),
        index => RATES.get(usize::try_from(index).ok()?).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_core() {
        for (bytes, samples, rate) in [
            (&[0x12, 0x10][..], 1024, 44_100),
            (&[0x14, 0x08], 1024, 16_000),
            (&[0x14, 0x0c], 960, 16_000),
            // Test configuration of HE-AAC: a core of 24 kHz, extended to 48 kHz.
            (&[0x2b, 0x11, 0x88, 0x00], 1024, 24_000),
            // Test configuration with an explicit sample rate of 12,345 Hz in 24 bits.
            (&[0x17, 0x80, 0x18, 0x1c, 0x88], 1024, 12_345),
        ] {
            assert_eq!(
                FrameConfig::from_audio_specific_config(bytes),
                Some(FrameConfig { samples, rate }),
                "{bytes:x?}"
            );
        }
        for invalid in [&[][..], &[0x12], &[0xf8, 0xe6], &[0x17, 0x80, 0x18]] {
            assert_eq!(FrameConfig::from_audio_specific_config(invalid), None, "{invalid:x?}");
        }
    }
}
