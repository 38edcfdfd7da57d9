//! Bearer tokens of requests. The instance decides about their rights.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::header;
use axum::http::request::Parts;
use lycosa_instance::TokenDigest;

use super::problem::{Kind, Problem};

/// The token of a request: its digest, since nothing else is needed of the secret.
#[derive(Debug, Clone)]
pub(crate) struct Access(pub(crate) TokenDigest);

impl<S: Send + Sync> OptionalFromRequestParts<S> for Access {
    type Rejection = Problem;

    /// None: the request has no token. One that is malformed is refused.
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Option<Self>, Problem> {
        if !parts.headers.contains_key(header::AUTHORIZATION) {
            return Ok(None);
        }
        <Self as FromRequestParts<S>>::from_request_parts(parts, state).await.map(Some)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Access {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let mut named = parts.headers.get_all(header::AUTHORIZATION).iter();
        let missing =
            "send a token: Authorization: Bearer TOKEN (`lycosa token add NAME --role operator` makes one)";
        let authorization = named.next().ok_or_else(|| Problem::new(Kind::NoToken, missing))?;
        if named.next().is_some() {
            return Err(Problem::new(Kind::Malformed, "a request has one Authorization"));
        }
        let secret = authorization.as_bytes().split_first_chunk::<7>();
        match secret {
            Some((scheme, secret)) if scheme.eq_ignore_ascii_case(b"bearer ") => {
                Ok(Self(TokenDigest::of(secret.trim_ascii())))
            }
            _ => Err(Problem::new(Kind::NoToken, missing)),
        }
    }
}
