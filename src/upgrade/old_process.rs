//! Old process of an upgrade: it starts its successor and waits until the successor serves.

use super::control_channel::{ControlChannel, SuccessorEvent};
use super::messages::{self, NewToOld, OldToNew};
use super::{TAKEOVER_VARIABLE, fd_passing};
use crate::config::settings::MAX_LISTENERS;
use std::ffi::OsString;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait for each of the two messages of the new process: prepared, and ready.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// Program path and arguments with which this process was started.
#[derive(Clone, Debug)]
pub struct LaunchCommand {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl LaunchCommand {
    /// Reads the program path and the arguments. They are read when the process starts, since the file may be replaced
    /// later.
    ///
    /// # Errors
    /// Returns a sentence if the path is unknown.
    pub fn from_current_process() -> Result<Self, String> {
        let mut arguments = std::env::args_os();
        // The path of the command line is preferred, because it may be a symbolic link that points to a new program
        // later.
        let program_path = arguments.next().map(PathBuf::from).filter(|path| path.components().count() > 1);
        let path = program_path.map_or_else(std::env::current_exe, std::path::absolute);
        let path = path.map_err(|error| format!("The path of this program is not known: {error}."))?;
        Ok(Self { path, arguments: arguments.collect() })
    }
}

/// New process that this process has started as its successor. If it is dropped before the new process serves, the new
/// process is killed, so that it does not hold the store.
pub struct Successor {
    child: Child,
    stream: UnixStream,
    is_serving: bool,
}

impl Successor {
    /// Starts the process, sends it the sockets, and waits until it needs the store. Blocks.
    ///
    /// # Errors
    /// Returns a sentence for the operator; the new process has ended then.
    pub fn start(program: &LaunchCommand, listeners: &[TcpListener]) -> Result<Self, String> {
        if listeners.len() > MAX_LISTENERS {
            let count = listeners.len();
            return Err(format!(
                "{count} listeners cannot be handed over; at most {MAX_LISTENERS} are possible."
            ));
        }
        let failed = |error: std::io::Error| format!("The new process cannot be started: {error}.");
        let (own_end, theirs) = UnixStream::pair().map_err(failed)?;
        own_end.set_read_timeout(Some(STEP_TIMEOUT)).map_err(failed)?;
        let child = Command::new(&program.path)
            .args(&program.arguments)
            .env(TAKEOVER_VARIABLE, "stdin")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()
            .map_err(failed)?;
        let mut new = Self { child, stream: own_end, is_serving: false };
        let sent = new.send_sockets(listeners);
        if sent.is_ok() && matches!(messages::read_message(&mut new.stream), Ok(NewToOld::Prepared)) {
            return Ok(new);
        }
        Err(new.kill("did not start"))
    }

    fn send_sockets(&mut self, listeners: &[TcpListener]) -> std::io::Result<()> {
        let addresses = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        messages::write_message(&mut self.stream, &OldToNew::Sockets(addresses))?;
        fd_passing::send_sockets(&self.stream, listeners)
    }

    /// Returns the process ID of the successor.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Tells the new process that the store is closed, waits until it serves, and opens the control channel to it;
    /// `news` is called for each event of that channel. Blocks.
    ///
    /// # Errors
    /// Returns a sentence for the operator; the new process has ended then.
    pub fn hand_over(
        mut self,
        news: impl FnMut(SuccessorEvent) + Send + 'static,
    ) -> Result<Arc<ControlChannel>, String> {
        // The channel is opened before the new process gets the store, because no step may fail once the new process
        // serves.
        let channel = self.stream.try_clone().and_then(|stream| {
            stream.set_read_timeout(None)?;
            ControlChannel::start(stream, news)
        });
        let (channel, serving) =
            channel.map_err(|error| format!("{} ({error})", self.kill("cannot be reached")))?;
        let sent = messages::write_message(&mut self.stream, &OldToNew::Yours);
        if sent.is_err() || serving.recv_timeout(STEP_TIMEOUT).is_err() {
            return Err(self.kill("did not take over"));
        }
        self.is_serving = true;
        Ok(channel)
    }

    /// Kills the new process; returns a sentence for the operator, "The new process {reason} …".
    fn kill(&mut self, reason: &str) -> String {
        let ended = self.child.try_wait().ok().flatten();
        self.child.kill().ok();
        let ended = ended.or_else(|| self.child.wait().ok());
        let how = ended.map(|status| format!(" ({status})")).unwrap_or_default();
        format!("The new process {reason}{how}; the old process continues.")
    }

    /// Kills the new process because this one continues. Blocks.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.is_serving {
            self.kill("is not needed");
        }
    }
}

#[cfg(test)]
mod tests;
