//! Vorbis: duration of a packet, from its block size and the block size of the previous packet.

use super::bits::le32;

/// Number of bytes at the end of the setup header that contain the modes: at most 64 modes of 41 bits each.
const MODES_LENGTH: usize = 512;
/// Limit on the number of modes.
const MOST_MODES: usize = 64;
/// Bits of a mode: block flag, types of window and transform, mapping.
const MODE_BITS: usize = 41;

/// Values that determine the duration of the packets of a Vorbis stream, from its headers.
#[derive(Clone, Debug)]
pub(super) struct VorbisHeaders {
    pub rate: u32,
    /// Number of samples in a short block and in a long block.
    blocks: [u32; 2],
    /// True for modes of long blocks; empty if the setup header is unknown.
    modes: Vec<bool>,
    /// End of the setup header: the last bytes that have arrived so far.
    setup: Vec<u8>,
    /// Block size of the last packet.
    last: u32,
}

impl VorbisHeaders {
    /// Parses the identification header; `None` if it is invalid or incomplete.
    pub(super) fn from_identification(packet: &[u8]) -> Option<Self> {
        let rate = le32(packet, 12).filter(|_| packet.starts_with(b"\x01vorbis"))?;
        let sizes = *packet.get(28)?;
        let blocks = [sizes & 15, sizes >> 4].map(|exponent| 1 << exponent.clamp(6, 13));
        (rate > 0).then(|| Self { rate, blocks, modes: Vec::new(), setup: Vec::new(), last: 0 })
    }

    /// Parses the three headers as Matroska stores them: the number of headers minus one, the lengths of two of them,
    /// and then the headers. `None` if they are invalid or incomplete.
    pub(super) fn from_codec_private(content: &[u8]) -> Option<Self> {
        let mut rest = content.strip_prefix(&[2])?;
        let mut length = || {
            let full = rest.iter().take_while(|byte| **byte == 255).count();
            let last = usize::from(*rest.get(full)?);
            rest = rest.get(full + 1..)?;
            Some(full * 255 + last)
        };
        let (first, second) = (length()?, length()?);
        let mut headers = Self::from_identification(rest.get(..first)?)?;
        headers.push_setup(rest.get(first + second..)?);
        headers.end_setup();
        Some(headers)
    }

    /// Buffers the next bytes of the setup header.
    pub(super) fn push_setup(&mut self, bytes: &[u8]) {
        self.setup.extend_from_slice(bytes.get(bytes.len().saturating_sub(MODES_LENGTH)..).unwrap_or(bytes));
        let surplus = self.setup.len().saturating_sub(MODES_LENGTH);
        self.setup.drain(..surplus);
    }

    /// Ends the setup header and reads its modes.
    pub(super) fn end_setup(&mut self) {
        self.modes = modes(&std::mem::take(&mut self.setup)).unwrap_or_default();
    }

    /// Returns the number of samples in a packet that begins with the given bytes. The first packet has no samples.
    pub(super) fn packet_samples(&mut self, packet: &[u8]) -> u64 {
        let Some(first) = packet.first().filter(|first| *first & 1 == 0) else { return 0 };
        let bits = self.modes.len().saturating_sub(1).checked_ilog2().map_or(0, |log| log + 1);
        let mode = usize::from(first >> 1) & ((1 << bits) - 1);
        // If the modes are unknown, every block counts as a long one.
        let long = self.modes.get(mode).copied().unwrap_or(true);
        let block = self.blocks.get(usize::from(long)).copied().unwrap_or_default();
        let last = std::mem::replace(&mut self.last, block);
        if last == 0 { 0 } else { u64::from((last + block) / 4) }
    }

    /// Returns the maximum number of trimmed samples, at both ends together: the timestamps may state this many fewer
    /// than the packets contain.
    pub(super) fn max_trimmed_samples(&self) -> u64 {
        u64::from(self.blocks.into_iter().max().unwrap_or_default()) * 2
    }
}

/// Returns the block flag of each mode. The modes are the last part of the setup header, in front of a framing bit, and
/// are read backwards. Backwards, a mode consists of its mapping, two types that are zero, and the flag; the number of
/// modes is stored in front of the first mode. Returns `None` if no modes are found.
fn modes(setup: &[u8]) -> Option<Vec<bool>> {
    let total = setup.len() * 8;
    // Reads the bit `at`, counted from the end of the packet.
    let bit = |at: usize| {
        let at = total.checked_sub(at + 1)?;
        Some(setup.get(at / 8)? >> (at % 8) & 1)
    };
    let number = |at: usize, bits: usize| {
        (at..at + bits).try_fold(0u32, |sum, at| Some(sum << 1 | u32::from(bit(at)?)))
    };
    let start = (0..total.min(8 * 16)).find(|at| bit(*at) == Some(1))? + 1;
    let (mut flags, mut count) = (Vec::new(), 0);
    while flags.len() < MOST_MODES {
        let at = start + flags.len() * MODE_BITS;
        if number(at, 8).is_none_or(|mapping| mapping > 63) || number(at + 8, 32) != Some(0) {
            break;
        }
        flags.push(bit(at + 40)? == 1);
        if number(at + MODE_BITS, 6).is_some_and(|stored| stored as usize + 1 == flags.len()) {
            count = flags.len();
        }
    }
    flags.truncate(count);
    flags.reverse();
    (count > 0).then_some(flags)
}
