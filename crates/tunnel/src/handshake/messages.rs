//! The wire format of the handshake messages.

use std::time::Duration;

use super::types::{BindingKind, Features, Grant, TransportKind, VersionRange, Windows};
use crate::{
    ClientId, Name, SessionId,
    auth::{Nonce, Proof},
    error::DecodeError,
    reject::millis,
    tlv::{self, FIELD_HEAD, Fields},
};

pub(super) const HELLO: u8 = 1;
pub(super) const CHALLENGE: u8 = 2;
pub(super) const PROOF: u8 = 3;
pub(super) const ACCEPT: u8 = 4;
pub(super) const REJECT: u8 = 5;

/// Puts a head before fields.
pub(super) fn frame(kind: u8, fields: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(FIELD_HEAD + fields.len());
    // A message's head has the shape of a field's: one byte, then the length.
    tlv::put(&mut message, kind, fields);
    message
}

/// The client's first message.
#[derive(Debug, Clone)]
pub(super) struct Hello {
    pub(super) versions: VersionRange,
    pub(super) features: Features,
    pub(super) id: ClientId,
    pub(super) nonce: Nonce,
    pub(super) binding: BindingKind,
    pub(super) session: Option<SessionId>,
    pub(super) software: Name,
    pub(super) windows: Windows,
    pub(super) transport: TransportKind,
}

impl Hello {
    const MIN_VERSION: u8 = 1;
    const MAX_VERSION: u8 = 2;
    const FEATURES: u8 = 3;
    const ID: u8 = 4;
    const NONCE: u8 = 5;
    const BINDING: u8 = 6;
    const SESSION: u8 = 7;
    const SOFTWARE: u8 = 8;
    const STREAM_WINDOW: u8 = 9;
    const LINK_WINDOW: u8 = 10;
    const TRANSPORT: u8 = 11;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::put(
            &mut out,
            Self::MIN_VERSION,
            &self.versions.min.to_be_bytes(),
        );
        tlv::put(
            &mut out,
            Self::MAX_VERSION,
            &self.versions.max.to_be_bytes(),
        );
        tlv::put(&mut out, Self::FEATURES, &self.features.0.to_be_bytes());
        tlv::put(&mut out, Self::ID, self.id.as_str().as_bytes());
        tlv::put(&mut out, Self::NONCE, &self.nonce.0);
        tlv::put(&mut out, Self::BINDING, &[self.binding.into()]);
        tlv::put_option(
            &mut out,
            Self::SESSION,
            self.session.map(SessionId::to_bytes),
        );
        tlv::put_text(&mut out, Self::SOFTWARE, &self.software);
        tlv::put(
            &mut out,
            Self::STREAM_WINDOW,
            &self.windows.stream.to_be_bytes(),
        );
        tlv::put(
            &mut out,
            Self::LINK_WINDOW,
            &self.windows.link.to_be_bytes(),
        );
        tlv::put(&mut out, Self::TRANSPORT, &[self.transport.into()]);
        frame(HELLO, &out)
    }

    /// The two fields that every version has in this place, so that servers can refuse later versions politely.
    pub(super) fn versions(fields: Fields<'_>) -> Result<VersionRange, DecodeError> {
        let min = u16::from_be_bytes(fields.array(Self::MIN_VERSION, "min_version")?);
        let max = u16::from_be_bytes(fields.array(Self::MAX_VERSION, "max_version")?);
        if min > max {
            return Err(DecodeError::Invalid {
                field: "max_version",
                why: "below min_version",
            });
        }
        Ok(VersionRange { min, max })
    }

    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        let id = str(fields.once(Self::ID, "id")?, "id")?;
        let [binding] = fields.array(Self::BINDING, "binding")?;
        let [transport] = fields.array(Self::TRANSPORT, "transport")?;
        Ok(Self {
            versions: Self::versions(fields)?,
            features: Features(u64::from_be_bytes(
                fields.array(Self::FEATURES, "features")?,
            )),
            id: ClientId::new(id).map_err(DecodeError::invalid("id"))?,
            nonce: Nonce(fields.array(Self::NONCE, "client_nonce")?),
            binding: binding.into(),
            session: fields
                .optional_array(Self::SESSION, "session")?
                .map(SessionId::from_bytes),
            software: tlv::text(fields, Self::SOFTWARE, "software")?,
            windows: windows(fields, Self::STREAM_WINDOW, Self::LINK_WINDOW)?,
            transport: transport.into(),
        })
    }
}

/// The server's answer to Hello.
#[derive(Debug, Clone)]
pub(super) struct Challenge {
    pub(super) version: u16,
    pub(super) features: Features,
    pub(super) nonce: Nonce,
}

impl Challenge {
    const VERSION: u8 = 1;
    const FEATURES: u8 = 2;
    const NONCE: u8 = 3;

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::put(&mut out, Self::VERSION, &self.version.to_be_bytes());
        tlv::put(&mut out, Self::FEATURES, &self.features.0.to_be_bytes());
        tlv::put(&mut out, Self::NONCE, &self.nonce.0);
        frame(CHALLENGE, &out)
    }

    pub(super) fn decode(fields: Fields<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            version: u16::from_be_bytes(fields.array(Self::VERSION, "version")?),
            features: Features(u64::from_be_bytes(
                fields.array(Self::FEATURES, "features")?,
            )),
            nonce: Nonce(fields.array(Self::NONCE, "server_nonce")?),
        })
    }
}

const CLIENT_PROOF: u8 = 1;

pub(super) fn encode_proof(proof: &Proof) -> Vec<u8> {
    let mut out = Vec::new();
    tlv::put(&mut out, CLIENT_PROOF, proof.as_bytes());
    frame(PROOF, &out)
}

pub(super) fn decode_proof(fields: Fields<'_>) -> Result<Proof, DecodeError> {
    fields.array(CLIENT_PROOF, "proof").map(Proof::from_bytes)
}

/// The Accept message around its proof.
pub(super) struct Accept;

/// Bytes of the proof's field in Accept.
const PROOF_FIELD: usize = FIELD_HEAD + 32;

impl Accept {
    const SESSION: u8 = 1;
    const LINK_NUMBER: u8 = 2;
    const MAX_LINKS: u8 = 3;
    const KEEPALIVE: u8 = 4;
    const STREAM_WINDOW: u8 = 5;
    const LINK_WINDOW: u8 = 6;
    const MAX_STREAMS: u8 = 7;
    const NOTICE: u8 = 8;
    const PROOF: u8 = 9;
    const WANTED_LINKS: u8 = 10;

    /// `prove` gets the message up to its proof, with a length that already counts the proof.
    pub(super) fn encode(grant: &Grant, prove: Option<impl FnOnce(&[u8]) -> Proof>) -> Vec<u8> {
        let mut out = Vec::new();
        tlv::put(&mut out, Self::SESSION, &grant.session.to_bytes());
        tlv::put(
            &mut out,
            Self::LINK_NUMBER,
            &grant.link_number.to_be_bytes(),
        );
        tlv::put(&mut out, Self::MAX_LINKS, &grant.max_links.to_be_bytes());
        tlv::put(
            &mut out,
            Self::KEEPALIVE,
            &millis(grant.keepalive).to_be_bytes(),
        );
        tlv::put(
            &mut out,
            Self::STREAM_WINDOW,
            &grant.windows.stream.to_be_bytes(),
        );
        tlv::put(
            &mut out,
            Self::LINK_WINDOW,
            &grant.windows.link.to_be_bytes(),
        );
        tlv::put(
            &mut out,
            Self::MAX_STREAMS,
            &grant.max_streams.to_be_bytes(),
        );
        tlv::put_text(&mut out, Self::NOTICE, &grant.notice);
        tlv::put_option(
            &mut out,
            Self::WANTED_LINKS,
            grant.wanted_links.map(u16::to_be_bytes),
        );
        let Some(prove) = prove else {
            return frame(ACCEPT, &out);
        };
        out.resize(out.len() + PROOF_FIELD, 0);
        let mut message = frame(ACCEPT, &out);
        message.truncate(message.len() - PROOF_FIELD);
        let proof = prove(&message);
        tlv::put(&mut message, Self::PROOF, proof.as_bytes());
        message
    }

    pub(super) fn decode(fields: Fields<'_>) -> Result<Grant, DecodeError> {
        let max_links = u16::from_be_bytes(fields.array(Self::MAX_LINKS, "max_links")?);
        if max_links == 0 {
            return Err(DecodeError::Invalid {
                field: "max_links",
                why: "zero",
            });
        }
        let keepalive = u32::from_be_bytes(fields.array(Self::KEEPALIVE, "keepalive_ms")?);
        Ok(Grant {
            session: SessionId::from_bytes(fields.array(Self::SESSION, "session")?),
            link_number: u16::from_be_bytes(fields.array(Self::LINK_NUMBER, "link_number")?),
            max_links,
            wanted_links: fields
                .optional_array(Self::WANTED_LINKS, "wanted_links")?
                .map(u16::from_be_bytes),
            keepalive: Duration::from_millis(keepalive.into()),
            windows: windows(fields, Self::STREAM_WINDOW, Self::LINK_WINDOW)?,
            max_streams: u32::from_be_bytes(fields.array(Self::MAX_STREAMS, "max_streams")?),
            notice: tlv::text(fields, Self::NOTICE, "notice")?,
        })
    }

    /// Splits a received Accept into what the proof covers and the proof, which has to be the last field.
    pub(super) fn split_proof<'a>(
        raw: &'a [u8],
        fields: Fields<'_>,
    ) -> Result<Option<(&'a [u8], Proof)>, DecodeError> {
        let Some(proof) = fields.optional_array(Self::PROOF, "server_proof")? else {
            return Ok(None);
        };
        if fields
            .iter()
            .last()
            .is_none_or(|(tag, _)| tag != Self::PROOF)
        {
            return Err(DecodeError::Invalid {
                field: "server_proof",
                why: "not the last field",
            });
        }
        Ok(Some((
            &raw[..raw.len() - PROOF_FIELD],
            Proof::from_bytes(proof),
        )))
    }
}

fn windows(fields: Fields<'_>, stream: u8, link: u8) -> Result<Windows, DecodeError> {
    let windows = Windows {
        stream: u32::from_be_bytes(fields.array(stream, "stream_window")?),
        link: u32::from_be_bytes(fields.array(link, "link_window")?),
    };
    // A window of zero would be a link that never carries a byte.
    if windows.stream == 0 || windows.link == 0 {
        return Err(DecodeError::Invalid {
            field: "stream_window or link_window",
            why: "zero",
        });
    }
    Ok(windows)
}

pub(super) fn str<'a>(value: &'a [u8], field: &'static str) -> Result<&'a str, DecodeError> {
    std::str::from_utf8(value).map_err(|_| DecodeError::Invalid {
        field,
        why: "not UTF-8",
    })
}
