//! Notifications to the service manager through `NOTIFY_SOCKET`, as defined by systemd. If no service manager
//! listens, they are skipped without an error.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports to the service manager that the process is ready.
pub fn notify_ready() {
    send_state("READY=1");
}

/// Reports that the process with this id is the main process of the service from now on, and that it is ready.
pub fn notify_successor(id: u32) {
    send_state(&format!("MAINPID={id}\nREADY=1\nSTATUS=Upgraded; the process before it drains."));
}

/// Reports that the process stops once its exchanges have ended.
pub fn notify_stopping() {
    send_state("STOPPING=1");
}

fn send_state(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        socket.send_to_addr(state.as_bytes(), &address).ok();
    }
}
