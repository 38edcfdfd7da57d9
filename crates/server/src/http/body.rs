//! Bodies of requests: read whole, within the bounds of the configuration.
//!
//! Each body takes its bytes from one semaphore, which bounds the memory of many large bodies, and returns the bytes when
//! the request ends.

use std::pin::pin;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};
use tokio::sync::OwnedSemaphorePermit;

use super::State;
use super::problem::{Kind, Problem};

/// A body that was read.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    /// Its part of the bytes that all bodies may take.
    held: Vec<OwnedSemaphorePermit>,
}

impl std::ops::Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Reads a body.
///
/// # Errors
/// It is compressed, too large, too slow, or ends early; the bodies of all requests have no bytes left.
pub(crate) async fn read(state: &State, headers: &HeaderMap, body: Body) -> Result<Bytes, Problem> {
    let is_identity = |encoding: &HeaderValue| encoding.as_bytes().eq_ignore_ascii_case(b"identity");
    if let Some(encoding) =
        headers.get_all(header::CONTENT_ENCODING).iter().find(|encoding| !is_identity(encoding))
    {
        let detail = format!("Content-Encoding is {encoding:?}: send the body as it is, without compression");
        return Err(Problem::new(Kind::WrongType, detail).closing());
    }
    let limit = state.config.http_max_body.bytes();
    let too_large = || {
        Problem::new(Kind::TooLarge, format!("a body has at most {limit} bytes (http.max_body)")).closing()
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let announced: usize = announced.unwrap_or_default();
    if announced > limit {
        return Err(too_large());
    }
    let mut read = Bytes { bytes: Vec::new(), held: Vec::new() };
    let mut body = pin!(body);
    let reading = async {
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let ended =
                |error| Problem::new(Kind::Malformed, format!("the body ends early: {error}")).closing();
            let Ok(data) = frame.map_err(ended)?.into_data() else { continue };
            if read.bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
            let busy = "the bodies of other requests take all memory that bodies may take";
            let held = state.bodies.clone().try_acquire_many_owned(length);
            read.held.push(held.map_err(|_| Problem::new(Kind::Busy, busy).closing())?);
            read.bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    let patience = state.config.http_timeout;
    let seconds = patience.as_secs_f64();
    let late = || Problem::new(Kind::TooSlow, format!("the body did not come within {seconds} s")).closing();
    tokio::time::timeout(patience, reading).await.map_err(|_| late())??;
    Ok(read)
}
