//! A packet socket between two processes: each packet is one JSON value of at most 64 KiB, with file descriptors beside it. The peer
//! is gt itself; a packet that is too long or cannot be read ends the channel, nothing more.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
    sendmsg, socketpair,
};
use serde::{Serialize, de::DeserializeOwned};

/// One end.
#[derive(Debug)]
pub(crate) struct Channel(OwnedFd);

/// A value and the descriptors that came with it.
pub(crate) type Packet<T> = (T, Vec<OwnedFd>);

impl Channel {
    /// Both ends of a new channel; neither is inherited by accident.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Self(a), Self(b)))
    }

    /// Takes standard input as a channel and leaves /dev/null in its place. `None` when it is no packet socket.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn from_stdin() -> io::Result<Option<Self>> {
        let stdin = io::stdin().as_fd().try_clone_to_owned()?;
        match rustix::net::sockopt::socket_type(&stdin) {
            Ok(SocketType::SEQPACKET) => {
                rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
                Ok(Some(Self(stdin)))
            }
            _ => Ok(None),
        }
    }

    /// The end as a descriptor, for a child's standard input.
    #[must_use]
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.0
    }

    /// The channel that somebody else made.
    #[must_use]
    pub(crate) fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// Lets more be under way: for handing over many sockets before anybody reads.
    pub(crate) fn widen(&self) {
        // As far as the system lets; what does not fit is an error of `send`.
        let _ = rustix::net::sockopt::set_socket_send_buffer_size(&self.0, 8 << 20);
    }

    /// Sends without waiting, [`MOST_FDS`] descriptors at most.
    ///
    /// # Errors
    /// `WouldBlock` when the peer does not read, `BrokenPipe` when it is gone, `InvalidInput` for what is too long.
    pub(crate) fn send<T: Serialize>(&self, value: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let bytes = serde_json::to_vec(value)?;
        if bytes.len() > MAX_PACKET || fds.len() > MOST_FDS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next packet; `None` when the peer is gone. Waits for it unless `wait` is false: then it is `WouldBlock`.
    ///
    /// # Errors
    /// The system's; `InvalidData` for a packet that cannot be read.
    pub(crate) fn recv<T: DeserializeOwned>(&self, wait: bool) -> io::Result<Option<Packet<T>>> {
        let mut bytes = vec![0; MAX_PACKET];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut flags = RecvFlags::CMSG_CLOEXEC;
        if !wait {
            flags |= RecvFlags::DONTWAIT;
        }
        let received = loop {
            let mut into = [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, &mut into, &mut control, flags) {
                Ok(received) => break received,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(passed) = message {
                fds.extend(passed);
            }
        }
        if received.bytes == 0 {
            return Ok(None);
        }
        if received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC)
        {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let value = serde_json::from_slice(&bytes[..received.bytes])?;
        Ok(Some((value, fds)))
    }

    /// Another handle on the same end.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Linux carries 253 descriptors in one packet (SCM_MAX_FD); some are left.
pub(crate) const MOST_FDS: usize = 128;
const MAX_PACKET: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_descriptors_arrive_in_order_and_the_end_is_told() {
        let (a, b) = Channel::pair().expect("a pair");
        let file = std::fs::File::open("/dev/null").expect("opens");
        a.send(&"one", &[file.as_fd(), file.as_fd()]).expect("sent");
        a.send(&"two", &[]).expect("sent");
        drop(a);
        let (text, fds) = b.recv::<String>(true).expect("received").expect("a packet");
        assert_eq!((text.as_str(), fds.len()), ("one", 2));
        let (text, fds) = b.recv::<String>(true).expect("received").expect("a packet");
        assert_eq!((text.as_str(), fds.len()), ("two", 0));
        assert!(b.recv::<String>(true).expect("received").is_none());
    }

    #[test]
    fn too_much_is_refused_and_nobody_waits_for_a_reader() {
        let (a, b) = Channel::pair().expect("a pair");
        let long = "x".repeat(MAX_PACKET);
        assert_eq!(
            a.send(&long, &[]).expect_err("too long").kind(),
            io::ErrorKind::InvalidInput
        );
        assert_eq!(
            b.recv::<String>(false).expect_err("nothing").kind(),
            io::ErrorKind::WouldBlock
        );
        let full = (0..100_000).find_map(|_| a.send(&"x".repeat(1000), &[]).err());
        assert_eq!(full.expect("full").kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let (a, b) = Channel::pair().expect("a pair");
        a.send(&7, &[]).expect("sent");
        assert_eq!(
            b.recv::<String>(true).expect_err("no text").kind(),
            io::ErrorKind::InvalidData
        );
    }
}
