//! Readings of monitoring, made once for many clients.
//!
//! A request with `Cache-Control: max-age=N` takes an answer that is up to N seconds old (RFC 9111). The page asks so each
//! second: a hundred open pages then cost the loop little more than one. Any other request gets an answer of its own.
//!
//! Invariants:
//! - A reading is given only to requests with the token that it was made for. Before that, the loop says for each request that the
//!   token is valid. The reading of the probe `/health`, which needs no token, is given to all.
//! - A reading is as old as the moment in which its making began.
//! - Readings of one kind are made one after the other, and a request that comes meanwhile waits.
//! - At most [`MAX_KEPT`] readings are kept.
//!
//! Absent: answers of requests that change something, and of pages of `find`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, Response, header};
use lycosa_instance::TokenDigest;

use super::problem::Problem;
use super::{compression, etag};

/// The oldest answer that a request can ask for.
const MAX_AGE: Duration = Duration::from_secs(5);

/// Readings that are kept; further ones are made for their request alone.
const MAX_KEPT: usize = 128;

/// A call of a function, and the token that it is made for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Subject {
    /// None: no token is needed.
    pub(super) token: Option<TokenDigest>,
    pub(super) function: &'static str,
    /// MessagePack values.
    pub(super) args: Vec<u8>,
}

/// The compressed bytes of a reading, once a client has asked for them. It goes with the response, which another layer compresses.
#[derive(Debug, Clone, Default)]
pub(super) struct Packed(Arc<OnceLock<Bytes>>);

impl Packed {
    /// The compressed bytes; `body` is the reading's text.
    pub(super) fn of(&self, body: &[u8]) -> Bytes {
        self.0.get_or_init(|| compression::fast(body).into()).clone()
    }
}

/// An answer in JSON, with its ETag.
#[derive(Debug, Clone)]
pub(super) struct Reading {
    body: Bytes,
    packed: Packed,
    tag: HeaderValue,
    began: Instant,
}

impl Reading {
    fn is_younger(&self, age: Duration) -> bool {
        self.began.elapsed() < age
    }

    /// The response; [`super::routes`] leaves it out for a client that has it.
    pub(super) fn response(self) -> Response<Body> {
        let age = self.began.elapsed().as_secs();
        let mut response = Response::new(Body::from(self.body));
        response.extensions_mut().insert(self.packed);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ETAG, self.tag);
        headers.insert(header::AGE, age.into());
        response
    }
}

type Place = Arc<tokio::sync::Mutex<Option<Reading>>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    places: Mutex<HashMap<Subject, Place>>,
}

impl Readings {
    /// A reading that is younger than `age`, or else one that `make` makes.
    ///
    /// # Errors
    /// As `make`.
    pub(super) async fn get(
        &self,
        subject: Subject,
        age: Duration,
        make: impl Future<Output = Result<String, Problem>>,
    ) -> Result<Reading, Problem> {
        let place = self.place(subject);
        let mut kept = place.lock().await;
        if let Some(reading) = kept.as_ref().filter(|reading| reading.is_younger(age)) {
            return Ok(reading.clone());
        }
        let began = Instant::now();
        let body = Bytes::from(make.await?);
        let reading = Reading { tag: etag::of(&body), packed: Packed::default(), body, began };
        *kept = Some(reading.clone());
        Ok(reading)
    }

    /// Where a reading of the subject is kept.
    fn place(&self, subject: Subject) -> Place {
        // A thread that panicked with the lock has at most left a place too many.
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(&subject) {
            return place.clone();
        }
        if places.len() >= MAX_KEPT {
            // A place that is locked is in use.
            let is_young = |reading: &Reading| reading.is_younger(MAX_AGE);
            places
                .retain(|_, place| place.try_lock().map_or(true, |kept| kept.as_ref().is_some_and(is_young)));
        }
        let place = Place::default();
        if places.len() < MAX_KEPT {
            places.insert(subject, place.clone());
        }
        place
    }
}

/// How old an answer the client takes, if it says so.
pub(super) fn accepted_age(headers: &HeaderMap) -> Option<Duration> {
    let lists = headers.get_all(header::CACHE_CONTROL).into_iter().filter_map(|list| list.to_str().ok());
    let mut directives = lists.flat_map(|list| list.split(',')).map(str::trim);
    let seconds = directives.find_map(|directive| {
        let (name, value) = directive.split_once('=')?;
        name.eq_ignore_ascii_case("max-age").then(|| value.trim_matches('"').parse::<u64>().ok())?
    })?;
    Some(Duration::from_secs(seconds).min(MAX_AGE)).filter(|age| !age.is_zero())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::http::problem::Kind;

    fn subject(secret: &str, args: &[u8]) -> Subject {
        Subject {
            token: Some(TokenDigest::of(secret.as_bytes())),
            function: "queue.status",
            args: args.to_vec(),
        }
    }

    #[test]
    fn a_client_says_how_old_an_answer_may_be() {
        let age = |list: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(list));
            accepted_age(&headers)
        };
        assert_eq!(age("max-age=1"), Some(Duration::from_secs(1)));
        assert_eq!(age("no-transform, Max-Age=2"), Some(Duration::from_secs(2)));
        assert_eq!(age("max-age=86400"), Some(MAX_AGE));
        for fresh in ["no-cache", "max-age=0", "max-age=x", "max-age"] {
            assert_eq!(age(fresh), None, "{fresh}");
        }
        assert_eq!(accepted_age(&HeaderMap::new()), None);
    }

    #[tokio::test]
    async fn a_reading_is_shared_by_the_requests_of_its_token_and_subject() {
        let (readings, made) = (Readings::default(), Cell::new(0));
        let get = async |secret: &str, args: &[u8], age: Duration| {
            let make = async {
                made.set(made.get() + 1);
                Ok(made.get().to_string())
            };
            readings.get(subject(secret, args), age, make).await.expect("made").body
        };
        let long = Duration::from_secs(60 * 60);
        assert_eq!(get("a", b"1", long).await, "1");
        assert_eq!(get("a", b"1", long).await, "1");
        assert_eq!(get("b", b"1", long).await, "2");
        assert_eq!(get("a", b"2", long).await, "3");
        assert_eq!(get("a", b"1", Duration::ZERO).await, "4", "no reading is that young");
        assert_eq!(get("a", b"1", long).await, "4");
    }

    #[tokio::test]
    async fn a_reading_is_compressed_once() {
        let (readings, age) = (Readings::default(), Duration::from_secs(60 * 60));
        let packed = async || {
            let made = readings.get(subject("a", b""), age, async { Ok("text".to_owned()) }).await;
            made.expect("made")
                .response()
                .extensions_mut()
                .remove::<Packed>()
                .expect("it goes with the response")
        };
        let first = packed().await.of(b"text");
        assert_eq!(compression::tests::unpacked(&first), b"text");
        assert_eq!(packed().await.of(b"another text").as_ptr(), first.as_ptr());
    }

    #[tokio::test]
    async fn a_failure_is_not_kept_and_neither_are_too_many_readings() {
        let readings = Readings::default();
        let age = Duration::from_secs(60 * 60);
        let failed = readings.get(subject("a", b""), age, async { Err(Problem::new(Kind::Malformed, "no")) });
        assert!(failed.await.is_err());
        for number in 0..2 * MAX_KEPT {
            let args = number.to_string().into_bytes();
            let made = readings.get(subject("a", &args), age, async { Ok("1".to_owned()) }).await;
            assert_eq!(made.expect("made").response().headers()[header::AGE], "0");
        }
        assert_eq!(readings.places.lock().unwrap().len(), MAX_KEPT);
    }
}
