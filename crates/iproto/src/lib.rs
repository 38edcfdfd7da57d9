//! The IPROTO protocol: keys, codes, frames, rows, vclock, greeting and authentication; bytes in, values out.
//!
//! A connection begins with the server's [`greeting`]. Then each side sends frames ([`frame`]): a length, a header
//! map and mostly a body map. Clients send requests ([`request`]), the server answers each with one reply ([`reply`])
//! in any order; a number chosen by the client (`sync`) says which reply belongs to which request.
//! The same header and body maps, without the length, are the rows of the journal and of replication ([`row`]).
//!
//! Decoding never panics and never trusts a length; a value borrowed from a frame has been checked to be whole
//! MessagePack values of the promised type. Encoding appends to a caller's buffer and allocates nothing else.
//!
//! Behaviour is that of Tarantool 2.6.0, malformed input included. Absent: SQL beyond the outer form of its requests,
//! watchers, streams and interactive transactions (newer protocol versions).

pub mod auth;
mod body;
pub mod error;
pub mod frame;
pub mod greeting;
pub mod keys;
pub mod repeat;
pub mod reply;
pub mod request;
pub mod row;
#[cfg(test)]
mod samples;
pub mod vclock;
