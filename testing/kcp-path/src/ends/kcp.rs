//! gt's KCP, set as the Go program sets kcp-go.

use std::{
    cell::RefCell,
    io,
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use anyhow::Context as _;
use kcp::{
    Config, Control, Mode, Shards,
    seal::{Cipher, Seal},
    udp::{Listener, Options, Session},
};
use tokio::io::AsyncWrite;

use super::{Reader, Writer};
use crate::subject::Subject;

/// Set by the lab: segments of the windows, at both ends.
pub(crate) const WINDOW: &str = "KCP_PATH_WINDOW";

pub(super) async fn accept(subject: Subject, address: SocketAddr) -> anyhow::Result<Reader> {
    let mut listener = Listener::bind(address, options(subject)?)?;
    println!("ready");
    let session = listener.accept().await?;
    // Its socket must outlive this function: the process ends with the measurement.
    std::mem::forget(listener);
    Ok(Box::new(session))
}

pub(super) fn dial(subject: Subject, address: SocketAddr) -> anyhow::Result<Writer> {
    let session = Rc::new(RefCell::new(Session::connect(address, options(subject)?)?));
    Ok(Writer {
        stream: Box::new(Shared(Rc::clone(&session))),
        counters: Box::new(move || {
            let counters = session.borrow().counters();
            (counters.retrans_segs, counters.out_segs)
        }),
    })
}

fn options(subject: Subject) -> anyhow::Result<Options> {
    let mode = match subject {
        Subject::GtReno => Mode {
            congestion_control: true,
            ..Mode::FAST3
        },
        _ => Mode::FAST3,
    };
    let fec = match subject {
        Subject::GtFast3Fec | Subject::GtPacedFec => Some(Shards::new(10, 3)?),
        _ => None,
    };
    let mut window = std::env::var(WINDOW).context(WINDOW)?.parse()?;
    let control = match subject {
        Subject::GtPaced | Subject::GtPacedFec => Control::Paced,
        _ => Control::Classic,
    };
    if control == Control::Paced {
        window *= 8;
    }
    let config = Config {
        mode,
        control,
        send_window: window,
        recv_window: window,
        mtu: 1400,
        ack_nodelay: true,
        fec,
        ..Config::default()
    };
    Ok(Options::new(
        config,
        Arc::new(Seal::new(Cipher::Null, &[])?),
    ))
}

/// A session that is written to, and asked for its counters meanwhile.
struct Shared(Rc<RefCell<Session>>);

impl AsyncWrite for Shared {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_shutdown(context)
    }
}
