//! What one client may do: read for the server as a whole (`options`, `tcp`, `host`) and for each user on top of it.

use super::Check;
use crate::{
    checked::Limits,
    options::{HOST, TCP},
    problem::Problem,
    section::Section,
    value,
};

impl Check<'_> {
    /// The server's limits. `options` holds file and flags; `top` the file's `tcp` and `host`.
    pub(super) fn default_limits(&mut self, top: &Section, options: &Section) -> Limits {
        let mut limits = Limits::default();
        let findings = &mut self.findings;
        limits.tcp_number = options
            .count("tcpNumber", findings)
            .unwrap_or(limits.tcp_number);
        limits.tcp_ranges = options.all("tcpRange", findings, value::port_range);
        limits.host_number = options
            .count("hostNumber", findings)
            .unwrap_or(limits.host_number);
        limits.host_regex = options.all("hostRegex", findings, value::regex);
        limits.host_with_id = options
            .boolean("hostWithID", findings)
            .unwrap_or(limits.host_with_id);
        limits.speed = options.speed("speed", findings).unwrap_or(limits.speed);
        limits.connections = options
            .count("connections", findings)
            .unwrap_or(limits.connections);
        limits.streams = options.count("streams", findings).unwrap_or(limits.streams);
        // A flag wins over both forms that a file has; within a file the ranges add up and `host` is the closer word.
        let flag = |name| options.node(name).is_some_and(|node| node.place.is_flag());
        let ranges_by_flag = options
            .nodes("tcpRange")
            .first()
            .is_some_and(|node| node.place.is_flag());
        if !ranges_by_flag {
            limits.tcp_ranges.extend(self.ranges(top));
        }
        if let Some(node) = top.node("host") {
            let host = Section::read(&HOST, node, &mut self.findings);
            let before = limits.clone();
            self.host_limits(&host, &mut limits);
            if flag("hostNumber") {
                limits.host_number = before.host_number;
            }
            if options
                .nodes("hostRegex")
                .first()
                .is_some_and(|node| node.place.is_flag())
            {
                limits.host_regex = before.host_regex;
            }
            if flag("hostWithID") {
                limits.host_with_id = before.host_with_id;
            }
        }
        limits
    }

    /// One user's limits: what is absent is the server's.
    pub(super) fn user_limits(&mut self, user: &Section, defaults: &Limits) -> Limits {
        let mut limits = defaults.clone();
        if user.has("tcp") {
            limits.tcp_ranges = self.ranges(user);
        }
        let findings = &mut self.findings;
        limits.tcp_number = user
            .count("tcpNumber", findings)
            .unwrap_or(limits.tcp_number);
        limits.speed = user.speed("speed", findings).unwrap_or(limits.speed);
        limits.connections = user
            .count("connections", findings)
            .unwrap_or(limits.connections);
        limits.streams = user.count("streams", findings).unwrap_or(limits.streams);
        if let Some(node) = user.node("host") {
            let host = Section::read(&HOST, node, &mut self.findings);
            self.host_limits(&host, &mut limits);
        }
        limits
    }

    fn host_limits(&mut self, host: &Section, limits: &mut Limits) {
        let findings = &mut self.findings;
        limits.host_number = host.count("number", findings).unwrap_or(limits.host_number);
        if host.has("regex") {
            limits.host_regex = host.all("regex", findings, value::regex);
        }
        limits.host_with_id = host
            .boolean("withID", findings)
            .unwrap_or(limits.host_with_id);
    }

    fn ranges(&mut self, section: &Section) -> Vec<std::ops::RangeInclusive<u16>> {
        let mut ranges = Vec::new();
        for node in section.nodes("tcp") {
            let before = self.findings.problems();
            let entry = Section::read(&TCP, node, &mut self.findings);
            if !entry.has("range") && self.findings.problems() == before {
                self.findings.problem(
                    Problem::new(&node.place, "an entry of `tcp` needs `range`")
                        .help("write `range: 10000-20000`"),
                );
            }
            ranges.extend(entry.all("range", &mut self.findings, value::port_range));
        }
        ranges
    }
}
