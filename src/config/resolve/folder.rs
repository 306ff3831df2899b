//! Checks that a folder exists or can be created.

use super::SettingsResolver;
use super::key_path::KeyPath;
use rustix::fs::{Access, access, statfs};
use std::path::Path;

/// Type numbers of the file systems procfs and sysfs. Folders cannot be created there, although the access check may
/// succeed.
const KERNEL_FILE_SYSTEMS: [i64; 2] = [0x9fa0, 0x6265_6572];

fn is_kernel_file_system(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| KERNEL_FILE_SYSTEMS.contains(&found.f_type))
}

impl SettingsResolver<'_> {
    /// Checks that a folder is writable or, if it does not exist, that it can be created. A file in its path is a
    /// mistake; missing permissions, or a path in procfs or sysfs, cause only a warning.
    pub fn check_folder_creatable(&mut self, path: &Path, spot: &KeyPath<'_>) {
        if let Some(name) = unexpanded_name(path) {
            let why = format!("`{name}` is not expanded: the folder would be named so.");
            self.report_mistake(spot, why, "Write the whole path.");
            return;
        }
        let Some(ancestor) = path.ancestors().find(|above| above.as_os_str().is_empty() || above.exists())
        else {
            return;
        };
        let ancestor = if ancestor.as_os_str().is_empty() { Path::new(".") } else { ancestor };
        if !ancestor.is_dir() {
            let why = format!("It cannot be made: {} is a file.", ancestor.display());
            self.report_mistake(spot, why, "Write the path of a folder, or of one to be made.");
        } else if is_kernel_file_system(ancestor) {
            let why = format!("It cannot be made: {} is a file system of the kernel.", ancestor.display());
            self.report_warning(spot, why, "Write the path of a folder on a disk.");
        } else if let Err(error) = access(ancestor, Access::WRITE_OK | Access::EXEC_OK) {
            let verb = if ancestor == path { "written to" } else { "made" };
            let why = format!("It cannot be {verb} by this user: {} ({error}).", ancestor.display());
            self.report_warning(spot, why, "Create it, and make the gateway's user its owner.");
        }
    }
}

/// Returns the first part of a path that only a shell expands, such as `~` or `$HOME`; `None` if the path exists or has
/// no such part.
fn unexpanded_name(path: &Path) -> Option<String> {
    let mut names = path.components().map(|part| part.as_os_str().to_string_lossy());
    let name = names.find(|name| name == "~" || name.starts_with('$'))?;
    (!path.exists()).then(|| name.into_owned())
}

/// Returns true if one of two folders is the other, or inside of it.
pub fn overlaps(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}
