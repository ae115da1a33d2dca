//! What a peer's certificate says, in words for log lines and header fields.

use std::fmt::Write as _;

use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// The certificate of a peer, as it is told to others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The subject as RFC 4514 writes it: the most specific part first, `CN=ann,O=Example`. Printable ASCII only; everything else is escaped.
    pub subject: String,
    /// SHA-256 of the certificate (DER), 64 hexadecimal digits in lower case.
    pub fingerprint: String,
}

impl PeerCertificate {
    /// Reads a certificate in DER; `None` if it is none.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        let mut fingerprint = String::with_capacity(64);
        for byte in digest.as_ref() {
            // Writing to a String does not fail.
            let _ = write!(fingerprint, "{byte:02x}");
        }
        Some(Self {
            subject: subject(certificate.subject()),
            fingerprint,
        })
    }
}

/// RFC 4514 §2.1: the parts in reverse order.
fn subject(name: &X509Name<'_>) -> String {
    let parts: Vec<_> = name.iter_rdn().collect();
    let mut out = String::new();
    for (n, part) in parts.into_iter().rev().enumerate() {
        if n > 0 {
            out.push(',');
        }
        for (n, attribute) in part.iter().enumerate() {
            if n > 0 {
                out.push('+');
            }
            write_attribute(attribute, &mut out);
        }
    }
    out
}

fn write_attribute(attribute: &AttributeTypeAndValue<'_>, out: &mut String) {
    let kind = attribute.attr_type();
    match oid2abbrev(kind, oid_registry()) {
        Ok(short) => out.push_str(short),
        Err(_) => out.push_str(&kind.to_id_string()),
    }
    out.push('=');
    match attribute.as_str() {
        Ok(text) => escape(text, out),
        Err(_) => {
            out.push('#');
            for byte in attribute.as_slice() {
                let _ = write!(out, "{byte:02x}");
            }
        }
    }
}

/// RFC 4514 §2.4: nothing in a value may look like the next part of the name.
fn escape(text: &str, out: &mut String) {
    let last = text.len().saturating_sub(1);
    for (at, byte) in text.bytes().enumerate() {
        let special = matches!(byte, b'"' | b'+' | b',' | b';' | b'<' | b'>' | b'\\' | b'=');
        let edge = (byte == b' ' && (at == 0 || at == last)) || (byte == b'#' && at == 0);
        match byte {
            b' '..=b'~' if special || edge => {
                out.push('\\');
                out.push(char::from(byte));
            }
            b' '..=b'~' => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\{byte:02x}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_look_like_another_part_of_the_name() {
        let mut out = String::new();
        escape(" a,CN=root\\+\n\u{e9}# ", &mut out);
        assert_eq!(out, "\\ a\\,CN\\=root\\\\\\+\\0a\\c3\\a9#\\ ");
    }
}
