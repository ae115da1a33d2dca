//! What a result has to say about where it was measured: processor, cores, kernel, date, and the versions of every program.

use std::fs;
use std::process::Command;

use crate::tools::{Tools, on_path, version};

/// Today's date as `YYYY-MM-DD`, in UTC.
pub fn date() -> String {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    civil_date(now.as_secs() / 86_400)
}

/// One line on the machine: processor model, number of cores, kernel.
pub fn machine() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .and_then(|rest| rest.split_once(':'));
    let model = model.map_or("unknown processor", |(_, name)| name.trim());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("{model}, {cores} cores, Linux {}", kernel.trim())
}

/// Versions of the programs, as `(name, version)`; those not found are left out.
pub fn versions(tools: &Tools) -> Vec<(String, String)> {
    let mut found = Vec::new();
    if let Ok(gt) = tools.gt() {
        found.push(("gt".into(), version(&gt, &["--version"])));
    }
    if let Ok(rathole) = tools.peer("rathole") {
        let output = Command::new(&rathole).arg("--version").output();
        let text = output
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
            .unwrap_or_default();
        let number = text
            .lines()
            .find_map(|line| line.strip_prefix("Build Version:"))
            .map_or("?", str::trim);
        found.push((
            "rathole".into(),
            format!("{number}, release build from crates.io"),
        ));
    }
    if let Ok(frp) = tools.peer("frp-run") {
        let text = version(&frp, &["version"]);
        found.push((
            "frp".into(),
            format!(
                "{text} (server and client packages in frp-run{})",
                yamux_of(&frp)
            ),
        ));
    }
    for (name, args) in [("nginx", ["-v"]), ("wrk", ["-v"]), ("openssl", ["version"])] {
        if let Some(path) = on_path(name) {
            found.push((name.into(), version(&path, &args)));
        }
    }
    if let Some(rustc) = on_path("rustc") {
        found.push(("rustc".into(), version(&rustc, &["--version"])));
    }
    found
}

/// Which multiplexer frp-run was linked with: a Go build carries its module versions.
fn yamux_of(frp: &std::path::Path) -> String {
    let output = Command::new("go").args(["version", "-m"]).arg(frp).output();
    let text = output
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let mut words = text
        .lines()
        .filter(|line| line.contains("/yamux"))
        .flat_map(str::split_ascii_whitespace);
    match (words.next(), words.next(), words.next()) {
        (Some(_), Some("github.com/hashicorp/yamux"), Some(version)) => {
            format!(
                ", linked with upstream yamux {version}; frp's own releases link a fork of it, so this is not quite what they ship"
            )
        }
        (Some(_), Some(module), Some(version)) => format!(", {module} {version}"),
        _ => String::new(),
    }
}

/// Days since 1970-01-01 as a date of the Gregorian calendar: years are counted from 1 March, so that the leap day is the last.
fn civil_date(days: u64) -> String {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates_across_leap_years() {
        assert_eq!(civil_date(0), "1970-01-01");
        assert_eq!(civil_date(11_016), "2000-02-29");
        assert_eq!(civil_date(11_017), "2000-03-01");
        assert_eq!(civil_date(20_818), "2026-12-31");
    }
}
