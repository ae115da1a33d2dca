//! A world for tests: files and variables in memory, and an identity that touches no disk.
#![allow(dead_code, reason = "each test file uses its own part of it")]

use std::{
    cell::Cell,
    collections::HashMap,
    io,
    path::{Path, PathBuf},
};

use config::{
    Checked, Client, CommandLine, FileText, Id, Proxy, Role, Secret, Server, Surroundings,
    check_text,
    identity::{Identity, IdentityError},
    load,
};

#[derive(Default)]
pub(crate) struct World {
    pub(crate) files: HashMap<PathBuf, String>,
    pub(crate) world_readable: bool,
    pub(crate) variables: HashMap<String, String>,
    pub(crate) identities_asked: Cell<usize>,
}

impl World {
    pub(crate) fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.into(), text.into());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    pub(crate) fn server(&self, text: &str) -> Result<Server, String> {
        server(
            check_text(Path::new("etc/gt.yml"), text, Some(Role::Server), self)
                .map_err(|e| e.to_string())?,
        )
    }

    pub(crate) fn client(&self, text: &str) -> Result<Client, String> {
        client(
            check_text(Path::new("etc/gt.yml"), text, Some(Role::Client), self)
                .map_err(|e| e.to_string())?,
        )
    }

    pub(crate) fn proxy(&self, text: &str) -> Result<Proxy, String> {
        match check_text(Path::new("etc/gt.yml"), text, Some(Role::Proxy), self) {
            Ok(Checked::Proxy(proxy)) => Ok(*proxy),
            Ok(_) => Err("it is no proxy".into()),
            Err(errors) => Err(errors.to_string()),
        }
    }

    pub(crate) fn proxy_flags(&self, flags: &str) -> Result<Proxy, String> {
        match self.flags(Role::Proxy, flags)? {
            Checked::Proxy(proxy) => Ok(*proxy),
            _ => Err("it is no proxy".into()),
        }
    }

    pub(crate) fn server_flags(&self, flags: &str) -> Result<Server, String> {
        server(self.flags(Role::Server, flags)?)
    }

    pub(crate) fn client_flags(&self, flags: &str) -> Result<Client, String> {
        client(self.flags(Role::Client, flags)?)
    }

    pub(crate) fn flags(&self, role: Role, flags: &str) -> Result<Checked, String> {
        let line = CommandLine::parse(role, flags.split_whitespace().map(str::to_string))
            .map_err(|e| e.to_string())?;
        let mut checked = load(&line, self).map_err(|e| e.to_string())?;
        checked.pop().ok_or_else(|| "nothing loaded".into())
    }
}

fn server(checked: Checked) -> Result<Server, String> {
    match checked {
        Checked::Server(server) => Ok(*server),
        _ => Err("it is no server".into()),
    }
}

fn client(checked: Checked) -> Result<Client, String> {
    match checked {
        Checked::Client(client) => Ok(*client),
        _ => Err("it is no client".into()),
    }
}

impl Surroundings for World {
    fn env(&self, name: &str) -> Option<String> {
        self.variables.get(name).cloned()
    }

    fn read(&self, path: &Path) -> io::Result<FileText> {
        let text = self
            .files
            .get(path)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        Ok(FileText {
            text: text.clone(),
            world_readable: self.world_readable,
        })
    }

    fn identity(&self, path: Option<&Path>, id: Option<&Id>) -> Result<Identity, IdentityError> {
        self.identities_asked.set(self.identities_asked.get() + 1);
        let path_given = path.is_some();
        let id = id.cloned().unwrap_or(Id::new("kept").expect("an id"));
        let path = path
            .unwrap_or(Path::new("state/identity.yml"))
            .to_path_buf();
        Ok(Identity {
            id,
            secret: Secret::new("kept-secret").expect("a secret"),
            path,
            created: path_given,
            exposed: false,
        })
    }
}

/// Asserts that a result is an error whose text has all of `parts`.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T, String>, parts: &[&str]) {
    let text = result.expect_err("it should be refused");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
