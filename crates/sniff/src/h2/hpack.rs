//! Decodes one header block (RFC 7541), the first of its connection: the dynamic table begins empty and ends with the block.
//!
//! Fields are handed to the caller as they are decoded, so nothing is kept but the dynamic table, which has its standard
//! 4096 bytes. The list limit also bounds the work: a block of two-byte references cannot copy more than it.

use std::{borrow::Cow, collections::VecDeque};

use super::{H2Error, huffman, static_table::STATIC_TABLE};

/// Why a header block cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    /// It ends within a field.
    #[error("it ends too early")]
    Truncated,
    /// An integer of more than 28 bits or with superfluous bytes.
    #[error("an integer is too large")]
    Integer,
    /// A reference to an entry that is in neither table.
    #[error("an index is out of range")]
    Index,
    /// A Huffman code that is none, or bad padding.
    #[error("a string has bad Huffman coding")]
    Huffman,
    /// A table size update that is out of place or above 4096.
    #[error("a table size update is out of place or too large")]
    TableSize,
    /// More bytes of fields than the limit.
    #[error("it has too many bytes of fields")]
    TooLong,
}

/// What an entry counts for beside its bytes (RFC 7541 §4.1).
const ENTRY_OVERHEAD: usize = 32;
/// SETTINGS_HEADER_TABLE_SIZE before the server has said otherwise (RFC 9113 §6.5.2).
const TABLE_SIZE: usize = 4096;

/// Decodes `block`, calling `field` for each name and value in order. `limit`: most bytes of fields, each counted with 32 more.
pub(super) fn decode(
    block: &[u8],
    limit: usize,
    mut field: impl FnMut(&[u8], &[u8]) -> Result<(), H2Error>,
) -> Result<(), H2Error> {
    let mut input = Input(block);
    let mut table = DynamicTable {
        entries: VecDeque::new(),
        size: 0,
        max: TABLE_SIZE,
    };
    let mut left = limit;
    let mut first = true;
    while let Some(&byte) = input.0.first() {
        if byte & 0xE0 == 0x20 {
            // RFC 7541 §4.2: at the beginning of a block only.
            let size = input.integer(5)?;
            if !first || size > TABLE_SIZE {
                return Err(HpackError::TableSize.into());
            }
            table.resize(size);
            continue;
        }
        first = false;
        if byte & 0x80 != 0 {
            let index = input.integer(7)?;
            let (name, value) = table.get(index)?;
            left = charge(left, name, value)?;
            field(name, value)?;
            continue;
        }
        let indexed = byte & 0x40 != 0;
        let index = input.integer(if indexed { 6 } else { 4 })?;
        let name = if index == 0 {
            input.string(left)?
        } else {
            Cow::Borrowed(table.get(index)?.0)
        };
        let value = input.string(left)?;
        left = charge(left, &name, &value)?;
        field(&name, &value)?;
        if indexed {
            let entry = (Box::from(&*name), Box::from(&*value));
            table.insert(entry);
        }
    }
    Ok(())
}

fn charge(left: usize, name: &[u8], value: &[u8]) -> Result<usize, HpackError> {
    left.checked_sub(name.len() + value.len() + ENTRY_OVERHEAD)
        .ok_or(HpackError::TooLong)
}

/// Name and value.
type Entry = (Box<[u8]>, Box<[u8]>);

struct DynamicTable {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
}

impl DynamicTable {
    /// RFC 7541 §2.3.3: the static table is followed by the dynamic one.
    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some((name, value)) = STATIC_TABLE.get(index) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        self.entries
            .get(index - STATIC_TABLE.len())
            .map(|(name, value)| (&**name, &**value))
            .ok_or(HpackError::Index)
    }

    /// RFC 7541 §4.4: an entry larger than the table empties it.
    fn insert(&mut self, entry: Entry) {
        let size = entry.0.len() + entry.1.len() + ENTRY_OVERHEAD;
        self.evict(self.max.saturating_sub(size));
        if size <= self.max {
            self.size += size;
            self.entries.push_front(entry);
        }
    }

    fn resize(&mut self, max: usize) {
        self.max = max;
        self.evict(max);
    }

    fn evict(&mut self, until: usize) {
        while self.size > until {
            let Some((name, value)) = self.entries.pop_back() else {
                break;
            };
            self.size -= name.len() + value.len() + ENTRY_OVERHEAD;
        }
    }
}

struct Input<'b>(&'b [u8]);

impl<'b> Input<'b> {
    fn byte(&mut self) -> Result<u8, HpackError> {
        let (&byte, rest) = self.0.split_first().ok_or(HpackError::Truncated)?;
        self.0 = rest;
        Ok(byte)
    }

    /// RFC 7541 §5.1, with at most 4 bytes after the prefix: no length here needs more.
    fn integer(&mut self, prefix: u32) -> Result<usize, HpackError> {
        let mask = (1usize << prefix) - 1;
        let mut value = usize::from(self.byte()?) & mask;
        if value < mask {
            return Ok(value);
        }
        for shift in [0, 7, 14, 21] {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7F) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(HpackError::Integer)
    }

    /// RFC 7541 §5.2. `limit` bounds the decoded length.
    fn string(&mut self, limit: usize) -> Result<Cow<'b, [u8]>, HpackError> {
        let huffman = self.0.first().ok_or(HpackError::Truncated)? & 0x80 != 0;
        let length = self.integer(7)?;
        let (bytes, rest) = self
            .0
            .split_at_checked(length)
            .ok_or(HpackError::Truncated)?;
        self.0 = rest;
        if huffman {
            huffman::decode(bytes, limit).map(Cow::Owned)
        } else {
            Ok(Cow::Borrowed(bytes))
        }
    }
}
