//! Links over UDP when the worker of their server is replaced: the new one reads the socket and passes on what is for the old ones.

use std::{
    io::Write,
    net::{Shutdown, TcpStream},
    thread::{self, JoinHandle},
};

use e2e::{Cert, http, pattern::Pattern, process::gt_binary, wait};

use crate::{
    load::{Load, Stayer},
    rig::{Rig, signal},
};

const KCP: &str = "  kcpAddr: \"127.0.0.1:0\"\n";
/// Both ways, over both reloads.
const LENGTH: u64 = 24 << 20;

#[test]
fn streams_of_a_kcp_link_are_carried_to_their_end_by_the_old_worker() {
    carried("kcp", KCP);
}

#[test]
fn streams_of_a_quic_link_are_carried_to_their_end_by_the_old_worker() {
    let cert = Cert::self_signed(&["127.0.0.1"]);
    carried("quic", &quic(&cert));
}

fn quic(cert: &Cert) -> String {
    format!(
        "  quicAddr: \"127.0.0.1:0\"\n  certFile: \"{}\"\n  keyFile: \"{}\"\n",
        cert.cert_file().display(),
        cert.key_file().display()
    )
}

/// Bytes on their way to the echo service and back.
struct Transfer {
    stream: TcpStream,
    back: Pattern,
    sender: JoinHandle<()>,
}

impl Transfer {
    /// Some of it has come back when this returns.
    fn start(rig: &Rig) -> Self {
        let mut stream = http::connect(rig.tcp()).expect("accepts");
        let mut sent = Pattern::new(7);
        stream.write_all(&sent.bytes(1 << 20)).expect("written");
        let mut back = Pattern::new(7);
        back.read_from(&stream, 1 << 20).expect("whole");
        let mut sending = stream.try_clone().expect("a handle");
        let sender = thread::spawn(move || {
            sent.write_to(&mut sending, LENGTH - (1 << 20))
                .expect("written");
            sending.shutdown(Shutdown::Write).expect("ended");
        });
        Self {
            stream,
            back,
            sender,
        }
    }

    #[track_caller]
    fn finish(mut self) {
        self.back
            .read_from(&self.stream, LENGTH - (1 << 20))
            .expect("whole");
        self.sender.join().expect("the sender");
    }
}

/// Another number of threads needs another worker.
fn replace_worker(rig: &Rig, options: &str, threads: u32) {
    let threads = format!("  workers: {threads}\n");
    let text = rig
        .server_text(options, "")
        .replace("  workers: 2\n", &threads);
    rig.server.write(&text);
    let said = rig.server.done(&["reload"]);
    assert!(said.contains("a new worker serves"), "{said}");
}

fn carried(scheme: &str, options: &str) {
    let rig = Rig::start_over(scheme, options, &gt_binary());
    let load = Load::start(&rig);
    let (first, generation) = rig.server.serving();
    let mut stayer = Stayer::new(&rig);
    let transfer = Transfer::start(&rig);
    for (n, workers) in [(1, 1), (2, 3)] {
        replace_worker(&rig, options, workers);
        assert_eq!(rig.server.serving().1, generation + n);
        stayer.talk();
        load.wait(100);
    }
    transfer.finish();
    load.finish(&rig);
    stayer.talk();
    let carries = || {
        let workers = rig.server.workers();
        workers.into_iter().any(|(pid, ..)| pid == first)
    };
    assert!(carries(), "the first worker still has the one who stays");
    assert_eq!(
        rig.server.process.count_log(&["link is down", "answer"]),
        0,
        "no link was lost"
    );
    drop(stayer);
    wait::until("the old worker ends", || (!carries()).then_some(()));
}

#[test]
fn a_draining_worker_that_is_killed_takes_only_its_own_quic_links() {
    let cert = Cert::self_signed(&["127.0.0.1"]);
    let options = quic(&cert);
    let rig = Rig::start_over("quic", &options, &gt_binary());
    let (first, _) = rig.server.serving();
    let mut of_first = Stayer::new(&rig);
    replace_worker(&rig, &options, 1);
    // Its visitors are the second worker's when the client's links have come over.
    rig.client.process.wait_log_times(&["connected"], 3);
    let mut of_second = Stayer::new(&rig);
    let (second, _) = rig.server.serving();
    replace_worker(&rig, &options, 3);
    of_first.talk();
    of_second.talk();
    let load = Load::start(&rig);
    signal(first, "KILL");
    wait::until("the first one's visitor is cut", || {
        of_first.is_cut().then_some(())
    });
    of_second.talk();
    load.wait(100);
    load.finish(&rig);
    of_second.talk();
    let serving = |pid| rig.server.workers().iter().any(|(other, ..)| *other == pid);
    assert!(serving(second), "the second worker still has its visitor");
}
