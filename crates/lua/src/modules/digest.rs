//! Native part of `digest`.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use base64::Engine;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use base64::{alphabet, engine};
use sha2::Digest;

use crate::api::Lua;
use crate::error::Error;

/// Longest key that `pbkdf2` makes, in bytes, as in Tarantool.
const MAX_KEY: f64 = 128.0;
/// Most rounds of `pbkdf2` at once; more would hold up everyone for seconds.
const MAX_ROUNDS: f64 = 10_000_000.0;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[
        ("hash", hash),
        ("base64_encode", base64_encode),
        ("base64_decode", base64_decode),
        ("crc32c", crc32c_of),
        ("murmur", murmur),
        ("guava", guava),
        ("pbkdf2", pbkdf2_of),
        ("aes256cbc", aes256cbc),
    ]);
    Ok(1)
}

/// `hash(name, text)`
fn hash(lua: Lua) -> Result<i32, Error> {
    let text = lua.arg_bytes(2, "usage: hash(name, text)")?;
    let hash = match lua.arg_bytes(1, "usage: hash(name, text)")? {
        b"md4" => md4::Md4::digest(text).to_vec(),
        b"md5" => md5::Md5::digest(text).to_vec(),
        b"ripemd160" => ripemd::Ripemd160::digest(text).to_vec(),
        b"sha1" => sha1::Sha1::digest(text).to_vec(),
        b"sha224" => sha2::Sha224::digest(text).to_vec(),
        b"sha256" => sha2::Sha256::digest(text).to_vec(),
        b"sha384" => sha2::Sha384::digest(text).to_vec(),
        b"sha512" => sha2::Sha512::digest(text).to_vec(),
        other => return Err(Error::here(format!("there is no hash {}", String::from_utf8_lossy(other)))),
    };
    lua.push_str(hash);
    Ok(1)
}

/// `base64_encode(text, url safe, padded)`
fn base64_encode(lua: Lua) -> Result<i32, Error> {
    let encoded = {
        let text = lua.arg_bytes(1, "usage: base64_encode(text, urlsafe, padded)")?;
        match (lua.truth(2), lua.truth(3)) {
            (true, true) => engine::general_purpose::URL_SAFE.encode(text),
            (true, false) => engine::general_purpose::URL_SAFE_NO_PAD.encode(text),
            (false, true) => engine::general_purpose::STANDARD.encode(text),
            (false, false) => engine::general_purpose::STANDARD_NO_PAD.encode(text),
        }
    };
    lua.push_str(encoded);
    Ok(1)
}

/// `base64_decode(text)`
fn base64_decode(lua: Lua) -> Result<i32, Error> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true);
    let text = lua.arg_bytes(1, "usage: base64_decode(text)")?;
    let mut digits: Vec<u8> = text
        .iter()
        .filter_map(|&byte| match byte {
            b'-' => Some(b'+'),
            b'_' => Some(b'/'),
            b'+' | b'/' => Some(byte),
            byte => byte.is_ascii_alphanumeric().then_some(byte),
        })
        .collect();
    if digits.len() % 4 == 1 {
        digits.pop();
    }
    let bytes = GeneralPurpose::new(&alphabet::STANDARD, LENIENT).decode(&digits);
    lua.push_str(bytes.map_err(|error| Error::here(format!("digest.base64_decode: {error}")))?);
    Ok(1)
}

/// `crc32c(before, text)`, without inversions.
fn crc32c_of(lua: Lua) -> Result<i32, Error> {
    let before = lua.arg_number(1, "usage: crc32c(before, text)")? as u32;
    let text = lua.arg_bytes(2, "usage: crc32c(before, text)")?;
    lua.push_number(f64::from(!crc32c::crc32c_append(!before, text)));
    Ok(1)
}

/// `murmur(text, seed)`: MurmurHash3 of 32 bits, which the crates we have do not offer.
fn murmur(lua: Lua) -> Result<i32, Error> {
    let seed = lua.arg_number(2, "usage: murmur(text, seed)")? as u32;
    let text = lua.arg_bytes(1, "usage: murmur(text, seed)")?;
    lua.push_number(f64::from(murmur3(text, seed)));
    Ok(1)
}

fn murmur3(text: &[u8], seed: u32) -> u32 {
    let scramble = |block: u32| block.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    let mut hash = seed;
    let mut blocks = text.chunks_exact(4);
    for block in &mut blocks {
        let block = block.iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
        hash = (hash ^ scramble(block)).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    }
    let tail = blocks.remainder().iter().rev().fold(0, |number, &byte| number << 8 | u32::from(byte));
    hash ^= scramble(tail);
    hash ^= text.len() as u32;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// `guava(state, buckets)`
fn guava(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "Usage: digest.guava(state, buckets)";
    let state = lua.integer(1).ok_or_else(|| Error::here(USAGE))?;
    let buckets = lua.arg_number(2, USAGE)?;
    if !(1.0..=f64::from(i32::MAX)).contains(&buckets) {
        return Err(Error::here(format!("{USAGE}: {buckets} buckets")));
    }
    let mut state = state as u64;
    let (mut bucket, mut next) = (-1_i64, 0_i64);
    while next < buckets as i64 {
        bucket = next;
        state = state.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(1);
        let jump = f64::from(1_u32 << 31) / ((state >> 33) as f64 + 1.0);
        next = ((bucket + 1) as f64 * jump) as i64;
    }
    lua.push_int(bucket);
    Ok(1)
}

/// `pbkdf2(password, salt, rounds, length)`
fn pbkdf2_of(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "Usage: digest.pbkdf2(pass, salt[, iters][, digest_len])";
    let (rounds, length) = (lua.arg_number(3, USAGE)?, lua.arg_number(4, USAGE)?);
    if !(1.0..=MAX_ROUNDS).contains(&rounds) || !(1.0..=MAX_KEY).contains(&length) {
        return Err(Error::here(format!(
            "{USAGE}: {rounds} iterations for {length} bytes; 1 to {MAX_ROUNDS} and 1 to {MAX_KEY} are served"
        )));
    }
    let mut key = vec![0; length as usize];
    pbkdf2::pbkdf2_hmac::<sha2::Sha256>(
        lua.arg_bytes(1, USAGE)?,
        lua.arg_bytes(2, USAGE)?,
        rounds as u32,
        &mut key,
    );
    lua.push_str(key);
    Ok(1)
}

/// `aes256cbc(direction, text, key, initial vector)`
fn aes256cbc(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "Usage: digest.aes256cbc.encrypt(string, key, iv)";
    let text = lua.arg_bytes(2, USAGE)?;
    let key: &[u8; 32] = lua
        .arg_bytes(3, USAGE)?
        .try_into()
        .map_err(|_| Error::here("Key length should be equal to cipher key length (32 bytes)"))?;
    let vector: &[u8; 16] = lua
        .arg_bytes(4, USAGE)?
        .try_into()
        .map_err(|_| Error::here("Initial vector length should be equal to cipher iv length (16 bytes)"))?;
    let done = if lua.bytes(1) == Some(b"encrypt") {
        cbc::Encryptor::<aes::Aes256>::new(key.into(), vector.into()).encrypt_padded_vec_mut::<Pkcs7>(text)
    } else {
        cbc::Decryptor::<aes::Aes256>::new(key.into(), vector.into())
            .decrypt_padded_vec_mut::<Pkcs7>(text)
            .map_err(|_| Error::here("the text was not encrypted with this key and vector"))?
    };
    lua.push_str(done);
    Ok(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur_hashes_are_those_of_its_reference() {
        assert_eq!(murmur3(b"", 0), 0);
        assert_eq!(murmur3(b"", 1), 0x514e_28b7);
        assert_eq!(murmur3(b"test", 0), 0xba6b_d213);
        assert_eq!(murmur3(b"Hello, world!", 0x9747_b28c), 0x2488_4cba);
    }
}
