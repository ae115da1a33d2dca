//! Where a piece of configuration was written: a file or the command line, with line and column, and how its line is
//! shown. A line that may hold a secret is shown without it.

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// One input: a file's text, or the command line.
pub(crate) struct Source {
    /// What users know it by: the path as they gave it, or `command line`.
    name: String,
    /// Lines as they may be shown: secrets and control characters are gone. Empty for the command line.
    shown: Vec<String>,
    /// Where relative paths begin: the file's folder, or empty for the current folder.
    folder: PathBuf,
}

impl Source {
    pub(crate) fn file(path: &Path, text: &str) -> Arc<Self> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        Arc::new(Self {
            name: path.display().to_string(),
            shown: mask_lines(text),
            folder,
        })
    }

    pub(crate) fn command_line() -> Arc<Self> {
        Arc::new(Self {
            name: "command line".into(),
            shown: Vec::new(),
            folder: PathBuf::new(),
        })
    }
}

/// A place in a [`Source`].
#[derive(Clone)]
pub(crate) struct Place {
    source: Arc<Source>,
    spot: Spot,
}

#[derive(Clone)]
enum Spot {
    /// The source as a whole.
    Whole,
    /// Line and column count characters from 1; width is in characters.
    Line { line: u32, column: u32, width: u32 },
    /// A flag, as typed (without its value).
    Flag(Arc<str>),
}

impl Place {
    pub(crate) fn whole(source: &Arc<Source>) -> Self {
        Self {
            source: Arc::clone(source),
            spot: Spot::Whole,
        }
    }

    pub(crate) fn at(source: &Arc<Source>, line: u64, column: u64, width: u64) -> Self {
        let short = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let spot = match line {
            0 => Spot::Whole,
            _ => Spot::Line {
                line: short(line),
                column: short(column.max(1)),
                width: short(width.max(1)),
            },
        };
        Self {
            source: Arc::clone(source),
            spot,
        }
    }

    pub(crate) fn flag(source: &Arc<Source>, typed: &str) -> Self {
        Self {
            source: Arc::clone(source),
            spot: Spot::Flag(typed.into()),
        }
    }

    /// A path written at this place, as it is to be opened.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        self.source.folder.join(path)
    }

    /// Order by file, line and column; flags and whole files stay as they come, before lines.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let key = |place: &Self| match place.spot {
            Spot::Line { line, column, .. } => (line, column),
            Spot::Whole | Spot::Flag(_) => (0, 0),
        };
        self.source
            .name
            .cmp(&other.source.name)
            .then(key(self).cmp(&key(other)))
    }

    pub(crate) fn is_flag(&self) -> bool {
        matches!(self.spot, Spot::Flag(_))
    }

    /// The source line and a caret under the place, or nothing where there is no line to show.
    pub(crate) fn excerpt(&self) -> Option<String> {
        let Spot::Line {
            line,
            column,
            width,
        } = self.spot
        else {
            return None;
        };
        let text = self
            .source
            .shown
            .get(line as usize - 1)
            .filter(|text| !text.trim().is_empty())?;
        let length = text.chars().count();
        let column = (column as usize - 1).min(length);
        // A long line is cut around the place.
        let first = column.saturating_sub(MAX_SHOWN / 2);
        let cut: String = text.chars().skip(first).take(MAX_SHOWN).collect();
        let carets = (width as usize)
            .min(cut.chars().count().saturating_sub(column - first))
            .max(1);
        let gutter = " ".repeat(line.to_string().len());
        Some(format!(
            "  {line} | {cut}\n  {gutter} | {}{}",
            " ".repeat(column - first),
            "^".repeat(carets)
        ))
    }
}

/// Characters of a line that are shown.
const MAX_SHOWN: usize = 120;

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = printable(&self.source.name);
        match &self.spot {
            Spot::Whole => f.write_str(&name),
            Spot::Line { line, column, .. } => write!(f, "{name}:{line}:{column}"),
            Spot::Flag(typed) => write!(f, "{name}: {}", printable(typed)),
        }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

/// Control characters out, so that a file cannot send escape sequences to a terminal.
pub(crate) fn printable(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            // U+202A.. and U+2066.. turn the direction of text and can hide what a line says.
            c if c.is_control()
                || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
            {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}

/// The name may be meant for a secret, even when it is misspelt.
pub(crate) fn names_a_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    // `secretFile` and the like name a file, which may be shown; but not `secretfil`, which may be anything.
    if matches!(name.as_str(), "secretfile" | "certfile" | "keyfile") {
        return false;
    }
    [
        "secr",
        "passw",
        "signingk",
        "token",
        "credential",
        "sentrydsn",
    ]
    .iter()
    .any(|part| name.contains(part))
        || ["secret", "password", "signingkey"]
            .iter()
            .any(|word| strsim::osa_distance(&name, word) <= 2)
}

/// Replaces what follows a key that names a secret, up to the end of the value: the rest of its line, and the lines after
/// it that are deeper, or list items at the same depth. It works on text, not on the parsed tree, so that a file that does not
/// parse does not show its secrets either.
fn mask_lines(text: &str) -> Vec<String> {
    let mut hiding: Option<usize> = None;
    text.split('\n')
        .map(|line| {
            let line = without_userinfo(printable(line.trim_end_matches('\r')));
            let depth = line.chars().take_while(|c| *c == ' ').count();
            if let Some(key_depth) = hiding {
                let rest = line.trim_start();
                let inside = depth > key_depth
                    || rest.is_empty()
                    || (depth == key_depth && rest.starts_with('-'));
                if inside {
                    return format!("{}{MASK}", " ".repeat(depth));
                }
                hiding = None;
            }
            match secret_start(&line) {
                None => line,
                Some((start, key_depth)) => {
                    hiding = Some(key_depth);
                    format!("{} {MASK}", &line[..start])
                }
            }
        })
        .collect()
}

const MASK: &str = "***";

/// Takes out what stands between `://` and `@` (RFC 3986 §3.2.1): it is often a password.
fn without_userinfo(line: String) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line.as_str();
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        let end = after
            .find(['/', ' ', '"', '\'', ','])
            .unwrap_or(after.len());
        rest = match after[..end].rfind('@') {
            Some(at) => {
                shown.push_str(MASK);
                &after[at..]
            }
            None => after,
        };
    }
    shown.push_str(rest);
    shown
}

/// The byte after the colon of the first key in `line` that names a secret, and the column of that key.
fn secret_start(line: &str) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(colon) = line[from..].find([':', '=']) {
        let end = from + colon;
        let key = line[..end].trim_end_matches(['"', '\'', ' ']);
        let start = key
            .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
            .map_or(0, |at| {
                at + key[at..].chars().next().map_or(1, char::len_utf8)
            });
        if !key[start..].is_empty() && names_a_secret(&key[start..]) {
            let first = line.len() - line.trim_start_matches([' ', '-']).len();
            return Some((
                end + 1,
                if start == first {
                    first
                } else {
                    line.chars().take_while(|c| *c == ' ').count()
                },
            ));
        }
        from = end + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown_in_any_layout() {
        for text in [
            "secret: hunter2",
            "  - secret: hunter2",
            "{id: a, secret: hunter2}",
            "\"secret\": hunter2",
            "secrte: hunter2",
            "Secret : hunter2",
            "secret:\n  - hunter2\n  - hunter2",
            "secret:\n- hunter2",
            "secret: |\n  hunter2\n\n  hunter2",
            "- secret: >\n    hunter2",
            "signingKey: hunter2 # x",
            "password: [hunter2,\n  hunter2]",
            "authAPI: https://me:hunter2@example.com/",
        ] {
            let shown = mask_lines(text).join("\n");
            assert!(!shown.contains("hunter2"), "{text:?} is shown as {shown:?}");
        }
    }

    #[test]
    fn other_lines_stay_as_they_are() {
        let text = "secret: x\nid: y\nsecretFile: /run/secret\n";
        assert_eq!(
            mask_lines(text),
            ["secret: ***", "id: y", "secretFile: /run/secret", ""]
        );
    }

    #[test]
    fn escape_sequences_do_not_reach_the_terminal() {
        let source = Source::file(Path::new("a\u{1b}[2J.yml"), "x: \u{1b}[31m\u{202e}");
        let place = Place::at(&source, 1, 4, 2);
        assert!(!format!("{place}{:?}", place.excerpt()).contains(['\u{1b}', '\u{202e}']));
    }
}
