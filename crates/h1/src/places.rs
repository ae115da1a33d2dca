//! Where the fields of a head are. Each line is added as it was found good, or taken over from the head before, where it stood in the same place;
//! a head that is the same as the one before is not read at all.
//! What Connection says of them is marked; what they mean is left to the heads and to [`Fields`].

use std::ops::Range;

use crate::{
    fields::{Field, Fields, Known},
    lines::Limits,
    token::{is_token, list, trim},
};

/// The places of all fields; kept from message to message.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) list: Vec<Place>,
    /// One bit per [`Known`]: what was there, and what was there more than once.
    seen: u32,
    repeated: u32,
    /// Where in the list the first of each kind is; of those that were seen.
    first: [u32; Known::COUNT],
    /// The head before this one.
    before: Before,
}

/// A head that was read, because the next one will be much like it: a line that stands again where it stood is compared, not read.
#[derive(Debug, Default)]
struct Before {
    list: Vec<Place>,
    /// What it was read from; empty if it was not kept.
    bytes: Vec<u8>,
    /// The fields of the head that is read now have been the same so far.
    same: bool,
    /// More than one head is read here.
    again: bool,
    /// What was found of it has not been forgotten, here and by whoever has these places.
    found: bool,
}

impl Places {
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.seen = 0;
        self.repeated = 0;
        self.before.same = true;
        self.before.found = false;
    }

    /// Another head follows.
    pub(crate) fn go_on(&mut self) {
        self.before.again = true;
    }

    /// The length of the head that `bytes` begin with, if that is the one before, all that was found of it is still here, and these limits allow
    /// its length and its fields. All that reading it would find follows from its bytes.
    pub(crate) fn again(&self, bytes: &[u8], limits: &Limits) -> Option<usize> {
        let Before { bytes: kept, .. } = &self.before;
        let same = self.before.found
            && bytes.starts_with(kept)
            && kept.len() <= limits.most()
            && self.list.len() <= limits.fields;
        same.then_some(kept.len())
    }

    /// The head is complete and good: the next one will be compared with it.
    pub(crate) fn remember(&mut self, bytes: &[u8]) {
        let Before {
            list,
            bytes: kept,
            same,
            again,
            found,
        } = &mut self.before;
        if !*again {
            return;
        }
        let lines_are_kept = *same && list.len() == self.list.len() && kept.len() == bytes.len();
        if lines_are_kept {
            let start = list
                .first()
                .map_or(bytes.len(), |place| place.start as usize);
            kept[..start].copy_from_slice(&bytes[..start]);
            *found = true;
            return;
        }
        kept.clear();
        list.clear();
        if bytes.len() <= MOST_KEPT {
            kept.extend_from_slice(bytes);
            list.extend_from_slice(&self.list);
            *found = true;
        }
    }

    /// Takes the line that begins at `start` over from the head before, if it stood there in the same place among the others; where it ends with its
    /// CRLF. All that is known of a line follows from its bytes up to there, and they are the same.
    pub(crate) fn add_again(&mut self, bytes: &[u8], start: usize) -> Option<usize> {
        let Before {
            list,
            bytes: kept,
            same,
            ..
        } = &mut self.before;
        let again = list.get(self.list.len()).and_then(|place| {
            let line = kept.get(place.line()?)?;
            bytes.get(start..)?.starts_with(line).then_some(*place)
        });
        let Some(place) = again else {
            *same = false;
            return None;
        };
        // Where it stood before does not matter, but for what is remembered.
        *same &= place.start as usize == start;
        let end = start + place.name_len as usize + 2 + place.value_len as usize + 2;
        self.push(Place {
            start: start as u32,
            value: (start + place.name_len as usize + 2) as u32,
            dropped: false,
            ..place
        });
        Some(end)
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Gives back room beyond what a usual message needs.
    pub(crate) fn shrink(&mut self) {
        self.list.shrink_to(USUAL_FIELDS);
        self.before = Before::default();
    }

    /// A line that was found good: its name begins at `start`, and its value ends at `end`.
    pub(crate) fn add(&mut self, bytes: &[u8], start: usize, colon: usize, end: usize) {
        let known = Known::of(&bytes[start..colon]);
        let raw = &bytes[colon + 1..end];
        let (skipped, value) = match raw {
            // One space in front and none behind is what nearly everybody sends.
            [b' ', value @ ..] if is_bare(value) => (1, value),
            raw => {
                // Behind the white space that `trim` took from the front; an empty value is at the end of it.
                let white = raw.iter().take_while(|byte| is_white(**byte));
                (white.count(), trim(raw))
            }
        };
        // All of it fits: see `Limits::most`.
        self.push(Place {
            start: start as u32,
            name_len: (colon - start) as u32,
            value: (colon + 1 + skipped) as u32,
            value_len: value.len() as u32,
            known,
            dropped: false,
            canonical: skipped == 1 && raw[0] == b' ' && value.len() + 1 == raw.len(),
        });
    }

    fn push(&mut self, place: Place) {
        let known = place.known;
        if self.seen & known.bit() == 0 {
            self.seen |= known.bit();
            self.first[known as usize] = self.list.len() as u32;
        } else {
            self.repeated |= known.bit();
        }
        self.list.push(place);
    }

    pub(crate) fn has(&self, known: Known) -> bool {
        self.seen & known.bit() != 0
    }

    pub(crate) fn has_several(&self, known: Known) -> bool {
        self.repeated & known.bit() != 0
    }

    /// The value of the first field of a kind; costs nothing if there is none.
    pub(crate) fn value<'b>(&self, known: Known, bytes: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has(known) {
            return None;
        }
        let place = self.list.get(self.first[known as usize] as usize)?;
        Some(place.value(bytes))
    }

    /// The line of the first field of a kind with its CRLF, if it begins with these bytes and is as it would be written anew.
    pub(crate) fn line<'b>(&self, known: Known, start: &[u8], bytes: &'b [u8]) -> Option<&'b [u8]> {
        if !self.has(known) {
            return None;
        }
        let place = self.list.get(self.first[known as usize] as usize)?;
        let line = &bytes[place.line()?];
        line.starts_with(start).then_some(line)
    }

    /// Where the line of the first field ends with its CRLF, if it begins with these bytes and is as it would be written anew.
    pub(crate) fn first_line_end(&self, start: &[u8], bytes: &[u8]) -> Option<usize> {
        let line = self.list.first()?.line()?;
        bytes[line.clone()].starts_with(start).then_some(line.end)
    }

    pub(crate) fn view<'b>(&'b self, bytes: &'b [u8]) -> Fields<'b> {
        Fields::new(self, bytes)
    }

    /// Marks the fields that Connection names. `Err` if it names what the message cannot do without, or has too many names.
    pub(crate) fn apply_connection(&mut self, bytes: &[u8]) -> Result<Connection, ()> {
        let mut found = Connection::default();
        let Some(value) = self.value(Known::Connection, bytes) else {
            return Ok(found);
        };
        // Two words on their own are what nearly everybody sends.
        if !self.has_several(Known::Connection) {
            found.keep_alive = value == b"keep-alive";
            found.close = value == b"close";
            if found.keep_alive || found.close {
                return Ok(found);
            }
        }
        let mut names = 0;
        for index in 0..self.list.len() {
            let place = self.list[index];
            if place.known != Known::Connection {
                continue;
            }
            for name in list(place.value(bytes)) {
                names += 1;
                if names > MOST_NAMES || !is_token(name) {
                    return Err(());
                }
                if name.eq_ignore_ascii_case(b"close") {
                    found.close = true;
                } else if name.eq_ignore_ascii_case(b"keep-alive") {
                    found.keep_alive = true;
                } else if name.eq_ignore_ascii_case(b"upgrade") {
                    found.upgrade = true;
                } else {
                    self.drop_named(name, bytes)?;
                }
            }
        }
        Ok(found)
    }

    fn drop_named(&mut self, name: &[u8], bytes: &[u8]) -> Result<(), ()> {
        if matches!(
            Known::of(name),
            Known::Host | Known::ContentLength | Known::TransferEncoding
        ) {
            return Err(());
        }
        for place in &mut self.list {
            if place.name(bytes).eq_ignore_ascii_case(name) {
                place.dropped = true;
            }
        }
        Ok(())
    }
}

/// What Connection said.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connection {
    pub(crate) close: bool,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

impl Place {
    pub(crate) fn name<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.start as usize;
        &bytes[start..start + self.name_len as usize]
    }

    pub(crate) fn value<'b>(&self, bytes: &'b [u8]) -> &'b [u8] {
        let start = self.value as usize;
        &bytes[start..start + self.value_len as usize]
    }

    /// The line with its CRLF, if it is as it would be written anew.
    pub(crate) fn line(&self) -> Option<Range<usize>> {
        let end = (self.value + self.value_len) as usize + 2;
        self.canonical.then_some(self.start as usize..end)
    }

    pub(crate) fn travels(&self) -> bool {
        !self.dropped && !self.known.is_own()
    }

    pub(crate) fn field<'b>(&self, bytes: &'b [u8]) -> Field<'b> {
        Field {
            name: self.name(bytes),
            value: self.value(bytes),
            known: self.known,
        }
    }
}

/// Where a field is in the head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    start: u32,
    name_len: u32,
    value: u32,
    value_len: u32,
    pub(crate) known: Known,
    /// Named by Connection.
    dropped: bool,
    /// `name: value`, as it would be written.
    canonical: bool,
}

fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Not empty, and without white space at its ends.
fn is_bare(value: &[u8]) -> bool {
    match value {
        [one] => !is_white(*one),
        [first, .., last] => !is_white(*first) && !is_white(*last),
        [] => false,
    }
}

/// Names in all Connection fields together: each is compared with every field.
const MOST_NAMES: usize = 32;
/// A longer head is not kept to be compared with: it is rarely sent again, and each exchange under way has room for two.
const MOST_KEPT: usize = 2 << 10;
/// What most messages do with.
const USUAL_FIELDS: usize = 16;
