//! What the C library's allocator does with memory that is free again.
//!
//! glibc gives the end of a heap back to the system once 128 KiB of it are free, and takes it again, page by page, for the next bytes that come: where a
//! QUIC link's bytes were buffered at the end of a thread's heap, every page of a download was mapped anew, which was a quarter of the server's
//! processor time. Whether it came to that was a matter of what else lay in the heap.

/// Has the allocator keep up to 2 MiB that are free at the end of each heap (one for each thread at most), and take blocks of less than 512 KiB from
/// there instead of mapping each. To be called before threads are started; does nothing where the C library is not glibc.
pub fn keep_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    keep();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "only mallopt sets the allocator's limits")]
fn keep() {
    for (option, bytes) in [
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_MMAP_THRESHOLD, MAPPED_FROM),
    ] {
        // SAFETY: takes two numbers and locks the heap that it changes. What it does not know it refuses, and then all stays as it was.
        unsafe { libc::mallopt(option, bytes) };
    }
}

/// Bytes: what one stream may have on its way (1 MiB), in buffers that are not quite full.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT: libc::c_int = 2 << 20;
/// Bytes: more than the blocks that sockets are read into (256 KiB). Setting either limit ends glibc's own adjusting of both.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM: libc::c_int = 512 << 10;
