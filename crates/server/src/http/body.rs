//! Bodies of requests: read whole, within the bounds of [`Limits`](super::Limits).
//!
//! Each body takes its bytes from one [`BodyMemory`], which bounds the memory of many large bodies, and returns the bytes when
//! the request ends.

use std::pin::pin;

use axum::body::{Body, HttpBody};
use axum::http::{HeaderMap, HeaderValue, header};

use super::State;
use super::body_memory::BodyMemory;
use super::problem::{Kind, Problem};

/// A body that was read.
#[derive(Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
    reserved: usize,
    memory: BodyMemory,
}

impl Drop for Bytes {
    fn drop(&mut self) {
        self.memory.give_back(self.reserved);
    }
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
    let limit = state.limits.max_body;
    let too_large = || {
        Problem::new(Kind::TooLarge, format!("a body has at most {limit} bytes (http.max_body)")).closing()
    };
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let announced: usize = announced.unwrap_or_default();
    if announced > limit {
        return Err(too_large());
    }
    let mut read = Bytes { bytes: Vec::new(), reserved: 0, memory: state.bodies.clone() };
    let mut body = pin!(body);
    let reading = async {
        while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            let ended =
                |error| Problem::new(Kind::Malformed, format!("the body ends early: {error}")).closing();
            let Ok(data) = frame.map_err(ended)?.into_data() else { continue };
            if read.bytes.len() + data.len() > limit {
                return Err(too_large());
            }
            if !state.bodies.take(data.len()) {
                let detail = "the bodies of other requests take all memory that bodies may take";
                return Err(Problem::new(Kind::Busy, detail).closing());
            }
            read.reserved += data.len();
            read.bytes.extend_from_slice(&data);
        }
        Ok(())
    };
    let seconds = state.limits.timeout.as_secs_f64();
    let late = || Problem::new(Kind::TooSlow, format!("the body did not come within {seconds} s")).closing();
    tokio::time::timeout(state.limits.timeout, reading).await.map_err(|_| late())??;
    Ok(read)
}
