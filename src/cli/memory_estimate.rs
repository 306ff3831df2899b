//! Upper bound on the memory that a configuration can use: the sum of the limits that the gateway enforces.

use crate::config::settings::Settings;
use crate::http::H2_STREAM_WINDOW_BYTES;
use crate::http::buffer_pool;
use crate::proxy::failover::UNCOUNTED_BYTES;
use crate::server::http2::{CONNECTION_WINDOW_BYTES, DATA_FRAME_BUDGET_BYTES, STREAM_SEND_BUFFER_BYTES};
use crate::upstream::connect::PROVIDER_STREAM_WINDOW_BYTES;

/// Assumed memory of a request in addition to its body and its response, in bytes: buffers of two connections, and
/// state. For comparison, an open stream takes 25 KiB and its text (`docs/performance.md`).
const REQUEST_STATE_BYTES: u64 = 64 << 10;
/// Memory of a request: `REQUEST_STATE_BYTES`, and data that waits for a client that does not read.
const REQUEST_BYTES: u64 = REQUEST_STATE_BYTES + STREAM_SEND_BUFFER_BYTES as u64;
/// Maximum size of the recorded text of a stream, from which another provider can continue it.
const STREAM_RECORD_BYTES: u64 = 256 << 10;
/// Bytes of a response in memory that no configured limit counts: data already read, and data that waits for a slow
/// client.
const UNCOUNTED_ANSWER_BYTES: u64 = UNCOUNTED_BYTES as u64 + PROVIDER_STREAM_WINDOW_BYTES as u64;
/// Memory of a connection before authentication: buffers, including those of TLS.
const CONNECTION_BYTES: u64 = 64 << 10;
/// Additional memory of an HTTP/2 connection: unread body bytes, and the bookkeeping of small frames.
const UNREAD_H2_BYTES: u64 = CONNECTION_WINDOW_BYTES as u64 + 1 + DATA_FRAME_BUDGET_BYTES as u64;
/// Number of copies of a request head: as received, in a buffer that grew by doubling, and parsed. Each thread parses
/// all heads that have arrived on a connection before it handles the first one.
const HEAD_COPIES: u64 = 3;
/// Body bytes of a stream that a client may send before the gateway reads the body.
const UNREAD_BODY_BYTES: u64 = H2_STREAM_WINDOW_BYTES as u64;
/// Number of copies of a body while it is converted for a provider with another dialect.
const BODY_COPIES: u64 = 2;
/// Memory of a token count as a multiple of the body size, in addition to the body itself: the parsed conversation, the
/// values for a chat template, the prompt, and two forms of the prompt during tokenization.
const COUNT_BODY_FACTOR: u64 = 6;
/// Constant memory of a token count: overhead of small values, and the windows of the tokenizer.
const COUNT_OVERHEAD_BYTES: u64 = 128 << 20;
/// Memory of a line that is being read, as a multiple of its size, because its buffer grew by doubling.
const LINE_COPIES: u64 = 2;
/// Maximum number of images in memory at the same time.
const MAX_IMAGES_IN_MEMORY: u64 = 512;
/// Page cache of the store, in bytes.
const STORE_CACHE_BYTES: u64 = 8 << 20;
/// Memory of the program, its threads and the catalogue, in bytes; tokenizers of models are not included.
const PROGRAM_BYTES: u64 = 64 << 20;

/// Memory bound: name, bytes, and the setting that controls it.
type MemoryBound = (&'static str, u64, String);

/// Returns the memory bounds of everything that the configuration limits.
pub fn memory_bounds(settings: &Settings) -> Vec<MemoryBound> {
    let mut bounds = client_bounds(settings).to_vec();
    bounds.extend(data_bounds(settings));
    bounds
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Returns the bounds of what clients can open: requests, streams and connections.
fn client_bounds(settings: &Settings) -> [MemoryBound; 5] {
    let (overload, limits) = (&settings.overload, &settings.limits);
    let inside = wide(overload.requests).saturating_add(wide(overload.queue));
    // HTTP/2 is supported over TLS only.
    let (connection, at_once) = match settings.listen.https {
        Some(_) => (
            CONNECTION_BYTES + UNREAD_H2_BYTES,
            wide(settings.threads).saturating_mul(u64::from(limits.h2_streams)),
        ),
        None => (CONNECTION_BYTES, 0),
    };
    [
        (
            "requests",
            wide(overload.requests).saturating_mul(REQUEST_BYTES),
            format!("overload.requests = {}, {} each", overload.requests, format_size(REQUEST_BYTES)),
        ),
        (
            "streams",
            wide(overload.requests).saturating_mul(STREAM_RECORD_BYTES + UNCOUNTED_ANSWER_BYTES),
            format!(
                "at most {} of text each, recorded for failover, and {} in buffers; the rest counts as bodies",
                format_size(STREAM_RECORD_BYTES),
                format_size(UNCOUNTED_ANSWER_BYTES)
            ),
        ),
        (
            "connections",
            wide(limits.connections).saturating_mul(connection),
            format!("limits.connections = {}, {} each", limits.connections, format_size(connection)),
        ),
        (
            "heads",
            wide(limits.connections)
                .saturating_add(inside)
                .saturating_add(at_once)
                .saturating_mul(wide(limits.head).saturating_mul(HEAD_COPIES)),
            format!(
                "one per connection, per running or waiting request, and over HTTP/2 limits.h2_streams per thread; {HEAD_COPIES} times limits.head each"
            ),
        ),
        (
            "queue",
            wide(overload.queue).saturating_mul(UNREAD_BODY_BYTES),
            format!(
                "overload.queue = {}, {} of each body over HTTP/2",
                overload.queue,
                format_size(UNREAD_BODY_BYTES)
            ),
        ),
    ]
}

/// Returns the bounds of data in memory: bodies, batches, token counts, and the process itself.
fn data_bounds(settings: &Settings) -> [MemoryBound; 8] {
    let (overload, limits, batches) = (&settings.overload, &settings.limits, &settings.batches);
    let images =
        settings.images.max_total_bytes.min(MAX_IMAGES_IN_MEMORY.saturating_mul(wide(settings.spool.memory)));
    [
        (
            "bodies",
            wide(overload.bytes).saturating_mul(BODY_COPIES),
            "twice overload.bytes: as received, and as sent to a provider".to_owned(),
        ),
        (
            "batches",
            wide(batches.memory)
                .saturating_add(wide(batches.concurrency).saturating_mul(REQUEST_BYTES))
                .saturating_add(wide(batches.memory.max(batches.line)).saturating_mul(BODY_COPIES))
                .saturating_add(wide(batches.line).saturating_mul(LINE_COPIES)),
            format!(
                "batches.memory, batches.concurrency = {}, large lines in two forms, one of batches.line being read",
                batches.concurrency
            ),
        ),
        (
            "counting",
            wide(overload.counting).saturating_mul(
                wide(limits.json_body).saturating_mul(COUNT_BODY_FACTOR).saturating_add(COUNT_OVERHEAD_BYTES),
            ),
            format!(
                "overload.counting = {}, {COUNT_BODY_FACTOR} times limits.json_body and {} each",
                overload.counting,
                format_size(COUNT_OVERHEAD_BYTES)
            ),
        ),
        (
            "buffers",
            wide(buffer_pool::MAX_TOTAL_POOLED_BYTES),
            "of large bodies, kept for a second".to_owned(),
        ),
        ("ledger", wide(settings.ledger.backlog), "ledger.backlog".to_owned()),
        ("images", images, "images.keep, at most spool.memory of each image".to_owned()),
        ("store", STORE_CACHE_BYTES, "its cache".to_owned()),
        ("program", PROGRAM_BYTES, "without tokenizers of models".to_owned()),
    ]
}

/// Returns the sum of all bounds.
pub fn total_bytes(bounds: &[(&'static str, u64, String)]) -> u64 {
    bounds.iter().fold(0, |sum, (_, bytes, _)| sum.saturating_add(*bytes))
}

/// Returns a warning if the sum of the bounds exceeds `machine`, the memory of the machine or control group in bytes;
/// `None` if it does not, or if this memory is unknown.
pub fn excess_warning(settings: &Settings, machine: Option<u64>) -> Option<String> {
    let (mut bounds, machine) = (memory_bounds(settings), machine?);
    let needed = total_bytes(&bounds);
    bounds.sort_by_key(|(_, bytes, _)| std::cmp::Reverse(*bytes));
    let largest = bounds.iter().take(3).map(|(name, bytes, _)| format!("{name} {}", format_size(*bytes)));
    (needed > machine).then(|| {
        format!(
            "The memory bounds add up to {}, and this machine has {}: under full load the system may end the process. \
             Lower overload.requests, overload.bytes or limits.connections; the largest shares are {}.",
            format_size(needed),
            format_size(machine),
            largest.collect::<Vec<_>>().join(", ")
        )
    })
}

/// Returns the memory of this machine in bytes, or the memory limit of this process's control group if that limit is
/// lower; `None` if both are unknown. A container or a service has a control group with a limit. A command in a shell
/// does not see the limit of the gateway's service.
pub fn memory_limit() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let total = read("/proc/meminfo").and_then(|text| parse_mem_total(&text));
    let mut groups = vec![
        "/sys/fs/cgroup/memory.max".to_owned(),
        "/sys/fs/cgroup/memory/memory.limit_in_bytes".to_owned(),
    ];
    groups.extend(read("/proc/self/cgroup").iter().flat_map(|text| group_limit_files(text)));
    // Without a limit the file contains `max`, or a number larger than the memory of any machine.
    let group = groups.iter().filter_map(|path| read(path)?.trim().parse::<u64>().ok()).min();
    [total, group].into_iter().flatten().min()
}

/// Returns the files with the memory limits of a process's control group and of the groups above it, from the text of
/// its `/proc/self/cgroup`.
fn group_limit_files(groups: &str) -> Vec<String> {
    let Some(group) = groups.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let parts: Vec<&str> = group.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    (1..=parts.len())
        .map(|depth| {
            format!(
                "/sys/fs/cgroup/{}/memory.max",
                parts.iter().take(depth).copied().collect::<Vec<_>>().join("/")
            )
        })
        .collect()
}

/// Returns the bytes that the line `MemTotal` states; `None` if the line is missing or invalid.
fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// Formats a size for people; the number is rounded up to one decimal.
pub fn format_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor {
            let tenths = bytes.saturating_mul(10).div_ceil(factor);
            return match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                rest => format!("{}.{rest} {unit}", tenths / 10),
            };
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_the_machine_is_read() {
        assert_eq!(parse_mem_total("MemFree: 1 kB\nMemTotal:       16384 kB\n"), Some(16 << 20));
        for odd in ["", "MemTotal: 1 MB", "MemTotal: x kB", "MemTotal: 99999999999999999999 kB"] {
            assert_eq!(parse_mem_total(odd), None, "{odd}");
        }
        assert!(memory_limit().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn the_limits_of_a_service_and_of_its_slice_are_read() {
        let files = group_limit_files("12:devices:/x\n0::/system.slice/penstock.service\n");
        let expected = ["system.slice", "system.slice/penstock.service"];
        assert_eq!(files, expected.map(|group| format!("/sys/fs/cgroup/{group}/memory.max")));
        for none in ["", "0::/\n", "4:memory:/docker/x\n", "0::/..\n"] {
            assert_eq!(group_limit_files(none), Vec::<String>::new(), "{none}");
        }
    }

    #[test]
    fn a_warning_names_the_largest_shares() {
        let loaded = crate::config::ConfigSource::Demo.load().map(|loaded| loaded.settings);
        let Ok(settings) = loaded else { unreachable!("the demo is valid") };
        let warning = excess_warning(&settings, Some(1)).unwrap_or_default();
        assert!(warning.contains("the largest shares are ") && !warning.contains("below"), "{warning}");
        assert_eq!(excess_warning(&settings, Some(u64::MAX)), None);
    }

    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in
            [(1, "1 B"), (1 << 10, "1 KiB"), ((1 << 20) + 1, "1.1 MiB"), (3 << 29, "1.5 GiB")]
        {
            assert_eq!(format_size(bytes), text);
        }
    }
}
