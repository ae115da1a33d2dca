//! The client's end of a connection: any number of requests at once, for as long as the server takes them.

use std::sync::Arc;

use http::{Method, Request, Response, StatusCode};

use super::{
    Code, Datagrams, Error, ReceiveHalf, SendHalf, Settings,
    link::{Link, Side, number},
    message::{self, Protocol},
};

/// A connection to a server. Cheap to clone; clones are the same connection.
#[derive(Clone, Debug)]
pub struct Connection {
    link: Arc<Link>,
    settings: Settings,
}

/// A request whose head was sent: its body is to follow, and a response to come.
#[derive(Debug)]
pub struct Pending {
    /// The way for the request's body; [`SendHalf::finish`] ends it.
    pub send: SendHalf,
    /// What [`Pending::split`] gives.
    response: Awaited,
}

/// A response to come.
#[derive(Debug)]
pub struct Awaited {
    receive: ReceiveHalf,
    link: Arc<Link>,
    settings: Settings,
    id: u64,
    head_only: bool,
    connects: bool,
}

impl Connection {
    /// Begins to speak HTTP/3 on a connection that was made for it. What is not a response is seen to by tasks on the current thread.
    ///
    /// # Errors
    /// [`Error`]: the connection has ended.
    pub async fn start(connection: quinn::Connection, settings: Settings) -> Result<Self, Error> {
        let link = Link::new(connection, Side::Client, &settings);
        tokio::task::spawn_local(Arc::clone(&link).serve());
        link.start().await?;
        Ok(Self { link, settings })
    }

    /// Sends a request's head. An extended CONNECT has [`Protocol`] in its extensions; it waits for the server's settings, which say whether there is
    /// such a thing.
    ///
    /// # Errors
    /// [`Error::Refused`] if the server takes no more, or no such request; else whatever ended the stream.
    pub async fn begin<T>(&self, request: &Request<T>) -> Result<Pending, Error> {
        let extended = request.extensions().get::<Protocol>().is_some();
        if extended {
            self.settled().await?;
            if !self.link.peer().is_some_and(|peer| peer.extended_connect) {
                return Err(Error::Refused);
            }
        }
        if request
            .headers()
            .iter()
            .map(|(name, value)| name.as_str().len() + value.len())
            .sum::<usize>()
            > LARGE
        {
            self.settled().await?;
        }
        let (send, receive) = self.link.quinn.open_bi().await?;
        let id = number(send.id());
        let mut send = SendHalf::new(send, &self.link);
        let receive = ReceiveHalf::new(receive, &self.link);
        if !self.takes_requests() {
            return Err(Error::Refused);
        }
        send.request(request)?;
        send.flush().await?;
        let connects = request.method() == Method::CONNECT;
        Ok(Pending {
            send,
            response: Awaited {
                receive,
                link: Arc::clone(&self.link),
                settings: self.settings.clone(),
                id,
                head_only: request.method() == Method::HEAD,
                connects,
            },
        })
    }

    /// Whether the server takes more requests.
    #[must_use]
    pub fn takes_requests(&self) -> bool {
        self.link.refused_from() == u64::MAX && self.link.quinn.close_reason().is_none()
    }

    /// The connection below.
    #[must_use]
    pub fn quinn(&self) -> &quinn::Connection {
        &self.link.quinn
    }

    /// Ends the connection in order; responses that are not complete are lost.
    pub fn close(&self) {
        self.link.quinn.close(Code::NO_ERROR.var(), b"");
    }

    async fn settled(&self) -> Result<(), Error> {
        tokio::select! {
            () = self.link.settled.wait() => Ok(()),
            error = self.link.quinn.closed() => Err(error.into()),
            () = tokio::time::sleep(self.settings.head_time) => Err(Error::Late),
        }
    }
}

impl Pending {
    /// The response to come, and the way for the body.
    #[must_use]
    pub fn split(self) -> (SendHalf, Awaited) {
        (self.send, self.response)
    }
}

impl Awaited {
    /// The next head: interim ones (1xx) first, if any, then the last. The caller bounds the time. Cancel safe.
    ///
    /// # Errors
    /// [`Error`]: there is no response.
    pub async fn head(&mut self) -> Result<Response<()>, Error> {
        let Some(block) = self.receive.head().await? else {
            return Err(Error::Malformed);
        };
        let read = message::response(&block, self.link.limits)
            .and_then(|response| Ok((message::content_length(response.headers())?, response)));
        let (length, mut response) = read.map_err(|unfit| self.receive.unfit(unfit))?;
        if !response.status().is_informational() {
            let status = response.status();
            let tunnels = self.connects && status.is_success();
            let none = self.head_only
                || status == StatusCode::NOT_MODIFIED
                || status == StatusCode::NO_CONTENT;
            if tunnels {
                self.receive.expect_tunnel();
            } else {
                self.receive.expect_body(length.filter(|_| !none));
            }
            if tunnels && self.settings.datagrams {
                let datagrams = Datagrams::new(&self.link, self.id);
                response.extensions_mut().insert(datagrams);
            }
        }
        Ok(response)
    }

    /// The body, once the last head has come.
    #[must_use]
    pub fn into_body(self) -> ReceiveHalf {
        self.receive
    }
}

/// Fields up to this many bytes are sent before it is known how much the server takes (RFC 9114 §7.2.4.2); larger ones wait for that.
const LARGE: usize = 8 << 10;
