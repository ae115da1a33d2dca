//! What is freed and wanted again soon stays mapped.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

/// Pages that the system gave this thread so far.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").expect("procfs");
    // The name may hold spaces; it ends with the last bracket. `minflt` is the eighth field after it.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let field = fields.split_whitespace().nth(7).expect("as many fields");
    field.parse().expect("a number")
}

/// What one stream may have on its way, in buffers of the size that sockets are read with.
fn carry() {
    let buffers: Vec<Vec<u8>> = (0..16).map(|_| vec![1; 64 << 10]).collect();
    assert_eq!(std::hint::black_box(buffers).len(), 16);
}

#[test]
fn buffers_that_come_and_go_are_not_mapped_anew() {
    net::keep_free_memory();
    // A thread of its own has a heap of its own, as workers have.
    let fresh = std::thread::spawn(|| {
        carry();
        let before = faults();
        for _ in 0..50 {
            carry();
        }
        faults() - before
    });
    let fresh = fresh.join().expect("no panic");
    // 256 pages for each, if they were given back.
    assert!(fresh < 50 * 256 / 10, "{fresh} pages");
}
