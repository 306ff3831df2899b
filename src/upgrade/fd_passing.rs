//! Passing of listening sockets from one process to another (`SCM_RIGHTS`).

use crate::config::settings::MAX_LISTENERS;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::io::{Error, ErrorKind, IoSlice, IoSliceMut, Result};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Data byte that is sent with each descriptor, because a message needs at least one byte of data.
const CARRIER_BYTE: &[u8] = b"s";

/// Sends the sockets, each with one data byte.
///
/// # Errors
/// Returns an error if the other process is gone.
pub fn send_sockets(over: &UnixStream, sockets: &[TcpListener]) -> Result<()> {
    for socket in sockets {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        let descriptors = [socket.as_fd()];
        if !rights.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(ErrorKind::InvalidInput.into());
        }
        sendmsg(over, &[IoSlice::new(CARRIER_BYTE)], &mut rights, SendFlags::empty())?;
    }
    Ok(())
}

/// Receives `count` sockets. Blocks.
///
/// # Errors
/// Returns an error if there are more than [`MAX_LISTENERS`], if the other process is gone, or if a message has no
/// descriptor.
pub fn receive_sockets(over: &UnixStream, count: usize) -> Result<Vec<TcpListener>> {
    if count > MAX_LISTENERS {
        return Err(ErrorKind::InvalidData.into());
    }
    (0..count).map(|_| receive_socket(over)).collect()
}

fn receive_socket(over: &UnixStream) -> Result<TcpListener> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let mut carrier = [0; CARRIER_BYTE.len()];
    let got = recvmsg(over, &mut [IoSliceMut::new(&mut carrier)], &mut rights, RecvFlags::CMSG_CLOEXEC)?;
    if got.bytes != CARRIER_BYTE.len() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let mut sockets = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    let socket: OwnedFd = sockets.next().ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_passed_socket_has_the_waiting_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let waiting = TcpStream::connect(address).unwrap();
        let (one, two) = UnixStream::pair().unwrap();
        send_sockets(&one, &[listener]).unwrap();
        let taken = receive_sockets(&two, 1).unwrap().pop().unwrap();
        assert_eq!(taken.local_addr().unwrap(), address);
        assert_eq!(taken.accept().unwrap().1, waiting.local_addr().unwrap());
    }

    #[test]
    fn more_sockets_than_possible_are_refused_as_a_whole() {
        let (_one, two) = UnixStream::pair().unwrap();
        let refused = receive_sockets(&two, MAX_LISTENERS + 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData, "no socket was waited for");
    }
}
