//! `penstock manual`: manual pages, generated from the definition of the command line.

use super::Cli;
use super::output::{print_stderr, print_stdout};
use clap::{Args, CommandFactory};
use clap_mangen::Man;
use std::path::PathBuf;

/// Arguments of the command.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// Folder to write one page for each command to, such as /usr/local/share/man/man1
    #[arg(long, value_name = "FOLDER")]
    to: Option<PathBuf>,
}

/// Writes the manual pages of all commands to a folder, or prints the page of the program.
///
/// # Errors
/// Returns an error if the folder or standard output cannot be written to.
pub fn run(manual: &ManualArgs) -> Result<(), String> {
    let command = complete_command();
    let Some(folder) = &manual.to else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page).map_err(|error| error.to_string())?;
        return print_stdout(&String::from_utf8_lossy(&page));
    };
    let failed = |error: std::io::Error| format!("{} cannot be written to: {error}.", folder.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    print_stderr(&format!("The manual pages are in {}.\n", folder.display()));
    Ok(())
}

/// Returns the command definition with the names of all pages filled in, without the generated `help` commands.
fn complete_command() -> clap::Command {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        run(&ManualArgs { to: Some(folder.path().to_owned()) }).unwrap();
        for page in ["penstock.1", "penstock-keys-create.1", "penstock-batches-list.1", "penstock-check.1"] {
            let text = std::fs::read_to_string(folder.path().join(page)).unwrap();
            assert!(text.contains(".SH SYNOPSIS"), "{page}");
        }
    }
}
