//! Programs of others that tests drive: found, or made below the target directory.
//!
//! Whoever has not installed one is told loudly what was not tested; in a CI (the environment has `CI`) its absence is a failure.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
};

/// A program by name, or `None` where it is missing and that is allowed. `brought_by` says what to install.
///
/// # Panics
/// In a CI, when it is missing.
#[must_use]
pub fn wanted(name: &str, brought_by: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    assert!(
        found.is_some() || std::env::var_os("CI").is_none(),
        "{name} is missing: install {brought_by}"
    );
    if found.is_none() {
        // Not by `eprintln!`: the test runner hides what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED: there is no `{name}` (install {brought_by}); nothing was tested with it ***\n"
        );
    }
    found
}

/// Python with the packages that the file `requirements` pins, in the folder `home`, which stays from run to run.
///
/// # Panics
/// When it cannot be made.
#[must_use]
pub fn python(home: &Path, requirements: &Path) -> PathBuf {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let list = match fs::read_to_string(requirements) {
        Ok(list) => list,
        Err(error) => panic!("{}: {error}", requirements.display()),
    };
    let (python, mark) = (home.join("bin/python"), home.join("installed"));
    if fs::read_to_string(&mark).is_ok_and(|done| done == list) {
        return python;
    }
    run(Command::new("python3")
        .args(["-m", "venv", "--clear"])
        .arg(home));
    run(Command::new(&python)
        .args(["-m", "pip", "install", "--quiet"])
        .args(["--disable-pip-version-check", "-r"])
        .arg(requirements));
    if let Err(error) = fs::write(&mark, list) {
        panic!("{}: {error}", mark.display());
    }
    python
}

fn run(command: &mut Command) {
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => panic!("{command:?}: {error}"),
    };
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
