//! Prompt for a password, which a terminal does not show.

use super::output::print_stderr;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::io::{BufRead as _, IsTerminal as _, Read as _, Result, Stdin, stdin};

/// Maximum length of the line of a password, in bytes.
const MAX_LINE_BYTES: u64 = 4096;

/// Reads a password from standard input, one line. A terminal gets a prompt, and does not show what is typed.
///
/// # Errors
/// Returns an error if the input cannot be read.
pub fn read_password() -> Result<String> {
    let input = stdin();
    let hidden = input.is_terminal().then(|| HiddenInput::start(&input)).flatten();
    let mut line = String::new();
    input.lock().take(MAX_LINE_BYTES).read_line(&mut line)?;
    drop(hidden);
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// Guard of a terminal that does not show its input.
struct HiddenInput<'a> {
    terminal: &'a Stdin,
    shown: Termios,
}

impl<'a> HiddenInput<'a> {
    /// Prints the prompt; `None` if the terminal cannot be changed.
    fn start(terminal: &'a Stdin) -> Option<Self> {
        let shown = tcgetattr(terminal).ok()?;
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        print_stderr("Password: ");
        tcsetattr(terminal, OptionalActions::Flush, &hidden).ok()?;
        Some(Self { terminal, shown })
    }
}

impl Drop for HiddenInput<'_> {
    fn drop(&mut self) {
        tcsetattr(self.terminal, OptionalActions::Now, &self.shown).ok();
        // The end of the line was not shown either.
        print_stderr("\n");
    }
}
