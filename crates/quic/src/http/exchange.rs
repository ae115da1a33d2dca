//! A body's way out over HTTP/3: the same for responses and requests.

use std::{pin::pin, time::Duration};

use http_body::Body as _;
use http_body_util::BodyExt as _;

use super::Body;
use crate::h3::{Code, Error, SendHalf, within};

/// Sends what is queued, then the body, then the end. `patience` bounds each wait for the peer, not for the body's maker.
pub(super) async fn send_body(
    send: &mut SendHalf,
    body: Body,
    patience: Duration,
) -> Result<(), Error> {
    let mut body = pin!(body);
    while !body.is_end_stream() {
        let Some(frame) = body.frame().await else {
            break;
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                tracing::debug!(%error, "a body broke off");
                send.reset(Code::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => send.data(data),
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    send.trailers(&trailers)?;
                }
                break;
            }
        }
        // A body that is whole travels with its head and its end.
        if !body.is_end_stream() || send.queued() > TOGETHER {
            flush(send, patience).await?;
        }
    }
    flush(send, patience).await?;
    send.finish();
    Ok(())
}

/// Sends what is queued, while the peer takes some of it in time.
pub(super) async fn flush(send: &mut SendHalf, patience: Duration) -> Result<(), Error> {
    loop {
        let before = send.queued();
        match within(patience, send.flush()).await {
            Ok(flushed) => return flushed,
            Err(_) if send.queued() < before => {}
            Err(_) => {
                send.reset(Code::REQUEST_CANCELLED);
                return Err(Error::Late);
            }
        }
    }
}

/// Bytes that may wait for the end to travel with them.
const TOGETHER: usize = 64 << 10;
