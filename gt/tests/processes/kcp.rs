//! Links over UDP when the worker of their server is replaced: the new one reads the socket and passes on what is for the old one.

use std::{io::Write, net::Shutdown, thread};

use e2e::{http, pattern::Pattern, process::gt_binary, wait};

use crate::{
    load::{Load, Stayer},
    rig::Rig,
};

const KCP: &str = "  kcpAddr: \"127.0.0.1:0\"\n";
/// Both ways, over both reloads.
const LENGTH: u64 = 24 << 20;

#[test]
fn streams_of_a_kcp_link_are_carried_to_their_end_by_the_old_worker() {
    let rig = Rig::start_over("kcp", KCP, &gt_binary());
    let load = Load::start(&rig);
    let (first, generation) = rig.server.serving();
    let mut stayer = Stayer::new(&rig);
    let mut transfer = http::connect(rig.tcp()).expect("accepts");
    // Some of it is on its way before the first reload.
    let mut sent = Pattern::new(7);
    transfer.write_all(&sent.bytes(1 << 20)).expect("written");
    let mut back = Pattern::new(7);
    back.read_from(&transfer, 1 << 20).expect("whole");
    let mut sending = transfer.try_clone().expect("a handle");
    let sender = thread::spawn(move || {
        sent.write_to(&mut sending, LENGTH - (1 << 20))
            .expect("written");
        sending.shutdown(Shutdown::Write).expect("ended");
    });
    for (n, workers) in [(1, 1), (2, 3)] {
        let options = format!("  workers: {workers}\n");
        let text = rig.server_text(KCP, "").replace("  workers: 2\n", &options);
        rig.server.write(&text);
        let said = rig.server.done(&["reload"]);
        assert!(said.contains("a new worker serves"), "{said}");
        assert_eq!(rig.server.serving().1, generation + n);
        stayer.talk();
        load.wait(100);
    }
    back.read_from(&transfer, LENGTH - (1 << 20))
        .expect("whole");
    sender.join().expect("the sender");
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
