//! Native part of `crypto`: keyed hashes, and AES in blocks.

use aes::cipher::block_padding::{NoPadding, Pkcs7};
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyInit, KeyIvInit};
use hmac::{Mac, SimpleHmac};

use crate::api::Lua;
use crate::error::Error;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("hmac", hmac_of), ("cipher", cipher)]);
    Ok(1)
}

/// `hmac(name, key, text)`
fn hmac_of(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: hmac(name, key, text)";
    let (key, text) = (lua.arg_bytes(2, USAGE)?, lua.arg_bytes(3, USAGE)?);
    let code = match lua.arg_bytes(1, USAGE)? {
        b"md4" => keyed::<SimpleHmac<md4::Md4>>(key, text),
        b"md5" => keyed::<SimpleHmac<md5::Md5>>(key, text),
        b"sha1" => keyed::<SimpleHmac<sha1::Sha1>>(key, text),
        b"sha224" => keyed::<SimpleHmac<sha2::Sha224>>(key, text),
        b"sha256" => keyed::<SimpleHmac<sha2::Sha256>>(key, text),
        b"sha384" => keyed::<SimpleHmac<sha2::Sha384>>(key, text),
        b"sha512" => keyed::<SimpleHmac<sha2::Sha512>>(key, text),
        other => return Err(Error::here(format!("there is no hash {}", String::from_utf8_lossy(other)))),
    };
    lua.push_str(code);
    Ok(1)
}

/// The code of a text.
fn keyed<M: Mac + KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut code = <M as Mac>::new_from_slice(key).expect("a key of this code has any length");
    code.update(text);
    code.finalize().into_bytes().to_vec()
}

/// `cipher(bits of the key, mode, encrypt, last, text, key, vector)`: whole blocks, or the last ones, which are padded. Nil
/// if the text is not one that the key has encrypted.
fn cipher(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: cipher(bits, mode, encrypt, last, text, key, vector)";
    let bits = lua.arg_number(1, USAGE)? as u32;
    let chained = lua.arg_bytes(2, USAGE)? == b"cbc";
    let (encrypt, last) = (lua.truth(3), lua.truth(4));
    let text = lua.arg_bytes(5, USAGE)?;
    let (key, vector) = (lua.arg_bytes(6, USAGE)?, lua.arg_bytes(7, USAGE)?);
    let done = match (bits, chained, encrypt) {
        (128, true, true) => chain_encrypted::<aes::Aes128>(key, vector, text, last),
        (192, true, true) => chain_encrypted::<aes::Aes192>(key, vector, text, last),
        (256, true, true) => chain_encrypted::<aes::Aes256>(key, vector, text, last),
        (128, true, false) => chain_decrypted::<aes::Aes128>(key, vector, text, last),
        (192, true, false) => chain_decrypted::<aes::Aes192>(key, vector, text, last),
        (256, true, false) => chain_decrypted::<aes::Aes256>(key, vector, text, last),
        (128, false, true) => aes::Aes128::new_from_slice(key).ok().map(|it| encrypted(it, text, last)),
        (192, false, true) => aes::Aes192::new_from_slice(key).ok().map(|it| encrypted(it, text, last)),
        (256, false, true) => aes::Aes256::new_from_slice(key).ok().map(|it| encrypted(it, text, last)),
        (128, false, false) => aes::Aes128::new_from_slice(key).ok().and_then(|it| decrypted(it, text, last)),
        (192, false, false) => aes::Aes192::new_from_slice(key).ok().and_then(|it| decrypted(it, text, last)),
        (256, false, false) => aes::Aes256::new_from_slice(key).ok().and_then(|it| decrypted(it, text, last)),
        _ => return Err(Error::here(USAGE)),
    };
    match done {
        Some(done) => lua.push_str(done),
        None => lua.push_nil(),
    }
    Ok(1)
}

fn chain_encrypted<C>(key: &[u8], vector: &[u8], text: &[u8], last: bool) -> Option<Vec<u8>>
where
    C: BlockEncryptMut + aes::cipher::BlockCipher + KeyInit,
{
    Some(encrypted(cbc::Encryptor::<C>::new_from_slices(key, vector).ok()?, text, last))
}

fn chain_decrypted<C>(key: &[u8], vector: &[u8], text: &[u8], last: bool) -> Option<Vec<u8>>
where
    C: BlockDecryptMut + aes::cipher::BlockCipher + KeyInit,
{
    decrypted(cbc::Decryptor::<C>::new_from_slices(key, vector).ok()?, text, last)
}

fn encrypted(cipher: impl BlockEncryptMut, text: &[u8], last: bool) -> Vec<u8> {
    if last {
        cipher.encrypt_padded_vec_mut::<Pkcs7>(text)
    } else {
        cipher.encrypt_padded_vec_mut::<NoPadding>(text)
    }
}

fn decrypted(cipher: impl BlockDecryptMut, text: &[u8], last: bool) -> Option<Vec<u8>> {
    if last {
        cipher.decrypt_padded_vec_mut::<Pkcs7>(text).ok()
    } else {
        cipher.decrypt_padded_vec_mut::<NoPadding>(text).ok()
    }
}
