//! One thing about a ClientHello that rustls does not tell: whether it offers the extended master secret. Only for hellos that rustls has
//! understood; what cannot be read offers nothing.

/// Whether the hello in these TLS records, from the first byte of the connection on, has the extension (RFC 7627 §5.1).
pub(super) fn offers_extended_master_secret(records: &[u8]) -> bool {
    let hello = handshake(records);
    body(&hello).is_some_and(|mut extensions| {
        while let Some((kind, _)) = extension(&mut extensions) {
            if kind == EXTENDED_MASTER_SECRET {
                return true;
            }
        }
        false
    })
}

/// The handshake bytes of the records (RFC 8446 §5.1): a hello may span several.
fn handshake(mut records: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(([HANDSHAKE, _, _, high, low], rest)) = records.split_first_chunk() {
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        bytes.extend_from_slice(&rest[..length]);
        records = &rest[length..];
    }
    bytes
}

/// The extensions of a ClientHello (RFC 5246 §7.4.1.2).
fn body(hello: &[u8]) -> Option<&[u8]> {
    let ([CLIENT_HELLO, _, _, _], rest) = hello.split_first_chunk()? else {
        return None;
    };
    // Version and random.
    let mut rest = rest.get(2 + 32..)?;
    let session_id = usize::from(*rest.first()?);
    rest = rest.get(1 + session_id..)?;
    let suites = vector(&mut rest)?;
    let compressions = usize::from(*rest.first()?);
    rest = rest.get(1 + compressions..)?;
    (!suites.is_empty()).then_some(())?;
    vector(&mut rest)
}

fn extension<'a>(bytes: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let (kind, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some((u16::from_be_bytes(*kind), vector(bytes)?))
}

/// What stands behind a length of two bytes.
fn vector<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (content, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    *bytes = rest;
    Some(content)
}

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENDED_MASTER_SECRET: u16 = 23;
