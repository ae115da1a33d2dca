//! The framing corpus through gt, nginx and HAProxy, counted the same way: a table for `bench/results`.

use std::{collections::BTreeMap, fmt::Write, fs, net::SocketAddr, process::Command, thread};

use crate::{
    corpus::{Case, Meaning, cases},
    framing::{judge, play, understood, without_end},
    origins::{self, Origin},
    proxies::Proxy,
    recorder::{Recorder, Seen},
    tools::program,
};

/// What became of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// As the corpus wants it, and every origin understood that.
    AsWanted,
    /// Refused where the corpus lets it pass.
    Refused,
    /// Passed on in another way than wanted; the origins agree on what it means.
    Other,
    /// Two origins understood different requests, or one that was smuggled in.
    Ambiguous,
}

const FATES: [Fate; 4] = [Fate::AsWanted, Fate::Refused, Fate::Other, Fate::Ambiguous];

#[test]
#[ignore = "the long form: make interop-proxy"]
fn framing_of_three_proxies_is_counted() {
    let cases = cases();
    let mut all = Vec::new();
    for start in [Proxy::gt, Proxy::nginx, Proxy::haproxy] {
        let (name, fates) = count(&cases, start);
        eprintln!("{name}");
        for (case, (fate, why)) in cases.iter().zip(&fates) {
            if *fate == Fate::Ambiguous {
                eprintln!("  {} {why}", case.name);
            }
        }
        all.push((
            name,
            fates.into_iter().map(|(fate, _)| fate).collect::<Vec<_>>(),
        ));
    }
    let table = table(&cases, &all);
    println!("{table}");
    if let Some(file) = std::env::var_os("GT_TABLE") {
        fs::write(file, &table).expect("written");
    }
    let gt = &all[0].1;
    assert!(
        gt.iter().all(|fate| *fate == Fate::AsWanted),
        "gt: see above"
    );
}

/// Each case's fate with one proxy, and for those that are not as wanted what was understood.
fn count(cases: &[Case], start: fn(&[SocketAddr]) -> Proxy) -> (&'static str, Vec<(Fate, String)>) {
    let recorder = Recorder::start();
    let zoo = origins::all();
    let to: Vec<SocketAddr> = std::iter::once(recorder.address())
        .chain(zoo.iter().map(Origin::address))
        .collect();
    let proxy = start(&to);
    let (seen, said) = thread::scope(|scope| {
        let proxy = &proxy;
        let visits: Vec<_> = zoo
            .into_iter()
            .zip(1..)
            .map(|(origin, index)| {
                scope.spawn(move || {
                    let visit = |case: &Case| {
                        let answered = play(case, proxy.address(index), proxy.address_h2(index));
                        understood(case, &origin, answered)
                    };
                    (origin.name, cases.iter().map(visit).collect::<Vec<_>>())
                })
            })
            .collect();
        let seen: Vec<Vec<Seen>> = cases
            .iter()
            .map(|case| {
                play(case, proxy.address(0), proxy.address_h2(0));
                recorder.take()
            })
            .collect();
        let said: Vec<_> = visits
            .into_iter()
            .map(|visit| visit.join().expect("a visit"))
            .collect();
        (seen, said)
    });
    let fates = cases
        .iter()
        .zip(&seen)
        .enumerate()
        .map(|(n, (case, seen))| {
            let said: Vec<(&str, &[Meaning])> = said
                .iter()
                .map(|(name, all)| (*name, &all[n][..]))
                .collect();
            fate(case, seen, &said)
        });
    (proxy.name, fates.collect())
}

fn fate(case: &Case, seen: &[Seen], said: &[(&str, &[Meaning])]) -> (Fate, String) {
    let recorded: Vec<Meaning> = seen.iter().map(|seen| seen.meaning.clone()).collect();
    let clear = seen.iter().all(|seen| seen.problem.is_none());
    let mut lists: Vec<(&str, &[Meaning])> = said.to_vec();
    if clear {
        lists.push(("the recorder", &recorded));
    }
    for (name, list) in &lists {
        for (other, others) in &lists {
            if let (false, Some(least)) = (agree(list, others), list.first()) {
                let theirs = others.first().map(show).unwrap_or_default();
                return (
                    Fate::Ambiguous,
                    format!("{name}: {}, {other}: {theirs}", show(least)),
                );
            }
        }
    }
    let nothing = lists
        .iter()
        .all(|(_, list)| without_end(case, list).is_empty())
        && clear;
    match judge(case, seen) {
        None => (Fate::AsWanted, String::new()),
        Some(_) if nothing => (Fate::Refused, String::new()),
        Some(why) => (Fate::Other, why),
    }
}

/// Whether nothing in one list contradicts the other: no target has another method or body, and none was hidden in another's body for one alone. What is
/// missing was refused: an origin may do that.
fn agree(a: &[Meaning], b: &[Meaning]) -> bool {
    let smuggled = |list: &[Meaning]| {
        list.iter()
            .any(|meaning| plain(meaning).1.starts_with(b"/smuggled"))
    };
    let same = |a: &Meaning, b: &Meaning| plain(a).1 != plain(b).1 || plain(a) == plain(b);
    let consistent = a.iter().all(|a| b.iter().all(|b| same(a, b)));
    consistent && (smuggled(a) == smuggled(b) || a.is_empty() || b.is_empty())
}

/// Without what programs tell of in different words: the authority of an absolute form, the target of CONNECT.
fn plain(meaning: &Meaning) -> (&[u8], &[u8], usize, &[u8]) {
    let target = &meaning.target[..];
    let authority = target.windows(3).position(|three| three == b"://");
    let path = authority.map(|at| &target[at + 3..]).map(|rest| {
        let end = rest.iter().position(|byte| *byte == b'/');
        end.map_or(&b"/"[..], |end| &rest[end..])
    });
    let target = match path {
        _ if meaning.method == b"CONNECT" => b"",
        Some(path) if !target.starts_with(b"/") => path,
        _ => target,
    };
    (&meaning.method, target, meaning.length, &meaning.body)
}

fn show(meaning: &Meaning) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "{} {} {:?}",
        text(&meaning.method),
        text(&meaning.target),
        text(&meaning.body)
    )
}

fn table(cases: &[Case], all: &[(&'static str, Vec<Fate>)]) -> String {
    let mut out = String::from("| class | cases |");
    for (name, _) in all {
        let _ = write!(out, " {name} |");
    }
    out.push_str("\n|---|---:|");
    out.push_str(&"---:|".repeat(all.len()));
    let mut classes: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (n, case) in cases.iter().enumerate() {
        classes.entry(&case.class).or_default().push(n);
    }
    let every: Vec<usize> = (0..cases.len()).collect();
    for (class, members) in classes.into_iter().chain([("**all**", every)]) {
        let _ = write!(out, "\n| {class} | {} |", members.len());
        for (_, fates) in all {
            let times = |fate: Fate| {
                members
                    .iter()
                    .filter(|n| fates[**n] == fate)
                    .count()
                    .to_string()
            };
            let _ = write!(out, " {} |", FATES.map(times).join(" / "));
        }
    }
    let version = |name: &str, argument: &str| {
        let output = Command::new(program(name, name))
            .arg(argument)
            .output()
            .expect("a version");
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said)
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    let _ = write!(
        out,
        "\n\n{}; {}\n",
        version("nginx", "-v"),
        version("haproxy", "-v")
    );
    out
}

#[test]
fn origins_that_understand_different_requests_disagree() {
    let meaning =
        |target: &str, body: &str| Meaning::new(b"GET", target.as_bytes(), body.as_bytes());
    let (a, b, other) = (meaning("/a", ""), meaning("/b", ""), meaning("/a", "x"));
    let hidden = meaning("/smuggled", "");
    assert!(
        agree(&[a.clone(), b.clone()], std::slice::from_ref(&b)),
        "one is refused"
    );
    assert!(!agree(std::slice::from_ref(&a), &[other]), "another body");
    assert!(
        !agree(std::slice::from_ref(&a), &[a.clone(), hidden]),
        "one more"
    );
}
