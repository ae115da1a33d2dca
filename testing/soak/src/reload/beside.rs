//! gt's reverse proxy, nginx and HAProxy, each reloaded under the same load: requests on connections of their own, requests on kept connections,
//! WebSockets. What fails is counted by kind.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench::lab::{Lab, Line, Program};
use bench::table::{Report, Table};
use bench::tools::{Tools, require};
use bench::visit::until_ready;

use super::count::{Counts, Row};
use super::load::{Scene, Way};
use super::origin::Origin;
use crate::rng::Rng;

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// The gt binary.
    pub gt: PathBuf,
    /// Seconds of load for each.
    pub seconds: u64,
    /// Time from one reload to the next.
    pub every: Duration,
    /// Seed of all visits.
    pub seed: u64,
    /// Where the table goes.
    pub out: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    GtInPlace,
    GtNewWorker,
    Nginx,
    Haproxy,
    GtAlone,
}

impl Subject {
    const ALL: [Self; 5] = [
        Self::GtAlone,
        Self::GtInPlace,
        Self::GtNewWorker,
        Self::Nginx,
        Self::Haproxy,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::GtAlone => "gt, not reloaded",
            Self::GtInPlace => "gt, routes change",
            Self::GtNewWorker => "gt, threads change",
            Self::Nginx => "nginx -s reload",
            Self::Haproxy => "haproxy -W, SIGUSR2",
        }
    }
}

struct Running {
    program: Program,
    file: PathBuf,
    text: String,
    way: Way,
}

/// Runs all of them, one after the other, and writes the table. Returns whether gt lost nothing.
///
/// # Errors
/// When one does not start.
pub fn run(options: &Options) -> Result<bool> {
    require(&["nginx", "haproxy"])?;
    let tools = Tools::new(None, Some(options.gt.clone()));
    let mut report = Report::new(
        "reload",
        "Reloads under load: gt proxy beside nginx and HAProxy",
        &format!(
            "Each proxy in turn, {} s, a reload every {} ms: {} visitors with a connection for each request, {} with kept connections (GET and POST, up to 60 \
             requests, pauses up to 30 ms), {} with WebSockets (up to 100 messages). Every body is compared. \"reset\": the connection ended, or was reset, \
             under a request or message, or instead of an answer.",
            options.seconds,
            options.every.as_millis(),
            VISITORS[0],
            VISITORS[1],
            VISITORS[2]
        ),
        &tools,
    );
    let mut table = Table::new([
        "proxy",
        "kind",
        "right",
        "refused",
        "reset",
        "non-2xx",
        "wrong",
        "late",
        "doubled",
        "median ms",
        "p99 ms",
        "worst ms",
    ]);
    let (mut notes, mut good) = (Vec::new(), true);
    for subject in Subject::ALL {
        let (counts, reloads) = one(subject, options).with_context(|| subject.name())?;
        let (rows, words) = counts.table();
        for (_, kind, row) in rows {
            table.row(cells(subject, kind, &row));
        }
        eprintln!("{}: {} faults", subject.name(), counts.faults());
        for word in words.iter().take(3) {
            eprintln!("  {word}");
        }
        notes.push(format!("{}: {reloads}", subject.name()));
        let ours = !matches!(subject, Subject::Nginx | Subject::Haproxy);
        good &= !ours || counts.faults() == 0;
    }
    notes.push(format!(
        "{}; nginx and HAProxy close kept connections that wait for a request when they are reloaded, so a request that is on its way then gets an end \
         instead of an answer; gt answers it and says that the answer is the last (for up to 5 s).",
        bench::tools::version(Path::new("haproxy"), &["-v"])
    ));
    report.table(&table);
    report.notes(&notes);
    report.publish(&options.out)?;
    Ok(good)
}

fn cells(subject: Subject, kind: &str, row: &Row) -> [String; 12] {
    let ms = |share| format!("{:.1}", row.quantile(share).as_secs_f64() * 1e3);
    [
        subject.name().to_owned(),
        kind.to_owned(),
        row.right.to_string(),
        row.refused.to_string(),
        row.reset.to_string(),
        row.status.to_string(),
        row.wrong.to_string(),
        row.late.to_string(),
        row.doubled.to_string(),
        ms(0.5),
        ms(0.99),
        ms(1.0),
    ]
}

fn one(subject: Subject, options: &Options) -> Result<(Counts, String)> {
    let lab = Lab::new("bench-reload")?;
    let origin = Origin::open(lab.address()?)?;
    let running = start(subject, &lab, &origin, &options.gt)?;
    let (counts, stop) = (Counts::default(), AtomicBool::new(false));
    let scene = Scene {
        counts: &counts,
        ways: vec![running.way.clone()],
        origins: vec![&origin],
        stop: &stop,
        began: Instant::now(),
    };
    let rng = Rng::new(options.seed);
    let (mut done, mut refused, mut waited, mut most) = (0, 0, 0, 0);
    let mut longest = Duration::ZERO;
    std::thread::scope(|scope| -> Result<()> {
        let scene = &scene;
        for (kind, count) in VISITORS.into_iter().enumerate() {
            for number in 0..count {
                let rng = rng.branch(kind as u64 * 100 + number);
                scope.spawn(move || scene.visit(0, kind, rng));
            }
        }
        let began = Instant::now();
        let end = Duration::from_secs(options.seconds);
        let mut number = 0;
        while began.elapsed() < end {
            if subject != Subject::GtAlone {
                let asked = Instant::now();
                match reload(subject, &running, &options.gt, number) {
                    Ok(said) => {
                        done += 1;
                        waited += u32::from(said.contains("the change is made when"));
                    }
                    Err(_) => refused += 1,
                }
                longest = longest.max(asked.elapsed());
            }
            number += 1;
            most = most.max(bench::procstat::family(running.program.pid()).len());
            std::thread::sleep((options.every * number).saturating_sub(began.elapsed()));
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    end(running);
    let text = format!(
        "{done} reloads done, {waited} of them had to wait for older workers, {refused} refused, the longest command took {longest:.1?}; up to {most} processes"
    );
    Ok((counts, text))
}

fn start(subject: Subject, lab: &Lab, origin: &Origin, gt: &Path) -> Result<Running> {
    let (at, to) = (lab.address()?, origin.at());
    let (name, text, line): (_, _, fn(&Path, &Path, &Path) -> Line) = match subject {
        Subject::Nginx => (
            "nginx.conf",
            nginx(
                &at.to_string(),
                &to.to_string(),
                &lab.dir().to_string_lossy(),
            ),
            |_, file, dir| {
                let line = Line::new("nginx").arg("-e").arg(dir.join("error.log"));
                line.arg("-p").arg(dir).arg("-c").arg(file)
            },
        ),
        Subject::Haproxy => (
            "haproxy.cfg",
            haproxy(&at.to_string(), &to.to_string()),
            |_, file, _| Line::new("haproxy").args(["-W", "-db", "-f"]).arg(file),
        ),
        _ => (
            "gt.yml",
            format!(
                "type: proxy\noptions:\n  logLevel: error\nproxy:\n  listeners: [{{addr: \"{at}\"}}]\n  routes:\n  - {{to: \"{to}\"}}\n"
            ),
            |gt, file, _| Line::new(gt).arg("-c").arg(file),
        ),
    };
    let file = lab.write(name, &text)?;
    let program = lab.start(name, &line(gt, &file, lab.dir()), None)?;
    let way = Way {
        name: String::new(),
        at,
        host: "app.example.com".into(),
    };
    until_ready(Duration::from_secs(10), || {
        let answer = bench::visit::get(at, &way.host, "/10/1")?;
        ensure!(answer.status == 200, "status {}", answer.status);
        Ok(())
    })
    .with_context(|| program.log_tail())?;
    Ok(Running {
        program,
        file,
        text,
        way,
    })
}

fn reload(subject: Subject, running: &Running, gt: &Path, number: u32) -> Result<String> {
    let pid = running.program.pid().to_string();
    let run = |command: &mut Command| -> Result<String> {
        let output = command.stdin(Stdio::null()).output()?;
        ensure!(output.status.success(), "{command:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    match subject {
        Subject::Nginx => run(Command::new("kill").args(["-HUP", &pid])),
        Subject::Haproxy => run(Command::new("kill").args(["-USR2", &pid])),
        _ => {
            let text = if subject == Subject::GtNewWorker {
                let threads = format!("options:\n  workers: {}\n", 1 + number % 2);
                running.text.replace("options:\n", &threads)
            } else {
                let route =
                    format!("  - {{host: n{number}.example.com, respond: {{status: 204}}}}\n");
                running.text.clone() + &route
            };
            let new = running.file.with_extension("new");
            std::fs::write(&new, text)?;
            std::fs::rename(&new, &running.file)?;
            run(Command::new(gt).arg("reload").arg("-c").arg(&running.file))
        }
    }
}

/// All of its processes, the oldest first.
fn end(running: Running) {
    let family = bench::procstat::family(running.program.pid());
    drop(running);
    for pid in family {
        let _ = Command::new("kill")
            .args(["-KILL", &pid.to_string()])
            .output();
    }
}

fn nginx(at: &str, to: &str, dir: &str) -> String {
    format!(
        "worker_processes auto; daemon off; pid {dir}/nginx.pid; error_log {dir}/error.log;\nevents {{ worker_connections 8192; }}\nhttp {{ access_log off; \
         client_body_temp_path {dir}; proxy_temp_path {dir}; fastcgi_temp_path {dir}; uwsgi_temp_path {dir}; scgi_temp_path {dir};\n\
         map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\nupstream app {{ server {to}; keepalive 64; }}\n\
         server {{ listen {at}; location / {{ proxy_pass http://app; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; \
         proxy_set_header Connection $connection_upgrade; proxy_set_header Host $host; }} }} }}\n"
    )
}

fn haproxy(at: &str, to: &str) -> String {
    format!(
        "global\n  maxconn 8192\ndefaults\n  mode http\n  timeout client 60s\n  timeout server 60s\n  timeout connect 5s\n  timeout tunnel 60s\n\
         frontend in\n  bind {at}\n  default_backend app\nbackend app\n  server a {to}\n"
    )
}

/// By kind.
const VISITORS: [u64; 3] = [4, 6, 4];
