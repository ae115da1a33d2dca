//! Two network namespaces with a cable between them, so that a client's address can change below a running process. Needs root and `ip`.

use std::{
    fs::File,
    net::Ipv4Addr,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Address of the server's end.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);

/// The namespaces; dropping it removes them.
#[derive(Debug)]
pub struct Cable {
    server: String,
    client: String,
    /// The last number of the client's address.
    last: AtomicU32,
}

impl Cable {
    /// Makes them, or says why that cannot be.
    ///
    /// # Errors
    /// What is missing.
    ///
    /// # Panics
    /// When it can be and fails.
    pub fn new() -> Result<Self, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !rustix::process::geteuid().is_root() {
            return Err("network namespaces need root".to_owned());
        }
        if Command::new("ip").arg("-V").output().is_err() {
            return Err("there is no `ip` (Debian package iproute2)".to_owned());
        }
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        let cable = Self {
            server: format!("gt-e2e-{mark}-s"),
            client: format!("gt-e2e-{mark}-c"),
            last: AtomicU32::new(2),
        };
        for namespace in [&cable.server, &cable.client] {
            ip(&["netns", "add", namespace]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        ip(&[
            "-n",
            &cable.server,
            "link",
            "add",
            "cable",
            "type",
            "veth",
            "peer",
            "name",
            "cable",
            "netns",
            &cable.client,
        ]);
        let server = format!("{SERVER}/24");
        ip(&["-n", &cable.server, "addr", "add", &server, "dev", "cable"]);
        ip(&[
            "-n",
            &cable.client,
            "addr",
            "add",
            &cable.client_address(),
            "dev",
            "cable",
        ]);
        for namespace in [&cable.server, &cable.client] {
            ip(&["-n", namespace, "link", "set", "cable", "up"]);
        }
        Ok(cable)
    }

    fn client_address(&self) -> String {
        format!("10.78.0.{}/24", self.last.load(Relaxed))
    }

    /// The client's end loses its address and gets another.
    pub fn change_address(&self) {
        let old = self.client_address();
        self.last.fetch_add(1, Relaxed);
        let new = self.client_address();
        ip(&["-n", &self.client, "addr", "del", &old, "dev", "cable"]);
        ip(&["-n", &self.client, "addr", "add", &new, "dev", "cable"]);
    }

    /// Runs where the server is. Processes and threads that it starts are there too.
    pub fn at_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.server, work)
    }

    /// Runs where the client is.
    pub fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.client, work)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            // What cannot be removed stays visible in `ip netns`; there is nobody to tell.
            let _ = Command::new("ip")
                .args(["netns", "del", namespace])
                .status();
        }
    }
}

/// Runs in a network namespace that `ip netns` knows. Processes and threads that it starts are there too.
///
/// # Panics
/// When there is none of that name, or it cannot be entered.
pub fn inside<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> T {
    let file = File::open(format!("/run/netns/{namespace}")).expect("a namespace");
    let work = || {
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the namespace can be entered");
        work()
    };
    let done = thread::scope(|scope| scope.spawn(work).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().expect("ip runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {}: {said}", args.join(" "));
}
