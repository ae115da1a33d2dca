//! A configuration that can be held at the point where it is read: one of its files is a pipe. Whoever reads it (the check of a reload, the
//! worker that is asked, the worker that starts) waits until the test lets it go on.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

/// A pipe with the content of a file.
pub(crate) struct Pipe {
    path: PathBuf,
    content: &'static str,
}

/// Somebody who reads the file and waits.
#[must_use = "it waits until it is let go"]
pub(crate) struct Reader {
    to: fs::File,
    content: &'static str,
}

impl Pipe {
    /// Makes it where a file is or will be.
    pub(crate) fn instead_of(path: &Path, content: &'static str) -> Self {
        let pipe = Self {
            path: path.to_path_buf(),
            content,
        };
        pipe.renew();
        pipe
    }

    /// Waits until somebody reads.
    pub(crate) fn reader(&self) -> Reader {
        // Opening it for writing waits for a reader.
        let to = OpenOptions::new()
            .write(true)
            .open(&self.path)
            .expect("opened");
        // The next one who reads gets another pipe, so that it cannot get what is meant for this one.
        self.renew();
        Reader {
            to,
            content: self.content,
        }
    }

    /// A file again. Who has opened the pipe meanwhile, or is about to, reads on.
    pub(crate) fn end(self) {
        // For both directions: that waits for nobody.
        let mut pipe = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&self.path)
            .expect("opened");
        pipe.write_all(self.content.as_bytes()).expect("written");
        let new = self.path.with_extension("file");
        fs::write(&new, self.content).expect("written");
        fs::rename(&new, &self.path).expect("renamed");
    }

    fn renew(&self) {
        let new = self.path.with_extension("pipe");
        let made = Command::new("mkfifo")
            .args(["-m", "600"])
            .arg(&new)
            .status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo");
        fs::rename(&new, &self.path).expect("renamed");
    }
}

impl Reader {
    /// It reads on.
    pub(crate) fn go(mut self) {
        // It may have been killed meanwhile.
        let _ = self.to.write_all(self.content.as_bytes());
    }
}
