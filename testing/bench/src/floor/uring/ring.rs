//! The ring, and the memory the kernel reads and writes for it: all that is unsafe in the bench.
//!
//! Requests are queued by [`Ring`]'s methods and go out with [`Ring::turn`], which also waits and collects what is complete. Received bytes lie in buffers that
//! the kernel picks from a provided ring ([`Buffers`]); a [`Held`] buffer is one that it may not write to. What a number in a request means is the
//! caller's.
//!
//! Soundness: buffers, addresses and the provided ring are allocated once and never freed, so that no request can outlive them; the kernel
//! writes only to buffers given back, and a slice of a buffer is only had through its `Held`. Messages of sends are copied by the kernel when they are
//! submitted (`IORING_FEAT_SUBMIT_STABLE`), and their places are used anew only then.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{
    BufRingEntry, CancelBuilder, DestinationSlot, Fd, Fixed, SubmitArgs, Timespec,
};
use io_uring::{
    CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue, squeue::Flags,
};
use socket2::SockAddr;

use crate::floor::tricks::{Receive, TaskRun, Tricks};

/// A descriptor: of the process, or a place in the ring's own table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::floor) enum Socket {
    Direct(u32),
    Plain(RawFd),
}

/// A buffer that the kernel may not write to.
#[derive(Debug)]
pub(in crate::floor) struct Held(u16);

/// Bytes of a buffer.
#[derive(Debug)]
pub(in crate::floor) struct Piece {
    pub(in crate::floor) held: Held,
    pub(in crate::floor) from: usize,
    pub(in crate::floor) to: usize,
}

/// What became of a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::floor) struct Completion {
    /// As given with the request.
    pub(in crate::floor) data: u64,
    /// As the system call would return it; errors negative.
    pub(in crate::floor) result: i32,
    /// The same request will complete again.
    pub(in crate::floor) more: bool,
    buffer: Option<u16>,
}

/// How a send is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::floor) enum Ending {
    /// All is sent, however long that takes, and a completion says so.
    Waits,
    /// What the socket does not take at once is not sent, which a completion says; none says that all was sent. Either is known when the turn that
    /// submitted it returns.
    AtOnce,
}

/// Makes a ring with the switches.
///
/// # Errors
/// When the kernel does not have it, or it is forbidden (`EPERM`, `ENOSYS`).
pub(in crate::floor) fn build(tricks: &Tricks) -> Result<IoUring> {
    let mut builder = IoUring::builder();
    builder
        .setup_cqsize(COMPLETIONS)
        .setup_submit_all()
        .setup_clamp();
    match tricks.task_run {
        TaskRun::Defer => builder.setup_single_issuer().setup_defer_taskrun(),
        TaskRun::Coop => builder.setup_single_issuer().setup_coop_taskrun(),
        TaskRun::Interrupt => &mut builder,
    };
    if tricks.no_sqarray {
        builder.setup_no_sqarray();
    }
    builder.build(SUBMISSIONS)
}

pub(in crate::floor) struct Ring<'r> {
    submitter: Submitter<'r>,
    submissions: SubmissionQueue<'r>,
    completions: CompletionQueue<'r>,
    pub(in crate::floor) buffers: Buffers,
    receive: Receive,
    bundle: bool,
    min_wait: Option<(usize, u32)>,
    messages: Box<[Message]>,
    messages_used: usize,
    addresses: *mut Address,
    error: Option<Error>,
}

impl<'r> Ring<'r> {
    /// # Errors
    /// When something cannot be registered.
    pub(in crate::floor) fn new(ring: &'r mut IoUring, tricks: &Tricks) -> Result<Self> {
        let (mut submitter, submissions, completions) = ring.split();
        if tricks.ring_fd {
            submitter.register_ring_fd()?;
        }
        if tricks.direct {
            submitter.register_files_sparse(SLOTS)?;
        }
        Ok(Self {
            buffers: Buffers::new(&submitter, tricks)?,
            submitter,
            submissions,
            completions,
            receive: tricks.receive,
            bundle: tricks.bundle,
            min_wait: tricks.min_wait,
            messages: (0..MESSAGES).map(|_| Message::default()).collect(),
            messages_used: 0,
            addresses: allocate(Layout::new::<[Address; ACCEPTS]>()).cast(),
            error: None,
        })
    }

    /// Accepts one connection, into the place of the ring's table if one is named; [`Ring::peer`] then tells whose.
    pub(super) fn accept(&mut self, listener: RawFd, to: Socket, number: usize, data: u64) {
        assert!(number < ACCEPTS);
        // SAFETY: within the allocation, as just checked; a raw pointer to a field makes no reference.
        let (address, length) = unsafe {
            let at = self.addresses.add(number);
            (*at).length = ADDRESS as u32;
            (&raw mut (*at).bytes, &raw mut (*at).length)
        };
        let slot = match to {
            Socket::Direct(slot) => DestinationSlot::try_from_slot_target(slot).ok(),
            Socket::Plain(_) => None,
        };
        let accept = opcode::Accept::new(Fd(listener), address.cast(), length)
            .file_index(slot)
            .flags(libc::SOCK_CLOEXEC * i32::from(slot.is_none()));
        self.push(accept.build().user_data(data));
    }

    /// Whose connection the accept of that number, complete by now, was.
    pub(super) fn peer(&self, number: usize) -> Option<IpAddr> {
        assert!(number < ACCEPTS);
        // SAFETY: within the allocation, which is zeroed or written by the kernel; the accept is complete, so that it does not write now.
        let Address { bytes, .. } = unsafe { self.addresses.add(number).read() };
        match i32::from(u16::from_ne_bytes([bytes[0], bytes[1]])) {
            libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(&bytes[4..8]).ok()?).into()),
            libc::AF_INET6 => {
                Some(Ipv6Addr::from(<[u8; 16]>::try_from(&bytes[8..24]).ok()?).into())
            }
            _ => None,
        }
    }

    /// Makes a socket in that place of the ring's table, without delay for small segments. To be followed by [`Ring::connect`], which waits for it.
    pub(super) fn socket(&mut self, slot: u32, address: SocketAddr, data: u64) {
        let family = match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let flags = Flags::IO_LINK | Flags::SKIP_SUCCESS;
        let socket = opcode::Socket::new(family, libc::SOCK_STREAM, 0)
            .file_index(DestinationSlot::try_from_slot_target(slot).ok());
        self.push(socket.build().flags(flags).user_data(data));
        let no_delay = opcode::SetSockOpt::new(
            Fixed(slot),
            libc::IPPROTO_TCP as u32,
            libc::TCP_NODELAY as u32,
            (&raw const ONE).cast(),
            size_of::<i32>() as u32,
        );
        self.push(no_delay.build().flags(flags).user_data(data));
    }

    pub(super) fn connect(&mut self, socket: Socket, to: &SockAddr, data: u64) {
        let (at, length) = (to.as_ptr().cast(), to.len());
        let entry = match socket {
            Socket::Direct(slot) => opcode::Connect::new(Fixed(slot), at, length).build(),
            Socket::Plain(fd) => opcode::Connect::new(Fd(fd), at, length).build(),
        };
        self.push(entry.user_data(data));
    }

    /// Receives into buffers the kernel picks: once, or until it says that there is no more. `again`: there was nothing left just now.
    pub(super) fn receive(&mut self, socket: Socket, again: bool, data: u64) {
        let poll_first = match self.receive {
            Receive::PollFirst if again => IORING_RECVSEND_POLL_FIRST,
            _ => 0,
        };
        macro_rules! entry {
            ($fd:expr) => {
                match self.receive {
                    Receive::Multishot if self.bundle => {
                        opcode::RecvMultiBundle::new($fd, GROUP).build()
                    }
                    Receive::Multishot => opcode::RecvMulti::new($fd, GROUP).build(),
                    Receive::Single | Receive::PollFirst => {
                        opcode::Recv::new($fd, std::ptr::null_mut(), self.buffers.offered as u32)
                            .buf_group(GROUP)
                            .ioprio(poll_first)
                            .build()
                            .flags(Flags::BUFFER_SELECT)
                    }
                }
            };
        }
        let entry = match socket {
            Socket::Direct(slot) => entry!(Fixed(slot)),
            Socket::Plain(fd) => entry!(Fd(fd)),
        };
        self.push(entry.user_data(data));
    }

    /// Sends as many of the pieces as one request takes; says how many, and how many bytes they have. They must not be given back before it is complete.
    pub(in crate::floor) fn send<'p>(
        &mut self,
        socket: Socket,
        pieces: impl Iterator<Item = &'p Piece> + Clone,
        ending: Ending,
        data: u64,
    ) -> (usize, usize) {
        let (flags, success) = match ending {
            Ending::Waits => (libc::MSG_NOSIGNAL | libc::MSG_WAITALL, Flags::empty()),
            Ending::AtOnce => (
                libc::MSG_NOSIGNAL | libc::MSG_WAITALL | libc::MSG_DONTWAIT,
                Flags::SKIP_SUCCESS,
            ),
        };
        let mut few = pieces.clone();
        if let (Some(piece), None) = (few.next(), few.next()) {
            let bytes = self.buffers.bytes(piece);
            let (at, length) = (bytes.as_ptr(), bytes.len());
            let entry = match socket {
                Socket::Direct(slot) => opcode::Send::new(Fixed(slot), at, length as u32)
                    .flags(flags)
                    .build(),
                Socket::Plain(fd) => opcode::Send::new(Fd(fd), at, length as u32)
                    .flags(flags)
                    .build(),
            };
            self.push(entry.flags(success).user_data(data));
            return (1, length);
        }
        if self.messages_used == MESSAGES {
            self.submit(0);
        }
        let message = &mut self.messages[self.messages_used];
        self.messages_used += 1;
        let (mut count, mut total) = (0, 0);
        for (part, piece) in message.parts.iter_mut().zip(pieces) {
            let bytes = self.buffers.bytes(piece);
            part.iov_base = bytes.as_ptr().cast_mut().cast();
            part.iov_len = bytes.len();
            count += 1;
            total += bytes.len();
        }
        message.head.msg_iov = message.parts.as_mut_ptr();
        message.head.msg_iovlen = count;
        let at = &raw const message.head;
        let entry = match socket {
            Socket::Direct(slot) => opcode::SendMsg::new(Fixed(slot), at)
                .flags(flags as u32)
                .build(),
            Socket::Plain(fd) => opcode::SendMsg::new(Fd(fd), at).flags(flags as u32).build(),
        };
        self.push(entry.flags(success).user_data(data));
        (count, total)
    }

    /// Ends all requests of a socket, which say so each.
    pub(super) fn cancel(&mut self, socket: Socket, data: u64) {
        let which = match socket {
            Socket::Direct(slot) => CancelBuilder::fd(Fixed(slot)),
            Socket::Plain(fd) => CancelBuilder::fd(Fd(fd)),
        };
        let entry = opcode::AsyncCancel2::new(which.all()).build();
        self.push(entry.flags(Flags::SKIP_SUCCESS).user_data(data));
    }

    /// Ends the request with this number.
    pub(super) fn cancel_request(&mut self, request: u64, data: u64) {
        let entry = opcode::AsyncCancel::new(request).build();
        self.push(entry.flags(Flags::SKIP_SUCCESS).user_data(data));
    }

    pub(super) fn close(&mut self, socket: Socket, data: u64) {
        let entry = match socket {
            Socket::Direct(slot) => opcode::Close::new(Fixed(slot)).build(),
            Socket::Plain(fd) => opcode::Close::new(Fd(fd)).build(),
        };
        self.push(entry.flags(Flags::SKIP_SUCCESS).user_data(data));
    }

    /// Submits what is queued, waits for one completion (or as the switches say) if `wait`, and collects those there are: one system call.
    ///
    /// # Errors
    /// When the ring fails.
    pub(in crate::floor) fn turn(&mut self, wait: bool, into: &mut Vec<Completion>) -> Result<()> {
        let mut wait = usize::from(wait);
        loop {
            self.submit(wait);
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            self.completions.sync();
            into.extend(self.completions.by_ref().map(|entry| Completion {
                data: entry.user_data(),
                result: entry.result(),
                more: cqueue::more(entry.flags()),
                buffer: cqueue::buffer_select(entry.flags()),
            }));
            if self.submissions.is_empty() {
                return Ok(());
            }
            // The kernel took no more for want of room for completions, which there is now.
            wait = 0;
        }
    }

    /// The bytes of a receive, in order.
    pub(super) fn received(&mut self, completion: &Completion, into: &mut Vec<Piece>) {
        let mut left = usize::try_from(completion.result).unwrap_or(0);
        let Some(mut id) = completion.buffer else {
            return;
        };
        loop {
            let held = self.buffers.taken(id);
            let to = left.min(self.buffers.offered);
            left -= to;
            into.push(Piece { held, from: 0, to });
            if left == 0 {
                return;
            }
            id = self.buffers.behind(id);
        }
    }

    fn push(&mut self, entry: squeue::Entry) {
        if self.submissions.is_full() {
            self.submit(0);
        }
        // SAFETY: memory that the entry names is valid as the module says.
        if unsafe { self.submissions.push(&entry) }.is_err() {
            self.error = Some(ErrorKind::OutOfMemory.into());
        }
    }

    fn submit(&mut self, mut wait: usize) {
        self.buffers.publish();
        loop {
            self.submissions.sync();
            let submitted = match self.min_wait {
                Some((want, micros)) if wait > 0 => {
                    // Without the longer time, the shorter one would end the wait.
                    let long = Timespec::new().sec(3600);
                    let args = SubmitArgs::new().min_wait_usec(micros).timespec(&long);
                    self.submitter.submit_with_args(want, &args)
                }
                _ => self.submitter.submit_and_wait(wait),
            };
            self.submissions.sync();
            match submitted {
                // The rest was not taken for want of something: it is asked again, without another wait.
                Ok(_) if !self.submissions.is_empty() => wait = 0,
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => wait = 0,
                // The completion queue is full: what is there must be taken first, by the caller.
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => break,
                Err(error) => {
                    self.error = Some(error);
                    break;
                }
            }
        }
        if self.submissions.is_empty() {
            self.messages_used = 0;
        }
    }
}

/// Buffers of one size, the greater part offered to the kernel.
pub(in crate::floor) struct Buffers {
    base: *mut u8,
    /// Bytes of one.
    size: usize,
    /// Bytes of one that the kernel may fill: what remains is for what a request gets.
    pub(in crate::floor) offered: usize,
    ring: *mut BufRingEntry,
    mask: u16,
    tail: u16,
    /// By place in the ring: which was put there.
    order: Vec<u16>,
    /// By buffer: its place in the ring.
    place: Vec<u16>,
    /// How many the kernel has.
    there: usize,
    spare: Vec<u16>,
}

impl Buffers {
    fn new(submitter: &Submitter<'_>, tricks: &Tricks) -> Result<Self> {
        let count = tricks.buffers.clamp(2, 1 << 14).next_power_of_two();
        let size = tricks.buffer.unwrap_or(PAGE).max(1024) + ROOM;
        let all = usize::from(count) + usize::from(SPARES);
        let base = allocate(page_aligned(size * all));
        let ring: *mut BufRingEntry =
            allocate(page_aligned(size_of::<BufRingEntry>() * usize::from(count))).cast();
        // SAFETY: the ring has that many entries and is never freed.
        unsafe { submitter.register_buf_ring_with_flags(ring as u64, count, GROUP, 0)? };
        let mut buffers = Self {
            base,
            size,
            offered: size - ROOM,
            ring,
            mask: count - 1,
            tail: 0,
            order: vec![0; usize::from(count)],
            place: vec![0; usize::from(count)],
            there: 0,
            spare: (count..count + SPARES).collect(),
        };
        for id in 0..count {
            buffers.give_back(Held(id));
        }
        buffers.publish();
        Ok(buffers)
    }

    pub(in crate::floor) fn bytes(&self, piece: &Piece) -> &[u8] {
        &self.whole(&piece.held)[piece.from..piece.to]
    }

    /// All of the buffer, with the room behind what the kernel fills.
    pub(in crate::floor) fn whole(&self, held: &Held) -> &[u8] {
        // SAFETY: within the allocation; held, so that the kernel does not write to it.
        unsafe {
            std::slice::from_raw_parts(self.base.add(usize::from(held.0) * self.size), self.size)
        }
    }

    pub(in crate::floor) fn whole_mut(&mut self, held: &mut Held) -> &mut [u8] {
        // SAFETY: as above, and exclusive as both are borrowed so.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.base.add(usize::from(held.0) * self.size),
                self.size,
            )
        }
    }

    /// One that the kernel has not.
    pub(in crate::floor) fn spare(&mut self) -> Option<Held> {
        self.spare.pop().map(Held)
    }

    pub(super) fn any_offered(&self) -> bool {
        self.there > 0
    }

    pub(in crate::floor) fn give_back(&mut self, held: Held) {
        let id = held.0;
        if id > self.mask {
            self.spare.push(id);
            return;
        }
        let at = self.tail & self.mask;
        // SAFETY: within the ring; the kernel reads no entry behind the published tail. The field that would be the tail's (of entry 0) is not set here.
        unsafe {
            let entry = &mut *self.ring.add(usize::from(at));
            entry.set_addr(self.base.add(usize::from(id) * self.size) as u64);
            entry.set_len(self.offered as u32);
            entry.set_bid(id);
        }
        self.order[usize::from(at)] = id;
        self.place[usize::from(id)] = at;
        self.tail = self.tail.wrapping_add(1);
        self.there += 1;
    }

    fn publish(&mut self) {
        // SAFETY: the tail lies in the first entry, is aligned and only written here; the kernel reads it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.ring).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }

    fn taken(&mut self, id: u16) -> Held {
        self.there -= 1;
        Held(id)
    }

    /// The buffer that was offered after this one.
    fn behind(&self, id: u16) -> u16 {
        self.order[usize::from(self.place[usize::from(id)].wrapping_add(1) & self.mask)]
    }
}

fn page_aligned(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, PAGE).unwrap_or_else(|_| Layout::new::<[u8; PAGE]>())
}

/// Zeroed, and never freed.
fn allocate(layout: Layout) -> *mut u8 {
    // SAFETY: no layout here is of size zero.
    let at = unsafe { alloc_zeroed(layout) };
    if at.is_null() {
        handle_alloc_error(layout);
    }
    at
}

struct Message {
    head: libc::msghdr,
    parts: [libc::iovec; PARTS],
}

impl Default for Message {
    fn default() -> Self {
        let part = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        Self {
            // SAFETY: plain numbers and pointers, for which zero is a value.
            head: unsafe { std::mem::zeroed() },
            parts: [part; PARTS],
        }
    }
}

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Address {
    bytes: [u8; ADDRESS],
    length: u32,
}

/// At most so many accepts at a time.
pub(super) const ACCEPTS: usize = 16;
/// Places for sockets: two for each pair.
pub(super) const SLOTS: u32 = 8192;
/// Room behind what is received, for two fields.
pub(in crate::floor) const ROOM: usize = 256;
const SUBMISSIONS: u32 = 1024;
const COMPLETIONS: u32 = 8192;
const GROUP: u16 = 0;
/// Buffers that are never offered.
const SPARES: u16 = 256;
const MESSAGES: usize = 128;
const PARTS: usize = 64;
const ADDRESS: usize = 128;
const PAGE: usize = 4096;
static ONE: i32 = 1;
/// `linux/io_uring.h`.
const IORING_RECVSEND_POLL_FIRST: u16 = 1;
