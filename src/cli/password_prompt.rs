//! Prompt for a password, which a terminal does not show.

use super::output::print_stderr;
use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{BufRead, Error, ErrorKind, IsTerminal as _, Read as _, Result, Stdin, stdin};

/// Maximum length of the line of a password, in bytes.
const MAX_LINE_BYTES: u64 = 4096;
/// Character of Ctrl-C.
const CTRL_C: u8 = 3;

/// Reads a password from standard input, one line. A terminal gets a prompt, and does not show what is typed.
///
/// # Errors
/// Returns an error if the input cannot be read, the terminal would show what is typed, or the prompt was ended by
/// Ctrl-C.
pub fn read_password() -> Result<String> {
    let input = stdin();
    let hidden = if input.is_terminal() { Some(HiddenInput::start(&input)?) } else { None };
    let line = read_line(input.lock(), hidden.is_some());
    drop(hidden);
    line
}

/// Reads one line; in a terminal, Ctrl-C ends it with an error.
fn read_line(input: impl BufRead, is_terminal: bool) -> Result<String> {
    let mut line = Vec::new();
    for byte in input.take(MAX_LINE_BYTES).bytes() {
        match byte? {
            CTRL_C if is_terminal => return Err(Error::new(ErrorKind::Interrupted, "it was cancelled")),
            b'\n' => break,
            byte => line.push(byte),
        }
    }
    let line = String::from_utf8(line).map_err(|_| Error::new(ErrorKind::InvalidData, "it is not UTF-8"))?;
    Ok(line.trim_end_matches('\r').to_owned())
}

/// Guard of a terminal that does not show its input.
struct HiddenInput<'a> {
    terminal: &'a Stdin,
    shown: Termios,
}

impl<'a> HiddenInput<'a> {
    /// Makes the terminal hide its input, and prints the prompt.
    fn start(terminal: &'a Stdin) -> Result<Self> {
        let shown = tcgetattr(terminal)?;
        tcsetattr(terminal, OptionalActions::Flush, &hidden_modes(&shown))?;
        print_stderr("Password: ");
        Ok(Self { terminal, shown })
    }
}

/// Returns the modes of a terminal that does not show its input. Ctrl-C ends the line and not the process, because an
/// ended process would leave the terminal in these modes.
fn hidden_modes(shown: &Termios) -> Termios {
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    hidden.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    hidden
}

impl Drop for HiddenInput<'_> {
    fn drop(&mut self) {
        tcsetattr(self.terminal, OptionalActions::Now, &self.shown).ok();
        // The terminal did not show the line break of the input either, so it is printed now.
        print_stderr("\n");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_line_ends_at_its_end_or_at_ctrl_c_in_a_terminal() {
        for (input, line) in [("a b\r\nc", "a b"), ("abc", "abc"), ("", ""), ("\n", "")] {
            assert_eq!(read_line(input.as_bytes(), true).unwrap(), line);
        }
        assert_eq!(read_line(&b"ab\x03c\n"[..], false).unwrap(), "ab\u{3}c");
        let error = read_line(&b"ab\x03"[..], true).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Interrupted, "it was cancelled"));
        assert!(read_line(&b"\xff\n"[..], true).is_err());
    }
}
