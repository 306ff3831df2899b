//! Child process of this run: started, measured from `/proc`, and ended by its handle. No other process on the machine
//! is affected.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Timeout of a graceful shutdown, before the process is killed.
const END: Duration = Duration::from_secs(5);

/// Started process, which is shut down when this value is dropped.
pub struct Process(Child);

impl Process {
    /// Starts a command; its output goes to a file.
    pub fn start(command: &mut Command, log: &Path) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        let file = File::create(log).map_err(|why| format!("{}: {why}", log.display()))?;
        let errors = file.try_clone().map_err(|why| format!("{}: {why}", log.display()))?;
        let child = command.stdin(Stdio::null()).stdout(file).stderr(errors).spawn();
        let child = child.map_err(|why| format!("{program}: {why}"))?;
        Ok(Self(child))
    }

    /// Returns true if the process has ended by itself.
    pub fn ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    /// Returns the ids of the process and its children: nginx works in child processes.
    fn family(&self) -> Vec<u32> {
        let mut family = vec![self.0.id()];
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        family.extend(all.filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            (parent(pid)? == self.0.id()).then_some(pid)
        }));
        family
    }

    /// Returns the processor time in nanoseconds, by thread.
    pub fn spent(&self) -> Spent {
        let mut threads = BTreeMap::new();
        for pid in self.family() {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
            for task in tasks {
                let ran = fs::read_to_string(task.path().join("schedstat")).ok();
                let ran = ran.and_then(|text| text.split_whitespace().next()?.parse().ok());
                threads.insert(task.file_name(), ran.unwrap_or(0_u64));
            }
        }
        Spent(threads)
    }

    /// Returns the resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let resident = |pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        self.family().into_iter().filter_map(resident).sum()
    }
}

/// Processor time of a process's threads at one moment.
pub struct Spent(BTreeMap<std::ffi::OsString, u64>);

impl Spent {
    /// Returns the processor time since `before`, in nanoseconds. Threads that have ended meanwhile are not counted.
    pub fn since(&self, before: &Self) -> u64 {
        let one = |(thread, now): (_, &u64)| now.saturating_sub(before.0.get(thread).copied().unwrap_or(0));
        self.0.iter().map(one).sum()
    }
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program name before the last closing bracket may contain any character, even a closing bracket.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGTERM first, so that nginx ends its workers; the standard library has only SIGKILL.
        let asked = Command::new("kill").arg(self.0.id().to_string()).status();
        let deadline = Instant::now() + END;
        while asked.is_ok() && Instant::now() < deadline && !self.ended() {
            std::thread::sleep(Duration::from_millis(20));
        }
        if !self.ended() {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }
}
