//! SIGKILL at each step of a reload that needs another worker: to the process that checks, to the worker that serves, to the one that comes, and to
//! the supervisor. Whoever comes meanwhile waits and is served; afterwards a reload works as ever.
//!
//! A step is held by a file of the configuration that is a pipe, or by a worker that was stopped: nothing here waits for time to pass.

use std::{
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use e2e::{Process, http, process::gt_binary, wait};

use crate::{
    pipe::{Pipe, Reader},
    rig::{Gt, Rig, signal},
};

/// Where the reload is when somebody is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// A process of its own reads the new configuration.
    Checking,
    /// The worker that serves was asked what it can take.
    Asked,
    /// The new worker reads and opens.
    Starting,
    /// The new worker is ready; the old one was told to stop accepting and has not answered.
    Stopping,
    /// The new worker serves, the old one has a visitor.
    Draining,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Check,
    Old,
    New,
    Supervisor,
}

#[test]
fn a_check_that_is_killed_is_a_reload_that_failed() {
    killed(Step::Checking, Victim::Check);
}

#[test]
fn the_worker_is_killed_while_the_configuration_is_checked() {
    killed(Step::Checking, Victim::Old);
}

#[test]
fn the_supervisor_is_killed_while_the_configuration_is_checked() {
    killed(Step::Checking, Victim::Supervisor);
}

#[test]
fn the_worker_is_killed_while_it_is_asked() {
    killed(Step::Asked, Victim::Old);
}

#[test]
fn the_supervisor_is_killed_while_the_worker_is_asked() {
    killed(Step::Asked, Victim::Supervisor);
}

#[test]
fn the_old_worker_is_killed_while_the_new_one_starts() {
    killed(Step::Starting, Victim::Old);
}

#[test]
fn the_new_worker_is_killed_while_it_starts() {
    killed(Step::Starting, Victim::New);
}

#[test]
fn the_supervisor_is_killed_while_the_new_worker_starts() {
    killed(Step::Starting, Victim::Supervisor);
}

#[test]
fn the_old_worker_is_killed_while_it_stops_accepting() {
    killed(Step::Stopping, Victim::Old);
}

#[test]
fn the_new_worker_is_killed_when_it_is_ready() {
    killed(Step::Stopping, Victim::New);
}

#[test]
fn the_supervisor_is_killed_while_the_old_worker_stops_accepting() {
    killed(Step::Stopping, Victim::Supervisor);
}

#[test]
fn the_new_worker_is_killed_when_it_serves() {
    killed(Step::Draining, Victim::New);
}

#[test]
fn the_supervisor_is_killed_when_the_new_worker_serves() {
    killed(Step::Draining, Victim::Supervisor);
}

fn killed(step: Step, victim: Victim) {
    let mut scene = Scene::start();
    let old = scene.rig.server.serving().0;
    let visits = Visits::start(&scene.rig);
    let mut held = scene.reload_until(step, old);
    let pid = match victim {
        Victim::Check => child_with(&scene.rig, "@check"),
        Victim::Old => old,
        Victim::New => scene.newest(),
        Victim::Supervisor => i64::from(scene.rig.server.process.pid()),
    };
    signal(pid, "KILL");
    let killed = Instant::now();
    if victim == Victim::Supervisor {
        let _ = scene.rig.server.process.wait_exit();
    }
    held.let_go(old, victim);
    scene.pipe.take().expect("a pipe").end();
    // Whoever comes now waits, and is served.
    let after = http::get(scene.rig.address, "web.test", "/after").expect("not refused");
    assert_eq!(after.status, 200);
    println!("{step:?}, {victim:?}: served {:?} after", killed.elapsed());
    if victim == Victim::Supervisor {
        scene.next_supervisor();
    }
    visits.finish(step, victim);
    // It is as any other: one worker serves, and takes what is new.
    scene.rig.server.serving();
    let more = "  more: {secret: another-secret-of-the-tests}\n";
    wait::until("a reload works", || {
        let text = scene.text("  workers: 1\n", more);
        scene.rig.server.write(&text);
        let output = scene.rig.server.ask(&["reload"]);
        output.status.success().then_some(())
    });
    wait::until("nothing is left of the old one", || {
        let workers = scene.rig.server.workers();
        (workers.len() == 1 && workers[0].2 == "serving").then_some(())
    });
    let last = http::get(scene.rig.address, "web.test", "/last").expect("not refused");
    assert_eq!(last.status, 200);
}

struct Scene {
    rig: Rig,
    pipe: Option<Pipe>,
}

/// What the step is held by.
struct Held {
    reader: Option<Reader>,
    /// The old worker was stopped.
    stopped: bool,
    stayer: Option<crate::load::Stayer>,
    asking: Option<JoinHandle<()>>,
}

impl Scene {
    fn start() -> Self {
        let rig = Rig::start();
        // Known to the server from its start, so that the next reload is the one that the test is about.
        let password = rig.server.file.with_file_name("password");
        std::fs::write(&password, PASSWORD).expect("written");
        rig.server.write(&with_api(&rig, "", ""));
        rig.server.done(&["reload"]);
        wait::until("the first worker has gone", || {
            (rig.server.workers().len() == 1).then_some(())
        });
        rig.server.serving();
        let pipe = Some(Pipe::instead_of(&password, PASSWORD));
        rig.client.process.wait_log(&["connected"]);
        Self { rig, pipe }
    }

    fn text(&self, options: &str, users: &str) -> String {
        let text = with_api(&self.rig, "", users);
        text.replace("  workers: 2\n", options)
    }

    /// Asks for a reload that needs another worker, and returns when it is at the step.
    fn reload_until(&self, step: Step, old: i64) -> Held {
        self.rig.server.write(&self.text("  workers: 3\n", ""));
        let mut held = Held {
            reader: None,
            stopped: false,
            stayer: (step == Step::Draining).then(|| crate::load::Stayer::new(&self.rig)),
            asking: None,
        };
        let asked = self.rig.server.asker(&["reload"]);
        held.asking = Some(thread::spawn(move || drop(asked())));
        let pipe = self.pipe.as_ref().expect("a pipe");
        let check = pipe.reader();
        if step == Step::Checking {
            held.reader = Some(check);
            return held;
        }
        check.go();
        let asked = pipe.reader();
        if step == Step::Asked {
            held.reader = Some(asked);
            return held;
        }
        asked.go();
        let starting = pipe.reader();
        if step == Step::Starting {
            held.reader = Some(starting);
            return held;
        }
        if step == Step::Stopping {
            signal(old, "STOP");
            held.stopped = true;
            starting.go();
            wait::until("the new one is ready and the old one told", || {
                let workers = self.rig.server.workers();
                let at = |state: &str| workers.iter().any(|(.., is)| is == state);
                (at("ready") && at("draining")).then_some(())
            });
            return held;
        }
        starting.go();
        if let Some(asking) = held.asking.take() {
            asking.join().expect("asked");
        }
        assert_ne!(self.rig.server.serving().0, old);
        held
    }

    /// The worker that was started last.
    fn newest(&self) -> i64 {
        let workers = self.rig.server.workers();
        let newest = workers.iter().max_by_key(|(_, generation, _)| *generation);
        newest.expect("a worker").0
    }

    fn next_supervisor(&mut self) {
        let dir = e2e::TempDir::new();
        let run = self.rig.server.process.dir().path().join("run");
        let args = ["-c".as_ref(), self.rig.server.file.as_os_str()];
        let next = Process::gt_supervised_in("gt server again", &gt_binary(), args, dir, &run);
        next.wait_log(&["is taken over"]);
        self.rig.server.process.replace(next);
    }
}

impl Held {
    fn let_go(&mut self, old: i64, victim: Victim) {
        if let Some(reader) = self.reader.take() {
            reader.go();
        }
        // The system lets it go by itself when its supervisor dies.
        if self.stopped && victim == Victim::New {
            signal(old, "CONT");
        }
        drop(self.stayer.take());
    }
}

/// Visitors with a connection each, one after the other.
struct Visits {
    stop: Arc<AtomicBool>,
    wrong: Arc<Mutex<Vec<String>>>,
    threads: Vec<JoinHandle<u64>>,
}

impl Visits {
    fn start(rig: &Rig) -> Self {
        let (stop, wrong) = (
            Arc::<AtomicBool>::default(),
            Arc::<Mutex<Vec<String>>>::default(),
        );
        let address = rig.address;
        let visitor = |_| {
            let (stop, wrong) = (Arc::clone(&stop), Arc::clone(&wrong));
            thread::spawn(move || {
                let mut served = 0;
                while !stop.load(Relaxed) {
                    let what = match http::get(address, "web.test", "/visit") {
                        Ok(response) if response.status == 200 => {
                            served += 1;
                            continue;
                        }
                        Ok(response) => format!("status {}", response.status),
                        Err(error) => format!("{:?}", error.kind()),
                    };
                    wrong
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(what);
                }
                served
            })
        };
        let threads = (0..3).map(visitor).collect();
        Self {
            stop,
            wrong,
            threads,
        }
    }

    /// Only a worker that served takes visitors with it, and only those that it had: one of each thread, and those that were on its links.
    #[track_caller]
    fn finish(self, step: Step, victim: Victim) {
        self.stop.store(true, Relaxed);
        let visitors = self.threads.len();
        let served: u64 = (self.threads.into_iter())
            .map(|thread| thread.join().expect("a visitor"))
            .sum();
        assert!(served > 0);
        let wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        let served_then = match victim {
            Victim::Old => true,
            Victim::New => step == Step::Draining,
            Victim::Check | Victim::Supervisor => false,
        };
        println!(
            "{step:?}, {victim:?}: lost {} of {served} visits",
            wrong.len()
        );
        let most = if served_then { visitors } else { 0 };
        assert!(
            wrong.len() <= most && !wrong.iter().any(|what| what == "ConnectionRefused"),
            "{step:?}, {victim:?}: {wrong:?} of {served}"
        );
    }
}

fn with_api(rig: &Rig, options: &str, users: &str) -> String {
    let api = "  apiAddr: \"127.0.0.1:0\"\n  apiPasswordFile: password\n";
    rig.server_text(&format!("{api}{options}"), users)
}

/// A child of the supervisor with this argument.
fn child_with(rig: &Rig, argument: &str) -> i64 {
    let parent = rig.server.process.pid().to_string();
    wait::until_within("the child", Duration::from_secs(10), || {
        let output = Command::new("pgrep")
            .args(["-P", &parent, "-f", "--", argument])
            .output()
            .expect("pgrep");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().next()?.parse().ok()
    })
}

impl Gt {
    /// To ask from another thread.
    fn asker(&self, words: &[&str]) -> impl FnOnce() -> std::process::Output + Send + 'static {
        let mut args: Vec<_> = words.iter().map(AsRef::as_ref).collect();
        args.extend(["-c".as_ref(), self.file.as_os_str()]);
        let mut command = self.process.question(&args);
        move || command.output().expect("gt")
    }
}

const PASSWORD: &str = "a-password-of-the-process-tests\n";
