//! Lines of the access log: what is said of an exchange, and how. What visitors send is made harmless here.

use std::{
    cell::RefCell,
    fmt::Write as _,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// As Apache's and nginx's `combined`, with gt's timers and end code behind it.
    #[default]
    Combined,
    /// One JSON object per line.
    Json,
}

/// Who ended an exchange.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// It ended as it should.
    #[default]
    Nobody,
    Visitor,
    Upstream,
    Proxy,
}

/// In which phase it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The request was being read.
    #[default]
    Request,
    /// A server was being chosen or waited for.
    Queue,
    Connect,
    /// The answer's head was awaited.
    Answer,
    /// Bodies were moving.
    Data,
}

/// One exchange, as it is logged. Borrowed: nothing is kept.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) visitor: IpAddr,
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) version: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) user_agent: &'a [u8],
    pub(crate) status: u16,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) took: Duration,
    pub(crate) head_after: Option<Duration>,
    pub(crate) upstream: &'a str,
    pub(crate) route: &'a str,
    pub(crate) ended_by: EndedBy,
    pub(crate) phase: Phase,
}

impl Entry<'_> {
    /// What came was no request, or not in time.
    pub(crate) fn no_request(visitor: IpAddr, status: u16) -> Self {
        Self {
            visitor,
            method: b"",
            target: b"",
            version: "",
            host: b"",
            referer: b"",
            user_agent: b"",
            status,
            sent: 0,
            received: 0,
            took: Duration::ZERO,
            head_after: None,
            upstream: "",
            route: "",
            ended_by: EndedBy::Visitor,
            phase: Phase::Request,
        }
    }
}

impl Format {
    /// Appends the line of an exchange.
    pub(super) fn write(self, out: &mut Vec<u8>, entry: &Entry<'_>) {
        match self {
            Self::Combined => combined(out, entry),
            Self::Json => json(out, entry),
        }
    }
}

fn combined(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut line = Text(out);
    let _ = write!(line, "{} - - [", entry.visitor);
    let _ = line.write_str(&common_time(SystemTime::now()));
    let _ = line.write_str("] \"");
    if entry.method.is_empty() {
        let _ = line.write_str("-");
    } else {
        line.escaped(entry.method);
        let _ = line.write_str(" ");
        line.escaped(entry.target);
        let _ = write!(line, " {}", entry.version);
    }
    let _ = write!(line, "\" {} {} \"", entry.status, entry.sent);
    line.escaped_or_dash(entry.referer);
    let _ = line.write_str("\" \"");
    line.escaped_or_dash(entry.user_agent);
    let _ = line.write_str("\" \"");
    line.escaped_or_dash(entry.host);
    let head_after = entry.head_after.map_or(-1.0, |after| after.as_secs_f64());
    let _ = writeln!(
        line,
        "\" route={} upstream={} in={} total={:.3} head={head_after:.3} end={}{}",
        dash(entry.route),
        dash(entry.upstream),
        entry.received,
        entry.took.as_secs_f64(),
        entry.ended_by.code(),
        entry.phase.code(entry.ended_by),
    );
}

fn json(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let mut line = Text(out);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let _ = write!(
        line,
        "{{\"time\":{}.{:03},\"visitor\":\"{}\",\"method\":\"",
        now.as_secs(),
        now.subsec_millis(),
        entry.visitor
    );
    line.json(entry.method);
    for (name, value) in [
        ("host", entry.host),
        ("target", entry.target),
        ("version", entry.version.as_bytes()),
        ("referer", entry.referer),
        ("userAgent", entry.user_agent),
        ("route", entry.route.as_bytes()),
        ("upstream", entry.upstream.as_bytes()),
    ] {
        let _ = write!(line, "\",\"{name}\":\"");
        line.json(value);
    }
    let _ = write!(
        line,
        "\",\"status\":{},\"sent\":{},\"received\":{},\"seconds\":{:.6}",
        entry.status,
        entry.sent,
        entry.received,
        entry.took.as_secs_f64()
    );
    if let Some(after) = entry.head_after {
        let _ = write!(line, ",\"headSeconds\":{:.6}", after.as_secs_f64());
    }
    let _ = writeln!(
        line,
        ",\"end\":\"{}{}\"}}",
        entry.ended_by.code(),
        entry.phase.code(entry.ended_by)
    );
}

impl EndedBy {
    fn code(self) -> char {
        match self {
            Self::Nobody => '-',
            Self::Visitor => 'C',
            Self::Upstream => 'S',
            Self::Proxy => 'P',
        }
    }
}

impl Phase {
    fn code(self, by: EndedBy) -> char {
        match (by, self) {
            (EndedBy::Nobody, _) => '-',
            (_, Self::Request) => 'R',
            (_, Self::Queue) => 'Q',
            (_, Self::Connect) => 'C',
            (_, Self::Answer) => 'H',
            (_, Self::Data) => 'D',
        }
    }
}

fn dash(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

/// Text into bytes, with what visitors sent made harmless.
struct Text<'a>(&'a mut Vec<u8>);

impl Text<'_> {
    /// As nginx does: quotes, backslashes, controls and bytes above 126 as `\xHH`.
    fn escaped(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'"' | b'\\' | 0..=31 | 127.. => {
                    let _ = write!(self, "\\x{byte:02X}");
                }
                byte => self.0.push(*byte),
            }
        }
    }

    fn escaped_or_dash(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.0.push(b'-');
        } else {
            self.escaped(bytes);
        }
    }

    /// Inside a JSON string: bytes that are no ASCII as the code points of Latin-1, so that no byte is lost and the line stays valid.
    fn json(&mut self, bytes: &[u8]) {
        for byte in bytes {
            match byte {
                b'"' => self.0.extend_from_slice(b"\\\""),
                b'\\' => self.0.extend_from_slice(b"\\\\"),
                0..=31 | 127.. => {
                    let _ = write!(self, "\\u{byte:04x}");
                }
                byte => self.0.push(*byte),
            }
        }
    }
}

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

/// `21/Nov/2026:12:00:00 +0000`: in UTC, made once a second.
fn common_time(now: SystemTime) -> String {
    thread_local! {
        static LAST: RefCell<(u64, String)> = const { RefCell::new((u64::MAX, String::new())) };
    }
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    LAST.with_borrow_mut(|(at, text)| {
        if *at != seconds {
            *at = seconds;
            *text = format_time(seconds);
        }
        text.clone()
    })
}

fn format_time(seconds: u64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (day, in_day) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, where a year ends with its leap day.
    let day = day + 719_468;
    let era = day / 146_097;
    let of_era = day % 146_097;
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let name = usize::try_from(month - 1)
        .ok()
        .and_then(|index| MONTHS.get(index))
        .unwrap_or(&"Jan");
    format!(
        "{of_month:02}/{name}/{year}:{:02}:{:02}:{:02} +0000",
        in_day / 3_600,
        in_day / 60 % 60,
        in_day % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(format_time(0), "01/Jan/1970:00:00:00 +0000");
        assert_eq!(format_time(951_782_400), "29/Feb/2000:00:00:00 +0000");
        assert_eq!(format_time(1_795_262_399), "21/Nov/2026:11:59:59 +0000");
    }

    #[test]
    fn what_a_visitor_sends_cannot_forge_a_line() {
        let mut out = Vec::new();
        let entry = Entry {
            visitor: IpAddr::from([127, 0, 0, 1]),
            method: b"GET",
            target: b"/\"\n",
            version: "HTTP/1.1",
            host: b"a\\b",
            referer: b"",
            user_agent: b"\xff",
            status: 200,
            sent: 1,
            received: 2,
            took: Duration::from_millis(3),
            head_after: None,
            upstream: "",
            route: "r",
            ended_by: EndedBy::Visitor,
            phase: Phase::Data,
        };
        combined(&mut out, &entry);
        json(&mut out, &entry);
        let text = String::from_utf8(out).expect("ASCII");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("\"GET /\\x22\\x0A HTTP/1.1\" 200 1 \"-\" \"\\xFF\" \"a\\x5Cb\" route=r upstream=- in=2 total=0.003 head=-1.000 end=CD"));
        assert!(lines[1].contains("\"target\":\"/\\\"\\u000a\""));
        assert!(lines[1].ends_with("\"end\":\"CD\"}"));
    }
}
