//! Where visits go that no client serves.

pub(crate) mod inprocess;
