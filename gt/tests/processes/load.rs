//! Visitors that come and go while something happens, and notice everything: each request is counted, each answer compared.

use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use e2e::{HttpConn, http};

use crate::rig::Rig;

/// Visitors of a rig, until [`Load::finish`].
pub(crate) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    address: SocketAddr,
    tcp: SocketAddr,
    stop: AtomicBool,
    served: AtomicU64,
    posts: AtomicU64,
    failures: Mutex<Vec<String>>,
}

impl Load {
    /// A connection for each request, connections that carry fifty, POST requests with numbers, and echoes on the TCP port.
    pub(crate) fn start(rig: &Rig) -> Self {
        let shared = Arc::new(Shared {
            address: rig.address,
            tcp: rig.tcp(),
            stop: AtomicBool::new(false),
            served: AtomicU64::new(0),
            posts: AtomicU64::new(0),
            failures: Mutex::default(),
        });
        let visitors: [fn(&Shared); 4] = [single, kept, post, echo];
        let threads = visitors
            .into_iter()
            .map(|visitor| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    while !shared.stop.load(Relaxed) {
                        visitor(&shared);
                    }
                })
            })
            .collect();
        Self { shared, threads }
    }

    /// Waits until so many more requests have been answered.
    pub(crate) fn wait(&self, more: u64) {
        let target = self.shared.served.load(Relaxed) + more;
        e2e::wait::until("the load goes on", || {
            let failed = !self.shared.failures().is_empty();
            (failed || self.shared.served.load(Relaxed) >= target).then_some(())
        });
    }

    /// Ends it. No request may have failed, and no POST request may have come twice.
    #[track_caller]
    pub(crate) fn finish(self, rig: &Rig) {
        self.wait(50);
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("a visitor");
        }
        let failures = self.shared.failures();
        let served = self.shared.served.load(Relaxed);
        assert!(
            failures.is_empty(),
            "{} of {served} failed: {:?}",
            failures.len(),
            failures.iter().take(5).collect::<Vec<_>>()
        );
        let mut posted = rig.origin.posted();
        let all = posted.len();
        posted.sort();
        posted.dedup();
        assert_eq!(posted.len(), all, "no POST request comes twice");
        assert_eq!(all as u64, self.shared.posts.load(Relaxed));
        println!("{served} requests, {all} of them POST");
    }
}

impl Shared {
    fn failures(&self) -> Vec<String> {
        let failures = self.failures.lock();
        failures.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn count(&self, what: &str, result: std::io::Result<bool>) -> bool {
        let failure = match result {
            Ok(true) => {
                self.served.fetch_add(1, Relaxed);
                return true;
            }
            Ok(false) => format!("{what}: a wrong answer"),
            Err(error) => format!("{what}: {error}"),
        };
        let failures = self.failures.lock();
        failures
            .unwrap_or_else(PoisonError::into_inner)
            .push(failure);
        false
    }
}

fn right(response: &e2e::Response, target: &str) -> bool {
    response.status == 200 && response.body == target.as_bytes()
}

fn single(shared: &Shared) {
    let got = http::get(shared.address, "web.test", "/single");
    shared.count("single", got.map(|response| right(&response, "/single")));
}

fn kept(shared: &Shared) {
    let Ok(stream) = http::connect(shared.address) else {
        shared.count("kept", Err(std::io::ErrorKind::ConnectionRefused.into()));
        return;
    };
    let mut connection = HttpConn::new(stream);
    for n in 0..50 {
        let target = format!("/kept/{n}");
        let got = connection.get("web.test", &target);
        if !shared.count("kept", got.map(|response| right(&response, &target)))
            || shared.stop.load(Relaxed)
        {
            return;
        }
    }
}

fn post(shared: &Shared) {
    let number = shared.posts.fetch_add(1, Relaxed);
    let posted = http::connect(shared.address).and_then(|stream| {
        HttpConn::new(stream).post("web.test", "/post", number.to_string().as_bytes())
    });
    shared.count("post", posted.map(|response| right(&response, "/post")));
}

fn echo(shared: &Shared) {
    let sent = b"what comes back";
    let echoed = http::connect(shared.tcp).and_then(|mut stream| {
        stream.write_all(sent)?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut back = Vec::new();
        stream.read_to_end(&mut back)?;
        Ok(back == sent)
    });
    shared.count("echo", echoed);
}

/// A connection to the echo service that stays.
pub(crate) struct Stayer(std::net::TcpStream);

impl Stayer {
    pub(crate) fn new(rig: &Rig) -> Self {
        let mut stayer = Self(http::connect(rig.tcp()).expect("accepts"));
        stayer.talk();
        stayer
    }

    /// Says something and hears it again.
    #[track_caller]
    pub(crate) fn talk(&mut self) {
        self.0.write_all(b"still here").expect("writable");
        let mut back = [0; 10];
        self.0.read_exact(&mut back).expect("readable");
        assert_eq!(&back, b"still here");
    }

    /// Whether the connection is gone within a moment.
    pub(crate) fn is_cut(&mut self) -> bool {
        let _ = self.0.set_read_timeout(Some(Duration::from_millis(200)));
        match self.0.read(&mut [0; 1]) {
            Ok(n) => n == 0,
            Err(error) => !matches!(
                error.kind(),
                std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
            ),
        }
    }
}
