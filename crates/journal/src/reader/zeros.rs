//! Zeros in files: no block consists of them.

use std::io;

use crate::disk::{DiskFile, read_full_at};

/// Whether the file has nothing but zeros, or nothing, from `from` on.
pub(super) fn rest_is_zero(file: &dyn DiskFile, from: u64) -> io::Result<bool> {
    let mut chunk = [0; 4096];
    let mut begin = from;
    loop {
        let filled = read_full_at(file, &mut chunk, begin)?;
        if !is_zero(&chunk[..filled]) {
            return Ok(false);
        }
        if filled < chunk.len() {
            return Ok(true);
        }
        begin += filled as u64;
    }
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|&byte| byte == 0)
}
