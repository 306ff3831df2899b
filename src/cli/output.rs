//! Output of commands. A closed pipe, as with `| head`, is not an error.

use std::io::{ErrorKind, Write};

/// Writes to standard output.
///
/// # Errors
/// Returns an error if standard output cannot be written to.
pub fn print_stdout(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("Standard output cannot be written to: {error}."))
        }
        _ => Ok(()),
    }
}

/// Writes to standard error.
pub fn print_stderr(text: &str) {
    let mut err = std::io::stderr().lock();
    // A failure to write to standard error cannot be reported.
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).ok();
}
