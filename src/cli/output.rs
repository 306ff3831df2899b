//! Output of commands. A closed pipe, as with `| head`, is not an error.

use std::io::{ErrorKind, Write};

/// Writes to standard output.
///
/// # Errors
/// Returns an error if standard output cannot be written to.
pub fn print_stdout(text: &str) -> Result<(), String> {
    match write_stdout(text) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("Standard output cannot be written to: {error}."))
        }
        _ => Ok(()),
    }
}

/// Writes to standard output.
///
/// # Errors
/// Returns every error, also that of a closed pipe.
pub fn write_stdout(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush())
}

/// Writes to standard error.
pub fn print_stderr(text: &str) {
    let mut err = std::io::stderr().lock();
    // A failure to write to standard error cannot be reported.
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).ok();
}
