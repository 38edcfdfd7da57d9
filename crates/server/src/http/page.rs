//! The page for people: files of the folder `page/`, embedded in the binary.
//!
//! The document stands at `/`, its files under `/page/`, and the document names them by relative URLs, so that a proxy may
//! serve all of it under a prefix. The page has no data: its scripts ask the JSON under `/v1` with the token that the
//! person types. Its Content-Security-Policy lets it load and ask this server alone, forbids inline scripts and frames, and
//! (Trusted Types) lets no script parse text as HTML.
//!
//! Invariants, as tests see: every file of the folder is served; the document names every module, so that the browser asks for all
//! of them at once. Absent: anything made at run time, but for the compressed files, which the first request makes.

use std::sync::LazyLock;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use axum::response::IntoResponse;
use axum::routing::get;

use super::problem::{Kind, Problem};
use super::{Shared, compression, etag};

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// A file of the page.
struct File {
    /// Below `/page/`.
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($( $name:literal ),* $(,)?) => {
        &[$( File { name: $name, bytes: include_bytes!(concat!("../../page/", $name)) } ),*]
    };
}

const DOCUMENT: &str = "index.html";

/// Where the document stands.
pub(super) const DOCUMENT_PATH: &str = "/";

const FILES: &[File] = files![
    "access.js",
    "api.js",
    "bulk.js",
    "curve.js",
    "explanation.js",
    "format.js",
    "group.js",
    "icon.svg",
    "index.html",
    "issues.js",
    "jobs.js",
    "main.js",
    "msgpack.js",
    "panels.js",
    "payload.js",
    "put.js",
    "rates.js",
    "screens/audit.js",
    "screens/instance.js",
    "screens/issues.js",
    "screens/jobs.js",
    "screens/log.js",
    "screens/overview.js",
    "screens/sessions.js",
    "screens/settings.js",
    "screens/task.js",
    "screens/tasks.js",
    "screens/tokens.js",
    "screens/tube.js",
    "screens/tubes.js",
    "style.css",
    "shortcuts.js",
    "tubes.js",
    "ui.js",
    "vendor/preact.LICENSE",
    "vendor/preact.mjs",
];

/// The ETags of [`FILES`].
static TAGS: LazyLock<Vec<HeaderValue>> =
    LazyLock::new(|| FILES.iter().map(|file| etag::of(file.bytes)).collect());

/// [`FILES`], compressed.
static PACKED: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| FILES.iter().map(|file| compression::small(file.bytes)).collect());

/// Adds the page to the routes.
pub(super) fn attach(router: Router<Shared>) -> Router<Shared> {
    router.route(DOCUMENT_PATH, get(document)).route("/page/{*name}", get(file))
}

async fn document(headers: HeaderMap) -> Response<Body> {
    serve(DOCUMENT, &headers).expect("the document is in the list of files, as a test sees")
}

async fn file(Path(name): Path<String>, uri: Uri, headers: HeaderMap) -> Result<Response<Body>, Problem> {
    let nothing = || Problem::new(Kind::NoSuchPath, format!("there is nothing at {}", uri.path()));
    serve(&name, &headers).ok_or_else(nothing)
}

fn serve(name: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let at = FILES.iter().position(|file| file.name == name)?;
    let tag = TAGS[at].clone();
    let is_packed = compression::is_accepted(headers);
    let mut response = match etag::is_known(headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false if is_packed => Response::new(Body::from(PACKED[at].as_slice())),
        false => Response::new(Body::from(FILES[at].bytes)),
    };
    let is_whole = response.status() == StatusCode::OK;
    let answer = response.headers_mut();
    if is_packed && is_whole {
        compression::mark(answer);
    }
    compression::vary(answer);
    // One tag for both forms.
    answer.insert(header::ETAG, etag::weak(&tag));
    answer.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(name)));
    // A browser asks with the ETag each time.
    answer.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answer.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    let opener = HeaderName::from_static("cross-origin-opener-policy");
    answer.insert(opener, HeaderValue::from_static("same-origin"));
    Some(response)
}

fn media_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js" | "mjs") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    /// Bytes of all files together, and of all compressed files.
    const MAX_SIZE: usize = 230 << 10;
    const MAX_PACKED: usize = 80 << 10;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("page")
    }

    /// Names of all files of a folder, from the page's folder.
    fn names(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                names(&entry.path(), &format!("{name}/"), found);
            } else {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let mut found = BTreeSet::new();
        names(&folder(), "", &mut found);
        let served: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(served, found);
        assert!(served.contains(DOCUMENT));
    }

    /// The browser would find modules that modules import one level after the other otherwise, and paint later.
    #[test]
    fn the_document_names_every_module() {
        let document = fs::read_to_string(folder().join(DOCUMENT)).unwrap();
        for File { name, .. } in
            FILES.iter().filter(|file| media_type(file.name).starts_with("text/javascript"))
        {
            let is_named = |text: String| document.contains(&text);
            assert!(
                is_named(format!("<link rel=\"modulepreload\" href=\"page/{name}\">"))
                    || is_named(format!("<script type=\"module\" src=\"page/{name}\">")),
                "{name}"
            );
        }
    }

    #[test]
    fn the_page_is_small() {
        let size: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(size <= MAX_SIZE, "the page has {size} bytes");
        let packed: usize = PACKED.iter().map(Vec::len).sum();
        assert!(packed <= MAX_PACKED, "the compressed page has {packed} bytes");
    }

    #[test]
    fn a_client_that_takes_gzip_gets_it() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip, br"));
        for (file, packed) in FILES.iter().zip(PACKED.iter()) {
            let response = serve(file.name, &headers).unwrap();
            assert_eq!(response.headers()[header::CONTENT_ENCODING], "gzip");
            assert_eq!(response.headers()[header::VARY], "accept-encoding");
            assert_eq!(compression::tests::unpacked(packed), file.bytes, "{}", file.name);
        }
        assert!(
            !serve(DOCUMENT, &HeaderMap::new()).unwrap().headers().contains_key(header::CONTENT_ENCODING)
        );
    }

    #[test]
    fn no_file_names_another_host_or_has_inline_code() {
        for file in FILES.iter().filter(|file| !file.name.starts_with("vendor/")) {
            let text = str::from_utf8(file.bytes).unwrap().replace("http://www.w3.org/2000/svg", "");
            for word in [
                "http:",
                "https:",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "eval(",
                "style=",
                "onclick=",
            ] {
                assert!(!text.contains(word), "{} contains {word}", file.name);
            }
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let first = serve(DOCUMENT, &HeaderMap::new()).unwrap();
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].to_str().unwrap().trim_start_matches("W/").to_owned();
        for tags in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}")] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, tags.parse().unwrap());
            assert_eq!(serve(DOCUMENT, &headers).unwrap().status(), StatusCode::NOT_MODIFIED, "{tags}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, "\"other\"".parse().unwrap());
        assert_eq!(serve(DOCUMENT, &headers).unwrap().status(), StatusCode::OK);
        assert!(serve("../Cargo.toml", &headers).is_none());
    }
}
