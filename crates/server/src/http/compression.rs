//! gzip for clients that accept it: files of the page, compressed once, and large JSON answers.
//!
//! Only answers to GET are compressed. The secret of a new token is an answer to POST, so it never shares a compressed body with
//! text of other people. A client on the same machine gets JSON uncompressed: the compression costs more than it saves there, and
//! a proxy compresses on its own.

use std::io::Write;

use axum::http::{HeaderMap, HeaderValue, header};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Peer;

/// Bytes below which a JSON answer is not compressed.
pub(super) const LEAST: usize = 1 << 10;

/// Compresses once for many answers.
pub(super) fn small(bytes: &[u8]) -> Vec<u8> {
    gzip(bytes, Compression::best())
}

/// Compresses for one answer.
pub(super) fn fast(bytes: &[u8]) -> Vec<u8> {
    gzip(bytes, Compression::fast())
}

fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), level);
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector takes every byte")
}

/// Whether the client takes gzip: the word stands in Accept-Encoding, and not with a quality of zero.
pub(super) fn is_accepted(headers: &HeaderMap) -> bool {
    let lists = headers.get_all(header::ACCEPT_ENCODING).into_iter().filter_map(|list| list.to_str().ok());
    let mut codings = lists.flat_map(|list| list.split(','));
    codings.any(|coding| {
        let (name, quality) = coding.split_once(';').unwrap_or((coding, "q=1"));
        let quality =
            quality.trim().strip_prefix("q=").and_then(|quality| quality.trim().parse::<f32>().ok());
        name.trim().eq_ignore_ascii_case("gzip") && quality.is_none_or(|quality| quality > 0.0)
    })
}

/// Whether a JSON answer of this size to this client is compressed.
pub(super) fn pays(size: usize, peer: Option<&Peer>) -> bool {
    size >= LEAST && peer.is_some_and(|Peer(address)| !address.ip().to_canonical().is_loopback())
}

/// Says in an answer that its body is compressed.
pub(super) fn mark(headers: &mut HeaderMap) {
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
}

/// Says in an answer that its body may differ by what the client accepts.
pub(super) fn vary(headers: &mut HeaderMap) {
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;
    use std::net::SocketAddr;

    use flate2::read::GzDecoder;

    use super::*;

    /// The bytes before the compression.
    pub(crate) fn unpacked(bytes: &[u8]) -> Vec<u8> {
        let mut found = Vec::new();
        GzDecoder::new(bytes).read_to_end(&mut found).unwrap();
        found
    }

    fn accepts(list: &str) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, list.parse().unwrap());
        is_accepted(&headers)
    }

    #[test]
    fn a_client_says_what_it_takes() {
        for list in ["gzip", "deflate, GZIP", "br;q=1.0, gzip;q=0.5", "gzip ; q=1"] {
            assert!(accepts(list), "{list}");
        }
        for list in ["", "identity", "br, zstd", "gzip;q=0", "gzip; q=0.0", "xgzip"] {
            assert!(!accepts(list), "{list}");
        }
        assert!(!is_accepted(&HeaderMap::new()));
    }

    #[test]
    fn small_answers_and_those_on_the_same_machine_stay_as_they_are() {
        let peer = |text: &str| Peer(text.parse::<SocketAddr>().unwrap());
        assert!(pays(LEAST, Some(&peer("10.0.0.7:4711"))));
        assert!(!pays(LEAST - 1, Some(&peer("10.0.0.7:4711"))));
        for near in ["127.0.0.1:4711", "[::1]:4711", "[::ffff:127.0.0.1]:4711"] {
            assert!(!pays(1 << 20, Some(&peer(near))), "{near}");
        }
    }

    #[test]
    fn what_is_compressed_comes_back() {
        let text = "a task of a tube; ".repeat(1000).into_bytes();
        for packed in [small(&text), fast(&text)] {
            assert!(packed.len() * 10 < text.len(), "{} bytes", packed.len());
            assert_eq!(unpacked(&packed), text);
        }
    }
}
