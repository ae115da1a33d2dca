//! Results as Markdown: medians with their range, tables with aligned columns, a report with its circumstances.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::{machine, tools::Tools};

/// Median, least and greatest of some figures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The middle figure, or the mean of the two middle ones.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// `None` without figures.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = figures
            .into_iter()
            .filter(|figure| figure.is_finite())
            .collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = if sorted.len() % 2 == 1 {
            sorted[middle]
        } else {
            (sorted[middle - 1] + sorted[middle]) / 2.0
        };
        Some(Self { median, min, max })
    }

    /// `median (min..max)` with so many decimals.
    pub fn show(&self, decimals: usize) -> String {
        format!(
            "{:.decimals$} ({:.decimals$}..{:.decimals$})",
            self.median, self.min, self.max
        )
    }
}

/// As [`Spread::show`], and a dash without figures.
pub fn spread(figures: impl IntoIterator<Item = f64>, decimals: usize) -> String {
    Spread::of(figures).map_or_else(|| "–".into(), |spread| spread.show(decimals))
}

/// A Markdown table: the first column is left-aligned, the others right-aligned.
#[derive(Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Self {
        Self {
            head: head.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            lines()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for (number, row) in lines().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let width = widths.get(column).copied().unwrap_or(0);
                if column == 0 {
                    write!(f, "| {cell:<width$} ")?
                } else {
                    write!(f, "| {cell:>width$} ")?
                }
            }
            f.write_str("|\n")?;
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(width + 1);
                    if column == 0 {
                        write!(f, "|-{dashes}")?
                    } else {
                        write!(f, "|{dashes}:")?
                    }
                }
                f.write_str("|\n")?;
            }
        }
        Ok(())
    }
}

/// A result on its way to a file: title, what was done, tables, notes, commands.
#[derive(Debug)]
pub struct Report {
    name: String,
    text: String,
}

impl Report {
    /// Opens a report with the machine's description and the programs' versions. `how` says what was measured and how.
    pub fn new(name: &str, title: &str, how: &str, tools: &Tools) -> Self {
        let mut text = format!(
            "# {title}\n\n{}, {}.\n\n{how}\n\n",
            machine::date(),
            machine::machine()
        );
        for (program, version) in machine::versions(tools) {
            let _ = writeln!(text, "- {program}: {version}");
        }
        text.push('\n');
        Self {
            name: name.to_owned(),
            text,
        }
    }

    /// Adds a heading, for reports with several tables.
    pub fn heading(&mut self, title: &str) {
        let _ = writeln!(self.text, "## {title}\n");
    }

    /// Adds a table.
    pub fn table(&mut self, table: &Table) {
        let _ = writeln!(self.text, "{table}");
    }

    /// Adds a paragraph for each note.
    pub fn notes(&mut self, notes: &[String]) {
        for note in notes {
            let _ = writeln!(self.text, "- {note}");
        }
        if !notes.is_empty() {
            self.text.push('\n');
        }
    }

    /// Adds the commands, as a block.
    pub fn commands(&mut self, commands: &[String]) {
        let _ = writeln!(
            self.text,
            "Commands (`$LAB` is the bench's temporary directory):\n\n```"
        );
        for command in commands {
            let _ = writeln!(self.text, "{command}");
        }
        self.text.push_str("```\n");
    }

    /// Prints the report and writes it to `DIR/DATE-NAME.md`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn publish(&self, dir: &Path) -> Result<()> {
        println!("{}", self.text);
        fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
        let path = dir.join(format!("{}-{}.md", machine::date(), self.name));
        fs::write(&path, &self.text).with_context(|| format!("write {}", path.display()))?;
        eprintln!("written: {}", path.display());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_ones() {
        assert_eq!(
            Spread::of([4.0, 1.0, 2.0, 3.0]),
            Some(Spread {
                median: 2.5,
                min: 1.0,
                max: 4.0
            })
        );
        assert_eq!(
            Spread::of([f64::NAN, 7.0]),
            Some(Spread {
                median: 7.0,
                min: 7.0,
                max: 7.0
            })
        );
        assert_eq!(Spread::of([]), None);
        assert_eq!(spread([], 1), "–");
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["relay", "µs"]);
        table.row(["gt", "17.0"]);
        assert_eq!(
            table.to_string(),
            "| relay |   µs |\n|-------|-----:|\n| gt    | 17.0 |\n"
        );
    }
}
