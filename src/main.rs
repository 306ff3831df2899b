//! The binary: everything is in the library.

use std::process::ExitCode;

/// A request makes some hundred small allocations on one thread: this allocator
/// keeps them apart by thread and size, where the system's takes twice the time.
/// What is free goes back to the system after a second (`.cargo/config.toml`), so
/// that a burst of requests is not remembered.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    penstock::cli::main()
}
