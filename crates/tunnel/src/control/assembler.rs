//! Sets of services travel in parts: cutting them, and putting them together within bounds.

use std::collections::HashSet;

use thiserror::Error;

use super::{
    MAX_CIDRS_PER_SET, MAX_RULES_PER_SET, MAX_SERVICES, ServiceDecl, ServiceResult, Services,
    ServicesAnswer,
};
use crate::{ServiceId, error::DecodeError, tlv::FIELD_HEAD};

/// An item of a set: a declaration or a result.
pub trait SetItem: sealed::Sealed {
    /// The service it is about.
    fn id(&self) -> ServiceId;

    /// How many address ranges it has.
    #[doc(hidden)]
    fn cidrs(&self) -> usize {
        0
    }

    /// How long its rules are in bytes.
    #[doc(hidden)]
    fn rules(&self) -> usize {
        0
    }

    #[doc(hidden)]
    fn encode(&self) -> Result<Vec<u8>, DecodeError>;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::ServiceDecl {}
    impl Sealed for super::ServiceResult {}
}

/// Why parts do not make a set. The peer's fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum SetError {
    /// More items than a session may have.
    #[error("more than {MAX_SERVICES} services")]
    TooManyServices,
    /// More address ranges than a session may have.
    #[error("more than {MAX_CIDRS_PER_SET} address ranges")]
    TooManyRanges,
    /// Longer rules than a session may have.
    #[error("more than {MAX_RULES_PER_SET} bytes of rules")]
    TooManyRules,
    /// Two items of one id.
    #[error("service {0} comes twice")]
    DuplicateId(ServiceId),
    /// Not newer than the set before, or older than the one that is arriving.
    #[error("generation {got} after {last}")]
    OldGeneration {
        /// What came.
        got: u32,
        /// What was there.
        last: u32,
    },
}

/// Puts the parts of sets together. One per session and direction: generations count on when another link of the session carries
/// the next set. The parts of one set travel on one link, so that they arrive in order.
#[derive(Debug)]
pub struct Assembler<T> {
    /// The newest generation that is complete.
    complete: Option<u32>,
    arriving: Option<u32>,
    items: Vec<T>,
    ids: HashSet<ServiceId>,
    cidrs: usize,
    rules: usize,
}

impl<T> Default for Assembler<T> {
    fn default() -> Self {
        Self {
            complete: None,
            arriving: None,
            items: Vec::new(),
            ids: HashSet::new(),
            cidrs: 0,
            rules: 0,
        }
    }
}

impl Assembler<ServiceDecl> {
    /// Takes a part and gives `(generation, services)` once the set is whole. A newer generation drops an older one that is not.
    ///
    /// # Errors
    /// When the set breaks a bound; what had arrived of it is dropped. [`SetError::OldGeneration`] is no fault: the links of a session
    /// are not in order with one another, and nothing is dropped but the part.
    pub fn push(&mut self, part: Services) -> Result<Option<(u32, Vec<ServiceDecl>)>, SetError> {
        self.add(part.generation, part.more, part.services)
    }
}

impl Assembler<ServiceResult> {
    /// Takes a part and gives `(generation, results)` once the answer is whole. A newer generation drops an older one that is
    /// not.
    ///
    /// # Errors
    /// When the answer breaks a bound; what had arrived of it is dropped.
    pub fn push(
        &mut self,
        part: ServicesAnswer,
    ) -> Result<Option<(u32, Vec<ServiceResult>)>, SetError> {
        self.add(part.generation, part.more, part.results)
    }
}

impl<T: SetItem> Assembler<T> {
    fn add(
        &mut self,
        generation: u32,
        more: bool,
        items: Vec<T>,
    ) -> Result<Option<(u32, Vec<T>)>, SetError> {
        let result = self.collect(generation, items);
        // What is late on one link says nothing about the newer set that another link carries.
        if result.is_err() && !matches!(result, Err(SetError::OldGeneration { .. })) {
            self.clear();
        }
        result?;
        if more {
            return Ok(None);
        }
        self.complete = Some(generation);
        let items = std::mem::take(&mut self.items);
        self.clear();
        Ok(Some((generation, items)))
    }

    fn collect(&mut self, generation: u32, items: Vec<T>) -> Result<(), SetError> {
        if let Some(last) = self.complete.filter(|last| generation <= *last) {
            return Err(SetError::OldGeneration {
                got: generation,
                last,
            });
        }
        match self.arriving {
            Some(last) if generation < last => {
                return Err(SetError::OldGeneration {
                    got: generation,
                    last,
                });
            }
            Some(last) if generation == last => {}
            _ => self.clear(),
        }
        self.arriving = Some(generation);
        if self.items.len() + items.len() > MAX_SERVICES {
            return Err(SetError::TooManyServices);
        }
        for item in items {
            self.cidrs += item.cidrs();
            if self.cidrs > MAX_CIDRS_PER_SET {
                return Err(SetError::TooManyRanges);
            }
            self.rules += item.rules();
            if self.rules > MAX_RULES_PER_SET {
                return Err(SetError::TooManyRules);
            }
            if !self.ids.insert(item.id()) {
                return Err(SetError::DuplicateId(item.id()));
            }
            self.items.push(item);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.arriving = None;
        self.items = Vec::new();
        self.ids = HashSet::new();
        self.cidrs = 0;
        self.rules = 0;
    }
}

/// Cuts a set into parts whose messages stay under `limit` bytes; an empty set is one empty part.
pub(super) fn parts<T: SetItem>(
    items: Vec<T>,
    what: &'static str,
    limit: usize,
) -> Result<Vec<Vec<T>>, DecodeError> {
    /// Type, generation and `more`.
    const HEAD: usize = 1 + FIELD_HEAD + 4 + FIELD_HEAD;
    if items.len() > MAX_SERVICES {
        return Err(DecodeError::TooMany(what));
    }
    if items.iter().map(SetItem::cidrs).sum::<usize>() > MAX_CIDRS_PER_SET {
        return Err(DecodeError::TooMany("address ranges"));
    }
    if items.iter().map(SetItem::rules).sum::<usize>() > MAX_RULES_PER_SET {
        return Err(DecodeError::TooMany("rules"));
    }
    let (mut parts, mut part, mut size, mut ids) = (Vec::new(), Vec::new(), HEAD, HashSet::new());
    for item in items {
        if !ids.insert(item.id()) {
            return Err(DecodeError::Duplicate("id"));
        }
        let length = FIELD_HEAD + item.encode()?.len();
        if !part.is_empty() && size + length > limit {
            parts.push(std::mem::take(&mut part));
            size = HEAD;
        }
        size += length;
        part.push(item);
    }
    parts.push(part);
    Ok(parts)
}
