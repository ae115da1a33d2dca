//! What a service asks to be done to its requests, checked: changes of fields, and who may come.

use route::{BasicAuth, BuildError, CredentialError, HeaderEdits, PasswordHash};
use tunnel::{AuthRules, FieldRules, HttpRules};

/// The rules of one service.
#[derive(Debug)]
pub struct ServiceRules {
    pub(crate) request: HeaderEdits,
    pub(crate) response: HeaderEdits,
    pub(crate) auth: Option<BasicAuth>,
}

/// Why rules are not accepted: the client's fault.
#[derive(Debug, thiserror::Error)]
pub enum BadRules {
    /// A field that may not be changed, or a value that cannot be sent.
    #[error("`headers`: the field {0}")]
    Fields(#[from] BuildError),
    /// What is not a name or a password.
    #[error("`basicAuth`: what was given {0}")]
    Users(#[from] CredentialError),
    /// A password that is no hash, or a hash that is too costly.
    #[error("`basicAuth`: passwords are bcrypt hashes of cost {MAX_COST} at most")]
    Cost,
}

impl ServiceRules {
    /// Checks what a client has declared; `None` if that is nothing.
    ///
    /// # Errors
    /// [`BadRules`].
    pub fn new(declared: &HttpRules) -> Result<Option<Self>, BadRules> {
        if declared.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self {
            request: edits(&declared.request)?,
            response: edits(&declared.response)?,
            auth: declared.auth.as_ref().map(auth).transpose()?,
        }))
    }
}

fn edits(rules: &FieldRules) -> Result<HeaderEdits, BuildError> {
    let pairs = |pairs: &'_ [(Box<str>, Box<str>)]| -> Vec<(String, String)> {
        let pair = |(name, value): &(Box<str>, Box<str>)| (name.to_string(), value.to_string());
        pairs.iter().map(pair).collect()
    };
    let (set, add) = (pairs(&rules.set), pairs(&rules.add));
    HeaderEdits::new(
        set.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
        add.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
        rules.remove.iter().map(AsRef::as_ref),
    )
}

fn auth(rules: &AuthRules) -> Result<BasicAuth, BadRules> {
    let mut users = Vec::with_capacity(rules.users.len());
    for (name, hash) in &rules.users {
        let hash = PasswordHash::new(hash)?;
        if hash.cost().is_none_or(|cost| cost > MAX_COST) {
            return Err(BadRules::Cost);
        }
        users.push((name.to_string(), hash));
    }
    let auth = BasicAuth::new(&rules.realm, users)?;
    Ok(match &rules.user_header {
        Some(name) => auth.with_user_header(name)?,
        None => auth,
    })
}

/// One client's passwords are checked by the threads that check all others' too.
const MAX_COST: u32 = 12;
