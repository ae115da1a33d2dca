//! Fuzz checks of crate `config`: any text as a file of any role, and as flags. The outcome may be a configuration or
//! errors, never a panic; an error names at least one problem, and no text of a secret comes out.

use std::{io, path::Path};

use config::{
    CommandLine, FileText, Id, Role, Secret, Surroundings, check_text,
    identity::{Identity, IdentityError},
    load,
};

/// Runs one input; panics on a finding.
pub fn check(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for role in [
        None,
        Some(Role::Server),
        Some(Role::Client),
        Some(Role::Proxy),
    ] {
        told(check_text(Path::new("fuzz.yml"), &text, role, &Nowhere));
    }
    let words = text.split_whitespace().map(str::to_string);
    for role in [Role::Server, Role::Client, Role::Proxy] {
        // A file named by the input would be looked for on the disk.
        match CommandLine::parse(role, words.clone()) {
            Ok(line) if line.config.is_none() => told(load(&line, &Nowhere)),
            Ok(_) => {}
            Err(errors) => told::<()>(Err(errors)),
        }
    }
}

fn told<T: std::fmt::Debug>(result: Result<T, config::Errors>) {
    match result {
        Ok(checked) => {
            let shown = format!("{checked:?}");
            assert!(!shown.contains(MARK), "a secret is shown: {shown}");
        }
        Err(errors) => {
            assert!(!errors.problems().is_empty(), "an error without a problem");
            let shown = errors.to_string();
            assert!(!shown.contains(MARK), "a secret is shown: {shown}");
            assert!(
                !shown.contains(|c: char| c.is_control() && c != '\n'),
                "a control character is shown: {shown:?}"
            );
        }
    }
}

/// What the readable files and the kept identity hold; no message may repeat it.
const MARK: &str = "k3pt-s3cr3t";

struct Nowhere;

impl Surroundings for Nowhere {
    fn env(&self, name: &str) -> Option<String> {
        (name == "SECRET").then(|| "8080".to_string())
    }

    fn read(&self, path: &Path) -> io::Result<FileText> {
        match path.to_str() {
            Some("secret") => Ok(FileText {
                text: format!("{MARK}\n"),
                world_readable: true,
            }),
            Some("users.yml") => Ok(FileText {
                text: format!("a: {{secret: {MARK}}}\n"),
                world_readable: true,
            }),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn identity(&self, path: Option<&Path>, id: Option<&Id>) -> Result<Identity, IdentityError> {
        let path = path.unwrap_or(Path::new("identity.yml"));
        let malformed = |_| IdentityError::Malformed(path.into());
        let id = id
            .cloned()
            .map_or_else(|| Id::new("fuzz").map_err(malformed), Ok)?;
        let secret = Secret::new(MARK).map_err(malformed)?;
        Ok(Identity {
            id,
            secret,
            path: path.into(),
            created: true,
            exposed: false,
        })
    }
}
