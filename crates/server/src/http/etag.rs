//! ETags: the server does not send an answer again that the client already has.

use std::hash::{DefaultHasher, Hasher};

use axum::http::{HeaderMap, HeaderValue, header};

/// Changes with the bytes: the hasher has the same keys in every process.
pub(crate) fn of(bytes: &[u8]) -> HeaderValue {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    HeaderValue::from_str(&format!("\"{:016x}\"", hasher.finish())).expect("hexadecimal digits make a header")
}

/// The tag of compressed bytes whose text has this tag: a weak one.
pub(crate) fn weak(tag: &HeaderValue) -> HeaderValue {
    HeaderValue::from_bytes(&[b"W/", tag.as_bytes()].concat()).expect("a tag with a prefix is a header")
}

/// Whether the client has what this tag stands for.
pub(crate) fn is_known(headers: &HeaderMap, tag: &HeaderValue) -> bool {
    headers.get_all(header::IF_NONE_MATCH).iter().any(|tags| contains(tags.as_bytes(), tag.as_bytes()))
}

/// Whether a list of ETags names this one, weakly or not.
fn contains(tags: &[u8], tag: &[u8]) -> bool {
    tags.split(|byte| *byte == b',').any(|one| {
        let one = one.trim_ascii();
        one.strip_prefix(b"W/").unwrap_or(one) == tag
    })
}
