//! The guard of the HTTP listeners: refuses requests that are meant for another server, or that another web site makes a
//! browser send, before any part of them is read.
//!
//! A page of another site can let a browser send requests to `127.0.0.1`, and by a name of its own that resolves to
//! that address (DNS rebinding) it can read the answers as well. Browsers name the site in `Origin` and `Sec-Fetch-Site`,
//! and the host in `Host`: an address, `localhost` or a name of `http.hosts` is ours, any other name is not. The check
//! comes before the body, the token and the path, for every method. One request of another site passes: a person follows
//! its link to the page's document.
//!
//! A request whose body is chunked ends its connection: hyper reads it by its chunks, also beside a length, and a front end
//! that went by the length gains no second request.

use std::net::IpAddr;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};

use super::page;
use super::problem::{Kind, Problem};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Refuses a request of another site, for another server, or of an unclear length.
pub(crate) fn check<B>(request: &Request<B>, hosts: &[String]) -> Result<(), Problem> {
    check_length(request)?;
    let host = host(request)?;
    if let Some(host) = &host
        && !is_ours(host.host(), hosts)
    {
        let detail = format!(
            "this server is not reached as {host}: use its address or localhost, or add the name to http.hosts"
        );
        return Err(Problem::new(Kind::WrongHost, detail).closing());
    }
    if is_visit(request) {
        return Ok(());
    }
    check_site(request.headers(), host.as_ref())
}

/// Whether a person follows a link to the page, in a window of its own. The page's document holds no data, and other sites
/// may link to it.
fn is_visit<B>(request: &Request<B>) -> bool {
    let says = |name: &HeaderName, what: &str| {
        let mut values = request.headers().get_all(name).iter();
        values.next().is_some_and(|value| value == what) && values.next().is_none()
    };
    request.method() == Method::GET
        && request.uri().path() == page::DOCUMENT_PATH
        && !request.headers().contains_key(header::ORIGIN)
        && says(&SEC_FETCH_MODE, "navigate")
        && says(&SEC_FETCH_DEST, "document")
}

/// Whether a connection ends with this request.
pub(crate) fn ends_connection(headers: &HeaderMap) -> bool {
    headers.contains_key(header::TRANSFER_ENCODING)
}

fn check_length<B>(request: &Request<B>) -> Result<(), Problem> {
    let headers = request.headers();
    let lengths = headers.get_all(header::CONTENT_LENGTH).iter().count();
    let encodings = headers.get_all(header::TRANSFER_ENCODING).iter().count();
    let is_old = request.version() < Version::HTTP_11;
    // hyper looks at the last encoding of a list only.
    let is_chunked = |encoding: &HeaderValue| encoding.as_bytes().eq_ignore_ascii_case(b"chunked");
    let is_other = !headers.get_all(header::TRANSFER_ENCODING).iter().all(is_chunked);
    if lengths + encodings > 1 || (is_old && encodings > 0) || is_other {
        let detail =
            "a request has one Content-Length, or one Transfer-Encoding, which is chunked, with HTTP/1.1";
        return Err(Problem::new(Kind::Malformed, detail).closing());
    }
    Ok(())
}

/// The host that the request is for. Health checks of load balancers speak HTTP/1.0 and name none; every browser names one.
fn host<B>(request: &Request<B>) -> Result<Option<Authority>, Problem> {
    let malformed = || Problem::new(Kind::Malformed, "a request names its host once, in Host").closing();
    let mut named = request.headers().get_all(header::HOST).iter();
    if request.version() < Version::HTTP_11
        && !request.headers().contains_key(header::HOST)
        && request.uri().authority().is_none()
    {
        return Ok(None);
    }
    let host = named.next().and_then(|host| host.to_str().ok()).ok_or_else(malformed)?;
    let host: Authority = host.parse().map_err(|_| malformed())?;
    let is_same = |authority: &Authority| authority.as_str().eq_ignore_ascii_case(host.as_str());
    let is_plain = named.next().is_none() && !host.as_str().contains('@');
    match request.uri().authority() {
        _ if !is_plain => Err(malformed()),
        Some(authority) if !is_same(authority) => Err(malformed()),
        _ => Ok(Some(host)),
    }
}

fn is_ours(host: &str, hosts: &[String]) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    bare.parse::<IpAddr>().is_ok()
        || bare.eq_ignore_ascii_case("localhost")
        || hosts.iter().any(|ours| ours.eq_ignore_ascii_case(bare))
}

fn check_site(headers: &HeaderMap, host: Option<&Authority>) -> Result<(), Problem> {
    let refused = |detail: String| Err(Problem::new(Kind::CrossSite, detail).closing());
    for site in headers.get_all(SEC_FETCH_SITE) {
        // `none`: a person has typed the address.
        if site != "same-origin" && site != "none" {
            return refused(format!(
                "Sec-Fetch-Site is {site:?}: only pages of this server may send requests"
            ));
        }
    }
    for origin in headers.get_all(header::ORIGIN) {
        let authority = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
        let is_same = authority.is_some_and(|(scheme, authority)| {
            matches!(scheme, "http" | "https")
                && host.is_some_and(|host| authority.eq_ignore_ascii_case(host.as_str()))
        });
        if !is_same {
            return refused(format!("Origin is {origin:?}: only pages of this server may send requests"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().uri("/v1/tubes");
        headers.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    fn kind(headers: &[(&str, &str)]) -> Option<Kind> {
        check(&request(headers), &["queue.example".to_owned()]).err().map(|problem| problem.kind())
    }

    #[test]
    fn addresses_localhost_and_configured_names_are_ours() {
        for host in
            ["127.0.0.1:8081", "[::1]:8081", "localhost", "LOCALHOST:1", "10.0.0.7", "queue.example:80"]
        {
            assert_eq!(kind(&[("host", host)]), None, "{host}");
        }
        for host in
            ["evil.example", "evil.example:8081", "localhost.evil.example", "127.0.0.1.nip.io", "0x7f.1"]
        {
            assert_eq!(kind(&[("host", host)]), Some(Kind::WrongHost), "{host}");
        }
        for host in ["", "user@127.0.0.1", "127.0.0.1/x", "a b"] {
            assert_eq!(kind(&[("host", host)]), Some(Kind::Malformed), "{host}");
        }
        assert_eq!(kind(&[]), Some(Kind::Malformed));
        assert_eq!(kind(&[("host", "127.0.0.1"), ("host", "127.0.0.1")]), Some(Kind::Malformed));
    }

    #[test]
    fn other_sites_are_refused() {
        let host = ("host", "127.0.0.1:8081");
        for same in [
            ("origin", "http://127.0.0.1:8081"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(kind(&[host, same]), None, "{same:?}");
        }
        let others =
            ["null", "http://evil.example", "http://127.0.0.1", "http://127.0.0.1:80", "127.0.0.1:8081", ""];
        for other in others {
            assert_eq!(kind(&[host, ("origin", other)]), Some(Kind::CrossSite), "{other}");
        }
        for site in ["cross-site", "same-site", "", "same-origin "] {
            assert_eq!(kind(&[host, ("sec-fetch-site", site)]), Some(Kind::CrossSite), "{site}");
        }
    }

    #[test]
    fn another_site_may_link_to_the_page_and_to_nothing_else() {
        let host = ("host", "127.0.0.1:8081");
        let link = [
            host,
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let refused = |method: &str, path: &str, headers: &[(&str, &str)]| {
            let mut request = request(headers);
            *request.method_mut() = method.parse().unwrap();
            *request.uri_mut() = path.parse().unwrap();
            check(&request, &[]).is_err()
        };
        assert!(!refused("GET", "/", &link));
        assert!(refused("GET", "/v1/tubes", &link));
        assert!(refused("GET", "/page/main.js", &link));
        assert!(refused("POST", "/", &link));
        assert!(refused("GET", "/", &[&link[..], &[("origin", "http://evil.example")]].concat()));
        for other in [("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "iframe")] {
            let changed = link.map(|header| if header.0 == other.0 { other } else { header });
            assert!(refused("GET", "/", &changed), "{other:?}");
        }
    }

    #[test]
    fn a_request_has_one_length() {
        let host = ("host", "localhost");
        let (length, chunked) = (("content-length", "3"), ("transfer-encoding", "chunked"));
        for unclear in [[length, chunked], [length, length], [chunked, chunked]] {
            assert_eq!(kind(&[host, unclear[0], unclear[1]]), Some(Kind::Malformed), "{unclear:?}");
        }
        assert_eq!(kind(&[host, chunked]), None);
        for other in ["gzip, chunked", "chunked, chunked", "identity", "chunked;x=1", ""] {
            assert_eq!(kind(&[host, ("transfer-encoding", other)]), Some(Kind::Malformed), "{other}");
        }
    }

    #[test]
    fn only_a_request_of_http_1_0_names_no_host() {
        let old = |headers: &[(&str, &str)]| {
            let mut request = request(headers);
            *request.version_mut() = Version::HTTP_10;
            check(&request, &[]).err().map(|problem| problem.kind())
        };
        assert_eq!(old(&[]), None);
        assert_eq!(old(&[("host", "evil.example")]), Some(Kind::WrongHost));
        assert_eq!(old(&[("origin", "http://127.0.0.1")]), Some(Kind::CrossSite));
        assert_eq!(old(&[("sec-fetch-site", "cross-site")]), Some(Kind::CrossSite));
        assert_eq!(old(&[("transfer-encoding", "chunked")]), Some(Kind::Malformed));
    }
}
