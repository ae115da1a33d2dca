//! What the tests need besides Rust: found, or built below the target directory; a clear word when it is missing.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, OnceLock, PoisonError},
};

/// A file of `testing/interop/zoo`.
pub(crate) fn zoo(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../testing/interop/zoo")
        .join(name)
        .canonicalize()
        .unwrap_or_else(|error| panic!("testing/interop/zoo/{name}: {error}"))
}

/// A program by name.
///
/// # Panics
/// When it is not there, with what brings it.
pub(crate) fn program(name: &str, brought_by: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/go/bin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: install {brought_by}"))
}

/// A folder below the target directory that stays from run to run.
pub(crate) fn kept(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join("zoo")
        .join(name);
    fs::create_dir_all(&folder).expect("a folder below the target directory");
    folder
}

/// Python with the packages of `requirements.txt`.
pub(crate) fn python() -> PathBuf {
    static MADE: OnceLock<PathBuf> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let list = fs::read_to_string(zoo("requirements.txt")).expect("requirements.txt");
        let folder = kept("python");
        let python = folder.join("bin/python");
        once(&folder.join("installed"), &list, || {
            let mut venv = Command::new(program("python3", "Debian's python3 and python3-venv"));
            run(venv.args(["-m", "venv", "--clear"]).arg(&folder));
            let mut pip = Command::new(&python);
            pip.args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "-r",
            ]);
            run(pip.arg(zoo("requirements.txt")));
        });
        python
    });
    made.clone()
}

/// Python 2.7, and a folder with Autobahn's test suite, which has no other.
pub(crate) fn autobahn() -> (PathBuf, PathBuf) {
    const PACKAGE: &str = "autobahntestsuite==25.10.1";
    let named = std::env::var_os("GT_PYTHON2").map(PathBuf::from);
    let python = named
        .unwrap_or_else(|| program("python2.7", "Python 2.7 with pip, or name it in GT_PYTHON2"));
    let folder = kept("autobahn");
    once(&folder.join("installed"), PACKAGE, || {
        let mut pip = Command::new(&python);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--target",
        ]);
        run(pip.arg(&folder).arg(PACKAGE));
        // A package of a namespace, which Python 2 finds only where it is marked.
        fs::write(folder.join("zope/__init__.py"), "").expect("written");
    });
    (python, folder)
}

/// A program of the module in `testing/interop/zoo/go`.
pub(crate) fn go_origin() -> PathBuf {
    let binary = kept("go").join("origin");
    let mut go = go();
    go.current_dir(zoo("go"))
        .args(["build", "-o"])
        .arg(&binary)
        .arg(".");
    run(&mut go);
    binary
}

/// h2spec, the conformance tests for HTTP/2, with the modules of `h2spec/go.mod`.
pub(crate) fn h2spec() -> PathBuf {
    let modules = fs::read_to_string(zoo("h2spec/go.mod")).expect("go.mod");
    let folder = kept("h2spec");
    let binary = folder.join("h2spec");
    once(&folder.join("installed"), &modules, || {
        let mut go = go();
        go.current_dir(zoo("h2spec"))
            .args(["build", "-o"])
            .arg(&binary);
        run(go.arg("github.com/summerwind/h2spec/cmd/h2spec"));
    });
    binary
}

/// The folder that has the packages of `ws/package.json`.
pub(crate) fn node_packages() -> PathBuf {
    let list = fs::read_to_string(zoo("ws/package.json")).expect("package.json");
    let folder = kept("node");
    once(&folder.join("installed"), &list, || {
        fs::write(folder.join("package.json"), &list).expect("written");
        let mut npm = Command::new(program("npm", "Debian's npm"));
        npm.current_dir(&folder).args([
            "install",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
            "--silent",
        ]);
        run(&mut npm);
    });
    folder
}

/// Whether there is Go. No Debian package brings a new enough one, so that who has none goes without what needs it, and is told; a CI must have it.
pub(crate) fn has_go() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/local/go/bin".into()])
        .any(|folder| folder.join("go").is_file());
    assert!(
        found || std::env::var_os("CI").is_none(),
        "go is missing: install Go 1.24 or later"
    );
    if !found {
        // Not by `eprintln!`: the test runner hides what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED: there is no `go`; h2spec and an origin in Go were not asked ***\n"
        );
    }
    found
}

/// Where Debian's tomcat10-common puts it.
pub(crate) const TOMCAT: &str = "/usr/share/tomcat10";

/// Whether Tomcat and what it compiles its page with are installed. They bring a Java runtime, so that who has none goes without them, and is told.
pub(crate) fn has_tomcat() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let java = std::env::split_paths(&path).any(|folder| folder.join("java").is_file());
    let page = ["/usr/share/java/eclipse-jdt-core.jar"].iter();
    let found = java && page.chain([&TOMCAT]).all(|file| Path::new(file).exists());
    if !found {
        // Not by `eprintln!`: the test runner hides what a passing test prints.
        let _ = writeln!(
            std::io::stderr(),
            "\n*** SKIPPED: Tomcat was not asked; it needs Debian's tomcat10-common and default-jre-headless ***\n"
        );
    }
    found
}

fn go() -> Command {
    let mut go = Command::new(program("go", "Go 1.24 or later"));
    go.env("GOFLAGS", "-trimpath");
    go
}

/// Does what is to be done, unless that `what` was done before is written in the file `mark`.
fn once(mark: &Path, what: &str, work: impl FnOnce()) {
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    if fs::read_to_string(mark).is_ok_and(|done| done == what) {
        return;
    }
    work();
    fs::write(mark, what).expect("written");
}

/// Runs a program to its end.
///
/// # Panics
/// When it fails, with what it said.
fn run(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed:\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
