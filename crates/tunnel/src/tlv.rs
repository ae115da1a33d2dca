//! Fields of handshake and control messages: `tag u8 ‖ length u16 ‖ value`, big-endian. A reader borrows the message and
//! allocates nothing; unknown tags are passed over, so that a later version can say more.

use crate::error::DecodeError;

/// Bytes of a field before its value.
pub(crate) const FIELD_HEAD: usize = 3;

/// The fields of one message, checked to tile it exactly.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Checks that `bytes` are whole fields.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = split(rest).ok_or(DecodeError::Truncated)?.2;
        }
        Ok(Self(bytes))
    }

    /// All fields in order.
    pub(crate) fn iter(self) -> impl Iterator<Item = (u8, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (tag, value, after) = split(rest)?;
            rest = after;
            Some((tag, value))
        })
    }

    /// The values of every field `tag`.
    pub(crate) fn all(self, tag: u8) -> impl Iterator<Item = &'a [u8]> {
        self.iter()
            .filter(move |(t, _)| *t == tag)
            .map(|(_, value)| value)
    }

    /// The value of `tag` if there is one; two are an error.
    pub(crate) fn optional(
        self,
        tag: u8,
        field: &'static str,
    ) -> Result<Option<&'a [u8]>, DecodeError> {
        let mut values = self.all(tag);
        let first = values.next();
        match values.next() {
            Some(_) => Err(DecodeError::Duplicate(field)),
            None => Ok(first),
        }
    }

    /// The value of `tag`, which must be there once.
    pub(crate) fn once(self, tag: u8, field: &'static str) -> Result<&'a [u8], DecodeError> {
        self.optional(tag, field)?
            .ok_or(DecodeError::Missing(field))
    }

    /// An array or an integer's bytes, which must be there once and have exactly this length.
    pub(crate) fn array<const N: usize>(
        self,
        tag: u8,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        fixed(field, self.once(tag, field)?)
    }

    /// As [`Fields::array`], for a field that may be absent.
    pub(crate) fn optional_array<const N: usize>(
        self,
        tag: u8,
        field: &'static str,
    ) -> Result<Option<[u8; N]>, DecodeError> {
        self.optional(tag, field)?
            .map(|value| fixed(field, value))
            .transpose()
    }

    /// A field without a value: there or not.
    pub(crate) fn flag(self, tag: u8, field: &'static str) -> Result<bool, DecodeError> {
        Ok(self.optional_array::<0>(tag, field)?.is_some())
    }
}

/// Exactly `N` bytes, or an error that names the field.
pub(crate) fn fixed<const N: usize>(
    field: &'static str,
    value: &[u8],
) -> Result<[u8; N], DecodeError> {
    value.try_into().map_err(|_| DecodeError::Invalid {
        field,
        why: "wrong length",
    })
}

/// Appends one field. Every value of this protocol is bounded below 64 KiB by its type or by its message; one that were not
/// would be cut, never mis-framed.
pub(crate) fn put(out: &mut Vec<u8>, tag: u8, value: &[u8]) {
    debug_assert!(
        value.len() <= usize::from(u16::MAX),
        "field {tag} is bounded by its type"
    );
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    out.push(tag);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&value[..usize::from(length)]);
}

/// Appends a field if there is a value.
pub(crate) fn put_option(out: &mut Vec<u8>, tag: u8, value: Option<impl AsRef<[u8]>>) {
    if let Some(value) = value {
        put(out, tag, value.as_ref());
    }
}

/// Appends a text, leaving the field out when it is empty.
pub(crate) fn put_text<const MAX: usize>(out: &mut Vec<u8>, tag: u8, text: &crate::Text<MAX>) {
    if !text.is_empty() {
        put(out, tag, text.as_str().as_bytes());
    }
}

/// A text that is empty when its field is absent.
pub(crate) fn text<const MAX: usize>(
    fields: Fields<'_>,
    tag: u8,
    field: &'static str,
) -> Result<crate::Text<MAX>, DecodeError> {
    crate::Text::from_wire(field, fields.optional(tag, field)?.unwrap_or_default())
}

fn split(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let [tag, high, low, rest @ ..] = bytes else {
        return None;
    };
    let (value, after) = rest.split_at_checked(usize::from(u16::from_be_bytes([*high, *low])))?;
    Some((*tag, value, after))
}
