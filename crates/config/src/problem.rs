//! Problems: what is wrong in a configuration, where, and what to do. A check collects them and hands them out together.

use std::fmt;

use crate::{
    checked::Warning,
    source::{Place, printable},
};

/// What is wrong with a configuration: always at least one problem. Displayed, each one is
/// `FILE:LINE:COLUMN: MESSAGE`, the line, a caret and `help:`. No text holds a secret.
#[derive(Debug, Clone, thiserror::Error)]
pub struct Errors {
    problems: Vec<Problem>,
}

impl Errors {
    /// The problems, in the order they were found.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    pub(crate) fn append(&mut self, more: Self) {
        self.problems.extend(more.problems);
    }

    pub(crate) fn one(problem: Problem) -> Self {
        Self {
            problems: vec![problem],
        }
    }
}

impl fmt::Display for Errors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, problem) in self.problems.iter().take(MAX_SHOWN).enumerate() {
            if n > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        match self.problems.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Problems printed; the rest is counted.
const MAX_SHOWN: usize = 20;

/// One thing that is wrong.
#[derive(Debug, Clone)]
pub struct Problem {
    place: Place,
    message: String,
    help: Option<String>,
}

impl Problem {
    pub(crate) fn new(place: &Place, message: impl AsRef<str>) -> Self {
        Self {
            place: place.clone(),
            message: printable(message.as_ref()),
            help: None,
        }
    }

    pub(crate) fn help(mut self, help: impl AsRef<str>) -> Self {
        self.help = Some(printable(help.as_ref()));
        self
    }

    pub(crate) fn help_if(self, help: Option<impl AsRef<str>>) -> Self {
        match help {
            Some(help) => self.help(help),
            None => self,
        }
    }

    /// `FILE:LINE:COLUMN`, or the flag.
    pub fn place(&self) -> String {
        self.place.to_string()
    }

    /// What is wrong, in one sentence.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do about it.
    pub fn suggestion(&self) -> Option<&str> {
        self.help.as_deref()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if let Some(excerpt) = self.place.excerpt() {
            write!(f, "\n{excerpt}")?;
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        Ok(())
    }
}

/// Collects problems and warnings during a check.
#[derive(Default)]
pub(crate) struct Findings {
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Findings {
    pub(crate) fn problem(&mut self, problem: Problem) {
        // One alias can put one mistake in thousands of places; the first of them say enough.
        if self.problems.len() < MAX_KEPT {
            self.problems.push(problem);
        }
    }

    pub(crate) fn warn(&mut self, place: Option<&Place>, text: impl AsRef<str>) {
        if self.warnings.len() < MAX_KEPT {
            let place = place.map(Place::to_string).unwrap_or_default();
            self.warnings.push(Warning {
                place,
                text: printable(text.as_ref()),
            });
        }
    }

    /// How many there are so far.
    pub(crate) fn problems(&self) -> usize {
        self.problems.len()
    }

    pub(crate) fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    /// The warnings; or all problems when there is one, in the order of their places.
    pub(crate) fn finish(mut self) -> Result<Vec<Warning>, Errors> {
        if self.problems.is_empty() {
            return Ok(self.warnings);
        }
        self.problems.sort_by(|a, b| a.place.order(&b.place));
        Err(Errors {
            problems: self.problems,
        })
    }
}

const MAX_KEPT: usize = 200;

/// The candidate that `name` was most likely meant to be.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = name.to_lowercase();
    candidates
        .map(|c| (strsim::damerau_levenshtein(&lower, &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= 1 + c.len().min(name.len()) / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}
