//! MP4, M4A, QuickTime: the duration is the sum of the sample durations of the longest audio track and its fragments,
//! but at least the minimum for the number of samples and bytes. Boxes may come in any order, even the index after
//! the media. Tables of any length are summed as they arrive. The duration in the track's header is used only without
//! a sample table.

use super::aac::FrameConfig;
use super::bits::{be32, be64};
use super::container_parser::{AudioDuration, ContainerParser, ExcludedBytes, MinimumDuration, ParserStep};
use super::mp4_media::MdatPackets;
use super::mp4_track::{
    Mp4Codec, Mp4Track, first_sample_sizes, sample_count, trun_entry_layout, version_and_flags,
};
use penstock_core::DurationBasis;

/// Limit on the number of tracks. With more tracks the duration is unknown.
const MOST_TRACKS: usize = 64;

/// Parser of an MP4 or QuickTime file.
#[derive(Debug, Default)]
pub(super) struct Mp4Parser {
    tracks: Vec<Mp4Track>,
    too_many: bool,
    /// Ticks and ticks per second of the whole presentation.
    movie: (u64, u32),
    /// Ticks of the whole presentation, including its fragments.
    extended: u64,
    /// Default durations of samples in fragments, as (track id, ticks). They may precede the tracks in the file.
    defaults: Vec<(u32, u32)>,
    /// Track id of the current fragment, and the duration of its samples in ticks if the fragment states one.
    fragment: (u32, Option<u32>),
    /// Sums over all fragments of a track, as (track id, ticks, samples).
    fragments: Vec<(u32, u64, u64)>,
    media: MdatPackets,
    /// True if a box `mdat` has content; known at the end of the file.
    has_media: bool,
    /// Position of the next byte in the file.
    position: u64,
    /// Bytes of the file that may be media; known at its end.
    media_bytes: u64,
    /// Position of the current fragment, to which the positions of its samples relate.
    fragment_start: u64,
    state: Mp4State,
    excluded: ExcludedBytes,
}

/// Position of the parser in the structure of the file.
#[derive(Clone, Copy, Debug, Default)]
enum Mp4State {
    /// Position at the start of a box, the unit of which MP4 files consist.
    #[default]
    Box,
    /// Position inside a table of durations, with the number of entries and of bytes that remain.
    Durations { entries: u64, left: u64 },
    /// Position inside a run of samples; `fragment` is the index of its track in `fragments`.
    Run { fragment: usize, entry: usize, entries: u64, left: u64 },
    /// Position inside the first samples of a box `mdat`, of which `left` bytes remain.
    Media { left: u64 },
    /// Unknown position: the parser searches the next top-level box.
    Lost,
}

/// Boxes that contain other relevant boxes.
const CONTAINER_BOXES: [&[u8; 4]; 8] =
    [b"moov", b"trak", b"mdia", b"minf", b"stbl", b"mvex", b"moof", b"traf"];
/// Names of the boxes whose content is parsed.
const PARSED_BOXES: [&[u8; 4]; 14] = [
    b"mvhd", b"tkhd", b"mdhd", b"hdlr", b"mehd", b"trex", b"tfhd", b"trun", b"stts", b"stsz", b"stz2",
    b"stsd", b"stco", b"co64",
];
/// Top-level boxes that are searched after lost sync.
const TOP_BOXES: [&[u8; 4]; 3] = [b"moof", b"moov", b"mdat"];
/// Maximum number of bytes that are parsed of a box in general, and of a box with the configuration of a codec.
const MAX_PARSED: u64 = 64;
const MAX_DESCRIPTION: u64 = 1024;

impl ContainerParser for Mp4Parser {
    fn duration_basis(&self) -> DurationBasis {
        let packet = self.shortest_packet();
        let mut audio = self.tracks.iter().filter(|track| track.is_audio);
        // The duration is counted only if all audio tracks are countable, because a decoder may choose any of them.
        if audio.any(|track| !track.has_known_frame_duration(self.fragments_of(track), packet)) {
            DurationBasis::Stated
        } else {
            DurationBasis::Counted
        }
    }

    fn minimum_duration(&self) -> MinimumDuration {
        let mut audio = self.tracks.iter().filter(|track| track.is_audio);
        let other = audio.any(|track| track.coding.may_be_lossless());
        let pictures = self.tracks.iter().any(|track| track.is_video);
        let rate = if other || pictures {
            MinimumDuration::MAX_UNCOMPRESSED_BYTES_PER_SECOND
        } else {
            MinimumDuration::MAX_LOSSY_BYTES_PER_SECOND
        };
        MinimumDuration { excluded: self.excluded.sum(), max_byte_rate: rate }
    }

    fn has_audio_data(&self) -> bool {
        self.has_media
    }

    fn step(&mut self, input: &[u8]) -> ParserStep {
        let step = match self.state {
            Mp4State::Box => self.next_box(input),
            Mp4State::Durations { entries, left } => self.durations(input, entries, left),
            Mp4State::Run { fragment, entry, entries, left } => {
                self.run(input, fragment, entry, entries, left)
            }
            Mp4State::Media { left } => self.read_media(input, left),
            Mp4State::Lost => self.search(input),
        };
        if let ParserStep::Skip(passed) = step {
            self.position = self.position.saturating_add(passed);
        }
        step
    }

    fn end(&mut self, input: &[u8], missing: u64) -> AudioDuration {
        let complete = matches!(self.state, Mp4State::Box) && input.is_empty();
        self.excluded.end_file(if complete { missing } else { 1 });
        let end = self.position.saturating_add(input.len() as u64).saturating_sub(missing);
        self.has_media = self.media.has_content_before(end);
        let movie = AudioDuration::from_ticks(self.movie.0.max(self.extended), u64::from(self.movie.1));
        let mut audio = self.tracks.iter().filter(|track| track.is_audio).peekable();
        if audio.peek().is_none() {
            return AudioDuration::NoAudio;
        }
        if self.too_many {
            return AudioDuration::Unknown;
        }
        self.media_bytes = self.position.saturating_sub(missing).saturating_sub(self.excluded.sum());
        let packet = self.shortest_packet();
        audio
            .map(|track| track.duration(self.fragments_of(track), movie, packet, self.media_bytes))
            .fold(AudioDuration::Unknown, AudioDuration::longer)
    }

    fn counted_duration(&self) -> Option<AudioDuration> {
        let packet = self.shortest_packet();
        let audio = self.tracks.iter().filter(|track| track.is_audio && !self.too_many);
        let counted =
            audio.map(|track| track.counted_duration(self.fragments_of(track).1, packet, self.media_bytes));
        Some(counted.fold(AudioDuration::Unknown, AudioDuration::longer))
    }
}

impl Mp4Parser {
    /// Returns the shortest known packet of the audio track. Returns `None` for a file with several tracks, because there
    /// the first samples may belong to another track.
    fn shortest_packet(&self) -> Option<FrameConfig> {
        let [track] = self.tracks.as_slice() else { return None };
        self.media.shortest_packet(track.coding.packet_codec()?)
    }

    /// Returns ticks and samples of a track's fragments.
    fn fragments_of(&self, track: &Mp4Track) -> (u64, u64) {
        let found = self.fragments.iter().find(|(id, ..)| *id == track.id);
        found.map_or((0, 0), |(_, ticks, samples)| (*ticks, *samples))
    }

    fn next_box(&mut self, input: &[u8]) -> ParserStep {
        self.excluded.commit_pending_bytes();
        let (Some(size32), Some(name)) = (be32(input, 0), input.get(4..8)) else {
            return ParserStep::Need(8);
        };
        let (head, size) = match size32 {
            // A box of size 0 extends to the end of the file.
            0 if name == b"mdat" => (8, u64::MAX),
            1 => match be64(input, 8) {
                Some(size) => (16, size),
                None => return ParserStep::Need(16),
            },
            size => (8, u64::from(size)),
        };
        if size < head {
            self.state = Mp4State::Lost;
            return ParserStep::Skip(1);
        }
        if name == b"mdat" {
            let (content, size) = (self.position.saturating_add(head), size - head);
            let Some(before) = self.media.begin_mdat(content, size) else {
                return ParserStep::Skip(head + size);
            };
            self.state = Mp4State::Media { left: size - before };
            return ParserStep::Skip(head + before);
        }
        if CONTAINER_BOXES.iter().any(|folder| **folder == *name) {
            self.excluded.begin_element(head);
            if name == b"moof" {
                self.fragment_start = self.position;
            }
            if name == b"trak" {
                self.too_many |= self.tracks.len() >= MOST_TRACKS;
                if !self.too_many {
                    self.tracks.push(Mp4Track::default());
                }
            }
            return ParserStep::Skip(head);
        }
        if PARSED_BOXES.iter().any(|read| **read == *name) {
            let most = if name == b"stsd" { MAX_DESCRIPTION } else { MAX_PARSED };
            let read = (size - head).min(most) as usize;
            let head = head as usize;
            // Waits for all bytes of the content that are read; if the file ends before, the box is ignored.
            let Some(content) = input.get(head..head + read) else { return ParserStep::Need(head + read) };
            self.excluded.begin_element(size);
            if let Some((passed, state)) = self.read(name, content, size - head as u64) {
                self.state = state;
                return ParserStep::Skip(head as u64 + passed);
            }
        } else {
            self.excluded.begin_element(size);
        }
        ParserStep::Skip(size)
    }

    /// Buffers the first samples of a box, and skips all further samples.
    fn read_media(&mut self, input: &[u8], left: u64) -> ParserStep {
        let (count, is_more_wanted) = self.media.keep_bytes(input, left);
        if is_more_wanted {
            self.state = Mp4State::Media { left: left - count as u64 };
            return ParserStep::Skip(count as u64);
        }
        self.state = Mp4State::Box;
        ParserStep::Skip(left)
    }

    /// Adds entries of a table of durations; each has a number of samples and the ticks of one sample.
    fn durations(&mut self, input: &[u8], entries: u64, left: u64) -> ParserStep {
        if entries == 0 || left < 8 {
            self.state = Mp4State::Box;
            return if left == 0 { self.next_box(input) } else { ParserStep::Skip(left) };
        }
        let most = usize::try_from(entries.min(left / 8)).unwrap_or(usize::MAX);
        let mut count = 0;
        for entry in input.chunks_exact(8).take(most) {
            if let (Some(track), Some(samples), Some(ticks)) =
                (self.tracks.last_mut(), be32(entry, 0), be32(entry, 4))
            {
                track.add_samples(samples, ticks);
            }
            count += 1;
        }
        if count == 0 {
            return ParserStep::Need(8);
        }
        self.state = Mp4State::Durations { entries: entries - count, left: left - 8 * count };
        ParserStep::Skip(8 * count)
    }

    /// Adds samples of a run; the entry of each sample begins with its duration.
    fn run(&mut self, input: &[u8], fragment: usize, entry: usize, entries: u64, left: u64) -> ParserStep {
        let size = entry as u64;
        if entries == 0 || left < size {
            self.state = Mp4State::Box;
            return if left == 0 { self.next_box(input) } else { ParserStep::Skip(left) };
        }
        let most = usize::try_from(entries.min(left / size)).unwrap_or(usize::MAX);
        let (mut count, mut ticks) = (0, 0u64);
        for sample in input.chunks_exact(entry).take(most) {
            ticks += u64::from(be32(sample, 0).unwrap_or_default());
            count += 1;
        }
        if count == 0 {
            return ParserStep::Need(entry);
        }
        if let Some((_, sum, samples)) = self.fragments.get_mut(fragment) {
            *sum = sum.saturating_add(ticks);
            *samples = samples.saturating_add(count);
        }
        self.state = Mp4State::Run { fragment, entry, entries: entries - count, left: left - size * count };
        ParserStep::Skip(size * count)
    }

    /// Searches the next box that contains samples or their durations.
    fn search(&mut self, input: &[u8]) -> ParserStep {
        if input.len() < 8 {
            return ParserStep::Need(8);
        }
        if TOP_BOXES.iter().any(|name| input.get(4..8) == Some(name.as_slice())) {
            self.state = Mp4State::Box;
            return self.next_box(input);
        }
        // The searched boxes have names that begin with `m`. The name is four bytes after the start of the box.
        let rest = input.get(5..).unwrap_or_default();
        ParserStep::Skip(memchr::memchr(b'm', rest).map_or(input.len() - 4, |at| at + 1) as u64)
    }

    /// Reads the start of a box whose content has `size` bytes. For a table, returns the number of bytes in front of
    /// its entries, and the parser position for reading them; `None` if there are no entries to read: for any other
    /// box, and if the table is invalid or incomplete.
    fn read(&mut self, name: &[u8], content: &[u8], size: u64) -> Option<(u64, Mp4State)> {
        let (version, flags) = version_and_flags(content)?;
        let long = version == 1;
        match name {
            b"mvhd" => self.movie = length(content, long)?,
            b"mehd" => self.extended = number(content, 4, long)?,
            b"trex" if self.defaults.len() < MOST_TRACKS => {
                self.defaults.push((be32(content, 4)?, be32(content, 12)?));
            }
            b"tfhd" => {
                if flags & 1 != 0 {
                    self.fragment_start = be64(content, 8)?;
                }
                let mut at = 8;
                // A base data offset and the index of a sample description precede the default values if the flags say
                // so.
                at += if flags & 1 == 0 { 0 } else { 8 };
                at += if flags & 2 == 0 { 0 } else { 4 };
                let each = if flags & 8 == 0 { None } else { be32(content, at) };
                self.fragment = (be32(content, 4)?, each);
            }
            b"trun" => return self.begin_run(content, flags, size),
            b"stts" => {
                self.tracks.last_mut().filter(|_| !self.too_many)?.begin_duration_table();
                let entries = u64::from(be32(content, 4)?);
                return Some((8, Mp4State::Durations { entries, left: size.saturating_sub(8) }));
            }
            _ => self.read_track(name, content, long)?,
        }
        None
    }

    fn read_track(&mut self, name: &[u8], content: &[u8], long: bool) -> Option<()> {
        let track = self.tracks.last_mut().filter(|_| !self.too_many)?;
        match name {
            b"tkhd" => track.id = be32(content, if long { 20 } else { 12 })?,
            b"mdhd" => (track.header_duration, track.rate) = length(content, long)?,
            b"hdlr" => {
                let kind = content.get(8..12)?;
                track.is_audio |= kind == b"soun";
                track.is_video |= kind == b"vide";
            }
            b"stsd" if track.coding == Mp4Codec::Other => track.coding = Mp4Codec::parse(content)?,
            b"stsz" | b"stz2" => {
                track.samples = track.samples.max(sample_count(content)?);
                if name == b"stsz" {
                    self.media.set_first_sample_sizes(first_sample_sizes(content));
                }
            }
            b"stco" if be32(content, 4)? > 0 => {
                self.media.set_first_chunk_position(u64::from(be32(content, 8)?))
            }
            b"co64" if be32(content, 4)? > 0 => self.media.set_first_chunk_position(be64(content, 8)?),
            _ => {}
        }
        Some(())
    }

    /// Starts a run of samples in a fragment. Returns the same as [`Self::read`] for a table. If the run states no
    /// durations, all of its samples are counted here with the default duration, and `None` is returned.
    fn begin_run(&mut self, content: &[u8], flags: u32, size: u64) -> Option<(u64, Mp4State)> {
        let (id, each) = self.fragment;
        let count = be32(content, 4)?;
        if flags & 1 != 0 {
            // The data offset of a run of samples may be negative.
            let offset = i64::from(be32(content, 8)?.cast_signed());
            self.media.add_fragment_position(self.fragment_start.saturating_add_signed(offset));
        }
        let known = self.fragments.iter().position(|(track, ..)| *track == id);
        let fragment = known.unwrap_or(self.fragments.len());
        if known.is_none() {
            self.too_many |= self.fragments.len() >= MOST_TRACKS;
            if self.too_many {
                return None;
            }
            self.fragments.push((id, 0, 0));
        }
        let (entry, has_duration) = trun_entry_layout(flags);
        if has_duration {
            let at = 8 + 4 * u64::from(flags & 1 != 0) + 4 * u64::from(flags & 4 != 0);
            let left = size.checked_sub(at)?;
            return Some((at, Mp4State::Run { fragment, entry, entries: u64::from(count), left }));
        }
        let usual = || self.defaults.iter().find(|(track, _)| *track == id).map_or(0, |(_, each)| *each);
        let ticks = u64::from(count) * u64::from(each.unwrap_or_else(usual));
        let (_, sum, samples) = self.fragments.get_mut(fragment)?;
        *sum = sum.saturating_add(ticks);
        *samples = samples.saturating_add(u64::from(count));
        None
    }
}

/// Reads the duration in ticks and the number of ticks per second from a header box. A duration with all bits set is
/// unknown and becomes 0.
fn length(content: &[u8], long: bool) -> Option<(u64, u32)> {
    let at = if long { 20 } else { 12 };
    let ticks = number(content, at + 4, long)?;
    let unknown = if long { u64::MAX } else { u64::from(u32::MAX) };
    Some((if ticks == unknown { 0 } else { ticks }, be32(content, at)?))
}

fn number(content: &[u8], offset: usize, long: bool) -> Option<u64> {
    if long { be64(content, offset) } else { be32(content, offset).map(u64::from) }
}
