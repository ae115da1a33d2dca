//! What a server does to the requests of a service in HTTP mode: changes of header fields, and who may come.
//!
//! Passwords travel as bcrypt hashes only: a client makes them before it declares the service. What a value means (placeholders, hashes)
//! is the server's to check; here are only the bounds.

use crate::{
    error::DecodeError,
    tlv::{self, Fields},
};

/// Longest rules of one service, in bytes as they travel.
pub const MAX_RULES: usize = 8 * 1024;

/// The rules of all services of a session together.
pub const MAX_RULES_PER_SET: usize = 256 * 1024;

/// How many users a service may have.
pub const MAX_RULE_USERS: usize = 100;

/// How many changes of one kind a service may ask for.
pub const MAX_RULE_FIELDS: usize = 64;

/// A name and a value.
type Pair = (Box<str>, Box<str>);

/// Rules for requests to a service, and for answers from it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpRules {
    /// Changes to the fields of requests.
    pub request: FieldRules,
    /// Changes to the fields of answers.
    pub response: FieldRules,
    /// Visitors have to give a name and a password.
    pub auth: Option<AuthRules>,
}

/// Changes to header fields: names and values.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldRules {
    /// In place of those of the same name.
    pub set: Vec<(Box<str>, Box<str>)>,
    /// Besides those of the same name.
    pub add: Vec<(Box<str>, Box<str>)>,
    /// Left out.
    pub remove: Vec<Box<str>>,
}

/// Who may come.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct AuthRules {
    /// What browsers show.
    pub realm: Box<str>,
    /// Names and bcrypt hashes.
    pub users: Vec<(Box<str>, Box<str>)>,
    /// The field in which the service is told the user's name.
    pub user_header: Option<Box<str>>,
}

impl std::fmt::Debug for AuthRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthRules({:?}, {} users)", self.realm, self.users.len())
    }
}

impl HttpRules {
    const REQUEST_SET: u8 = 1;
    const REQUEST_ADD: u8 = 2;
    const REQUEST_REMOVE: u8 = 3;
    const RESPONSE_SET: u8 = 4;
    const RESPONSE_ADD: u8 = 5;
    const RESPONSE_REMOVE: u8 = 6;
    const REALM: u8 = 7;
    const USER: u8 = 8;
    const USER_HEADER: u8 = 9;

    /// Nothing is asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The length as they travel.
    pub(super) fn length(&self) -> usize {
        self.put().len()
    }

    /// # Errors
    /// When a bound is passed, or a name holds what divides it from its value.
    pub(super) fn encode(&self) -> Result<Vec<u8>, DecodeError> {
        let out = self.put();
        // What the other end would not read is not sent.
        match Self::decode(&out)? == *self {
            true => Ok(out),
            false => Err(invalid("a name with a colon")),
        }
    }

    fn put(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let directions = [
            (&self.request, Self::REQUEST_SET),
            (&self.response, Self::RESPONSE_SET),
        ];
        for (rules, first) in directions {
            put_pairs(&mut out, first, &rules.set);
            put_pairs(&mut out, first + 1, &rules.add);
            for name in &rules.remove {
                tlv::put(&mut out, first + 2, name.as_bytes());
            }
        }
        if let Some(auth) = &self.auth {
            tlv::put(&mut out, Self::REALM, auth.realm.as_bytes());
            put_pairs(&mut out, Self::USER, &auth.users);
            let header = auth.user_header.as_deref().map(str::as_bytes);
            tlv::put_option(&mut out, Self::USER_HEADER, header);
        }
        out
    }

    pub(super) fn decode(value: &[u8]) -> Result<Self, DecodeError> {
        if value.len() > MAX_RULES {
            return Err(invalid("too long"));
        }
        let fields = Fields::parse(value)?;
        let direction = |first: u8| -> Result<FieldRules, DecodeError> {
            Ok(FieldRules {
                set: pairs(fields, first, MAX_RULE_FIELDS)?,
                add: pairs(fields, first + 1, MAX_RULE_FIELDS)?,
                remove: texts(fields, first + 2, MAX_RULE_FIELDS)?,
            })
        };
        debug_assert_eq!(
            (
                Self::REQUEST_ADD,
                Self::REQUEST_REMOVE,
                Self::RESPONSE_ADD,
                Self::RESPONSE_REMOVE
            ),
            (2, 3, 5, 6)
        );
        let realm = fields.optional(Self::REALM, "realm")?;
        let users = pairs(fields, Self::USER, MAX_RULE_USERS)?;
        let user_header = fields.optional(Self::USER_HEADER, "user_header")?;
        let auth = match realm {
            // Users without it would be a password that nobody asks for.
            None if !users.is_empty() || user_header.is_some() => {
                return Err(invalid("users without a realm"));
            }
            None => None,
            Some(_) if users.is_empty() => return Err(invalid("nobody may come")),
            Some(realm) => Some(AuthRules {
                realm: text(realm)?.into(),
                users,
                user_header: user_header.map(text).transpose()?.map(Into::into),
            }),
        };
        Ok(Self {
            request: direction(Self::REQUEST_SET)?,
            response: direction(Self::RESPONSE_SET)?,
            auth,
        })
    }
}

/// Neither a field's name nor a user's may hold a colon (RFC 9110 §5.1, RFC 7617 §2).
fn put_pairs(out: &mut Vec<u8>, tag: u8, pairs: &[(Box<str>, Box<str>)]) {
    for (name, value) in pairs {
        tlv::put(out, tag, format!("{name}:{value}").as_bytes());
    }
}

fn pairs(fields: Fields<'_>, tag: u8, most: usize) -> Result<Vec<Pair>, DecodeError> {
    let pair = |text: Box<str>| {
        let (name, value) = text
            .split_once(':')
            .ok_or_else(|| invalid("a name without a value"))?;
        Ok((name.into(), value.into()))
    };
    texts(fields, tag, most)?.into_iter().map(pair).collect()
}

fn texts(fields: Fields<'_>, tag: u8, most: usize) -> Result<Vec<Box<str>>, DecodeError> {
    if fields.all(tag).count() > most {
        return Err(DecodeError::TooMany("rules"));
    }
    fields
        .all(tag)
        .map(|value| Ok(text(value)?.into()))
        .collect()
}

fn text(value: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(value).map_err(|_| invalid("not UTF-8"))
}

fn invalid(why: &'static str) -> DecodeError {
    DecodeError::Invalid {
        field: "rules",
        why,
    }
}
