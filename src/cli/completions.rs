//! `penstock completions`: completion scripts of shells, generated from the definition of the command line.

use super::Cli;
use super::output::print_stdout;
use clap::{Args, CommandFactory, ValueEnum};
use clap_complete::Shell;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell for which the script is written
    #[arg(value_enum)]
    shell: ShellName,
}

/// Shells that are supported and tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ShellName {
    /// Bash
    Bash,
    /// Z shell
    Zsh,
    /// Fish
    Fish,
}

impl From<ShellName> for Shell {
    fn from(name: ShellName) -> Self {
        match name {
            ShellName::Bash => Self::Bash,
            ShellName::Zsh => Self::Zsh,
            ShellName::Fish => Self::Fish,
        }
    }
}

/// Prints the completion script of a shell.
///
/// # Errors
/// Returns an error if standard output cannot be written to.
pub fn run(completions: &CompletionsArgs) -> Result<(), String> {
    print_stdout(&script(completions.shell))
}

fn script(shell: ShellName) -> String {
    let mut text = Vec::new();
    clap_complete::generate(Shell::from(shell), &mut Cli::command(), "penstock", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_completes_commands_and_options() {
        for shell in ShellName::value_variants() {
            let text = script(*shell);
            for word in ["credits", "batches", "--config", "--format"] {
                let option = word.trim_start_matches('-');
                assert!(text.contains(option), "{shell:?} does not know {word}");
            }
        }
    }
}
