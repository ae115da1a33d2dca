//! Environment variables in values: `${NAME}`, `${NAME:-default}`, `$$` for one `$`. It works on parsed values, so what a
//! variable holds can never become YAML structure, and it is not looked at again for further `${`.

/// A value with its variables filled in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Filled {
    pub(crate) text: String,
    pub(crate) used_environment: bool,
}

/// Why a value cannot be filled in.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InterpolateError {
    #[error("`${{` has no closing `}}`")]
    Unclosed,
    #[error("`${{{0}}}` is not the name of an environment variable")]
    BadName(String),
    #[error("the environment variable `{0}` is not set")]
    NotSet(String),
    #[error("the environment variable `{0}` is longer than 64 KiB")]
    TooLong(String),
}

impl InterpolateError {
    pub(crate) fn help(&self) -> String {
        match self {
            Self::Unclosed => "write `$$` for a dollar sign that is part of the value".into(),
            Self::BadName(_) => {
                "write `${NAME}`, with letters, digits and `_`; or `$$` for a dollar sign".into()
            }
            Self::NotSet(name) => format!("set it, or give a default: `${{{name}:-default}}`"),
            Self::TooLong(_) => "put the value into a file".into(),
        }
    }
}

impl InterpolateError {
    pub(crate) fn without_text(self) -> Self {
        match self {
            Self::BadName(_) => Self::BadName("..".into()),
            other => other,
        }
    }
}

/// Fills in `text`. A `$` before anything but `{` and `$` stays as it is.
pub(crate) fn interpolate(
    text: &str,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Filled, InterpolateError> {
    let mut filled = Filled {
        text: String::with_capacity(text.len()),
        used_environment: false,
    };
    let mut rest = text;
    while let Some(dollar) = rest.find('$') {
        filled.text.push_str(&rest[..dollar]);
        rest = &rest[dollar + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            filled.text.push('$');
            rest = after;
        } else if let Some(inside) = rest.strip_prefix('{') {
            let end = inside.find('}').ok_or(InterpolateError::Unclosed)?;
            filled.used_environment = true;
            filled.text.push_str(&lookup(&inside[..end], env)?);
            rest = &inside[end + 1..];
        } else {
            filled.text.push('$');
        }
    }
    filled.text.push_str(rest);
    Ok(filled)
}

fn lookup(inside: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<String, InterpolateError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || name.contains(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        return Err(InterpolateError::BadName(name.into()));
    }
    match (env(name), default) {
        (Some(value), _) if value.len() > 64 << 10 => Err(InterpolateError::TooLong(name.into())),
        // As in a shell, `:-` also replaces an empty value.
        (Some(value), Some(default)) if value.is_empty() => Ok(default.into()),
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.into()),
        (None, None) => Err(InterpolateError::NotSet(name.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &str) -> Result<String, InterpolateError> {
        let env = |name: &str| match name {
            "A" => Some("one".to_string()),
            "EMPTY" => Some(String::new()),
            "TRICK" => Some("${A}$$".to_string()),
            _ => None,
        };
        interpolate(text, &env).map(|filled| filled.text)
    }

    #[test]
    fn variables_defaults_and_escapes_are_filled_in() {
        for (text, expected) in [
            ("x${A}y", "xoney"),
            ("${A}${A}", "oneone"),
            ("${B:-two}", "two"),
            ("${B:-}", ""),
            ("${EMPTY:-two}", "two"),
            ("${EMPTY}", ""),
            ("$${A}", "${A}"),
            ("$$$${A}", "$${A}"),
            ("^a$", "^a$"),
            ("pa$word", "pa$word"),
            ("${TRICK}", "${A}$$"),
            ("", ""),
        ] {
            assert_eq!(fill(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_filled_in_is_refused() {
        assert_eq!(fill("${B}"), Err(InterpolateError::NotSet("B".into())));
        assert_eq!(fill("a${A"), Err(InterpolateError::Unclosed));
        assert_eq!(fill("${1A}"), Err(InterpolateError::BadName("1A".into())));
        assert_eq!(fill("${}"), Err(InterpolateError::BadName(String::new())));
        assert_eq!(fill("${A B}"), Err(InterpolateError::BadName("A B".into())));
    }
}
