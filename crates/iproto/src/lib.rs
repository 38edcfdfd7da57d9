//! The IPROTO protocol: keys, codes, frames, rows, vclock, greeting and authentication; bytes in, values out.
