//! What answers a request: an upstream, a redirect, a fixed response, files, or a service of the relay.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use regex::bytes::Regex;

use crate::{
    BuildError, HostField, Template, Values,
    matching::{bounded_regex, percent_byte},
};

/// What answers.
#[derive(Debug, Clone)]
pub enum Action {
    /// A server of an upstream.
    Upstream(ToUpstream),
    /// A redirect.
    Redirect(Redirect),
    /// A fixed response.
    Respond(Respond),
    /// Files of a folder.
    Files(Files),
    /// A service of a relay client, by the host name or prefix that it holds.
    Service(ServiceName),
}

/// An upstream's place in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UpstreamId(pub u32);

/// The host name or prefix of a relay service.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServiceName(pub Box<str>);

/// How a request goes to an upstream.
#[derive(Debug, Clone)]
pub struct ToUpstream {
    /// Which one.
    pub upstream: UpstreamId,
    /// How the path changes.
    pub rewrite: Option<PathRewrite>,
    /// What `Host` says.
    pub host: HostField,
    /// Upgrades to WebSocket pass; otherwise the wish is taken off the request.
    pub websocket: bool,
    /// Several requests of one turn of the event loop may share a connection.
    pub multiplex: bool,
    /// Times that a request may be tried again on another server.
    pub retries: u8,
}

impl ToUpstream {
    /// With defaults: the path stays, `Host` is the visitor's, WebSocket passes, up to 2 retries.
    pub fn new(upstream: UpstreamId) -> Self {
        Self {
            upstream,
            rewrite: None,
            host: HostField::default(),
            websocket: true,
            multiplex: false,
            retries: 2,
        }
    }
}

/// A change of the path before it is forwarded. It works on the path as sent; the query stays.
#[derive(Debug, Clone)]
pub enum PathRewrite {
    /// Puts `with` in place of the prefix `from`.
    Prefix {
        /// What the path begins with.
        from: Box<[u8]>,
        /// What it begins with then.
        with: Box<[u8]>,
    },
    /// Replaces the first match.
    Regex {
        /// What is looked for.
        pattern: Regex,
        /// What comes in its place; `$1` and `${name}` are groups.
        with: Box<[u8]>,
    },
}

impl PathRewrite {
    /// Puts `with` in place of the prefix `from`, both beginning with `/`: `("/api", "/")` takes the prefix off.
    ///
    /// # Errors
    /// [`BuildError::Path`].
    pub fn prefix(from: &str, with: &str) -> Result<Self, BuildError> {
        let good = |path: &str| {
            path.starts_with('/')
                && path.len() <= 1024
                && path
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
        };
        if !good(from) || !good(with) {
            return Err(BuildError::Path);
        }
        Ok(Self::Prefix {
            from: from.as_bytes().into(),
            with: with.as_bytes().into(),
        })
    }

    /// Replaces the first match of an expression.
    ///
    /// # Errors
    /// [`BuildError::Regex`]; [`BuildError::Path`] for a replacement with bytes that no path holds.
    pub fn regex(expression: &str, with: &str) -> Result<Self, BuildError> {
        let visible = with
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte));
        if !visible || with.len() > 1024 {
            return Err(BuildError::Path);
        }
        Ok(Self::Regex {
            pattern: bounded_regex(expression)?,
            with: with.as_bytes().into(),
        })
    }

    /// Appends the new path to `out`. It always begins with one `/`: `//host` would be an authority to some origins. `*` stays. A path that the rewrite does
    /// not fit stays as it is. The prefix form does not allocate.
    pub fn write(&self, path: &[u8], out: &mut Vec<u8>) {
        if matches!(path, b"*" | b"") {
            return out.extend_from_slice(path);
        }
        let start = out.len();
        match self {
            Self::Prefix { from, with } => match path.strip_prefix(&**from) {
                Some(rest) => {
                    out.extend_from_slice(with);
                    let joined = rest.is_empty() || rest[0] == b'/' || with.ends_with(b"/");
                    if !joined {
                        out.push(b'/');
                    }
                    let double = with.ends_with(b"/") && rest.first() == Some(&b'/');
                    out.extend_from_slice(if double { &rest[1..] } else { rest });
                }
                None => out.extend_from_slice(path),
            },
            Self::Regex { pattern, with } => match pattern
                .captures(path)
                .and_then(|groups| Some((groups.get(0)?, groups)))
            {
                Some((whole, groups)) => {
                    out.extend_from_slice(&path[..whole.start()]);
                    groups.expand(with, out);
                    out.extend_from_slice(&path[whole.end()..]);
                }
                None => out.extend_from_slice(path),
            },
        }
        one_slash(out, start);
    }
}

/// Makes what begins at `start` begin with exactly one `/`, where it begins with none or several (or `\`).
fn one_slash(out: &mut Vec<u8>, start: usize) {
    let slashes = out[start..]
        .iter()
        .take_while(|byte| matches!(byte, b'/' | b'\\'))
        .count();
    if slashes != 1 || out[start] != b'/' {
        out.splice(start..start + slashes, [b'/']);
    }
}

/// A redirect.
#[derive(Debug, Clone)]
pub struct Redirect {
    status: u16,
    location: Template,
}

impl Redirect {
    /// A redirect with status 301, 302, 303, 307 or 308.
    ///
    /// # Errors
    /// [`BuildError::Status`] for another status, and what [`Template::new`] says.
    pub fn new(status: u16, location: &str) -> Result<Self, BuildError> {
        if !matches!(status, 301 | 302 | 303 | 307 | 308) {
            return Err(BuildError::Status);
        }
        Ok(Self {
            status,
            location: Template::new(location)?,
        })
    }

    /// The status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Appends the value of `Location`. Where the template begins with the visitor's path, the value begins with one `/`: `//host` and
    /// `/\host` would lead to another site.
    pub fn write_location(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        let start = out.len();
        self.location.write(values, out);
        if self.location.begins_with_path() {
            one_slash(out, start);
        }
    }
}

/// A fixed response.
#[derive(Debug, Clone)]
pub struct Respond {
    /// From 200 to 599.
    pub status: u16,
    /// The value of `Content-Type`.
    pub content_type: Box<str>,
    /// The body; empty for 204 and 304.
    pub body: Arc<[u8]>,
}

/// Longest fixed body in bytes.
pub const MAX_BODY: usize = 1 << 20;

impl Respond {
    /// A checked response.
    ///
    /// # Errors
    /// [`BuildError::Status`] outside 200 to 599, or 204 and 304 with a body; [`BuildError::HeaderValue`] for a content type with control
    /// characters; [`BuildError::TooMany`] for a body longer than [`MAX_BODY`].
    pub fn new(status: u16, content_type: &str, body: &[u8]) -> Result<Self, BuildError> {
        let bodiless = matches!(status, 204 | 304);
        if !(200..=599).contains(&status) || (bodiless && !body.is_empty()) {
            return Err(BuildError::Status);
        }
        if content_type.len() > 256 || !content_type.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        {
            return Err(BuildError::HeaderValue);
        }
        if body.len() > MAX_BODY {
            return Err(BuildError::TooMany(MAX_BODY));
        }
        Ok(Self {
            status,
            content_type: content_type.into(),
            body: body.into(),
        })
    }

    /// Plain text; the caller sees to status and length.
    pub fn text(status: u16, body: &str) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8".into(),
            body: body.as_bytes().into(),
        }
    }
}

/// Files of a folder.
#[derive(Debug, Clone)]
pub struct Files {
    /// The folder.
    pub root: PathBuf,
    /// What is taken off the path first.
    pub strip: Option<Box<[u8]>>,
    /// The file of a folder; empty = none.
    pub index: Box<str>,
    /// The file that is sent, with status 200, where there is none (applications of one page).
    pub fallback: Option<PathBuf>,
    /// Files and folders whose name begins with a dot are sent too.
    pub hidden: bool,
}

/// Why a path names no file here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// It would leave the folder or is not a path that files have: 400.
    #[error("the path is not one of a file")]
    Bad,
    /// It may name a file, but not one that is sent: 404.
    #[error("there is no such file")]
    Hidden,
}

impl Files {
    /// A folder with `index.html`, without hidden files.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            strip: None,
            index: "index.html".into(),
            fallback: None,
            hidden: false,
        }
    }

    /// The file that a path names; [`Self::index`] is for the caller to try when it is a folder. A symbolic link inside the folder is the
    /// owner's to answer for: the caller opens with `O_NOFOLLOW` or `openat2` where that is not wanted.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn resolve(&self, path: &[u8]) -> Result<PathBuf, FileError> {
        let path = match &self.strip {
            Some(strip) => path.strip_prefix(&**strip).ok_or(FileError::Hidden)?,
            None => path,
        };
        let mut file = self.root.clone();
        for segment in path
            .split(|byte| *byte == b'/')
            .filter(|segment| !segment.is_empty())
        {
            let name = decode_segment(segment)?;
            if name == "." {
                continue;
            }
            if name == ".." || name.contains(['/', '\\', '\0']) {
                return Err(FileError::Bad);
            }
            if name.starts_with('.') && !self.hidden {
                return Err(FileError::Hidden);
            }
            file.push(Path::new(&name));
        }
        Ok(file)
    }
}

fn decode_segment(segment: &[u8]) -> Result<String, FileError> {
    let mut name = Vec::with_capacity(segment.len());
    let mut rest = segment;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            name.push(percent_byte(after).ok_or(FileError::Bad)?);
            rest = &after[2..];
        } else {
            name.push(first);
            rest = after;
        }
    }
    String::from_utf8(name).map_err(|_| FileError::Bad)
}
