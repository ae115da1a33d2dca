//! A folder for one test's files.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

/// A new folder, removed when dropped.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Makes a folder whose name no other test has.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let name = format!(
                "gt-e2e-{}-{}",
                std::process::id(),
                NEXT.fetch_add(1, Relaxed)
            );
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                // Left by a process that had the same id and was killed.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{} cannot be made: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file and returns where it is.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        if let Err(error) = fs::write(&path, content) {
            panic!("{} cannot be written: {error}", path.display());
        }
        path
    }

    /// Writes a file that can be run and returns where it is.
    ///
    /// Another process writes it: one that another test starts at this moment would hold the file open for writing until it runs its own program,
    /// and a program that somebody writes to cannot be run (`ETXTBSY`).
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn program(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        let mut writing = Command::new("sh")
            .args(["-c", "cat >\"$0\" && chmod 755 \"$0\""])
            .arg(&path)
            .stdin(Stdio::piped())
            .spawn()
            .expect("there is sh");
        let input = writing.stdin.take();
        let sent = input.map(|mut input| input.write_all(content.as_ref()));
        let done = writing.wait().expect("its end");
        assert!(
            matches!(sent, Some(Ok(()))) && done.success(),
            "{} cannot be written: {sent:?}, {done}",
            path.display()
        );
        path
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
