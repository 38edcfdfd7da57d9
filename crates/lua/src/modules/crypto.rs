//! Native part of `crypto`: keyed hashes, and AES and DES in blocks and as streams.

use std::cell::RefCell;

use aes::cipher::block_padding::{NoPadding, Pkcs7};
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyInit, KeyIvInit, StreamCipher};
use hmac::{Mac, SimpleHmac};

use crate::api::Lua;
use crate::error::Error;

pub(super) fn open(lua: Lua) -> Result<i32, Error> {
    lua.new_library(&[("hmac", hmac_of), ("cipher", cipher), ("stream", stream)]);
    Ok(1)
}

/// `hmac(name, key, text)`
fn hmac_of(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: hmac(name, key, text)";
    let (key, text) = (lua.arg_bytes(2, USAGE)?, lua.arg_bytes(3, USAGE)?);
    let code = match lua.arg_bytes(1, USAGE)? {
        b"md4" => keyed::<SimpleHmac<md4::Md4>>(key, text),
        b"md5" => keyed::<SimpleHmac<md5::Md5>>(key, text),
        b"ripemd160" => keyed::<SimpleHmac<ripemd::Ripemd160>>(key, text),
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

/// `cipher(name, mode, encrypt, last, text, key, vector)`: whole blocks, or the last ones, which are padded. Nil if the text is
/// not one that the key has encrypted.
fn cipher(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: cipher(name, mode, encrypt, last, text, key, vector)";
    let pass = match lua.arg_bytes(1, USAGE)? {
        b"aes128" => blocks::<aes::Aes128>,
        b"aes192" => blocks::<aes::Aes192>,
        b"aes256" => blocks::<aes::Aes256>,
        b"des" => blocks::<des::Des>,
        _ => return Err(Error::here(USAGE)),
    };
    let chained = lua.arg_bytes(2, USAGE)? == b"cbc";
    let text = lua.arg_bytes(5, USAGE)?;
    let (key, vector) = (lua.arg_bytes(6, USAGE)?, lua.arg_bytes(7, USAGE)?);
    match pass((key, chained.then_some(vector)), lua.truth(3), text, lua.truth(4)) {
        Some(done) => lua.push_str(done),
        None => lua.push_nil(),
    }
    Ok(1)
}

/// What turns blocks of a cipher into one another. A vector chains them.
fn blocks<C>((key, vector): (&[u8], Option<&[u8]>), encrypt: bool, text: &[u8], last: bool) -> Option<Vec<u8>>
where
    C: BlockEncryptMut + BlockDecryptMut + aes::cipher::BlockCipher + KeyInit,
{
    match (vector, encrypt) {
        (Some(vector), true) => chain_encrypted::<C>(key, vector, text, last),
        (Some(vector), false) => chain_decrypted::<C>(key, vector, text, last),
        (None, true) => C::new_from_slice(key).ok().map(|cipher| encrypted(cipher, text, last)),
        (None, false) => C::new_from_slice(key).ok().and_then(|cipher| decrypted(cipher, text, last)),
    }
}

type Pass = Box<dyn FnMut(&mut [u8])>;

/// A cipher that turns each byte into one: what it does to the bytes that come next.
struct Stream(RefCell<Pass>);

/// `stream(name, mode, encrypt, key, vector)`: an object whose `pass(text)` encrypts or decrypts the next piece.
fn stream(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: stream(name, mode, encrypt, key, vector)";
    let (key, vector) = (lua.arg_bytes(4, USAGE)?, lua.arg_bytes(5, USAGE)?);
    let encrypt = lua.truth(3);
    let made = match (lua.arg_bytes(1, USAGE)?, lua.arg_bytes(2, USAGE)?) {
        (b"aes128", b"cfb") => feedback::<aes::Aes128>(key, vector, encrypt),
        (b"aes192", b"cfb") => feedback::<aes::Aes192>(key, vector, encrypt),
        (b"aes256", b"cfb") => feedback::<aes::Aes256>(key, vector, encrypt),
        (b"des", b"cfb") => feedback::<des::Des>(key, vector, encrypt),
        (b"aes128", b"ofb") => ofb::Ofb::<aes::Aes128>::new_from_slices(key, vector).ok().map(keystream),
        (b"aes192", b"ofb") => ofb::Ofb::<aes::Aes192>::new_from_slices(key, vector).ok().map(keystream),
        (b"aes256", b"ofb") => ofb::Ofb::<aes::Aes256>::new_from_slices(key, vector).ok().map(keystream),
        (b"des", b"ofb") => ofb::Ofb::<des::Des>::new_from_slices(key, vector).ok().map(keystream),
        _ => None,
    };
    let made = made.ok_or_else(|| Error::here(USAGE))?;
    lua.new_class::<Stream>("stream", &[("pass", pass_stream)], &[]);
    lua.pop(1);
    lua.push_userdata(Stream(RefCell::new(made)));
    Ok(1)
}

fn feedback<C>(key: &[u8], vector: &[u8], encrypt: bool) -> Option<Pass>
where
    C: BlockEncryptMut + aes::cipher::BlockCipher + KeyInit + 'static,
{
    if encrypt {
        let mut cipher = cfb_mode::BufEncryptor::<C>::new_from_slices(key, vector).ok()?;
        Some(Box::new(move |bytes| cipher.encrypt(bytes)))
    } else {
        let mut cipher = cfb_mode::BufDecryptor::<C>::new_from_slices(key, vector).ok()?;
        Some(Box::new(move |bytes| cipher.decrypt(bytes)))
    }
}

fn keystream(mut cipher: impl StreamCipher + 'static) -> Pass {
    Box::new(move |bytes| cipher.apply_keystream(bytes))
}

/// `stream:pass(text)`
fn pass_stream(lua: Lua) -> Result<i32, Error> {
    const USAGE: &str = "usage: stream:pass(text)";
    let mut bytes = lua.arg_bytes(2, USAGE)?.to_vec();
    let stream = lua.userdata::<Stream>(1).ok_or_else(|| Error::here(USAGE))?;
    (stream.0.borrow_mut())(&mut bytes);
    lua.push_str(bytes);
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
