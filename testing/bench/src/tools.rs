//! The programs a bench needs, found or named as missing in one line each.
//!
//! Debian packages are installed when the bench runs as root on a system with apt; rathole and `frp-run` are built by `make
//! bench-peers` and looked for in the peers directory, then on the path. Versions come from the programs themselves.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where programs are looked for.
#[derive(Clone, Debug)]
pub struct Tools {
    /// Directory with `bin/rathole` and `bin/frp-run`.
    pub peers: PathBuf,
    /// The gt binary, when there is one.
    pub gt: Option<PathBuf>,
}

impl Tools {
    /// `peers` defaults to `$CARGO_TARGET_DIR/peers`, or `target/peers`; `gt` to a release build in the same target directory.
    pub fn new(peers: Option<PathBuf>, gt: Option<PathBuf>) -> Self {
        let target =
            env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        let built = target.join("release/gt");
        let peers = absolute(peers.unwrap_or_else(|| target.join("peers")));
        let gt = gt.or_else(|| built.exists().then_some(built)).map(absolute);
        Self { peers, gt }
    }

    /// The path of a peer's program.
    ///
    /// # Errors
    /// One line that says what is missing and how to get it.
    pub fn peer(&self, name: &str) -> Result<PathBuf, Missing> {
        let built = self.peers.join("bin").join(name);
        if built.exists() {
            Ok(built)
        } else {
            on_path(name).ok_or_else(|| Missing {
                what: name.into(),
                how: "make bench-peers".into(),
            })
        }
    }

    /// The gt binary.
    ///
    /// # Errors
    /// When none was named or built, or the named one does not exist.
    pub fn gt(&self) -> Result<PathBuf, Missing> {
        let missing = |what: String| Missing {
            what,
            how: "cargo build --release -p gt, or --gt PATH".into(),
        };
        let path = self.gt.clone().ok_or_else(|| missing("gt".into()))?;
        if path.exists() {
            Ok(path)
        } else {
            Err(missing(path.display().to_string()))
        }
    }
}

/// A program that is not there, and what brings it.
#[derive(Debug)]
pub struct Missing {
    /// The program's name.
    pub what: String,
    /// A command that brings it.
    pub how: String,
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "missing {}: {}", self.what, self.how)
    }
}

impl std::error::Error for Missing {}

/// Makes sure that system programs are there, installing their Debian packages when this is root's to do.
///
/// # Errors
/// The first one that is still missing, with the package that has it.
pub fn require(programs: &[&str]) -> Result<(), Missing> {
    for &program in programs {
        if on_path(program).is_some() {
            continue;
        }
        let package = package_of(program);
        if rustix::process::geteuid().is_root() && on_path("apt-get").is_some() {
            eprintln!("{program} is missing: installing {package}");
            let _ = Command::new("apt-get")
                .args(["install", "-y", "--no-install-recommends", package])
                .status();
        }
        if on_path(program).is_none() {
            return Err(Missing {
                what: program.into(),
                how: format!("apt-get install {package}"),
            });
        }
    }
    Ok(())
}

/// Looks a program up on `PATH`, and in the places where Debian keeps servers.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    dirs.map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// The line of a program's version output that has a version number in it; "?" when there is none.
pub fn version(program: &Path, args: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(args).output() else {
        return "?".into();
    };
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let has_number = |line: &&str| line.chars().any(|c| c.is_ascii_digit());
    text.lines()
        .map(str::trim)
        .find(has_number)
        .unwrap_or("?")
        .to_owned()
}

fn package_of(program: &str) -> &str {
    match program {
        "nginx" => "nginx-light",
        "taskset" | "setpriv" => "util-linux",
        other => other,
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_peer_is_named_with_the_command_that_brings_it() {
        let tools = Tools::new(Some("/nowhere".into()), None);
        let missing = tools.peer("no-such-relay").unwrap_err();
        assert_eq!(
            missing.to_string(),
            "missing no-such-relay: make bench-peers"
        );
    }

    #[test]
    fn programs_are_found_on_the_path() {
        assert!(on_path("sh").is_some());
        assert!(on_path("no-such-program").is_none());
        assert!(require(&["sh"]).is_ok());
    }
}
