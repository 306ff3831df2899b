//! First bytes of the samples in an MP4 file, from which the durations of packets are read.

use super::aac::FrameConfig;
use super::mp4_track::PacketCodec;

/// Maximum number of bytes that are buffered of a box `mdat`, and maximum number of boxes of which bytes are
/// buffered.
const MAX_WINDOW: usize = 1024;
const MAX_WINDOWS: usize = 16;
/// Maximum number of packets whose position is stored.
const MAX_PACKETS: usize = 64;

/// Positions of packets in the file, and the buffered parts of its boxes `mdat`.
#[derive(Debug, Default)]
pub(super) struct MdatPackets {
    /// Position of the first content of a box `mdat`.
    first_content: Option<u64>,
    /// Parts of boxes, with their positions in the file.
    windows: Vec<(u64, Vec<u8>)>,
    /// Positions of the first packets of fragments.
    fragment_packets: Vec<u64>,
    /// Position of the first chunk of samples.
    first_chunk: Option<u64>,
    /// Sizes in bytes of the first samples, which are in the first chunk in most files.
    first_sizes: Vec<u32>,
}

impl MdatPackets {
    /// Records the position of the first chunk of samples.
    pub(super) fn set_first_chunk_position(&mut self, position: u64) {
        self.first_chunk = self.first_chunk.or(Some(position));
    }

    /// Records the sizes of the first samples.
    pub(super) fn set_first_sample_sizes(&mut self, sizes: impl Iterator<Item = u32>) {
        if self.first_sizes.is_empty() {
            self.first_sizes = sizes.take(MAX_PACKETS).collect();
        }
    }

    /// Records the position of the first packet of a fragment.
    pub(super) fn add_fragment_position(&mut self, position: u64) {
        if self.fragment_packets.len() < MAX_PACKETS {
            self.fragment_packets.push(position);
        }
    }

    /// Begins a box `mdat` whose content has `size` bytes and begins at `position` in the file. Returns the number of
    /// bytes before the part to buffer; `None` if no part of the box is buffered. The part begins at the first chunk,
    /// if the position of that chunk is known and in this box.
    pub(super) fn begin_mdat(&mut self, position: u64, size: u64) -> Option<u64> {
        if size == 0 || self.windows.len() >= MAX_WINDOWS {
            return None;
        }
        self.first_content = self.first_content.or(Some(position));
        let chunk = self.first_chunk.and_then(|chunk| chunk.checked_sub(position));
        let before = chunk.filter(|before| *before < size).unwrap_or_default();
        self.windows.push((position.saturating_add(before), Vec::new()));
        Some(before)
    }

    /// Returns true if a box `mdat` has content in a file that ends at this position.
    pub(super) fn has_content_before(&self, end: u64) -> bool {
        self.first_content.is_some_and(|position| position < end)
    }

    /// Buffers the next bytes of the box, of which `left` remain. Returns the number of buffered bytes, and true if
    /// more are needed.
    pub(super) fn keep_bytes(&mut self, input: &[u8], left: u64) -> (usize, bool) {
        let Some((_, window)) = self.windows.last_mut() else { return (0, false) };
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        let count = input.len().min(left).min(MAX_WINDOW.saturating_sub(window.len()));
        window.extend_from_slice(input.get(..count).unwrap_or_default());
        (count, count < left && window.len() < MAX_WINDOW)
    }

    /// Returns the duration of the shortest known packet; `None` if no packet is known. Callers use this duration for
    /// all packets, although packets may have different durations.
    pub(super) fn shortest_packet(&self, codec: PacketCodec) -> Option<FrameConfig> {
        let config_at = |position: u64| {
            let header = self.bytes_at(position, codec.header_bytes())?;
            Some(codec.packet_config(header))
        };
        // If the first sample of a chunk is missing, the positions of its later samples are unknown.
        let mut next = self.first_chunk.filter(|chunk| config_at(*chunk).is_some());
        let sizes = self.first_sizes.iter().map(|size| u64::from(*size));
        // The size of the last sample is not needed.
        let samples = std::iter::once(0).chain(sizes).map_while(|size| {
            next = next.and_then(|position| position.checked_add(size));
            next
        });
        let samples = samples.take(self.first_sizes.len().max(1));
        let packets =
            samples.chain(self.fragment_packets.iter().copied()).filter_map(|at| config_at(at).flatten());
        let nanoseconds =
            |config: &FrameConfig| u64::from(config.samples) * 1_000_000_000 / u64::from(config.rate).max(1);
        packets.min_by_key(nanoseconds)
    }

    /// Returns this number of bytes at a position of the file; `None` if they are not buffered.
    fn bytes_at(&self, position: u64, count: usize) -> Option<&[u8]> {
        self.windows.iter().find_map(|(start, window)| {
            let offset = usize::try_from(position.checked_sub(*start)?).ok()?;
            window.get(offset..offset.checked_add(count)?)
        })
    }
}
