//! The kcptun examples against kcptun itself (Debian's package), and against each other: bytes both ways through a forwarder that
//! loses datagrams by a seed, checked by SHA-256 where they are received.
//!
//! Without the package the tests say so loudly and pass. Every combination is run by `make interop-kcp`.

#[path = "../examples/kcptun/mod.rs"]
mod kcptun;
mod kcptun_support;

use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use kcp::seal::Cipher;
use kcptun_support::{Case, FECS, Fec, PEER_CIPHERS, Peer, exchange, have_peer, table};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn case(cipher: Cipher, fec: Fec, compress: bool, smux: u8, loss: u32) -> Case {
    Case {
        peer: Peer::TheirServer,
        cipher,
        fec,
        compress,
        smux,
        loss,
        bytes: 300 * KIB,
    }
}

async fn both_roles(case: Case) {
    if !have_peer() {
        return;
    }
    for peer in [Peer::TheirServer, Peer::TheirClient] {
        let case = Case { peer, ..case };
        exchange(&case)
            .await
            .unwrap_or_else(|e| panic!("{case:?}: {e}"));
    }
}

#[tokio::test]
async fn every_cipher_talks_to_kcptun() {
    for (i, cipher) in PEER_CIPHERS.into_iter().enumerate() {
        let (compress, smux) = (i % 2 == 0, 1 + (i / 2 % 2) as u8);
        both_roles(case(cipher, Fec::None, compress, smux, 0)).await;
    }
}

#[tokio::test]
async fn fec_and_loss_work_with_kcptun() {
    let ciphers = [Cipher::Aes, Cipher::Salsa20, Cipher::Xor];
    for (i, cipher) in ciphers.into_iter().enumerate() {
        both_roles(case(cipher, FECS[i], i < 2, 1 + (i % 2) as u8, 10)).await;
    }
}

#[tokio::test]
async fn different_fec_works_with_kcptun() {
    for (compress, smux, loss) in [(true, 2, 0), (false, 1, 10)] {
        both_roles(case(Cipher::None, Fec::Different, compress, smux, loss)).await;
    }
}

#[tokio::test]
async fn both_ends_of_ours_talk() {
    for (smux, compress, loss) in [(1, true, 0), (2, false, 10)] {
        for cipher in [Cipher::Aes128Gcm, Cipher::Null] {
            let case = Case {
                peer: Peer::Ours,
                ..case(cipher, Fec::Same(10, 3), compress, smux, loss)
            };
            exchange(&case)
                .await
                .unwrap_or_else(|e| panic!("{case:?}: {e}"));
        }
    }
}

#[tokio::test]
async fn half_close_is_carried_between_ends_of_ours() {
    let case = Case {
        peer: Peer::Ours,
        ..case(Cipher::Aes, Fec::None, true, 2, 0)
    };
    kcptun_support::half_close(&case).await;
}

#[test]
fn arguments_are_kcptuns() {
    use kcptun::options::{ClientOptions, ServerOptions};
    let args = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let line = "kcptun_client -l :1 -r host:2 -key k -crypt salsa20 --mode=fast3 -conn 3 -mtu 1400 -sndwnd 1 \
        -rcvwnd 2 -datashard 5 -ps 6 -dscp 46 -nocomp -smuxver 2 -smuxbuf 7 -streambuf 8 -keepalive 9";
    let client = ClientOptions::from_args(args(line)).expect("valid");
    assert_eq!((client.localaddr.as_str(), client.conn), (":1", 3));
    assert_eq!(client.remoteaddr, "host:2");
    let server = ServerOptions::from_args(args("kcptun_server -t 127.0.0.1:9 -l :3 -acknodelay"));
    assert_eq!(server.expect("valid").target, "127.0.0.1:9");
    for wrong in [
        "-crypt rot13",
        "-smuxver 3",
        "-keepalive 0",
        "-conn 0",
        "-tcp",
        "-c /nowhere",
    ] {
        let line = format!("kcptun_server {wrong}");
        assert!(ServerOptions::from_args(args(&line)).is_err(), "{wrong}");
    }
    // A file wins over arguments.
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("kcptun.json");
    let json = r#"{"localaddr": ":7", "conn": 4, "nocomp": true, "quiet": false}"#;
    std::fs::write(&file, json).expect("written");
    let line = format!("kcptun_client -c {} -l :1", file.display());
    let client = ClientOptions::from_args(args(&line)).expect("valid");
    assert_eq!((client.localaddr.as_str(), client.conn), (":7", 4));
}

/// 1 MiB each way for all of it. `GT_TABLE` names the file for the result.
#[test]
#[ignore = "takes minutes: make interop-kcp"]
fn every_combination() {
    let mut cases = Vec::new();
    for cipher in PEER_CIPHERS {
        for fec in FECS {
            for loss in [0, 10] {
                for variant in 0..8 {
                    let peer = [Peer::TheirServer, Peer::TheirClient][variant / 4];
                    let (compress, smux) = (variant % 2 == 0, 1 + (variant / 2 % 2) as u8);
                    cases.push(Case {
                        peer,
                        bytes: MIB,
                        ..case(cipher, fec, compress, smux, loss)
                    });
                }
            }
        }
    }
    run_all(&cases);
}

/// 64 MiB each way, by a choice in which every pair of values of any two of role, FEC, compression, smux and loss occurs, with
/// every cipher twice or more.
#[test]
#[ignore = "takes minutes: make interop-kcp"]
fn large_transfers_by_pairs() {
    let mut cases = Vec::new();
    for i in 0..26 {
        let fec = FECS[i % 4];
        let bit = |n: usize| (i / 4 + (i % 4) * n + usize::from(n > 1) * (i / 8)) % 2;
        cases.push(Case {
            peer: [Peer::TheirServer, Peer::TheirClient][bit(0)],
            bytes: 64 * MIB,
            ..case(
                PEER_CIPHERS[i % PEER_CIPHERS.len()],
                fec,
                bit(1) == 0,
                1 + bit(2) as u8,
                10 * bit(3) as u32,
            )
        });
    }
    assert_pairs_occur(&cases);
    run_all(&cases);
}

fn assert_pairs_occur(cases: &[Case]) {
    let values = |case: &Case| {
        [
            usize::from(case.peer == Peer::TheirClient),
            FECS.iter()
                .position(|fec| *fec == case.fec)
                .expect("one of them"),
            usize::from(case.compress),
            usize::from(case.smux) - 1,
            usize::from(case.loss > 0),
        ]
    };
    let counts = [2, 4, 2, 2, 2];
    for a in 0..5 {
        for b in 0..a {
            for pair in 0..counts[a] * counts[b] {
                let wanted = (pair / counts[b], pair % counts[b]);
                let occurs = cases.iter().any(|case| {
                    let values = values(case);
                    (values[a], values[b]) == wanted
                });
                assert!(occurs, "no case with {a}, {b} = {wanted:?}");
            }
        }
    }
}

/// Runs cases (of which `GT_ONLY` is a part of the name), `GT_PARALLEL` (4) at a time, each on a thread of its own; fails at the
/// end, with the table written.
fn run_all(cases: &[Case]) {
    if !have_peer() {
        return;
    }
    let only = std::env::var("GT_ONLY").unwrap_or_default();
    let chosen = |case: &Case| case.to_string().contains(&only);
    let cases: Vec<Case> = cases.iter().copied().filter(chosen).collect();
    let parallel = std::env::var("GT_PARALLEL")
        .ok()
        .and_then(|n| n.parse().ok());
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(Case, Result<Duration, String>)>> = Mutex::default();
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = runtime.block_on(exchange(case));
            match &result {
                Ok(took) => println!("{case}: {:.2} s", took.as_secs_f64()),
                Err(error) => println!("{case}: FAILED: {error}"),
            }
            results.lock().expect("no panic").push((*case, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..parallel.unwrap_or(4) {
            scope.spawn(work);
        }
    });
    let results = results.into_inner().expect("no panic");
    if let Ok(path) = std::env::var("GT_TABLE") {
        std::fs::write(path, table(&results)).expect("the table is written");
    }
    let failed: Vec<_> = results
        .iter()
        .filter(|(case, result)| result.is_err() && !case.may_fail())
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {} failed: {failed:?}",
        failed.len(),
        cases.len()
    );
    assert_eq!(results.len(), cases.len());
}

/// What kcptun does with itself when the ends differ in FEC and datagrams are lost: the measure for what may be asked of us.
#[test]
#[ignore = "about kcptun, not about us: make interop-kcp"]
fn kcptun_with_itself() {
    let mut cases = Vec::new();
    for cipher in [Cipher::None, Cipher::Aes] {
        for fec in FECS {
            for (compress, smux) in [(true, 1), (false, 2), (false, 1)] {
                cases.push(Case {
                    peer: Peer::Theirs,
                    bytes: MIB,
                    ..case(cipher, fec, compress, smux, 10)
                });
            }
        }
    }
    run_all(&cases);
}
