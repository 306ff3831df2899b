//! From a file, or from the demo that comes along, to settings: read, checked, resolved.

use super::check::check;
use super::diagnostic::{Mistake, Report};
use super::read;
use super::resolve::{self, Names, Surroundings};
use super::schema::SCHEMA;
use super::settings::{Settings, Storage};
use super::spanned_toml::Node;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The demo as `conf/demo.toml` has it.
pub const DEMO: &str = include_str!("../../conf/demo.toml");

/// Where a configuration comes from; a reload reads it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The demo that comes along.
    Demo,
    /// A file, and those it includes.
    File(PathBuf),
}

/// Settings, and what is odd about them.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the house uses.
    pub settings: Settings,
    /// What to tell whoever wrote it.
    pub warnings: Vec<Mistake>,
}

impl Source {
    /// Reads, checks and resolves it.
    ///
    /// # Errors
    /// Every mistake at once, and the warnings.
    pub fn load(&self) -> Result<Loaded, Report> {
        self.load_with(Surroundings { env: &|name| std::env::var(name).ok() })
    }

    /// The same with other surroundings.
    ///
    /// # Errors
    /// As [`Source::load`].
    pub fn load_with(&self, around: Surroundings<'_>) -> Result<Loaded, Report> {
        let mut report = Report::default();
        let root = self.read(&mut report);
        finish(root, around, report)
    }
}

/// Settings of a text; `name` is the file it is taken for.
///
/// # Errors
/// As [`Source::load`].
pub fn load_text(name: &str, text: &str, around: Surroundings<'_>) -> Result<Loaded, Report> {
    let mut report = Report::default();
    let root = read::text(name, text, &mut report.mistakes);
    finish(root, around, report)
}

fn finish(root: Option<Node>, around: Surroundings<'_>, mut report: Report) -> Result<Loaded, Report> {
    let Some(root) = root else { return Err(report) };
    let mut names = Names::of(&root);
    let checked = check(root, &SCHEMA, &mut report.mistakes);
    names.guessed = checked.guessed.into_iter().collect();
    match resolve::resolve(&checked.root, &names, around, &mut report) {
        Some(settings) if report.mistakes.is_empty() => Ok(Loaded { settings, warnings: report.warnings }),
        _ => {
            report.mistakes.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
            report.mistakes.dedup();
            Err(report)
        }
    }
}

/// What a command needs to reach a gateway that runs, or its store when none does. Providers and their
/// secrets, which the shell at hand may not have, do not matter for it.
#[derive(Clone, Debug)]
pub struct Reach {
    /// The admin listener.
    pub admin: SocketAddr,
    /// Folder of the store.
    pub folder: PathBuf,
    /// Folder of the contents of files.
    pub files: PathBuf,
    /// The store itself, or what is wrong with its part of the configuration.
    pub storage: Result<Storage, Vec<Mistake>>,
}

impl Source {
    /// Reads just enough to reach the gateway or its store.
    ///
    /// # Errors
    /// What is wrong with the files, or with the admin listener.
    pub fn reach(&self) -> Result<Reach, Report> {
        let mut report = Report::default();
        let Some(root) = self.read(&mut report) else { return Err(report) };
        let root = check(root, &SCHEMA, &mut report.mistakes).root;
        let around = Surroundings { env: &|name| std::env::var(name).ok() };
        resolve::reach(&root, around).map_err(|mistakes| {
            report.mistakes.extend(mistakes);
            report
        })
    }

    fn read(&self, report: &mut Report) -> Option<Node> {
        match self {
            Self::Demo => read::text("demo.toml", DEMO, &mut report.mistakes),
            Self::File(path) => read::file(path, &mut report.mistakes),
        }
    }
}
