//! Loading of a configuration file or of the built-in demo: read, check, resolve.

use super::check::check;
use super::diagnostic::{Mistake, Report};
use super::read;
use super::resolve::{self, Names, Surroundings};
use super::schema::SCHEMA;
use super::settings::{Settings, Storage};
use super::spanned_toml::Node;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Text of `conf/demo.toml`.
pub const DEMO: &str = include_str!("../../conf/demo.toml");

/// Source of a configuration; a reload reads it again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in demo.
    Demo,
    /// A file, and those it includes.
    File(PathBuf),
}

/// Settings with their warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Settings of the gateway.
    pub settings: Settings,
    /// Warnings for the operator.
    pub warnings: Vec<Mistake>,
}

impl Source {
    /// Reads, checks and resolves the configuration.
    ///
    /// # Errors
    /// Returns every mistake at once, and the warnings.
    pub fn load(&self) -> Result<Loaded, Report> {
        self.load_with(Surroundings { env: &|name| std::env::var(name).ok() })
    }

    /// Loads the configuration with another environment.
    ///
    /// # Errors
    /// Same as [`Source::load`].
    pub fn load_with(&self, around: Surroundings<'_>) -> Result<Loaded, Report> {
        let mut report = Report::default();
        let root = self.read(&mut report);
        finish(root, around, report)
    }
}

/// Loads settings from a text; `name` stands for the file name.
///
/// # Errors
/// Same as [`Source::load`].
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

/// Address and storage of a gateway, for commands that only need these. Providers and their secrets, which the current
/// shell may not have, are not read.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Address of the admin listener.
    pub admin: SocketAddr,
    /// Folder of the store.
    pub folder: PathBuf,
    /// Folder for the contents of uploaded files.
    pub files: PathBuf,
    /// Settings of the store, or the mistakes in its part of the configuration.
    pub storage: Result<Storage, Vec<Mistake>>,
}

impl Source {
    /// Reads only the settings for reaching the gateway or its store.
    ///
    /// # Errors
    /// Returns the mistakes in the files or in the admin listener.
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
