//! Sections of a client to the checked [`Client`].

use super::Check;
use crate::{
    checked::{Client, Id, Remote, Secret, Trust, UdpFec},
    identity::IdentityError,
    problem::{Errors, Problem},
    section::Section,
    tree::Node,
    value::{self, Way},
};

/// Checks one client. `services` are the mappings of its services, from the flags if they name one, else from the file.
pub(crate) fn check_client(
    mut check: Check<'_>,
    options: &Section,
    services: &[Node],
) -> Result<Client, Errors> {
    let (remotes, choose) = check.remotes(options);
    let log = check.log(options);
    let kcp = check.kcp(options);
    let bbr = options.boolean("bbr", &mut check.findings);
    let cert_file = check.path(options, "remoteCert");
    let udp_fec = options.choice("udpFEC", &mut check.findings);
    let trust = Trust {
        content: check.content(&cert_file),
        cert_file,
        insecure: options
            .boolean("remoteCertInsecure", &mut check.findings)
            .unwrap_or(false),
    };
    if trust.insecure && trust.cert_file.is_some() {
        let problem = Problem::new(
            options.place_of("remoteCertInsecure"),
            "`remoteCert` and `remoteCertInsecure` contradict each other",
        );
        check
            .findings
            .problem(problem.help("keep `remoteCert`: it works for self-signed certificates too"));
    }
    let remote_api = options.one("remoteAPI", &mut check.findings, value::http_url);
    let links: Option<u16> = options.count("remoteConnections", &mut check.findings);
    let idle_links: u16 = options
        .count("remoteIdleConnections", &mut check.findings)
        .unwrap_or(1);
    if options.has("remoteIdleConnections") && links.is_some_and(|links| idle_links > links) {
        let place = options.place_of("remoteIdleConnections");
        check.findings.problem(Problem::new(
            place,
            "`remoteIdleConnections` is more than `remoteConnections`",
        ));
    }
    let timeout = options.duration("remoteTimeout", &mut check.findings);
    let reconnect_delay = options.duration("reconnectDelay", &mut check.findings);
    let workers = options
        .count::<usize>("workers", &mut check.findings)
        .and_then(std::num::NonZeroUsize::new);
    let api = check.api(options, None);
    let given_id = options.one("id", &mut check.findings, |text| Ok(Id::new(text)?));
    let services = check.services(services, given_id.as_ref(), &options.place);
    // Last, so that nothing is written for a configuration that is wrong.
    let Some((id, secret)) = check.identity(options, given_id) else {
        return Err(check.failed(options));
    };
    let services = check.finished(services, &id, options.has("id"));
    let basis = Client::new(id, secret);
    let client = Client {
        secret_generated: !options.has("secret") && !options.has("secretFile"),
        remotes,
        choose,
        remote_api,
        trust,
        links,
        idle_links,
        timeout: timeout.unwrap_or(basis.timeout),
        reconnect_delay: reconnect_delay.unwrap_or(basis.reconnect_delay),
        services,
        workers,
        kcp,
        bbr: bbr.unwrap_or(false),
        udp_fec: udp_fec.and_then(UdpFec::named),
        api,
        log,
        ..basis
    };
    let warnings = check.findings.finish()?;
    Ok(Client { warnings, ..client })
}

impl Check<'_> {
    /// The problems found; there is always one where this is called.
    fn failed(self, options: &Section) -> Errors {
        let place = options.place.clone();
        match self.findings.finish() {
            Err(errors) => errors,
            Ok(_) => Errors::one(Problem::new(&place, "the client has no identity")),
        }
    }

    /// The servers, and whether the best of them is to be found out.
    fn remotes(&mut self, options: &Section) -> (Vec<Remote>, bool) {
        let mut remotes: Vec<Remote> = Vec::new();
        let mut choose = options
            .choice("remoteChoice", &mut self.findings)
            .is_some_and(|choice| choice == "best");
        for parsed in options.all("remote", &mut self.findings, value::remote) {
            let ways = match parsed {
                Way::One(remote) => vec![remote],
                Way::Best(remotes) => {
                    choose = true;
                    remotes
                }
            };
            for remote in ways {
                if !remotes.contains(&remote) {
                    remotes.push(remote);
                }
            }
        }
        // After another problem, such as a misspelt `remote`, this would be no news.
        let nowhere = remotes.is_empty() && !options.has("remoteAPI");
        if nowhere && !self.findings.has_problems() {
            let problem = Problem::new(&options.place, "the client has no server to go to");
            self.findings
                .problem(problem.help("give `remote`, as `remote: tls://gt.example.com:443`"));
        }
        (remotes, choose)
    }

    /// Id and secret, given or kept in the identity file.
    fn identity(&mut self, options: &Section, given: Option<Id>) -> Option<(Id, Secret)> {
        let has_secret = options.has("secret") || options.has("secretFile");
        let secret = self.secret(options);
        if options.has("id") && given.is_none()
            || has_secret && secret.is_none()
            || self.findings.has_problems()
        {
            // A stand-in, so that the caller can look at the rest; it is thrown away with the problems.
            return None;
        }
        match (given, secret) {
            (Some(id), Some(secret)) => Some((id, secret)),
            (None, Some(_)) => {
                let place = if options.has("secret") {
                    options.place_of("secret")
                } else {
                    options.place_of("secretFile")
                };
                self.findings.problem(
                    Problem::new(place, "a `secret` is given, but no `id`")
                        .help("give both or none"),
                );
                None
            }
            (given, None) => {
                let path = self.path(options, "identity");
                match self.surroundings.identity(path.as_deref(), given.as_ref()) {
                    Ok(identity) => {
                        if let Some(notice) = identity.notice() {
                            self.findings.warn(None, notice);
                        }
                        Some((identity.id, identity.secret))
                    }
                    Err(error) => {
                        let name = if options.has("identity") {
                            "identity"
                        } else {
                            "id"
                        };
                        self.findings
                            .problem(identity_problem(options, name, &error));
                        None
                    }
                }
            }
        }
    }
}

fn identity_problem(options: &Section, name: &'static str, error: &IdentityError) -> Problem {
    Problem::new(options.place_of(name), error.to_string())
        .help("give `id` and `secret`, or another file with `identity`")
}
