//! Words to whoever typed the command. A reader that has left, as `| head` does, is no error.

use std::io::{ErrorKind, Write};

/// Standard output.
///
/// # Errors
/// It cannot be written to.
pub fn out(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(format!("Standard output cannot be written to: {error}."))
        }
        _ => Ok(()),
    }
}

/// Standard error.
pub fn err(text: &str) {
    let mut err = std::io::stderr().lock();
    // There is nobody left to tell that this failed.
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).ok();
}
