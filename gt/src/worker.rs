//! A worker process: runs one configuration as its supervisor says. Told to drain, it lets what runs end and ends itself; told to
//! reload, it takes what a running process can take.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use agent::{Client, ClientError};
use config::{Checked, System};
use control::{Api, Source};
use server::Server;
use supervisor::{Command, Hello, Outcome, Supervised};
use tokio::sync::mpsc;

use crate::{
    failure::Failure,
    log,
    run::{PATIENCE, RunError, api_listener, describe, proxy_options, signalled},
    supervise::load_one,
};

/// Runs with the arguments of the whole program, until it has ended.
pub(crate) fn run(args: &[String]) -> Result<(), Failure> {
    let (supervised, hello, commands) =
        Supervised::from_stdin().map_err(|error| Failure::Usage(format!("@worker: {error}")))?;
    let result = serve(args, &supervised, &hello, commands);
    if let Err(failure) = &result {
        let for_good = matches!(
            failure,
            Failure::Run(RunError::Client(ClientError::Refused(_)))
        );
        supervised.failed(failure.to_string().trim_end(), for_good);
    }
    result
}

fn serve(
    args: &[String],
    supervised: &Supervised,
    hello: &Hello,
    commands: std::sync::mpsc::Receiver<Command>,
) -> Result<(), Failure> {
    let system = System {
        create_identity: true,
    };
    let checked = load_one(args, &system)?;
    log::start(std::slice::from_ref(&checked))?;
    for warning in checked.warnings() {
        tracing::warn!("{warning}");
    }
    let what = describe(&checked);
    let mut worker = Worker::start(args, checked, supervised, hello)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::Signals)?;
    if hello.takes_over {
        worker.wait_connected();
    }
    supervised.ready(&what);
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while commands
            .recv()
            .is_ok_and(|command| sender.send(command).is_ok())
        {}
    });
    let ended = runtime.block_on(worker.obey(receiver));
    worker.end(ended?);
    tracing::info!("ended");
    Ok(())
}

enum Running {
    Server(Box<Server>),
    Client(Box<Client>, Box<config::Client>),
    Proxy(Box<proxy::Proxy>, Box<config::Proxy>),
}

struct Worker<'a> {
    args: &'a [String],
    supervised: &'a Supervised,
    takes_over: bool,
    running: Running,
    /// Answers until all else has ended, or another process does.
    api: Option<Api>,
}

impl<'a> Worker<'a> {
    fn start(
        args: &'a [String],
        checked: Checked,
        supervised: &'a Supervised,
        hello: &Hello,
    ) -> Result<Self, RunError> {
        let listener = api_listener(&checked);
        let (running, source) = match checked {
            Checked::Server(config) => {
                let server = Server::prepare(*config, Arc::new(supervised.clone()))?;
                let source = Source::Server(server.observer());
                (Running::Server(Box::new(server)), source)
            }
            Checked::Client(config) => {
                let before = hello.handoff.as_deref().and_then(|text| text.parse().ok());
                let tell = supervised.clone();
                let on_session: agent::OnSession =
                    Box::new(move |handoff| tell.hand_off(&handoff.to_string()));
                let client = Client::start_after((*config).clone(), before, Some(on_session))?;
                let source = Source::Client(client.observer());
                (Running::Client(Box::new(client), config), source)
            }
            Checked::Proxy(config) => {
                let options = proxy_options(&config)?;
                let proxy = proxy::Proxy::prepare(options, supervised)?;
                let source = Source::Proxy(proxy.observer());
                (Running::Proxy(Box::new(proxy), config), source)
            }
        };
        let api = match listener {
            Some(listener) => Some(Api::start_on(&listener, source, supervised)?),
            None => None,
        };
        Ok(Self {
            args,
            supervised,
            takes_over: hello.takes_over,
            running,
            api,
        })
    }

    /// The former process goes on serving until this one can. A server that cannot be reached is no reason to stay with it.
    fn wait_connected(&self) {
        let until = Instant::now() + CONNECT;
        if let Running::Client(client, _) = &self.running {
            while !client.is_connected() && Instant::now() < until {
                thread::sleep(LOOK);
            }
        }
    }

    /// Until it has to end; returns what that may take.
    async fn obey(
        &mut self,
        mut commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Duration, RunError> {
        // Who comes from the process before, and has not come yet.
        let mut settling = false;
        loop {
            let refused = async {
                match &self.running {
                    Running::Client(client, _) => client.refused().await,
                    Running::Server(_) | Running::Proxy(..) => std::future::pending().await,
                }
            };
            let command = tokio::select! {
                name = signalled() => {
                    tracing::info!(signal = name?, patience = ?PATIENCE, "ending");
                    return Ok(PATIENCE);
                }
                error = refused => return Err(error.into()),
                command = commands.recv() => command,
                () = tokio::time::sleep(SETTLE_LOOK), if settling => {
                    if self.has_settled() {
                        settling = false;
                        self.supervised.settled();
                    }
                    continue;
                }
            };
            match command {
                Some(Command::Go(handoff)) => {
                    if let Running::Server(server) = &mut self.running {
                        if self.takes_over {
                            server.take_over(handoff.as_deref().and_then(ids_from));
                        } else {
                            server.serve();
                        }
                        // If this process dies, nobody can say who its clients were.
                        self.supervised.hand_off(UNKNOWN);
                    }
                    if let Running::Proxy(proxy, _) = &mut self.running {
                        proxy.serve();
                    }
                    settling = true;
                }
                Some(Command::Drain(deadline)) => {
                    self.drain(deadline, &mut commands).await;
                    return Ok(Duration::ZERO);
                }
                Some(Command::Stop(patience)) => {
                    tracing::info!(?patience, "ending; asked a second time, it ends at once");
                    return Ok(patience);
                }
                Some(Command::Reload { plan }) => {
                    let outcome = self.reload(plan);
                    self.supervised.reloaded(outcome);
                }
                Some(Command::ReopenLogs) => self.reopen_logs(),
                // The way to the supervisor is closed for good; that is no reason to end.
                None => std::future::pending().await,
            }
        }
    }

    /// Another process serves; what runs here may end by itself.
    async fn drain(&mut self, deadline: Duration, commands: &mut mpsc::UnboundedReceiver<Command>) {
        let began = Instant::now();
        self.api = None;
        match &self.running {
            Running::Server(server) => {
                server.leave(deadline);
                self.supervised.hand_off(&ids_to(&server.clients()));
            }
            Running::Client(client, _) => client.leave(),
            Running::Proxy(proxy, _) => proxy.leave(),
        }
        self.supervised.stopped();
        tracing::info!(
            ?deadline,
            "another process takes over; what runs here may end"
        );
        let mut told = began;
        let mut empty = 0;
        let mut deadline = began + deadline;
        loop {
            tokio::select! {
                () = tokio::time::sleep(DRAIN_LOOK) => {}
                _ = signalled() => deadline = deadline.min(Instant::now() + PATIENCE),
                command = commands.recv() => match command {
                    Some(Command::Stop(patience)) => deadline = deadline.min(Instant::now() + patience),
                    Some(Command::ReopenLogs) => self.reopen_logs(),
                    _ => {}
                },
            }
            let (visits, links) = match &self.running {
                Running::Server(server) => server.left(),
                Running::Client(client, _) => client.left(),
                Running::Proxy(proxy, _) => (proxy.left(), 0),
            };
            let now = Instant::now();
            if now.duration_since(told) >= TELL {
                self.supervised.busy(visits, links);
                told = now;
            }
            empty = if visits == 0 { empty + 1 } else { 0 };
            let done = match &self.running {
                // Clients open their new links meanwhile.
                Running::Server(_) => empty >= 2 && now.duration_since(began) >= LINGER,
                // The server closes them when no visit is left on them.
                Running::Client(..) => links == 0,
                Running::Proxy(..) => empty >= 2,
            };
            if done {
                return tracing::info!("everything that ran here has ended");
            }
            if now >= deadline {
                return tracing::warn!(visits, "the time is over; what still runs here is cut off");
            }
        }
    }

    fn reopen_logs(&self) {
        log::reopen();
        match &self.running {
            Running::Proxy(proxy, _) => proxy.reopen_logs(),
            Running::Server(server) => server.reopen_logs(),
            Running::Client(..) => {}
        }
    }

    fn has_settled(&self) -> bool {
        match &self.running {
            Running::Server(server) => server.has_settled(),
            Running::Client(..) | Running::Proxy(..) => true,
        }
    }

    fn reload(&mut self, plan: bool) -> Outcome {
        let system = System {
            create_identity: true,
        };
        let checked = match load_one(self.args, &system) {
            Ok(checked) => checked,
            Err(failure) => {
                return Outcome::Refused {
                    error: failure.to_string(),
                };
            }
        };
        let (changes, reasons) = match (&self.running, &checked) {
            (Running::Server(server), Checked::Server(new)) => {
                let found = server.compare(new);
                (found.changes, found.needs_process)
            }
            (Running::Client(_, old), Checked::Client(new)) => {
                let found = agent::compare(old, new);
                (found.changes, found.needs_process)
            }
            (Running::Proxy(_, old), Checked::Proxy(new)) => compare_proxies(old, new),
            _ => {
                let text = "the file configures something else".to_owned();
                (vec![text.clone()], vec![text])
            }
        };
        if !reasons.is_empty() {
            return Outcome::Replace { changes, reasons };
        }
        if plan || changes.is_empty() {
            return Outcome::InPlace { changes };
        }
        let applied = match (&mut self.running, checked) {
            (Running::Server(server), Checked::Server(new)) => {
                server.apply(*new).map_err(|error| error.to_string())
            }
            (Running::Client(client, old), Checked::Client(new)) => {
                let offered = client
                    .offer(&new.services)
                    .map_err(|error| error.to_string());
                if offered.is_ok() {
                    *old = new;
                }
                offered
            }
            (Running::Proxy(proxy, old), Checked::Proxy(new)) => proxy::site(&new.proxy)
                .map(|site| {
                    proxy.reload(site);
                    *old = new;
                })
                .map_err(|error| error.to_string()),
            _ => Ok(()),
        };
        match applied {
            Ok(()) => Outcome::InPlace { changes },
            Err(error) => Outcome::Refused { error },
        }
    }

    fn end(self, patience: Duration) {
        match self.running {
            Running::Server(server) => server.stop(patience),
            Running::Client(client, _) => client.stop(patience),
            Running::Proxy(proxy, _) => proxy.stop(patience),
        }
        drop(self.api);
    }
}

/// What differs between two configurations of a proxy, and what of it a running process cannot take. Routes hold compiled expressions, so they
/// are read anew whether or not they differ.
fn compare_proxies(old: &config::Proxy, new: &config::Proxy) -> (Vec<String>, Vec<String>) {
    let mut reasons = Vec::new();
    if !proxy::same_listeners(&old.proxy, &new.proxy) {
        reasons.push("listeners".to_owned());
    }
    if old.proxy.access_log != new.proxy.access_log {
        reasons.push("accessLog".to_owned());
    }
    if old.workers != new.workers {
        reasons.push("workers".to_owned());
    }
    if format!("{:?}{:?}", old.api, old.log) != format!("{:?}{:?}", new.api, new.log) {
        reasons.push("the API or the log".to_owned());
    }
    let mut changes = reasons.clone();
    changes.push("routes and upstreams".to_owned());
    (changes, reasons)
}

/// What a server leaves for its next process: the ids of its clients, one a line; nothing but a star where they are too many.
fn ids_to(ids: &[String]) -> String {
    let text = format!("ids\n{}", ids.join("\n"));
    if text.len() > LONGEST_HANDOFF {
        UNKNOWN.to_owned()
    } else {
        text
    }
}

fn ids_from(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines();
    let known = lines.next() == Some("ids");
    known.then(|| {
        lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    })
}

const UNKNOWN: &str = "*";
const LONGEST_HANDOFF: usize = 16 << 10;
/// What a client may take to reach its server before the process it replaces is told to leave.
const CONNECT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
const DRAIN_LOOK: Duration = Duration::from_millis(50);
const SETTLE_LOOK: Duration = Duration::from_millis(5);
const LINGER: Duration = Duration::from_millis(500);
const TELL: Duration = Duration::from_secs(1);
