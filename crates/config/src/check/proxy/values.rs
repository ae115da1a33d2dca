//! Texts of the `proxy` section to values.

use std::ops::RangeInclusive;

use route::{BuildError, HashKey, HeaderCondition, HeaderTest, PathPattern, RateKey};

use crate::value::{self, ValueError};

/// `/PREFIX`, `=/EXACT` or `~REGEX`.
pub(super) fn path_pattern(text: &str) -> Result<PathPattern, ValueError> {
    Ok(if let Some(exact) = text.strip_prefix('=') {
        PathPattern::exact(exact)?
    } else if let Some(expression) = text.strip_prefix('~') {
        PathPattern::regex(expression).map_err(|error| match error {
            // Counted from the tilde, which the user sees too.
            BuildError::Regex { reason, at } => BuildError::Regex {
                reason,
                at: at.map(|at| at + 1),
            },
            other => other,
        })?
    } else {
        PathPattern::prefix(text)?
    })
}

/// A value, `*` for any, `!` for none, `~REGEX`.
pub(super) fn header_condition(name: &str, text: &str) -> Result<HeaderCondition, ValueError> {
    Ok(match text {
        "*" => HeaderCondition::new(name, HeaderTest::Present)?,
        "!" => HeaderCondition::new(name, HeaderTest::Absent)?,
        _ => match text.strip_prefix('~') {
            Some(expression) => HeaderCondition::regex(name, expression)?,
            None => HeaderCondition::new(name, HeaderTest::Equals(text.as_bytes().into()))?,
        },
    })
}

pub(super) fn hash_key(text: &str) -> Result<HashKey, ValueError> {
    match text.split_once(':') {
        None if text.eq_ignore_ascii_case("ip") => Ok(HashKey::Ip),
        Some(("header", name)) => Ok(HashKey::Header(value::header_name(name)?.into())),
        Some(("cookie", name)) => Ok(HashKey::Cookie(token(name)?.into())),
        _ => Err(ValueError::NotForm("ip, header:NAME or cookie:NAME")),
    }
}

pub(super) fn rate_key(text: &str) -> Result<RateKey, ValueError> {
    match text.split_once(':') {
        None if text.eq_ignore_ascii_case("ip") => Ok(RateKey::Ip),
        None if text.eq_ignore_ascii_case("all") => Ok(RateKey::All),
        Some(("header", name)) => Ok(RateKey::Header(value::header_name(name)?.into())),
        _ => Err(ValueError::NotForm("ip, header:NAME or all")),
    }
}

/// A word of RFC 9110 §5.6.2, in the case it has.
pub(super) fn token(text: &str) -> Result<String, ValueError> {
    // The rules of a field's name, which is then put into lower case; cookies keep theirs.
    value::header_name(text)
        .map_err(|_| ValueError::NotForm("a word of letters, digits and hyphens"))?;
    Ok(text.to_owned())
}

/// `200` or `200-299`.
pub(super) fn status_range(text: &str) -> Result<RangeInclusive<u16>, ValueError> {
    let range = value::port_range(text)
        .map_err(|_| ValueError::NotForm("a status or a range of them, as 200-299"))?;
    if *range.start() < 100 || *range.end() > 599 {
        return Err(ValueError::OutOfBounds("100 to 599 are allowed".into()));
    }
    Ok(range)
}

/// One line of visible ASCII and spaces, up to 1024 bytes.
pub(super) fn line(text: &str) -> Result<String, ValueError> {
    if text.len() > 1024 || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(ValueError::NotForm("one line of ASCII of up to 1024 bytes"));
    }
    Ok(text.to_owned())
}

/// A path that the proxy itself asks for or puts in.
pub(super) fn plain_path(text: &str) -> Result<String, ValueError> {
    let visible = text
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'#');
    if !text.starts_with('/') || text.len() > 1024 || !visible {
        return Err(BuildError::Path.into());
    }
    Ok(text.to_owned())
}
