//! Files of a folder as answers: ranges, conditional requests, HEAD. Files are read on other threads, a piece at a time: a slow disk
//! stops no other visitor.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use h1::{Framing, HeadWriter, ResponseWriter, Trailers, WriteError};
use route::{FileError, Files};

use crate::{
    answer::{self, Turn},
    aside::Busy,
    log::{EndedBy, Phase},
    request::{Context, Next, Refusal, Told},
    visitor::Connection,
    work::Work,
};

/// Answers a request with a file.
pub(crate) async fn serve(
    context: &Context<'_>,
    connection: &mut Connection,
    work: &mut Work,
    files: &Files,
) -> Next {
    let worker = context.worker;
    let found = match find(context, work, files).await {
        Ok(found) => found,
        Err(refusal) => return context.refuse(connection, work, refusal).await,
    };
    let Some(request) = work.request.view(&work.saved) else {
        return Next::Abort;
    };
    let first = |name: &[u8]| request.fields().values(name).next();
    let etag = found.etag();
    let fresh = match first(b"if-none-match") {
        Some(tags) => {
            tags == b"*"
                || tags
                    .split(|byte| *byte == b',')
                    .any(|tag| tag.trim_ascii() == etag.as_bytes())
        }
        None => first(b"if-modified-since").is_some_and(|since| since == found.modified.as_bytes()),
    };
    let if_range = first(b"if-range")
        .is_none_or(|tag| tag == etag.as_bytes() || tag == found.modified.as_bytes());
    let range = first(b"range")
        .filter(|_| if_range)
        .map(|range| parse_range(range, found.length));
    let (status, start, length) = match range {
        _ if fresh => (304, 0, 0),
        Some(Range::Some(start, length)) => (206, start, length),
        Some(Range::None) => (416, 0, 0),
        Some(Range::Ignored) | None => (200, 0, found.length),
    };
    let Some(mut turn) = work.turn.take() else {
        return Next::Abort;
    };
    turn.goes_on_if(!worker.is_draining());
    let Turn { body, responder } = turn;
    let content = match status {
        304 => Framing::None,
        _ => Framing::Length(length),
    };
    let reason = answer::reason(status).as_bytes();
    let out = work.answer.buffer();
    let Ok(mut writer) = responder.respond(&body, status, reason, content, out) else {
        return Next::Abort;
    };
    if fields(&mut writer, status, &found, &etag, start, length).is_err() {
        return Next::Abort;
    }
    context.add_alt_svc(&mut writer, &mut Vec::new());
    let mut writer = writer.finish();
    worker.metrics.count_answer(status);
    // HEAD has no body, whatever the head says.
    let sent = if writer.encoder().is_complete() {
        0
    } else {
        length
    };
    let part = Part {
        file: found.file,
        start,
        length: sent,
    };
    let whole = send(context, connection, work, &mut writer, part).await;
    let told = Told {
        status,
        sent,
        ended_by: if whole {
            EndedBy::Nobody
        } else {
            EndedBy::Visitor
        },
        phase: Phase::Data,
        ..Told::default()
    };
    context.note(work, &told);
    if !whole {
        return Next::Abort;
    }
    match writer.finish(body) {
        h1::Next::Idle(visitor) => Next::Again(visitor),
        h1::Next::Drain(rest) => Next::Drain(rest),
        h1::Next::Close => Next::Close,
    }
}

/// The file that the request asks for, opened.
async fn find(
    context: &Context<'_>,
    work: &Work,
    files: &Files,
) -> Result<Found, Refusal<'static>> {
    let Some(request) = work.request.view(&work.saved) else {
        return Err(Refusal::new(400, "This is no request."));
    };
    if !matches!(request.method(), b"GET" | b"HEAD") {
        let text = "Files are only read: use GET or HEAD.";
        return Err(Refusal::new(405, text));
    }
    let path = files.resolve(request.path()).map_err(|error| {
        let status = if error == FileError::Bad { 400 } else { 404 };
        Refusal::new(status, error.to_string())
    })?;
    let index = files.index.clone();
    let fallback = files.fallback.clone();
    let pool = &context.worker.aside.files;
    match pool.try_run(move || open(path, &index, fallback)).await {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(_)) => Err(Refusal::new(404, "There is no such file.")),
        Err(Busy) => {
            context.worker.metrics.proxy_unavailable_total.add_one();
            let text = "Too many files are being read. Try again soon.";
            Err(Refusal::new(503, text))
        }
    }
}

fn fields(
    writer: &mut HeadWriter<'_, ResponseWriter>,
    status: u16,
    found: &Found,
    etag: &str,
    start: u64,
    length: u64,
) -> Result<(), WriteError> {
    if status != 304 && status != 416 {
        writer.field(b"Content-Type", content_type(&found.path).as_bytes())?;
    }
    writer.field(b"ETag", etag.as_bytes())?;
    writer.field(b"Last-Modified", found.modified.as_bytes())?;
    writer.field(b"Accept-Ranges", b"bytes")?;
    writer.field(b"X-Content-Type-Options", b"nosniff")?;
    let range = match status {
        206 => format!("bytes {start}-{}/{}", start + length - 1, found.length),
        416 => format!("bytes */{}", found.length),
        _ => return Ok(()),
    };
    writer.field(b"Content-Range", range.as_bytes())
}

/// What is sent of a file.
struct Part {
    file: File,
    start: u64,
    length: u64,
}

async fn send(
    context: &Context<'_>,
    connection: &mut Connection,
    work: &mut Work,
    writer: &mut ResponseWriter,
    part: Part,
) -> bool {
    let (pool, patience) = (&context.worker.aside.files, context.patience());
    let mut file = Some(part.file);
    let mut left = part.length;
    let mut buffer = Vec::new();
    let mut seek = Some(part.start);
    while left > 0 {
        let Some(mut open) = file.take() else {
            return false;
        };
        let n = usize::try_from(left).unwrap_or(usize::MAX).min(PIECE);
        let mut piece = std::mem::take(&mut buffer);
        let at = seek.take();
        let reading = pool.run(move || {
            if let Some(at) = at.filter(|at| *at > 0) {
                open.seek(SeekFrom::Start(at))?;
            }
            piece.resize(n, 0);
            open.read_exact(&mut piece)?;
            io::Result::Ok((open, piece))
        });
        // A file that became shorter, or a disk that hangs, cannot keep what the head promised.
        let Ok(Ok(Ok((open, piece)))) = tokio::time::timeout(patience, reading).await else {
            return false;
        };
        if writer.encoder().data(piece.len()).is_err() {
            return false;
        }
        work.answer.buffer().extend_from_slice(&piece);
        left -= piece.len() as u64;
        buffer = piece;
        file = Some(open);
        if !connection.write_answer(work, patience).await {
            return false;
        }
    }
    let ended = writer
        .encoder()
        .finish(Trailers::NONE, work.answer.buffer());
    ended.is_ok() && connection.write_answer(work, patience).await
}

struct Found {
    file: File,
    path: PathBuf,
    length: u64,
    modified: String,
    stamp: (u64, u32),
}

impl Found {
    fn etag(&self) -> String {
        format!(
            "\"{:x}-{:x}-{:x}\"",
            self.length, self.stamp.0, self.stamp.1
        )
    }
}

/// Regular files only: a pipe or a device would block or never end.
fn open(path: PathBuf, index: &str, fallback: Option<PathBuf>) -> io::Result<Found> {
    let found = open_file(path.clone()).or_else(|error| {
        if index.is_empty() || !path.is_dir() {
            return Err(error);
        }
        open_file(path.join(index))
    });
    match (found, fallback) {
        (Err(_), Some(fallback)) => open_file(fallback),
        (found, _) => found,
    }
}

fn open_file(path: PathBuf) -> io::Result<Found> {
    // Asked before it is opened: opening a pipe would wait for its other end.
    if !std::fs::metadata(&path)?.is_file() {
        return Err(io::ErrorKind::NotFound.into());
    }
    let file = File::open(&path)?;
    let about = file.metadata()?;
    let since = about
        .modified()
        .unwrap_or(UNIX_EPOCH)
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Ok(Found {
        length: about.len(),
        modified: http_date(UNIX_EPOCH + since),
        stamp: (since.as_secs(), since.subsec_nanos()),
        file,
        path,
    })
}

#[derive(Debug, PartialEq)]
enum Range {
    /// First byte and length.
    Some(u64, u64),
    /// None of it is there: 416.
    None,
    /// Not understood, or several: the whole file, as RFC 9110 §14.2 allows.
    Ignored,
}

fn parse_range(value: &[u8], length: u64) -> Range {
    let Some(spec) = std::str::from_utf8(value)
        .ok()
        .and_then(|value| value.strip_prefix("bytes="))
    else {
        return Range::Ignored;
    };
    let Some((first, last)) = spec.trim().split_once('-') else {
        return Range::Ignored;
    };
    let number = |text: &str| -> Option<u64> {
        (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| text.parse().unwrap_or(u64::MAX))
    };
    match (number(first), number(last)) {
        (Some(first), last_byte) if last_byte.is_some() || last.is_empty() => {
            let last_byte = last_byte.unwrap_or(u64::MAX);
            if last_byte < first {
                return Range::Ignored;
            }
            if first >= length {
                return Range::None;
            }
            Range::Some(first, last_byte.min(length - 1) - first + 1)
        }
        (None, Some(suffix)) if first.is_empty() => {
            if suffix == 0 || length == 0 {
                return Range::None;
            }
            let n = suffix.min(length);
            Range::Some(length - n, n)
        }
        _ => Range::Ignored,
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110 §5.6.7).
fn http_date(time: SystemTime) -> String {
    httpdate::fmt_http_date(time)
}

fn content_type(path: &Path) -> &'static str {
    let extension = path
        .extension()
        .and_then(|extension| extension.to_str())
        .unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "log" => "text/plain; charset=utf-8",
        "md" => "text/markdown; charset=utf-8",
        "xml" => "application/xml",
        "csv" => "text/csv; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "webmanifest" => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

/// Read and written at one time.
const PIECE: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_rfc_says() {
        for (value, length, expected) in [
            ("bytes=0-0", 10, Range::Some(0, 1)),
            ("bytes=2-", 10, Range::Some(2, 8)),
            ("bytes=2-99", 10, Range::Some(2, 8)),
            ("bytes=-3", 10, Range::Some(7, 3)),
            ("bytes=-99", 10, Range::Some(0, 10)),
            ("bytes=10-", 10, Range::None),
            ("bytes=-0", 10, Range::None),
            ("bytes=5-2", 10, Range::Ignored),
            ("bytes=0-1,3-4", 10, Range::Ignored),
            ("bytes=a-b", 10, Range::Ignored),
            ("bytes=+1-2", 10, Range::Ignored),
            ("items=0-1", 10, Range::Ignored),
            ("bytes=0-", 0, Range::None),
        ] {
            assert_eq!(parse_range(value.as_bytes(), length), expected, "{value}");
        }
    }
}
