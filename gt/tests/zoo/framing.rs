//! The framing corpus: what gt passes on can be read in one way only, means what the case says, and means it to every origin.

use std::{net::SocketAddr, thread};

use crate::{
    corpus::{Case, Meaning, Payload, Want, cases},
    origins::{self, Origin},
    proxies::Proxy,
    recorder::{Recorder, Seen},
    wire::{end_request, exchange, exchange_h2},
};

#[test]
fn framing_means_one_thing_to_the_recorder() {
    let recorder = Recorder::start();
    let gt = Proxy::gt(&[recorder.address()]);
    let cases = cases();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| {
            play(case, gt.address(0), gt.address_h2(0));
            let seen = recorder.take();
            judge(case, &seen).map(|why| describe(case, &why, &seen))
        })
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} cases:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
    assert!(
        cases.len() >= 150 || std::env::var_os("GT_CASE").is_some(),
        "{} cases",
        cases.len()
    );
}

#[test]
fn framing_means_the_same_to_every_origin() {
    agree(origins::few());
}

#[test]
#[ignore = "the long form: make interop-proxy"]
fn framing_means_the_same_to_all_origins() {
    agree(origins::all());
}

fn agree(zoo: Vec<Origin>) {
    let to: Vec<SocketAddr> = zoo.iter().map(Origin::address).collect();
    let gt = Proxy::gt(&to);
    let cases = cases();
    let wrong: Vec<String> = thread::scope(|scope| {
        let visits: Vec<_> = zoo
            .into_iter()
            .enumerate()
            .map(|(index, origin)| {
                let (gt, cases) = (&gt, &cases);
                scope.spawn(move || visit(gt, index, &origin, cases))
            })
            .collect();
        visits
            .into_iter()
            .flat_map(|visit| visit.join().expect("a visit"))
            .collect()
    });
    assert!(
        wrong.is_empty(),
        "{} findings:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// All cases with one origin; what it understood that it should not have.
fn visit(gt: &Proxy, index: usize, origin: &Origin, cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut arrived = 0;
    for case in cases {
        let answered = play(case, gt.address(index), gt.address_h2(index));
        let said = understood(case, origin, answered);
        arrived += said.len();
        if let Some(why) = differs(case, &said) {
            wrong.push(format!("{} {}: {why}: {said:?}", origin.name, case.name));
        }
    }
    // One that hears nothing agrees with everything.
    if arrived < cases.len() / 4 {
        wrong.push(format!(
            "{} understood only {arrived} requests",
            origin.name
        ));
    }
    wrong
}

/// Sends a case and the request that follows it; how many requests have been answered with 200, which only the origin does.
pub(crate) fn play(case: &Case, http1: SocketAddr, http2: SocketAddr) -> usize {
    let end = end_request(&case.end);
    let back = match &case.payload {
        Payload::Http1(bytes) => exchange(http1, &[&bytes[..], &end].concat()),
        Payload::Http2(request) => {
            exchange_h2(http2, request);
            exchange(http1, &end)
        }
    };
    let good = b"HTTP/1.1 200 ";
    back.windows(good.len()).filter(|part| part == good).count()
}

/// What the origin says about a case that was sent, `answered` times with success. Its last word is about the request that follows, if that has arrived.
pub(crate) fn understood(case: &Case, origin: &Origin, answered: usize) -> Vec<Meaning> {
    let end = matches!(case.payload, Payload::Http2(_)).then(|| case.end.as_bytes());
    origin.take(|said| match end {
        Some(end) => said.iter().any(|meaning| meaning.target == end),
        None => said.len() >= answered,
    })
}

/// Whether the request that follows must arrive: HTTP/2's comes on a connection of its own.
fn follows(case: &Case) -> bool {
    matches!(case.payload, Payload::Http2(_)) || (case.goes_on && !case.either)
}

/// Why what arrived at the recorder is not what the case wants.
pub(crate) fn judge(case: &Case, seen: &[Seen]) -> Option<String> {
    if let Some(problem) = seen.iter().find_map(|seen| seen.problem.as_ref()) {
        return Some(format!("could be read in another way: {problem}"));
    }
    let arrived: Vec<Meaning> = seen.iter().map(|seen| seen.meaning.clone()).collect();
    let refused = without_end(case, &arrived).is_empty();
    if case.either && refused {
        return None;
    }
    let (Want::Arrives(wanted), false) = (&case.want, refused) else {
        let wanted = wanted(case);
        return (arrived != wanted).then(|| "not what is wanted".to_owned());
    };
    let whole = wanted.iter().chain(&end(case)).cloned().collect::<Vec<_>>();
    if arrived != whole && !(case.either && arrived == *wanted) {
        return Some("not what is wanted".to_owned());
    }
    fields(case, seen.first()?)
}

/// All that should arrive.
fn wanted(case: &Case) -> Vec<Meaning> {
    let list = match &case.want {
        Want::Arrives(list) => list.clone(),
        Want::Refused | Want::Answered => Vec::new(),
    };
    list.into_iter().chain(end(case)).collect()
}

fn end(case: &Case) -> Option<Meaning> {
    let arrives = case.goes_on || matches!(case.payload, Payload::Http2(_));
    arrives.then(|| Meaning::new(b"GET", case.end.as_bytes(), b""))
}

pub(crate) fn without_end<'a>(case: &Case, arrived: &'a [Meaning]) -> &'a [Meaning] {
    match arrived {
        [first @ .., last] if last.target == case.end.as_bytes() => first,
        all => all,
    }
}

fn fields(case: &Case, seen: &Seen) -> Option<String> {
    let values = |name: &str| -> Vec<String> {
        let named = seen.fields.iter().filter(|(other, _)| other == name);
        named
            .map(|(_, value)| String::from_utf8_lossy(value).into_owned())
            .collect()
    };
    for (name, wanted) in &case.fields {
        let found = values(name);
        if found != [wanted.clone()] {
            return Some(format!("{name} is {found:?}"));
        }
    }
    let there = case.absent.iter().find(|name| !values(name).is_empty());
    there.map(|name| format!("{name} is there"))
}

/// Why an origin did not understand what the case wants. It may refuse requests, but not see others, or in another order.
pub(crate) fn differs(case: &Case, said: &[Meaning]) -> Option<&'static str> {
    let wanted = wanted(case);
    let end = Meaning::new(b"GET", case.end.as_bytes(), b"");
    let mut expected = wanted
        .iter()
        .chain((case.either && !wanted.contains(&end)).then_some(&end));
    if !said
        .iter()
        .all(|meaning| expected.any(|wanted| wanted == meaning))
    {
        return Some("not what was sent");
    }
    let lost = follows(case)
        && !said
            .iter()
            .any(|meaning| meaning.target == case.end.as_bytes());
    lost.then_some("the request that follows is lost")
}

pub(crate) fn describe(case: &Case, why: &str, seen: &[Seen]) -> String {
    let sent = match &case.payload {
        Payload::Http1(bytes) => format!(
            "{:?}",
            String::from_utf8_lossy(&bytes[..bytes.len().min(300)])
        ),
        Payload::Http2(request) => format!("{request:?}").chars().take(300).collect(),
    };
    let meanings: Vec<String> = seen.iter().map(|seen| show(&seen.meaning)).collect();
    format!(
        "{} ({}): {why}\n  sent {sent}\n  wanted {:?}\n  arrived {meanings:?}",
        case.name, case.class, case.want
    )
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
