//! UDP sockets for QUIC: which socket of a group a datagram goes to, and how much the kernel may hold.
//!
//! The kernel spreads the datagrams of a group by the addresses of both ends. A QUIC connection outlives its client's address (RFC 9000 §9), so
//! that rule would hand it to another thread half-way. [`steer_by_connection_id`] replaces it by a small program in the kernel that looks
//! at the connection id: one that was made here names its socket ([`STEERED_ID_LEN`] says how); everything else goes by addresses as before.

use std::{io, net::UdpSocket};

use socket2::SockRef;

/// Length of a steered connection id in bytes. Its first byte is random, its second is the first XOR the place of the socket in its group. Nine
/// is a length that peers' own first ids seldom have.
pub const STEERED_ID_LEN: usize = 9;

/// The most sockets of a group that can be told apart.
pub const MOST_STEERED: usize = 256;

/// Lets the group that `group` is (in the order in which the sockets were bound) receive QUIC packets by connection id. One socket needs none of
/// it. The program stays with the group until another takes its place.
///
/// # Errors
/// The system's; `InvalidInput` for more than [`MOST_STEERED`] sockets, `Unsupported` where there is no such thing.
pub fn steer_by_connection_id(group: &[UdpSocket]) -> io::Result<()> {
    match group {
        [] | [_] => Ok(()),
        [first, ..] if group.len() <= MOST_STEERED => attach(first, &program(group.len())),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// What the kernel may hold for a socket, in bytes of payload it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpBuffers {
    /// Datagrams that came and were not read.
    pub receive: usize,
    /// Datagrams that were sent and did not leave.
    pub send: usize,
}

/// Asks for `bytes` in each direction and tells what was granted: less where `net.core.rmem_max` and `net.core.wmem_max` say so.
///
/// # Errors
/// The system's, when the socket is of no use.
pub fn raise_udp_buffers(socket: &UdpSocket, bytes: usize) -> io::Result<UdpBuffers> {
    let socket = SockRef::from(socket);
    // A refusal is seen in what is read back.
    let _ = socket.set_recv_buffer_size(bytes);
    let _ = socket.set_send_buffer_size(bytes);
    // Linux doubles what it is asked for, to have room for its own records (socket(7)).
    let doubled = if cfg!(target_os = "linux") { 2 } else { 1 };
    Ok(UdpBuffers {
        receive: socket.recv_buffer_size()? / doubled,
        send: socket.send_buffer_size()? / doubled,
    })
}

/// One step of a classic BPF program.
#[derive(Clone, Copy, Debug)]
struct Step {
    code: u16,
    /// Steps left out when the test holds, and when it does not.
    jumps: (u8, u8),
    value: u32,
}

const fn step(code: u16, value: u32) -> Step {
    Step {
        code,
        jumps: (0, 0),
        value,
    }
}

const fn test(code: u16, value: u32, holds: u8, fails: u8) -> Step {
    Step {
        code,
        jumps: (holds, fails),
        value,
    }
}

/// The kernel runs it on the payload of each datagram: what it returns is the socket's place, or none if there is no such place.
fn program(sockets: usize) -> [Step; 15] {
    const LOAD_BYTE: u16 = 0x30;
    const KEEP: u16 = 0x07;
    const XOR_KEPT: u16 = 0xac;
    const GO: u16 = 0x05;
    const IF_BITS: u16 = 0x45;
    const IF_EQUAL: u16 = 0x15;
    const IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    const RETURN_RESULT: u16 = 0x16;
    const LONG_HEADER: u32 = 0x80;
    let length = u32::try_from(STEERED_ID_LEN).unwrap_or(0);
    let sockets = u32::try_from(sockets).unwrap_or(0);
    [
        step(LOAD_BYTE, 0),
        test(IF_BITS, LONG_HEADER, 4, 0),
        // RFC 9000 §17.3: a short header is followed by the id.
        step(LOAD_BYTE, 1),
        step(KEEP, 0),
        step(LOAD_BYTE, 2),
        step(GO, 5),
        // §17.2: a long header has the version, the id's length, and the id.
        step(LOAD_BYTE, 5),
        test(IF_EQUAL, length, 0, 5),
        step(LOAD_BYTE, 6),
        step(KEEP, 0),
        step(LOAD_BYTE, 7),
        step(XOR_KEPT, 0),
        test(IF_AT_LEAST, sockets, 0, 1),
        step(RETURN, u32::MAX),
        step(RETURN_RESULT, 0),
    ]
}

#[cfg(target_os = "linux")]
#[allow(
    unsafe_code,
    reason = "only setsockopt attaches a program to a group of sockets"
)]
fn attach(socket: &UdpSocket, program: &[Step]) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|step| libc::sock_filter {
            code: step.code,
            jt: step.jumps.0,
            jf: step.jumps.1,
            k: step.value,
        })
        .collect();
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: filter.as_mut_ptr(),
    };
    let size = libc::socklen_t::try_from(size_of::<libc::sock_fprog>())
        .map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: the descriptor is open for the whole call; the option takes a `sock_fprog` of this size, whose pointer and length are those of
    // `filter`, which lives until the call has returned. The kernel copies and checks the program and keeps no pointer.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            std::ptr::from_ref(&program).cast(),
            size,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(not(target_os = "linux"))]
fn attach(_: &UdpSocket, _: &[Step]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
