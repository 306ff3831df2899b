//! Link arguments of release builds: identical functions are stored once, and relocations in their short form. Together
//! they keep the program within the size that `.ci/package` allows. Both need LLD, which rustc 1.90 and later links with
//! on x86-64 Linux; other builds are larger and otherwise the same.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    let release = is("PROFILE", "release") && is("OPT_LEVEL", "3");
    let linux = is("CARGO_CFG_TARGET_ARCH", "x86_64") && is("CARGO_CFG_TARGET_ENV", "gnu");
    if release && linux && minor_version().is_some_and(|minor| minor >= 90) {
        println!("cargo::rustc-link-arg-bins=-Wl,--icf=all");
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Minor version of the compiler, as in `rustc 1.90.0 (…)`.
fn minor_version() -> Option<u32> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    String::from_utf8(output.stdout).ok()?.split('.').nth(1)?.parse().ok()
}
