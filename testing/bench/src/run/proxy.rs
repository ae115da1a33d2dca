//! Requests through each reverse proxy, in rounds: gt, nginx with and without kept connections, HAProxy. The proxy has core 0 for itself, origin
//! and load share core 1.
//!
//! All add the same fields (X-Forwarded-For, X-Real-IP), log nothing and use one thread; a round with any wrong answer is left out.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{ORIGIN_CORE, READY, RELAY_CORE, Setting};
use crate::lab::{Lab, Line, Program};
use crate::load::{Load, Wrk};
use crate::procstat::{self, Usage};
use crate::table::{Report, Table, spread};
use crate::{origin, tools, visit};

/// How to run it.
pub struct Options {
    /// Number of rounds.
    pub rounds: u32,
    /// Seconds of load for each proxy in each round.
    pub seconds: u32,
    /// Connections of wrk.
    pub connections: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Gt,
    Nginx,
    NginxClosing,
    Haproxy,
}

impl Subject {
    const ALL: [Self; 4] = [Self::Gt, Self::Nginx, Self::Haproxy, Self::NginxClosing];

    fn name(self) -> &'static str {
        match self {
            Self::Gt => "gt",
            Self::Nginx => "nginx, keepalive 1024",
            Self::NginxClosing => "nginx, no keepalive upstream",
            Self::Haproxy => "haproxy, http-reuse always",
        }
    }
}

struct Entry {
    subject: Subject,
    program: Program,
    at: SocketAddr,
    answer_length: u64,
    rounds: Vec<Option<Sample>>,
}

#[derive(Clone, Copy)]
struct Sample {
    load: Load,
    used: Duration,
    resident: u64,
}

/// Measures and publishes.
///
/// # Errors
/// When the origin or gt does not start.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["nginx", "wrk", "taskset", "haproxy"])?;
    origin::raise_descriptor_limit();
    let lab = Lab::new("bench-proxy")?;
    let nginx = origin::nginx(&lab, ORIGIN_CORE)?;
    let mut field = Vec::new();
    for subject in Subject::ALL {
        field.push(start(subject, nginx.at, &lab, setting)?);
    }
    for entry in &field {
        if let Err(error) = entry.load(&lab, options, 1) {
            eprintln!("{}: warm-up: {error:#}", entry.subject.name());
        }
    }
    for round in 1..=options.rounds {
        for entry in &mut field {
            let sample = entry.measure(&lab, options);
            match &sample {
                Ok(s) => eprintln!(
                    "round {round} {:<30} {:6.1} µs {:6.0}/s",
                    entry.subject.name(),
                    s.cpu(),
                    s.rate()
                ),
                Err(error) => eprintln!("round {round} {} failed: {error:#}", entry.subject.name()),
            }
            entry.rounds.push(sample.ok());
        }
    }
    report(setting, options, &lab, &field)
}

fn start(subject: Subject, origin: SocketAddr, lab: &Lab, setting: &Setting) -> Result<Entry> {
    let at = lab.address()?;
    let line = match subject {
        Subject::Gt => Line::new(setting.tools.gt()?).args([
            "proxy".to_owned(),
            "--no-supervisor".to_owned(),
            "-c".to_owned(),
            lab.write("gt-proxy.yml", &gt(at, origin))?
                .display()
                .to_string(),
        ]),
        Subject::Haproxy => {
            let config = lab.write("haproxy.cfg", &haproxy(at, origin))?;
            Line::new("haproxy").arg("-db").arg("-f").arg(config)
        }
        Subject::Nginx | Subject::NginxClosing => {
            let kept = subject == Subject::Nginx;
            let dir = lab.dir().join(if kept { "kept" } else { "closing" });
            std::fs::create_dir_all(&dir)?;
            let name = format!("{}.conf", if kept { "kept" } else { "closing" });
            let config = lab.write(&name, &nginx(at, origin, kept, &dir.to_string_lossy()))?;
            Line::new("nginx")
                .arg("-e")
                .arg(dir.join("error.log"))
                .arg("-p")
                .arg(&dir)
                .arg("-c")
                .arg(config)
        }
    };
    let program = lab.start(&format!("{subject:?}"), &line, Some(RELAY_CORE))?;
    let answer = visit::until_ready(READY, || {
        let answer = visit::get(at, HOST, "/")?;
        ensure!(
            answer.status == 200 && answer.body == origin::BODY,
            "status {}",
            answer.status
        );
        Ok(answer)
    })
    .with_context(|| format!("{}: {}", subject.name(), program.log_tail()))?;
    Ok(Entry {
        subject,
        program,
        at,
        answer_length: answer.length,
        rounds: Vec::new(),
    })
}

impl Entry {
    fn load(&self, lab: &Lab, options: &Options, seconds: u32) -> Result<Load> {
        Wrk {
            to: self.at,
            host: HOST,
            answer_length: self.answer_length,
            connections: options.connections,
            seconds,
            core: Some(ORIGIN_CORE),
        }
        .run(lab)
    }

    fn measure(&self, lab: &Lab, options: &Options) -> Result<Sample> {
        let family = procstat::family(self.program.pid());
        let usage = || {
            family
                .iter()
                .map(|pid| Usage::of(*pid))
                .collect::<Result<Vec<_>>>()
        };
        let before = usage()?;
        let load = self.load(lab, options, options.seconds)?;
        let used = usage()?
            .iter()
            .zip(&before)
            .map(|(now, before)| now.since(before))
            .sum();
        let resident = family
            .iter()
            .map(|pid| procstat::resident(*pid))
            .sum::<Result<u64>>()?;
        Ok(Sample {
            load,
            used,
            resident,
        })
    }
}

impl Sample {
    fn cpu(&self) -> f64 {
        self.used.as_secs_f64() * 1e6 / self.load.requests as f64
    }

    fn rate(&self) -> f64 {
        self.load.requests as f64 / self.load.time.as_secs_f64()
    }
}

fn report(setting: &Setting, options: &Options, lab: &Lab, field: &[Entry]) -> Result<()> {
    let Options {
        rounds,
        seconds,
        connections,
    } = *options;
    let how = format!(
        "{rounds} rounds of {seconds} s, all proxies in turn in each round; wrk -t1 -c{connections} with keep-alive, 12-byte body from nginx (one process); \
         the proxy pinned to core {RELAY_CORE}, origin and wrk to core {ORIGIN_CORE}; one worker each, no access log, X-Forwarded-For and X-Real-IP added by all. CPU is user and \
         system time of all of the proxy's processes per request answered correctly. Cells are median (least..greatest) over the rounds; ratios are \
         taken round by round."
    );
    let mut report = Report::new(
        "proxy",
        "Reverse proxy: small requests",
        &how,
        &setting.tools,
    );
    let mut table = Table::new([
        "proxy",
        "CPU µs/request",
        "to gt",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "RSS MiB",
        "rounds",
    ]);
    let gt = field.iter().find(|entry| entry.subject == Subject::Gt);
    for entry in field {
        let all = |figure: fn(&Sample) -> f64, decimals| {
            spread(entry.rounds.iter().flatten().map(figure), decimals)
        };
        let ratio = gt.map_or_else(String::new, |gt| {
            let pairs = entry.rounds.iter().zip(&gt.rounds);
            spread(
                pairs.filter_map(|(mine, gts)| Some(mine.as_ref()?.cpu() / gts.as_ref()?.cpu())),
                2,
            )
        });
        table.row([
            entry.subject.name().to_owned(),
            all(Sample::cpu, 1),
            ratio,
            all(Sample::rate, 0),
            all(|s| s.load.p50.as_secs_f64() * 1e3, 2),
            all(|s| s.load.p99.as_secs_f64() * 1e3, 2),
            all(|s| s.resident as f64 / MIB, 1),
            format!(
                "{}/{}",
                entry.rounds.iter().flatten().count(),
                entry.rounds.len()
            ),
        ]);
    }
    report.table(&table);
    report.commands(&lab.started());
    report.publish(&setting.out)
}

fn gt(at: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "version: 1.0\ntype: proxy\noptions:\n  workers: 1\n  logLevel: error\nproxy:\n  listeners:\n    - addr: {at}\n  xForwardedProto: false\n  xForwardedHost: false\n  \
         upstreams:\n    app:\n      servers:\n        - addr: {origin}\n      keepAlive:\n        connections: 1024\n  \
         routes:\n    - to: app\n"
    )
}

fn nginx(at: SocketAddr, origin: SocketAddr, kept: bool, dir: &str) -> String {
    let (keep, version) = if kept {
        (
            "keepalive 1024; keepalive_requests 100000000;",
            "proxy_http_version 1.1; proxy_set_header Connection \"\";",
        )
    } else {
        ("", "")
    };
    format!(
        "worker_processes 1; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;\nevents {{ worker_connections 8192; }}\nhttp {{ access_log off; \
         keepalive_requests 100000000; client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};\n\
         upstream app {{ server {origin}; {keep} }}\nserver {{ listen {at}; location / {{ proxy_pass http://app; {version} proxy_set_header Host $host; \
         proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Real-IP $remote_addr; }} }} }}\n"
    )
}

fn haproxy(at: SocketAddr, origin: SocketAddr) -> String {
    format!(
        "global\n  maxconn 8192\n  nbthread 1\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n  option forwardfor\n  http-reuse always\n\
         frontend in\n  bind {at}\n  http-request set-header X-Real-IP %[src]\n  default_backend app\nbackend app\n  server a {origin} pool-max-conn 1024\n"
    )
}

const HOST: &str = "app.example.com";
const MIB: f64 = 1024.0 * 1024.0;
