//! Strangers: clients that speak another protocol than the one that a port is for.
//!
//! A web page can make a browser send requests to a loopback address, and a client may simply have the wrong port or the
//! wrong setting. A door that finds such bytes closes the connection; [`Protocol::recognize`] says what they are, so that
//! the answer is one that the peer understands ([`http_refusal`]) and the log names the cause. Doors for the binary
//! protocol and for HTTP share this module.
//!
//! Invariant: an answer repeats nothing of the request.

/// Bytes in which a sign of HTTP is looked for: the longest request line that servers commonly take.
const SEARCHED: usize = 8 << 10;

/// Methods with which a request may begin. Others are recognized by the end of their line.
const METHODS: [&[u8]; 10] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"OPTIONS ",
    b"DELETE ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * HTTP/2.0",
];

/// A method that is cut is recognized from this length on: fewer bytes may be the length of a frame.
const CUT_METHOD: usize = 2;

/// The protocol that the bytes of a connection look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// HTTP/1 or the preface of HTTP/2, perhaps after the beginning of something else.
    Http,
    /// The ClientHello of TLS.
    Tls,
    /// None of these.
    Unknown,
}

impl Protocol {
    /// Looks at the first bytes that a door cannot take. They may be cut anywhere.
    pub(crate) fn recognize(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(SEARCHED)];
        let begins_with_method = METHODS.iter().any(|method| {
            bytes.starts_with(method) || bytes.len() >= CUT_METHOD && method.starts_with(bytes)
        });
        if begins_with_method || contains(bytes, b" HTTP/1.") || contains(bytes, b" HTTP/2") {
            Self::Http
        } else if matches!(bytes, [0x16, 0x03, ..]) {
            Self::Tls
        } else {
            Self::Unknown
        }
    }
}

fn contains(bytes: &[u8], sign: &[u8]) -> bool {
    bytes.windows(sign.len()).any(|window| window == sign)
}

/// A whole HTTP answer that refuses a request for the reason `text`, one paragraph without a line end.
pub(crate) fn http_refusal(text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{text}\n",
        text.len() + 1
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn http_is_recognized_however_it_is_cut() {
        let requests = [
            "GET / HTTP/1.1\r\nHost: localhost:3301\r\n\r\n",
            "POST /x HTTP/1.1\r\n",
            "PUT / HTTP/1.1\r\n",
            "HEAD / HTTP/1.0\r\n",
            "OPTIONS * HTTP/1.1\r\n",
            "DELETE / HTTP/1.1\r\n",
            "PATCH / HTTP/1.1\r\n",
            "CONNECT a:1 HTTP/1.1\r\n",
            "TRACE / HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ];
        for request in requests {
            for length in CUT_METHOD..=request.len() {
                let cut = &request.as_bytes()[..length];
                assert_eq!(Protocol::recognize(cut), Protocol::Http, "{:?}", &request[..length]);
            }
        }
        assert_eq!(Protocol::recognize(b"PROPFIND / HTTP/1.1\r\n"), Protocol::Http);
        for before in [&[0xce, 0x00][..], &[0xcf], &[0x05, 0x82, 0x00, 0x40], b"\r\n"] {
            let bytes = [before, requests[0].as_bytes()].concat();
            assert_eq!(Protocol::recognize(&bytes), Protocol::Http, "{before:x?}");
        }
    }

    #[test]
    fn other_bytes_are_not_taken_for_http() {
        let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
        assert_eq!(Protocol::recognize(&hello), Protocol::Tls);
        assert_eq!(Protocol::recognize(&hello[..2]), Protocol::Tls);
        let others: [&[u8]; 6] =
            [b"", b"P", &[0x16], &[0x05, 0x82, 0x00, 0x40, 0x01, 0x01], b"SSH-2.0-x", &[0; 16384]];
        for bytes in others {
            assert_eq!(Protocol::recognize(bytes), Protocol::Unknown, "{bytes:x?}");
        }
    }

    #[test]
    fn a_refusal_is_one_whole_answer() {
        let answer = String::from_utf8(http_refusal("not here")).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 400 Bad Request\r\n") && head.contains("\r\nConnection: close"));
        assert!(head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())));
        assert_eq!(body, "not here\n");
    }
}
