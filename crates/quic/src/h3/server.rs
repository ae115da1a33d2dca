//! The server's end of a connection: requests come, each with the two halves of its exchange.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use http::{HeaderValue, Method, Response, StatusCode};

use super::{
    Code, Datagrams, Error, ReceiveHalf, SendHalf, Settings,
    link::{Link, Side, number},
    message::{self, Protocol, Unfit},
    qpack::Unusable,
    within,
};
use crate::Incoming;

/// A connection of a client.
#[derive(Debug)]
pub struct Connection {
    link: Arc<Link>,
    settings: Settings,
    /// The next request's id, as far as is known.
    next: u64,
    /// Requests from here on are refused.
    until: u64,
    /// A first GOAWAY was sent.
    announced: bool,
}

/// A stream whose request has not been read.
#[derive(Debug)]
pub struct Arriving {
    send: SendHalf,
    receive: ReceiveHalf,
    link: Arc<Link>,
    settings: Settings,
}

/// A request, and what is needed to answer it.
#[derive(Debug)]
pub struct Exchange {
    /// Its head. An extended CONNECT has [`Protocol`] in its extensions, and a request that may have [`Datagrams`] has those.
    pub request: http::Request<()>,
    /// It came as early data and the handshake was not complete when it was read: it may be a copy of what another has sent. `Early-Data: 1` is among
    /// its fields then (RFC 8470 §5.1).
    pub early: bool,
    /// Its body.
    pub receive: ReceiveHalf,
    /// The way for the response.
    pub send: SendHalf,
}

impl Connection {
    /// Begins to speak HTTP/3 on a connection that was accepted for it. What is not a request is seen to by tasks on the current thread.
    ///
    /// # Errors
    /// [`Error`]: the connection has ended.
    pub async fn start(incoming: Incoming, settings: Settings) -> Result<Self, Error> {
        let link = Link::new(incoming.connection, Side::Server, &settings);
        if let Some(established) = incoming.established {
            link.established.store(false, Relaxed);
            let link = Arc::clone(&link);
            tokio::task::spawn_local(async move {
                established.await;
                link.established.store(true, Relaxed);
            });
        }
        tokio::task::spawn_local(Arc::clone(&link).serve());
        link.start().await?;
        Ok(Self {
            link,
            settings,
            next: 0,
            until: u64::MAX,
            announced: false,
        })
    }

    /// The next request's stream. `None`: the connection has ended. Cancel safe.
    pub async fn accept(&mut self) -> Option<Arriving> {
        loop {
            let (mut send, mut receive) = self.link.quinn.accept_bi().await.ok()?;
            let id = number(send.id());
            if id >= self.until {
                // RFC 9114 §4.1.1: it may be sent again elsewhere.
                let _ = receive.stop(Code::REQUEST_REJECTED.var());
                let _ = send.reset(Code::REQUEST_REJECTED.var());
                continue;
            }
            self.next = self.next.max(id + 4);
            return Some(Arriving {
                send: SendHalf::new(send, &self.link),
                receive: ReceiveHalf::new(receive, &self.link),
                link: Arc::clone(&self.link),
                settings: self.settings.clone(),
            });
        }
    }

    /// Tells the client that it should send no more requests here (RFC 9114 §5.2). Those that are on their way are still taken, until
    /// [`Connection::drain`] about a round trip later.
    pub async fn announce(&mut self) {
        if self.until == u64::MAX && !std::mem::replace(&mut self.announced, true) {
            self.link.send_goaway(LAST_REQUEST).await;
        }
    }

    /// Takes no more requests than those that have come, and tells the client (GOAWAY).
    pub async fn drain(&mut self) {
        if self.until == u64::MAX {
            self.until = self.next;
            self.link.send_goaway(self.until).await;
        }
    }

    /// Ends the connection in order; responses that are not complete are lost.
    pub fn close(&self) {
        self.link.quinn.close(Code::NO_ERROR.var(), b"");
    }

    /// The connection below.
    #[must_use]
    pub fn quinn(&self) -> &quinn::Connection {
        &self.link.quinn
    }
}

impl Arriving {
    /// Reads the request's head, in bounded time. A head that is too large has been answered (431), one that is malformed refused.
    ///
    /// # Errors
    /// [`Error`]: there is no request.
    pub async fn resolve(mut self) -> Result<Exchange, Error> {
        let head = within(self.settings.head_time, self.receive.head()).await;
        let block = match head {
            Ok(Ok(Some(block))) => block,
            Ok(Ok(None)) => {
                self.send.reset(Code::REQUEST_INCOMPLETE);
                return Err(Error::Malformed);
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                self.receive.stop(Code::REQUEST_INCOMPLETE);
                self.send.reset(Code::REQUEST_INCOMPLETE);
                return Err(Error::Late);
            }
        };
        let read = message::request(&block, self.link.limits)
            .and_then(|request| Ok((message::content_length(request.headers())?, request)));
        let (length, mut request) = match read {
            Ok(read) => read,
            Err(Unfit::Section(Unusable::TooLarge)) => {
                self.answer_too_large().await;
                return Err(Error::TooLarge);
            }
            Err(unfit) => {
                let error = self.receive.unfit(unfit);
                self.send.reset(Code::MESSAGE_ERROR);
                return Err(error);
            }
        };
        let extended = request.extensions().get::<Protocol>().is_some();
        if extended && !self.settings.extended_connect {
            self.receive.stop(Code::MESSAGE_ERROR);
            self.send.reset(Code::MESSAGE_ERROR);
            return Err(Error::Malformed);
        }
        // A tunnel's bytes are no body.
        if request.method() == Method::CONNECT {
            self.receive.expect_tunnel();
        } else {
            self.receive.expect_body(length);
            poll_fn(|cx| {
                self.receive.look_ahead(cx);
                Poll::Ready(())
            })
            .await;
        }
        let early = self.receive.is_early() && !self.link.established.load(Relaxed);
        if early {
            let headers = request.headers_mut();
            headers.insert("early-data", HeaderValue::from_static("1"));
        }
        // Only a client that wants datagrams for its request names a protocol for it (RFC 9297 §2).
        if extended && self.settings.datagrams {
            let datagrams = Datagrams::new(&self.link, self.send.id());
            request.extensions_mut().insert(datagrams);
        }
        Ok(Exchange {
            request,
            early,
            receive: self.receive,
            send: self.send,
        })
    }

    async fn answer_too_large(mut self) {
        let mut refusal = Response::new(());
        *refusal.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        self.receive.stop(Code::NO_ERROR);
        if self.send.response(&refusal).is_ok()
            && within(self.settings.head_time, self.send.flush())
                .await
                .is_ok_and(|sent| sent.is_ok())
        {
            self.send.finish();
        }
    }
}

/// The largest id of a request that there can be (RFC 9000 §2.1).
const LAST_REQUEST: u64 = (1 << 62) - 4;
