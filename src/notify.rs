//! Notifications to the service manager over `NOTIFY_SOCKET`, as defined by systemd. A missing socket is no failure.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Reports that the process serves.
pub fn ready() {
    tell("READY=1");
}

/// Reports that another process is the main process of the service from now on, and serves.
pub fn successor(id: u32) {
    tell(&format!("MAINPID={id}\nREADY=1\nSTATUS=Upgraded; the process before it drains."));
}

/// Reports that the process ends as soon as its exchanges have.
pub fn stopping() {
    tell("STOPPING=1");
}

fn tell(what: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.as_bytes();
    let address = match name.strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name)),
    };
    if let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) {
        socket.send_to_addr(what.as_bytes(), &address).ok();
    }
}
