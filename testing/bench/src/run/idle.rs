//! Ten thousand visitors who said one byte each and then stay: what an idle one costs in resident memory.
//!
//! One relay at a time, since each needs its fill of descriptors. The kernel's socket memory is not in the figures.

use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Setting, echoed, started};
use crate::lab::Lab;
use crate::peers::{Plan, Running, Subject, gt};
use crate::table::{Report, Table};
use crate::{origin, tools, visit};

/// How to run it.
pub struct Options {
    /// Number of visitors.
    pub visitors: u32,
    /// Time between the last visitor's byte and the measuring: collectors and allocators get their chance to give back.
    pub settle: Duration,
}

/// Measures and publishes.
///
/// # Errors
/// When the echo or a relay does not start, or no relay is there.
pub fn run(setting: &Setting, options: &Options) -> Result<()> {
    tools::require(&["openssl"])?;
    let limit = origin::raise_descriptor_limit();
    let how = format!(
        "Visitors connect one after the other through a TCP service, send a byte, get it back and stay; {:?} later resident memory is \
         compared with that before the first of them. Limit of descriptors per process: {limit}.",
        options.settle
    );
    let mut report = Report::new("idle", "Relay: idle visitors", &how, &setting.tools);
    let mut table = Table::new([
        "relay",
        "visitors",
        "server B/visitor",
        "client B/visitor",
        "server MiB before",
        "server MiB with",
        "client MiB before",
        "client MiB with",
    ]);
    let mut commands = Vec::new();
    let mut notes = Vec::new();
    let usual = [
        Subject::Gt(gt::Link::Tcp),
        Subject::RatholeTcp,
        Subject::FrpTcp,
    ];
    for subject in setting
        .subjects(&usual)
        .into_iter()
        .filter(|subject| !subject.is_http())
    {
        let visitors = options.visitors.min(most(subject, limit));
        if visitors < options.visitors {
            notes.push(format!("{subject}: {visitors} visitors, since it needs two descriptors for each and {limit} is the limit here."));
        }
        let lab = Lab::new("bench-idle")?;
        let echo = origin::echo(&lab, None)?;
        let plan = Plan {
            origins: &[echo.at],
            links: None,
            core: None,
        };
        let Some((running, ())) = started(subject, &plan, &lab, &setting.tools, echoed)? else {
            continue;
        };
        let sample = measure(&running, visitors, options.settle)
            .with_context(|| format!("{subject}\n{}", running.logs()))?;
        let each = |before: u64, with: u64| {
            format!("{:.0}", (with as f64 - before as f64) / f64::from(visitors))
        };
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / 1024.0 / 1024.0);
        let ((server, client), (server_with, client_with)) = (sample.before, sample.with);
        eprintln!(
            "{subject}: server {} client {} B/visitor",
            each(server, server_with),
            each(client, client_with)
        );
        table.row([
            subject.name().to_owned(),
            visitors.to_string(),
            each(server, server_with),
            each(client, client_with),
            mib(server),
            mib(server_with),
            mib(client),
            mib(client_with),
        ]);
        commands.extend(lab.started());
    }
    ensure!(!commands.is_empty(), "no relay to measure");
    report.table(&table);
    report.notes(&notes);
    report.commands(&commands);
    report.publish(&setting.out)
}

struct Sample {
    before: (u64, u64),
    with: (u64, u64),
}

fn measure(running: &Running, visitors: u32, settle: Duration) -> Result<Sample> {
    let before = running.resident()?;
    let mut there: Vec<TcpStream> = Vec::new();
    for number in 0..visitors {
        let mut stream = visit::connect(running.doors[0], Some(source(number)))
            .with_context(|| format!("visitor {number}"))?;
        visit::echo_byte(&mut stream, number as u8).with_context(|| format!("visitor {number}"))?;
        there.push(stream);
    }
    // Nothing announces that a collector has run: the time is part of the measurement and in the report.
    std::thread::sleep(settle);
    let with = running.resident()?;
    for (number, stream) in there.iter_mut().enumerate().step_by(97) {
        visit::echo_byte(stream, 1).with_context(|| format!("visitor {number} after the wait"))?;
    }
    Ok(Sample { before, with })
}

/// Visitors leave from several loopback addresses, so that their ports do not run out.
fn source(number: u32) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, 2 + (number / 4000) as u8).into()
}

/// The most visitors a relay can hold with this limit: those without a multiplexer keep a second connection for each.
fn most(subject: Subject, limit: u64) -> u32 {
    let spare = limit.saturating_sub(100);
    let most = if matches!(subject, Subject::RatholeTcp | Subject::RatholeTls) {
        spare / 2
    } else {
        spare
    };
    u32::try_from(most).unwrap_or(u32::MAX)
}
