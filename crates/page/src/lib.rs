//! The look and the HTTP answers of the pages that gt itself serves: the client's pages, the server's status page, the API.
//!
//! [`document`] puts a body into gt's one HTML frame, [`answer`] makes the response with headers that every such page needs. Texts
//! from outside go through [`escape`] first. Connections, routes and what a page says are left to the callers.
//!
//! ```
//! let body = format!("<p>{}</p>", page::escape("a < b"));
//! let answer = page::answer(hyper::StatusCode::OK, page::HTML, page::document("gt", &body));
//! assert_eq!(answer.headers()["cache-control"], "no-store");
//! ```

use std::time::Duration;

use http_body_util::Full;
use hyper::{
    Response, StatusCode,
    body::Bytes,
    header::{self, HeaderValue},
};

/// Content type of [`document`]s.
pub const HTML: &str = "text/html; charset=utf-8";
/// Content type of sentences for people.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// A response that no cache keeps and no browser takes for something else. A `kind` that is no header value is left out.
#[must_use]
pub fn answer(
    status: StatusCode,
    kind: &'static str,
    text: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    headers.insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'"),
    );
    response
}

/// An HTML document; `title` and `body` are HTML already.
#[must_use]
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style>:root{{color-scheme:light dark}}body{{font:16px/1.6 system-ui,sans-serif;max-width:46rem;margin:8vh auto;padding:0 1rem}}\
         h1{{font-size:1.6rem}}h2{{font-size:1.1rem;margin-top:2rem}}.ok{{font-size:1.15rem}}.ok::before{{content:\"✓ \";color:#2a9d4a}}\
         code{{background:#8882;padding:.1em .3em;border-radius:.2em}}table{{border-collapse:collapse;width:100%}}\
         th,td{{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #8884;vertical-align:top}}</style>\
         <h1>{title}</h1>{body}</html>\n"
    )
}

/// A text as HTML, fit for content and for attribute values in double quotes.
#[must_use]
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A time for people: its two largest units.
#[must_use]
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_from_outside_becomes_markup() {
        assert_eq!(
            escape("<a href=\"x\">&amp;"),
            "&lt;a href=&quot;x&quot;&gt;&amp;amp;"
        );
    }

    #[test]
    fn a_time_is_shown_by_its_two_largest_units() {
        let shown = |seconds| duration(Duration::from_secs(seconds));
        assert_eq!(shown(59), "59 s");
        assert_eq!(shown(61), "1 min 1 s");
        assert_eq!(shown(3_660), "1 h 1 min");
        assert_eq!(shown(90_000), "1 d 1 h");
    }
}
