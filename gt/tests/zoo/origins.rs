//! Servers of others, each with a tiny application that says what it understood.

use std::{
    cell::Cell,
    net::{Ipv4Addr, SocketAddr},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use e2e::{PortRange, Process, TempDir, wait};

use crate::{
    corpus::{MOST_BODY, Meaning},
    recorder::Recorder,
    tools::{TOMCAT, go_origin, has_go, has_tomcat, program, python, zoo},
};

/// A running server.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) name: &'static str,
    address: SocketAddr,
    source: Source,
    _port: PortRange,
}

/// Where it says what it understood.
#[derive(Debug)]
enum Source {
    /// In its log; how many lines were read.
    Log(Process, Cell<usize>),
    /// By passing it on.
    Behind {
        _process: Process,
        recorder: Recorder,
    },
}

impl Origin {
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has said since the last call; waits until `enough`: a log may be written behind an answer.
    pub(crate) fn take(&self, enough: impl Fn(&[Meaning]) -> bool) -> Vec<Meaning> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut said = Vec::new();
        loop {
            match &self.source {
                Source::Log(process, at) => {
                    let lines = process.log_from(at.get());
                    at.set(at.get() + lines.len());
                    said.extend(lines.iter().filter_map(|line| parse(line)));
                }
                Source::Behind { recorder, .. } => {
                    said.extend(recorder.take().into_iter().map(|seen| seen.meaning));
                }
            }
            if enough(&said) || Instant::now() > deadline {
                return said;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The servers that every run asks.
pub(crate) fn few() -> Vec<Origin> {
    start(&[gunicorn, aiohttp, node, go, nginx, apache])
}

/// All servers.
pub(crate) fn all() -> Vec<Origin> {
    let mut all: Vec<Begin> = vec![
        gunicorn, aiohttp, node, go, nginx, apache, uvicorn, tornado, waitress,
    ];
    if has_tomcat() {
        all.push(tomcat);
    }
    start(&all)
}

/// Starts a server on a port.
type Begin = fn(u16, TempDir) -> (&'static str, Source);

/// Started together, for each needs its time.
fn start(which: &[Begin]) -> Vec<Origin> {
    // Built first: what cargo and pip say to one another's locks is no test's business.
    let has_go = has_go();
    let _ = (python(), has_go.then(go_origin));
    let begun: Vec<Origin> = which
        .iter()
        .filter(|begin| has_go || !std::ptr::fn_addr_eq(**begin, go as Begin))
        .map(|begin| {
            let port = PortRange::claim(1);
            let (name, source) = begin(port.first(), TempDir::new());
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port.first()));
            Origin {
                name,
                address,
                source,
                _port: port,
            }
        })
        .collect();
    for origin in &begun {
        wait::until_accepting(origin.address);
    }
    begun
}

fn logged(name: &'static str, command: Command, dir: TempDir) -> (&'static str, Source) {
    let source = Source::Log(Process::start(name, command, dir), Cell::new(0));
    (name, source)
}

fn behind(
    name: &'static str,
    command: Command,
    dir: TempDir,
    recorder: Recorder,
) -> (&'static str, Source) {
    let source = Source::Behind {
        _process: Process::start(name, command, dir).with_workers(),
        recorder,
    };
    (name, source)
}

fn script(name: &str) -> Command {
    let mut command = Command::new(python());
    command
        .current_dir(zoo(""))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if name == "-m" {
        command.arg(name)
    } else {
        command.arg(zoo(name))
    };
    command
}

fn gunicorn(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = script("-m");
    command.args([
        "gunicorn",
        "--worker-class",
        "gthread",
        "--threads",
        "4",
        "--log-level",
        "warning",
        "--no-control-socket",
        "--bind",
    ]);
    command
        .arg(format!("127.0.0.1:{port}"))
        .arg("--worker-tmp-dir")
        .arg(dir.path())
        .arg("wsgi:app");
    logged("gunicorn", command, dir)
}

fn waitress(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = script("wsgi.py");
    command.arg(port.to_string());
    logged("waitress", command, dir)
}

fn aiohttp(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = script("aio.py");
    command.arg(port.to_string());
    logged("aiohttp", command, dir)
}

fn tornado(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = script("torn.py");
    command.arg(port.to_string());
    logged("tornado", command, dir)
}

fn uvicorn(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = script("-m");
    command.args(["uvicorn", "--log-level", "error", "--http", "h11", "--port"]);
    command.arg(port.to_string()).arg("asgi:app");
    logged("uvicorn", command, dir)
}

fn node(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = Command::new(program("node", "Debian's nodejs"));
    command.arg(zoo("node.mjs")).arg(port.to_string());
    logged("node", command, dir)
}

fn go(port: u16, dir: TempDir) -> (&'static str, Source) {
    let mut command = Command::new(go_origin());
    command.arg(port.to_string());
    logged("Go net/http", command, dir)
}

/// nginx reads the whole body before it passes the request on.
fn nginx(port: u16, dir: TempDir) -> (&'static str, Source) {
    let recorder = Recorder::lenient();
    let config = dir.file(
        "nginx.conf",
        format!(
            "daemon off; master_process off; worker_processes 1; pid nginx.pid; error_log stderr crit;\nevents {{ worker_connections 512; }}\nhttp {{ access_log off; \
             client_max_body_size 0; underscores_in_headers on; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://{}; proxy_http_version 1.1; proxy_set_header Host zoo.test; }} }} }}\n",
            recorder.address()
        ),
    );
    let mut command = Command::new(program("nginx", "Debian's nginx-light"));
    command
        .arg("-p")
        .arg(dir.path())
        .args(["-e", "stderr", "-c"])
        .arg(config);
    behind("nginx", command, dir, recorder)
}

/// Apache, made to read the whole body before it passes the request on.
fn apache(port: u16, dir: TempDir) -> (&'static str, Source) {
    let recorder = Recorder::lenient();
    let modules = [
        "mpm_event",
        "authz_core",
        "proxy",
        "proxy_http",
        "env",
        "headers",
    ];
    let modules: String = modules
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
    let at = dir.path().display();
    let config = dir.file(
        "apache.conf",
        format!(
            "ServerRoot {at}\nPidFile {at}/pid\nDefaultRuntimeDir {at}\nMutex posixsem\nServerName zoo.test\nListen 127.0.0.1:{port}\n{modules}\
             ErrorLog /dev/stderr\nLogLevel crit\nStartServers 1\nServerLimit 1\nThreadsPerChild 32\nMaxRequestWorkers 32\nTraceEnable on\nAllowEncodedSlashes NoDecode\n\
             SetEnv proxy-sendcl 1\nKeepAliveTimeout 60\nMaxKeepAliveRequests 0\nProxyPass / http://{}/ nocanon retry=0\n",
            recorder.address()
        ),
    );
    let mut command = Command::new(program("apache2", "Debian's apache2-bin"));
    command.args(["-D", "FOREGROUND", "-f"]).arg(config);
    behind("Apache", command, dir, recorder)
}

/// Tomcat with one page for everything, which it compiles when it starts.
fn tomcat(port: u16, dir: TempDir) -> (&'static str, Source) {
    for folder in ["conf", "logs", "temp", "work", "webapps/ROOT/WEB-INF"] {
        std::fs::create_dir_all(dir.path().join(folder)).expect("a folder");
    }
    dir.file(
        "conf/catalina.properties",
        format!("common.loader={TOMCAT}/lib/*.jar,/usr/share/java/eclipse-jdt-core.jar\n"),
    );
    dir.file(
        "conf/server.xml",
        format!(
            "<Server port='-1'><Service name='Catalina'>\n\
             <Connector address='127.0.0.1' port='{port}' protocol='HTTP/1.1' maxThreads='16' allowTrace='true' maxHttpHeaderSize='65536' keepAliveTimeout='60000' \
             maxKeepAliveRequests='-1' encodedSolidusHandling='passthrough'/>\n\
             <Engine name='Catalina' defaultHost='zoo'><Host name='zoo' appBase='webapps' autoDeploy='false'/></Engine></Service></Server>\n"
        ),
    );
    dir.file(
        "webapps/ROOT/WEB-INF/web.xml",
        "<web-app xmlns='https://jakarta.ee/xml/ns/jakartaee' version='6.0'>\n\
         <servlet><servlet-name>jsp</servlet-name><servlet-class>org.apache.jasper.servlet.JspServlet</servlet-class></servlet>\n\
         <servlet><servlet-name>zoo</servlet-name><jsp-file>/zoo.jsp</jsp-file><load-on-startup>1</load-on-startup></servlet>\n\
         <servlet-mapping><servlet-name>zoo</servlet-name><url-pattern>/*</url-pattern></servlet-mapping></web-app>\n",
    );
    std::fs::copy(zoo("tomcat.jsp"), dir.path().join("webapps/ROOT/zoo.jsp")).expect("the page");
    let mut command = Command::new(program("java", "Debian's default-jre-headless"));
    command
        .args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp"])
        .arg(format!(
            "{TOMCAT}/bin/bootstrap.jar:{TOMCAT}/bin/tomcat-juli.jar"
        ))
        .arg(format!("-Dcatalina.home={TOMCAT}"))
        .arg(format!("-Dcatalina.base={}", dir.path().display()))
        .arg(format!("-Djava.io.tmpdir={}/temp", dir.path().display()))
        .args(["org.apache.catalina.startup.Bootstrap", "start"]);
    logged("Tomcat", command, dir)
}

/// `ZOO METHOD TARGET LENGTH BODY`, in hexadecimal.
fn parse(line: &str) -> Option<Meaning> {
    let (_, words) = line.split_once("ZOO ")?;
    let mut words = words.split(' ');
    let (method, target) = (unhex(words.next()?)?, unhex(words.next()?)?);
    let length = words.next()?.parse().ok()?;
    let mut body = unhex(words.next()?)?;
    body.truncate(MOST_BODY);
    Some(Meaning {
        method,
        target,
        length,
        body,
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if text == "-" {
        return Some(Vec::new());
    }
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect()
}
