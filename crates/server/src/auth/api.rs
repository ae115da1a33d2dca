//! The external authentication service (`authAPI`): a POST of the client's id and proof; the service knows the secrets.
//!
//! Request: `{"id": …, "address": …, "transcript": hex, "proof": hex}`, where proof = HMAC-SHA256(key, "client" ‖ 0 ‖ transcript) and
//! key = HMAC-SHA256(secret, "gt auth v1" ‖ 0 ‖ id). Answer: status 200 and
//! `{"ok": bool, "key": hex?, "cacheSeconds": n?, "loadBalance": bool?, "speed": n?, "connections": n?, "streams": n?, "hostNumber": n?,
//! "tcpNumber": n?, "tcpRanges": ["a-b", …]?}`. With `key` this server checks the proof itself, can prove itself to the client, and asks
//! again only after `cacheSeconds`. See docs/configuration.md.

use std::{
    collections::HashMap,
    net::IpAddr,
    num::NonZeroU64,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use config::Limits;
use net::tls::TlsConnector;
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, SemaphorePermit};
use tunnel::{AuthRequest, Key};
use url::Url;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("no answer within {TIMEOUT:?}")]
    Timeout,
    #[error("{MOST_WAITING} clients wait for it already, or one has waited for {WAIT:?}")]
    Busy,
    #[error("{0}")]
    Fetch(#[from] net::FetchError),
    #[error("it answered with status {0}")]
    Status(u16),
    #[error("its answer is not what it should be: {0}")]
    Answer(String),
}

impl ApiError {
    /// What the client is told; nothing of the service.
    pub(crate) fn told(&self) -> &'static str {
        match self {
            Self::Busy => "the server cannot check clients now: too many wait to be checked",
            _ => "the server cannot check clients now: its authentication service does not answer",
        }
    }
}

/// A client of the service, with a memory of keys.
pub(crate) struct AuthApi {
    url: Url,
    tls: TlsConnector,
    /// Calls at one time.
    calls: Semaphore,
    /// Clients that wait for a call's turn.
    waiting: AtomicUsize,
    known: Mutex<HashMap<String, (Vouched, Instant)>>,
}

#[derive(Serialize)]
struct Question<'a> {
    id: &'a str,
    address: IpAddr,
    transcript: String,
    proof: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Reply {
    ok: bool,
    key: Option<String>,
    cache_seconds: u64,
    load_balance: bool,
    speed: Option<u64>,
    connections: Option<u16>,
    streams: Option<u32>,
    host_number: Option<u32>,
    tcp_number: Option<u16>,
    tcp_ranges: Option<Vec<String>>,
}

/// What the service says of a client it knows.
#[derive(Clone)]
pub(crate) struct Vouched {
    pub(crate) key: Option<Key>,
    pub(crate) load_balance: bool,
    reply: Reply,
}

impl Vouched {
    /// The server's limits, with what the service says put in their place.
    pub(crate) fn limits(&self, defaults: &Limits) -> Limits {
        let reply = &self.reply;
        let range = |text: &String| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let (first, last): (u16, u16) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first > 0 && first <= last).then_some(first..=last)
        };
        Limits {
            tcp_ranges: match &reply.tcp_ranges {
                Some(ranges) => ranges.iter().filter_map(range).collect(),
                None => defaults.tcp_ranges.clone(),
            },
            tcp_number: reply.tcp_number.unwrap_or(defaults.tcp_number),
            host_number: reply.host_number.unwrap_or(defaults.host_number),
            speed: reply.speed.map_or(defaults.speed, NonZeroU64::new),
            connections: reply.connections.unwrap_or(defaults.connections).max(1),
            streams: reply.streams.unwrap_or(defaults.streams),
            ..defaults.clone()
        }
    }
}

impl AuthApi {
    pub(crate) fn new(url: Url, tls: TlsConnector) -> Self {
        Self {
            url,
            tls,
            calls: Semaphore::new(MOST_CALLS),
            waiting: AtomicUsize::new(0),
            known: Mutex::default(),
        }
    }

    /// `None`: the service does not know the client, or its proof is wrong.
    pub(crate) async fn ask(
        &self,
        request: &AuthRequest,
        address: IpAddr,
    ) -> Result<Option<Vouched>, ApiError> {
        let id = request.client.id.as_str();
        // A key that does not fit may be an old one.
        if let Some(vouched) = self
            .remembered(id)
            .filter(|vouched| vouched.key.as_ref().is_some_and(|key| request.verify(key)))
        {
            return Ok(Some(vouched));
        }
        let _turn = self.turn().await?;
        let question = Question {
            id,
            address,
            transcript: request.transcript.to_hex(),
            proof: request.proof.to_hex(),
        };
        let json =
            serde_json::to_vec(&question).map_err(|error| ApiError::Answer(error.to_string()))?;
        let answer =
            tokio::time::timeout(TIMEOUT, net::fetch(&self.url, Some(json), &self.tls)).await;
        let answer = answer.map_err(|_| ApiError::Timeout)??;
        match answer.status {
            200 => {}
            401 | 403 | 404 => return Ok(None),
            status => return Err(ApiError::Status(status)),
        }
        let reply: Reply = serde_json::from_slice(&answer.body)
            .map_err(|error| ApiError::Answer(error.to_string()))?;
        if !reply.ok {
            return Ok(None);
        }
        let key = reply.key.as_deref().map(Key::from_hex).transpose();
        let key = key.map_err(|error| ApiError::Answer(error.to_string()))?;
        let vouched = Vouched {
            key,
            load_balance: reply.load_balance,
            reply,
        };
        self.remember(id, &vouched);
        Ok(Some(vouched))
    }

    /// Waits for one of the calls that may be made at one time: whoever floods the server with handshakes must not flood the service.
    async fn turn(&self) -> Result<SemaphorePermit<'_>, ApiError> {
        if let Ok(turn) = self.calls.try_acquire() {
            return Ok(turn);
        }
        let room = |n| (n < MOST_WAITING).then_some(n + 1);
        self.waiting
            .fetch_update(Relaxed, Relaxed, room)
            .map_err(|_| ApiError::Busy)?;
        let _waits = Waits(&self.waiting);
        match tokio::time::timeout(WAIT, self.calls.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(ApiError::Busy),
        }
    }

    fn remembered(&self, id: &str) -> Option<Vouched> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(id)
            .filter(|(_, until)| *until > Instant::now())
            .map(|(vouched, _)| vouched.clone())
    }

    fn remember(&self, id: &str, vouched: &Vouched) {
        let time = Duration::from_secs(vouched.reply.cache_seconds).min(LONGEST_MEMORY);
        // Without the key the proof must be checked by the service each time.
        if vouched.key.is_none() || time.is_zero() {
            return;
        }
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_REMEMBERED {
            let now = Instant::now();
            known.retain(|_, (_, until)| *until > now);
        }
        if known.len() < MOST_REMEMBERED {
            known.insert(id.to_owned(), (vouched.clone(), Instant::now() + time));
        }
    }
}

/// One who waits, until dropped: the handshake's time may be over first.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

const TIMEOUT: Duration = Duration::from_secs(5);
/// Connections that a service of any size can take.
const MOST_CALLS: usize = 32;
const MOST_WAITING: usize = 256;
/// Together with [`TIMEOUT`] less than the usual `handshakeTimeout`, so that the client gets an answer.
const WAIT: Duration = Duration::from_secs(4);
const LONGEST_MEMORY: Duration = Duration::from_secs(3600);
const MOST_REMEMBERED: usize = 10_000;
