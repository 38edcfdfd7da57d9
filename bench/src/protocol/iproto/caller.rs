//! A connection for one call after the other, outside of the measurement.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, anyhow};
use lycosa_iproto::auth;
use lycosa_iproto::frame::{self, Split};
use lycosa_iproto::greeting::{GREETING_SIZE, Greeting};
use lycosa_iproto::reply::{self, Content};
use lycosa_iproto::request::{self, AuthTuple, Body};

use super::{Access, Credentials};
use crate::wire::Wire;
use crate::{no_answer, read_some};

/// Bytes that are read at a time where many answers come.
const READ_SIZE: usize = 64 << 10;

/// Reads the greeting and says who we are, guest without credentials.
pub(super) fn introduce<S: Read + Write>(stream: &mut S, credentials: Option<&Credentials>) -> Result<()> {
    let mut bytes = [0; GREETING_SIZE];
    stream.read_exact(&mut bytes).context("the server sends no greeting")?;
    let greeting = Greeting::decode(&bytes)?;
    let Some(Credentials { user, password }) = credentials else { return Ok(()) };
    let scramble = auth::scramble(password.as_bytes(), &greeting.salt);
    let body = Body::Auth { user: user.as_bytes(), scramble: AuthTuple::ChapSha1(&scramble) };
    let answer = exchange(stream, &mut Vec::new(), &body)?;
    answer.map(drop).with_context(|| format!("the server does not let in `{user}`"))
}

/// Sends a request and waits for its answer: the data, or the server's error.
fn exchange<S: Read + Write>(
    stream: &mut S,
    input: &mut Vec<u8>,
    body: &Body<'_>,
) -> Result<Result<Vec<u8>>> {
    let mut out = Vec::new();
    request::encode(&mut out, 0, body);
    stream.write_all(&out).map_err(no_answer)?;
    input.clear();
    loop {
        let missing = match frame::split(input, frame::DEFAULT_LIMIT)? {
            Split::Frame { content, .. } => {
                return Ok(match reply::decode(content)?.content {
                    Content::Ok { data, .. } | Content::Push { data } => Ok(data.to_vec()),
                    Content::Error(error) => Err(anyhow!("{}", error.message)),
                });
            }
            Split::NeedMore(missing) => missing,
        };
        let filled = input.len();
        input.resize(filled + missing, 0);
        stream.read_exact(&mut input[filled..]).map_err(no_answer)?;
    }
}

/// A connection for one call after the other.
pub(crate) struct Caller<S> {
    stream: S,
    input: Vec<u8>,
}

impl Caller<Wire<TcpStream>> {
    pub(super) fn connect(address: SocketAddr, access: &Access) -> Result<Self> {
        Self::new(Wire::connect(address, access.tls())?, access.credentials())
    }
}

impl<S: Read + Write> Caller<S> {
    pub(crate) fn new(mut stream: S, credentials: Option<&Credentials>) -> Result<Self> {
        introduce(&mut stream, credentials)?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Calls `name` with an array of arguments and gives the array of values; the inner error is the server's.
    pub(crate) fn call(&mut self, name: &str, arguments: &[u8]) -> Result<Result<Vec<u8>>> {
        let body = Body::Call { name: name.as_bytes(), args: arguments };
        let answer = exchange(&mut self.stream, &mut self.input, &body)?;
        Ok(answer.with_context(|| name.to_owned()))
    }

    /// Sends any request and gives the data of its answer; the inner error is the server's.
    pub(crate) fn request(&mut self, body: &Body<'_>) -> Result<Result<Vec<u8>>> {
        exchange(&mut self.stream, &mut self.input, body)
    }

    /// Sends requests in one write and waits for all answers. The first error ends it.
    pub(crate) fn many<'a>(&mut self, bodies: impl Iterator<Item = Body<'a>>) -> Result<()> {
        self.each(bodies, |answer| answer.map(drop))
    }

    /// Sends requests in one write and gives all answers: the data, or the server's error.
    pub(crate) fn answers<'a>(
        &mut self,
        bodies: impl Iterator<Item = Body<'a>>,
    ) -> Result<Vec<Result<Vec<u8>>>> {
        let mut answers = Vec::new();
        self.each(bodies, |answer| {
            answers.push(answer.map(<[u8]>::to_vec));
            Ok(())
        })?;
        Ok(answers)
    }

    /// The same, answer by answer, until one is refused.
    fn each<'a>(
        &mut self,
        bodies: impl Iterator<Item = Body<'a>>,
        mut heard: impl FnMut(Result<&[u8]>) -> Result<()>,
    ) -> Result<()> {
        let mut out = Vec::new();
        let mut waiting = 0;
        for body in bodies {
            request::encode(&mut out, 0, &body);
            waiting += 1;
        }
        self.stream.write_all(&out).map_err(no_answer)?;
        self.input.clear();
        let mut done = 0;
        while waiting > 0 {
            match frame::split(&self.input[done..], frame::DEFAULT_LIMIT)? {
                Split::Frame { content, consumed } => {
                    heard(match reply::decode(content)?.content {
                        Content::Ok { data, .. } | Content::Push { data } => Ok(data),
                        Content::Error(error) => Err(anyhow!("{}", error.message)),
                    })?;
                    done += consumed;
                    waiting -= 1;
                }
                Split::NeedMore(_) => {
                    self.input.drain(..done);
                    done = 0;
                    let filled = self.input.len();
                    self.input.resize(filled + READ_SIZE, 0);
                    let read = read_some(&mut self.stream, &mut self.input[filled..])?;
                    self.input.truncate(filled + read);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use lycosa_iproto::greeting::SALT_SIZE;

    use super::*;

    #[test]
    fn a_server_that_does_not_answer_is_not_waited_for_for_ever() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let salt = [0; SALT_SIZE];
        let greeting = Greeting { version: "2.6.0".to_owned(), uuid: Default::default(), salt };
        let greeting = greeting.encode().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&greeting).unwrap();
            stream
        });
        let mut caller = Caller::connect(address, &Access::Own).unwrap();
        let error = caller.call("queue.stats", &[0x90]).unwrap_err();
        assert_eq!(error.to_string(), "the server has not answered for 1 s");
        drop(server.join().unwrap());
        let error = caller.call("queue.stats", &[0x90]).unwrap_err();
        assert_ne!(error.to_string(), "the server has not answered for 1 s");
    }
}
