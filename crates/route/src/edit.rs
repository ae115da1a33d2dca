//! Changes to header fields: remove, then set, then add.

use crate::{BuildError, Template, request::is_token};

/// One change that writes a field.
#[derive(Debug, Clone)]
pub struct HeaderEdit {
    /// The name in lower case.
    pub name: Box<str>,
    /// The value.
    pub value: Template,
}

/// What happens to the fields of a head. Applied in this order: a field that is in [`removes`](Self::removes) or set is left out
/// while the head is copied, then the fields of [`set`](Self::set) and [`add`](Self::add) are written.
#[derive(Debug, Clone, Default)]
pub struct HeaderEdits {
    set: Box<[HeaderEdit]>,
    add: Box<[HeaderEdit]>,
    /// Sorted names of what is removed or set.
    without: Box<[Box<str>]>,
}

impl HeaderEdits {
    /// Most changes of one kind.
    pub const MAX: usize = 64;

    /// Builds a list of changes from names and values (templates).
    ///
    /// # Errors
    /// [`BuildError::HeaderName`], [`BuildError::HeaderValue`], [`BuildError::Placeholder`], [`BuildError::Brace`],
    /// [`BuildError::ForbiddenHeader`] for fields of framing and connections, [`BuildError::TooMany`].
    pub fn new<'a>(
        set: impl IntoIterator<Item = (&'a str, &'a str)>,
        add: impl IntoIterator<Item = (&'a str, &'a str)>,
        remove: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, BuildError> {
        let edits = |pairs: &mut dyn Iterator<Item = (&'a str, &'a str)>| {
            let edits: Result<Vec<_>, _> = pairs
                .take(Self::MAX + 1)
                .map(|(name, value)| HeaderEdit::new(name, value))
                .collect();
            edits.and_then(bounded)
        };
        let set = edits(&mut set.into_iter())?;
        let add = edits(&mut add.into_iter())?;
        let removed: Result<Vec<_>, _> = remove
            .into_iter()
            .take(Self::MAX + 1)
            .map(editable_name)
            .collect();
        let mut without = bounded(removed?)?.into_vec();
        without.extend(set.iter().map(|edit| edit.name.clone()));
        without.sort();
        without.dedup();
        Ok(Self {
            set,
            add,
            without: without.into(),
        })
    }

    /// A field of the original head with this name (in any case) is left out.
    pub fn removes(&self, name: &[u8]) -> bool {
        self.without
            .iter()
            .any(|without| without.as_bytes().eq_ignore_ascii_case(name))
    }

    /// Fields to write in place of those of the same name.
    pub fn set(&self) -> &[HeaderEdit] {
        &self.set
    }

    /// Fields to write besides those of the same name.
    pub fn add(&self) -> &[HeaderEdit] {
        &self.add
    }

    /// All fields to write.
    pub fn writes(&self) -> impl Iterator<Item = &HeaderEdit> {
        self.set.iter().chain(&self.add)
    }

    /// There is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.without.is_empty() && self.add.is_empty()
    }
}

impl HeaderEdit {
    /// Checks a name and a value.
    ///
    /// # Errors
    /// As [`HeaderEdits::new`].
    pub fn new(name: &str, value: &str) -> Result<Self, BuildError> {
        Ok(Self {
            name: editable_name(name)?,
            value: Template::new(value)?,
        })
    }
}

fn bounded<T>(list: Vec<T>) -> Result<Box<[T]>, BuildError> {
    match list.len() {
        ..=HeaderEdits::MAX => Ok(list.into()),
        _ => Err(BuildError::TooMany(HeaderEdits::MAX)),
    }
}

/// A field name of at most 64 bytes, in lower case.
pub(crate) fn field_name(name: &str) -> Result<Box<str>, BuildError> {
    if name.is_empty() || name.len() > 64 || !name.bytes().all(is_token) {
        return Err(BuildError::HeaderName);
    }
    Ok(name.to_ascii_lowercase().into())
}

fn editable_name(name: &str) -> Result<Box<str>, BuildError> {
    let name = field_name(name)?;
    // Framing is the codec's (RFC 9112 §6), hop-by-hop fields end here (RFC 9110 §7.6.1), Host has an option of its own.
    let own = [
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    if own.contains(&&*name) {
        return Err(BuildError::ForbiddenHeader);
    }
    Ok(name)
}
