//! From a file and a command line to checked types: reads the file, sees what it configures, lays the flags over it, checks.

use std::{
    fmt, fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{
    check::{Check, check_client, check_proxy, check_server},
    checked::{Client, Id, Proxy, Server},
    flags::CommandLine,
    identity::{self, Identity, IdentityError},
    options::{CLIENT, CLIENT_OPTIONS, PROXY_FILE, PROXY_OPTIONS, SERVER, SERVER_OPTIONS},
    problem::{Errors, Findings, Problem},
    section::Section,
    source::{Place, Source},
    tree::{Node, Value},
    yaml,
};

/// What a configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// `gt server`.
    Server,
    /// `gt client`.
    Client,
    /// `gt proxy`.
    Proxy,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Proxy => "proxy",
        })
    }
}

/// A checked configuration of any role.
#[derive(Debug, Clone)]
pub enum Checked {
    /// A server.
    Server(Box<Server>),
    /// A client.
    Client(Box<Client>),
    /// A reverse proxy.
    Proxy(Box<Proxy>),
}

impl Checked {
    /// What the user should know.
    pub fn warnings(&self) -> &[crate::Warning] {
        match self {
            Self::Server(server) => &server.warnings,
            Self::Client(client) => &client.warnings,
            Self::Proxy(proxy) => &proxy.warnings,
        }
    }
}

/// What a check needs of the world. [`System`] is the real one.
pub trait Surroundings {
    /// An environment variable.
    fn env(&self, name: &str) -> Option<String>;

    /// A text file of at most 10 MiB.
    ///
    /// # Errors
    /// What the system says, `InvalidData` for text that is not UTF-8, `FileTooLarge`.
    fn read(&self, path: &Path) -> io::Result<FileText>;

    /// The kept identity of a client that has no secret in its configuration: at `path` or the default place, and for `id`
    /// where it is given.
    ///
    /// # Errors
    /// [`IdentityError`].
    fn identity(&self, path: Option<&Path>, id: Option<&Id>) -> Result<Identity, IdentityError>;
}

/// A file that was read.
#[derive(Clone)]
pub struct FileText {
    /// Its text.
    pub text: String,
    /// Every user of the machine can read it.
    pub world_readable: bool,
}

impl fmt::Debug for FileText {
    /// Its size: the text may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileText({} bytes)", self.text.len())
    }
}

/// The machine gt runs on.
#[derive(Debug, Clone, Copy)]
pub struct System {
    /// Make an identity where there is none; a check alone must not.
    pub create_identity: bool,
}

impl Surroundings for System {
    fn env(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn read(&self, path: &Path) -> io::Result<FileText> {
        let metadata = fs::metadata(path)?;
        // A pipe (`<(…)`, /dev/stdin) has no length; reading is bounded all the same.
        let mut bytes = Vec::new();
        let limit = yaml::MAX_BYTES as u64 + 1;
        io::Read::read_to_end(
            &mut io::Read::take(fs::File::open(path)?, limit),
            &mut bytes,
        )?;
        if bytes.len() > yaml::MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                "it is larger than 10 MiB",
            ));
        }
        let text = String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))?;
        let world_readable = metadata.is_file() && metadata.permissions().mode() & 0o004 != 0;
        Ok(FileText {
            text,
            world_readable,
        })
    }

    fn identity(&self, path: Option<&Path>, id: Option<&Id>) -> Result<Identity, IdentityError> {
        let path = match path {
            Some(path) => path.to_path_buf(),
            None => identity::default_path(&|name| self.env(name))?,
        };
        if self.create_identity {
            return identity::load_or_create(&path, id, &mut |bytes| {
                rand::Rng::fill(&mut rand::rng(), bytes)
            });
        }
        identity::load_or_stand_in(&path, id)
    }
}

/// Loads what a command line asks for: its flags, over its file if it names one. A folder gives all its `*.yml` and `*.yaml`
/// files of the command's role, sorted by path, and takes no other flags.
///
/// # Errors
/// [`Errors`] with everything that is wrong, of all files.
pub fn load(line: &CommandLine, surroundings: &dyn Surroundings) -> Result<Vec<Checked>, Errors> {
    match &line.config {
        Some(path) if path.is_dir() => {
            if line.has_options() {
                let problem = Problem::new(
                    line.place(),
                    "-c names a folder, so other flags cannot be given",
                );
                return Err(Errors::one(
                    problem.help("name one file, or write the options into the files"),
                ));
            }
            Ok(without_paths(load_folder(
                path,
                Some(line.role),
                surroundings,
            )?))
        }
        Some(path) => load_file(path, Some(line), surroundings).map(|checked| vec![checked]),
        None => {
            let mut findings = Findings::default();
            let options = line.options(&mut findings);
            let empty = Section::empty(top_table(line.role), line.place());
            let base = Section::empty(options_table(line.role), line.place());
            let check = Check {
                surroundings,
                findings,
            };
            check_role(check, line.role, &empty, base, options, line.services())
                .map(|checked| vec![checked])
        }
    }
}

/// Loads a file, or all files of a folder, whatever they configure: what `gt config check` does.
///
/// # Errors
/// [`Errors`] with everything that is wrong.
pub fn load_path(path: &Path, surroundings: &dyn Surroundings) -> Result<Vec<Checked>, Errors> {
    if path.is_dir() {
        Ok(without_paths(load_folder(path, None, surroundings)?))
    } else {
        load_file(path, None, surroundings).map(|checked| vec![checked])
    }
}

/// Checks a text as if it were the file `name`; `role` is what the command says, if it says it.
///
/// # Errors
/// [`Errors`] with everything that is wrong.
pub fn check_text(
    name: &Path,
    text: &str,
    role: Option<Role>,
    surroundings: &dyn Surroundings,
) -> Result<Checked, Errors> {
    let line = role.map(CommandLine::empty);
    let file = FileText {
        text: text.into(),
        world_readable: false,
    };
    check_file(name, &file, line.as_ref(), surroundings)
}

/// All `*.yml` and `*.yaml` files of a folder, three levels deep, with their paths; only those of one role if it is given.
///
/// # Errors
/// [`Errors`] with everything that is wrong, of all files.
pub fn load_folder(
    folder: &Path,
    role: Option<Role>,
    surroundings: &dyn Surroundings,
) -> Result<Vec<(PathBuf, Checked)>, Errors> {
    let whole = Place::whole(&Source::file(folder, ""));
    let mut paths = Vec::new();
    if let Err(error) = find_files(folder, MAX_DEPTH, &mut paths) {
        return Err(Errors::one(Problem::new(
            &whole,
            format!("the folder cannot be read: {error}"),
        )));
    }
    paths.sort();
    let mut loaded = Vec::new();
    let mut errors: Option<Errors> = None;
    for path in paths {
        let result = match role {
            None => load_file(&path, None, surroundings).map(Some),
            Some(role) => load_file_of(&path, role, surroundings),
        };
        match result {
            Ok(checked) => loaded.extend(checked.map(|checked| (path, checked))),
            Err(more) => match &mut errors {
                Some(errors) => errors.append(more),
                None => errors = Some(more),
            },
        }
    }
    match errors {
        Some(errors) => Err(errors),
        None if loaded.is_empty() => {
            let what = role.map_or_else(
                || "a server, client or proxy".into(),
                |role| format!("a {role}"),
            );
            let problem = Problem::new(&whole, format!("no file in this folder configures {what}"));
            Err(Errors::one(problem.help(
                "files end in .yml or .yaml and say `type: server`, `type: client` or `type: proxy`",
            )))
        }
        None => Ok(loaded),
    }
}

fn without_paths(loaded: Vec<(PathBuf, Checked)>) -> Vec<Checked> {
    loaded.into_iter().map(|(_, checked)| checked).collect()
}

/// Levels of folders below the named one that are looked into.
const MAX_DEPTH: u32 = 3;

fn find_files(folder: &Path, depth: u32, paths: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Editors and Kubernetes keep hidden copies beside the files.
        let hidden = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        let yaml = path
            .extension()
            .is_some_and(|extension| extension == "yml" || extension == "yaml");
        if hidden {
            continue;
        } else if path.is_dir() && depth > 1 {
            find_files(&path, depth - 1, paths)?;
        } else if yaml && path.is_file() {
            paths.push(path);
        }
    }
    Ok(())
}

/// Loads a file unless it says that it is of the other role.
fn load_file_of(
    path: &Path,
    role: Role,
    surroundings: &dyn Surroundings,
) -> Result<Option<Checked>, Errors> {
    let file = read(path, surroundings)?;
    let mut ignored = Findings::default();
    let tree = yaml::parse(
        &Source::file(path, &file.text),
        &file.text,
        &|name| surroundings.env(name),
        &mut ignored,
    );
    match tree.as_ref().and_then(role_of) {
        Some(other) if other != role => Ok(None),
        _ => check_file(path, &file, Some(&CommandLine::empty(role)), surroundings).map(Some),
    }
}

fn load_file(
    path: &Path,
    line: Option<&CommandLine>,
    surroundings: &dyn Surroundings,
) -> Result<Checked, Errors> {
    check_file(path, &read(path, surroundings)?, line, surroundings)
}

fn read(path: &Path, surroundings: &dyn Surroundings) -> Result<FileText, Errors> {
    surroundings.read(path).map_err(|error| {
        let place = Place::whole(&Source::file(path, ""));
        Errors::one(Problem::new(
            &place,
            format!("the file cannot be read: {error}"),
        ))
    })
}

fn check_file(
    path: &Path,
    file: &FileText,
    line: Option<&CommandLine>,
    surroundings: &dyn Surroundings,
) -> Result<Checked, Errors> {
    let source = Source::file(path, &file.text);
    let whole = Place::whole(&source);
    let mut findings = Findings::default();
    let Some(tree) = yaml::parse(
        &source,
        &file.text,
        &|name| surroundings.env(name),
        &mut findings,
    ) else {
        findings.finish()?;
        return Err(Errors::one(Problem::new(&whole, "the file does not parse")));
    };
    if file.world_readable && crate::check::holds_secret(&tree) {
        findings.warn(Some(&whole), crate::check::WORLD_READABLE);
    }
    let role = match (line.map(|line| line.role), role_of(&tree)) {
        (Some(role), None) => role,
        (None, Some(role)) => role,
        (Some(role), Some(said)) if role == said => role,
        (Some(role), Some(said)) => {
            let place = tree.get("type").map_or(&whole, |node| &node.place);
            let problem = Problem::new(
                place,
                format!("the file configures a {said}, but the command is gt {role}"),
            );
            return Err(Errors::one(
                problem.help(format!("use gt {said}, or another file")),
            ));
        }
        (None, None) => guess_role(&tree),
    };
    let mut top = Section::read(top_table(role), &tree, &mut findings);
    // The place of what is missing: the file, not its first line.
    top.place = whole.clone();
    // A wrong word in `type` is reported; the right ones were looked at above.
    let _ = top.choice("type", &mut findings);
    let options = match top.node("options") {
        Some(node) => Section::read(options_table(role), node, &mut findings),
        None => Section::empty(options_table(role), &whole),
    };
    let flags = match line {
        Some(line) => line.options(&mut findings),
        None => Section::empty(options_table(role), &whole),
    };
    let services = match line.map(CommandLine::services) {
        Some(services) if !services.is_empty() => services,
        _ if role == Role::Client => top.nodes("services").into_iter().cloned().collect(),
        _ => Vec::new(),
    };
    check_role(
        Check {
            surroundings,
            findings,
        },
        role,
        &top,
        options,
        flags,
        services,
    )
}

fn check_role(
    check: Check<'_>,
    role: Role,
    top: &Section,
    options: Section,
    flags: Section,
    services: Vec<Node>,
) -> Result<Checked, Errors> {
    match role {
        Role::Server => {
            check_server(check, top, options, flags).map(|server| Checked::Server(Box::new(server)))
        }
        Role::Client => {
            let options = merge_identity(options, flags);
            check_client(check, &options, &services).map(|client| Checked::Client(Box::new(client)))
        }
        Role::Proxy => {
            let options = options.overlay(flags);
            check_proxy(check, top, &options).map(|proxy| Checked::Proxy(Box::new(proxy)))
        }
    }
}

/// Flags over the file. A secret given in one form replaces the other form.
fn merge_identity(mut options: Section, flags: Section) -> Section {
    if flags.has("secret") || flags.has("secretFile") {
        options.remove("secret");
        options.remove("secretFile");
    }
    options.overlay(flags)
}

fn top_table(role: Role) -> &'static crate::options::Table {
    match role {
        Role::Server => &SERVER,
        Role::Client => &CLIENT,
        Role::Proxy => &PROXY_FILE,
    }
}

fn options_table(role: Role) -> &'static crate::options::Table {
    match role {
        Role::Server => &SERVER_OPTIONS,
        Role::Client => &CLIENT_OPTIONS,
        Role::Proxy => &PROXY_OPTIONS,
    }
}

/// What `type` says.
fn role_of(tree: &Node) -> Option<Role> {
    match &tree.get("type")?.value {
        Value::Text(text) if text.eq_ignore_ascii_case("server") => Some(Role::Server),
        Value::Text(text) if text.eq_ignore_ascii_case("client") => Some(Role::Client),
        Value::Text(text) if text.eq_ignore_ascii_case("proxy") => Some(Role::Proxy),
        _ => None,
    }
}

/// What a file without `type` most likely configures: the role whose tables know more of its keys.
fn guess_role(tree: &Node) -> Role {
    let known = |role: Role| {
        let keys = |node: Option<&Node>, table: &crate::options::Table| match node
            .map(|node| &node.value)
        {
            Some(Value::Map(entries)) => entries
                .iter()
                .filter(|(key, _)| table.find(&key.text).is_some())
                .count(),
            _ => 0,
        };
        keys(Some(tree), top_table(role)) + keys(tree.get("options"), options_table(role))
    };
    // Where two know as many, the first.
    let mut guess = Role::Server;
    for role in [Role::Client, Role::Proxy] {
        if known(role) > known(guess) {
            guess = role;
        }
    }
    // A server's file may have a `proxy` section too, but something else besides that only a server has.
    if tree.get("proxy").is_some() && known(Role::Proxy) == known(guess) {
        guess = Role::Proxy;
    }
    guess
}
