//! Peers written in Go: small modules in `testing/interop` with pinned versions, built when a test wants them.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A program of a Go module.
#[derive(Clone, Copy, Debug)]
pub struct Go<'a> {
    /// The module's folder in `testing/interop`.
    pub module: &'a str,
    /// The package in it, as `go build` takes it.
    pub package: &'a str,
    /// More of `go build`'s flags.
    pub flags: &'a [&'a str],
}

impl Go<'_> {
    /// Builds it as `program`.
    ///
    /// # Errors
    ///
    /// `go` could not be started, or said no; what it says goes to standard error.
    pub fn build(&self, program: &Path) -> io::Result<()> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../interop")
            .join(self.module);
        let status = Command::new("go")
            .current_dir(folder)
            .args(["build", "-trimpath"])
            .args(self.flags)
            .arg("-o")
            .arg(program)
            .arg(self.package)
            .status()?;
        if !status.success() {
            let what = format!("{} {} does not build", self.module, self.package);
            return Err(io::Error::other(what));
        }
        Ok(())
    }

    /// Builds it as `name` in `folder`, which a test knows as `CARGO_TARGET_TMPDIR`. `None` on a machine without Go, after a loud word that `what` was not checked.
    ///
    /// # Panics
    ///
    /// Where there is Go and it does not build.
    pub fn build_or_skip(&self, folder: &str, name: &str, what: &str) -> Option<PathBuf> {
        let version = Command::new("go")
            .arg("version")
            .stdout(Stdio::null())
            .status();
        if !version.is_ok_and(|status| status.success()) {
            // Not by `eprintln!`: the test runner hides what a passing test prints.
            let word = format!(
                "\n*** SKIPPED: there is no `go`; nothing was checked against {what} ***\n"
            );
            let _ = writeln!(io::stderr(), "{word}");
            return None;
        }
        let program = Path::new(folder).join(name);
        if let Err(error) = self.build(&program) {
            panic!("{error}");
        }
        Some(program)
    }
}
