//! Memory bound of a configuration as printed by `penstock check`.

use crate::harness::Provider;
use crate::harness::process::{Home, catalogue, complaint};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_compares_the_memory_bounds_with_the_machines_memory() {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB")).unwrap();
    let total = total.trim().parse::<u64>().unwrap() << 10;
    let provider = Provider::start().await;
    let home = Home::new();
    let small = "requests = 4\nqueue = 4\n";
    let limits = "[limits]\nconnections = 100\njson_body = \"1MiB\"\n[ledger]\nbacklog = \"1MiB\"\n";
    let batches = "[batches]\nmemory = \"1MiB\"\nline = \"1MiB\"\nconcurrency = 1\n";
    // The memory bound counts bodies twice. Together with all other memory, bodies of half the machine's memory are
    // already too much.
    for (bytes, too_much) in [(2 << 20, false), (total / 2, true), (total, true)] {
        let overload = format!("[overload]\n{small}bytes = \"{bytes}B\"\n");
        home.write(&format!("{overload}{limits}{batches}{}", catalogue(&provider, "")));
        let checked = home.command(&["check"]);
        let stderr = complaint(&checked);
        assert!(checked.status.success(), "{stderr}");
        assert_eq!(stderr.contains("The memory bounds add up to "), too_much, "{bytes}: {stderr}");
        assert_eq!(stderr.contains(", and this machine has "), too_much, "{stderr}");
        let strict = home.command(&["check", "--strict"]);
        assert_eq!(
            strict.status.code() == Some(78),
            too_much || !stderr.is_empty(),
            "{}",
            complaint(&strict)
        );
    }
}
