//! Binary of the gateway: all code is in the library.

use std::process::ExitCode;

/// Allocator of the process. A request makes some hundred small allocations on one thread: jemalloc separates them by
/// thread and size, and takes half the time of the system's allocator. Free memory returns to the system after a second
/// (`.cargo/config.toml`), so that a burst of requests does not stay resident.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    // Failpoints are set by the environment variable `FAILPOINTS`.
    #[cfg(feature = "inject")]
    let _failpoints = fail::FailScenario::setup();
    penstock::cli::main()
}
