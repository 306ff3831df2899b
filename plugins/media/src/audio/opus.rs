//! Opus: duration of a packet, from its first two bytes.

/// Ticks per second, the unit of Opus durations.
pub(super) const TICKS_PER_SECOND: u64 = 48_000;
/// Longest packet, in ticks: 120 ms.
pub(super) const MAX_PACKET_TICKS: u64 = 5_760;

/// Returns the duration in ticks of a packet that begins with the given bytes; 0 for an empty packet.
pub(super) fn packet_ticks(packet: &[u8]) -> u64 {
    let Some(first) = packet.first() else { return 0 };
    let frame = match (first >> 3, first >> 3 & 3) {
        // Frame durations of the Opus modes: SILK 10, 20, 40 and 60 ms; hybrid 10 and 20 ms; CELT 2.5, 5, 10 and 20 ms.
        (0..=11, size @ 0..=2) => 480 << size,
        (0..=11, _) => 2_880,
        (12..=15, size) => 480 << (size & 1),
        (_, size) => 120 << size,
    };
    let frames = match first & 3 {
        0 => 1,
        1 | 2 => 2,
        _ => u64::from(packet.get(1).map_or(0, |count| count & 0x3f)),
    };
    (frame * frames).min(MAX_PACKET_TICKS)
}

/// Returns the duration in ticks by the timestamps of the container (`declared`). If the packets last longer than the
/// timestamps and the trimming at both ends explain, returns the duration of the packets.
pub(super) fn reconcile_duration(declared: u64, packets: u64) -> u64 {
    const CUT: u64 = 2 * MAX_PACKET_TICKS;
    if declared.saturating_add(CUT) >= packets { declared } else { packets }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_as_long_as_its_first_bytes_say() {
        for (first, second, millis_x2) in [
            (0x00, 0, 20),   // SILK, 10 ms
            (0x08, 0, 40),   // SILK, 20 ms
            (0x18, 0, 120),  // SILK, 60 ms
            (0x58, 0, 120),  // SILK wide band, 60 ms
            (0x60, 0, 20),   // hybrid, 10 ms
            (0x78, 0, 40),   // hybrid, 20 ms
            (0x80, 0, 5),    // CELT, 2.5 ms
            (0xf8, 0, 40),   // CELT, 20 ms
            (0xf9, 0, 80),   // two frames
            (0xfb, 6, 240),  // six of 20 ms
            (0xfb, 63, 240), // never more than 120 ms
            (0xfb, 0, 0),
        ] {
            assert_eq!(packet_ticks(&[first, second]) * 2 / 48, millis_x2, "{first:x} {second}");
        }
        assert_eq!((packet_ticks(&[]), packet_ticks(&[0xfb])), (0, 0));
    }

    #[test]
    fn times_count_as_long_as_they_leave_out_no_more_than_is_cut() {
        assert_eq!(reconcile_duration(48_000, 48_000), 48_000);
        assert_eq!(reconcile_duration(48_000 - 11_520, 48_000), 48_000 - 11_520);
        assert_eq!(reconcile_duration(48_000 - 11_521, 48_000), 48_000);
        assert_eq!(reconcile_duration(1, 480_000), 480_000);
    }
}
