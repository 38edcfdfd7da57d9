//! The vector clock: how far the log of each instance of a replica set has been applied.
//!
//! Component 0 counts an instance's *local* rows, which no other instance sees; components 1 … 31 belong to the ids of
//! `_cluster`. The sum of all components, the *signature*, names journal and snapshot files. A component that is 0 and
//! one that was never set are the same thing and are left out of every outer form.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use lycosa_tuple::mp::{self, MpError, Reader};

/// Number of components: ids 0 … 31.
pub const VCLOCK_MAX: usize = 32;

/// A vector clock.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Vclock {
    components: [u64; VCLOCK_MAX],
}

/// Why a vclock could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VclockError {
    /// The text is not of the form `{1: 277, 2: 5}`.
    #[error("can't parse a vclock at offset {at}")]
    Syntax {
        /// Offset in bytes of the value that was not understood.
        at: usize,
    },
    /// An id that no instance can have.
    #[error("replica id {0} in a vclock is not below {VCLOCK_MAX}")]
    ReplicaId(u64),
    /// The same id twice.
    #[error("replica id {0} occurs twice in a vclock")]
    Duplicate(u32),
    /// Not a MessagePack map of integers.
    #[error(transparent)]
    Encoding(#[from] MpError),
}

impl Vclock {
    /// The clock of an instance that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The component of `replica_id`; 0 for an id that no instance can have.
    pub fn get(&self, replica_id: u32) -> u64 {
        self.components.get(replica_id as usize).copied().unwrap_or(0)
    }

    /// Sets the component of `replica_id`, forwards or backwards.
    ///
    /// # Errors
    /// [`VclockError::ReplicaId`] if `replica_id` ≥ [`VCLOCK_MAX`].
    pub fn set(&mut self, replica_id: u32, lsn: u64) -> Result<(), VclockError> {
        let component =
            self.components.get_mut(replica_id as usize).ok_or(VclockError::ReplicaId(replica_id.into()))?;
        *component = lsn;
        Ok(())
    }

    /// Sum of all components, the one of local rows included (modulo 2^64).
    pub fn signature(&self) -> u64 {
        self.components.iter().fold(0, |sum, &lsn| sum.wrapping_add(lsn))
    }

    /// The components that are not 0, ids ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(self.components).filter(|&(_, lsn)| lsn != 0)
    }

    /// The same clock without the component of local rows: what replicas compare.
    pub fn replicated(&self) -> Self {
        let mut clock = self.clone();
        clock.components[0] = 0;
        clock
    }

    /// Appends the MessagePack map `{id: lsn, …}`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        mp::write_map(out, self.iter().count() as u32);
        for (replica_id, lsn) in self.iter() {
            mp::write_uint(out, replica_id.into());
            mp::write_uint(out, lsn);
        }
    }

    /// Reads the map that [`encode`](Self::encode) writes.
    ///
    /// # Errors
    /// Not such a map, an id ≥ [`VCLOCK_MAX`], an id twice.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, VclockError> {
        let mut clock = Self::new();
        let mut seen = 0_u32;
        for _ in 0..reader.map()? {
            let replica_id = reader.uint()?;
            clock.insert(replica_id, reader.uint()?, &mut seen)?;
        }
        Ok(clock)
    }

    fn insert(&mut self, replica_id: u64, lsn: u64, seen: &mut u32) -> Result<(), VclockError> {
        let id = u32::try_from(replica_id).map_err(|_| VclockError::ReplicaId(replica_id))?;
        self.set(id, lsn)?;
        if *seen & (1 << id) != 0 {
            return Err(VclockError::Duplicate(id));
        }
        *seen |= 1 << id;
        Ok(())
    }
}

/// `a < b` if no component of `a` is greater and one is less: everything that `a` has seen, `b` has seen too. Clocks
/// that each have seen something the other has not are not comparable.
impl PartialOrd for Vclock {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let mut result = Ordering::Equal;
        for (mine, theirs) in self.components.iter().zip(&other.components) {
            match mine.cmp(theirs) {
                Ordering::Equal => {}
                unequal if result == Ordering::Equal => result = unequal,
                unequal if result == unequal => {}
                _ => return None,
            }
        }
        Some(result)
    }
}

/// The form of file headers: `{1: 277, 2: 5}`.
impl fmt::Display for Vclock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (position, (replica_id, lsn)) in self.iter().enumerate() {
            let comma = if position == 0 { "" } else { ", " };
            write!(f, "{comma}{replica_id}: {lsn}")?;
        }
        f.write_str("}")
    }
}

impl fmt::Debug for Vclock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the form of file headers; blanks are free between its parts, ids may come in any order.
impl FromStr for Vclock {
    type Err = VclockError;

    fn from_str(text: &str) -> Result<Self, VclockError> {
        let mut parser = Parser { text: text.as_bytes(), at: 0 };
        let mut clock = Self::new();
        let mut seen = 0_u32;
        parser.expect(b'{')?;
        if !parser.accept(b'}') {
            loop {
                let replica_id = parser.number()?;
                parser.expect(b':')?;
                clock.insert(replica_id, parser.number()?, &mut seen)?;
                if parser.accept(b'}') {
                    break;
                }
                parser.expect(b',')?;
            }
        }
        parser.blanks();
        if parser.at == text.len() { Ok(clock) } else { Err(parser.error()) }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl Parser<'_> {
    fn blanks(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t')) {
            self.at += 1;
        }
    }

    fn accept(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), VclockError> {
        if self.accept(byte) { Ok(()) } else { Err(self.error()) }
    }

    fn number(&mut self) -> Result<u64, VclockError> {
        self.blanks();
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let number = std::str::from_utf8(&self.text[self.at..self.at + digits])
            .ok()
            .and_then(|text| text.parse().ok());
        let number = number.ok_or_else(|| self.error())?;
        self.at += digits;
        Ok(number)
    }

    fn error(&self) -> VclockError {
        VclockError::Syntax { at: self.at }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn clock(components: &[(u32, u64)]) -> Vclock {
        let mut clock = Vclock::new();
        for &(id, lsn) in components {
            clock.set(id, lsn).expect("an id below 32");
        }
        clock
    }

    #[test]
    fn texts_of_file_headers() {
        for (text, components) in
            [("{}", &[][..]), ("{1: 277}", &[(1, 277)]), ("{0: 1, 1: 267}", &[(0, 1), (1, 267)])]
        {
            assert_eq!(clock(components).to_string(), text);
            assert_eq!(text.parse(), Ok(clock(components)));
        }
        assert_eq!(" { 3:5 ,\t1 : 7 } ".parse(), Ok(clock(&[(1, 7), (3, 5)])));
    }

    #[test]
    fn other_texts() {
        let error = |text: &str| text.parse::<Vclock>().expect_err("no vclock");
        for (text, at) in [
            ("", 0),
            ("{", 1),
            ("1: 5", 0),
            ("{1}", 2),
            ("{1: }", 4),
            ("{1: 5,}", 6),
            ("{1: 5} x", 7),
            ("{1: -5}", 4),
            ("{1: 18446744073709551616}", 4),
            ("{é: 1}", 1),
        ] {
            assert_eq!(error(text), VclockError::Syntax { at }, "{text}");
        }
        assert_eq!(error("{32: 1}"), VclockError::ReplicaId(32));
        assert_eq!(error("{4294967296: 1}"), VclockError::ReplicaId(1 << 32));
        assert_eq!(error("{1: 1, 1: 2}"), VclockError::Duplicate(1));
    }

    #[test]
    fn order() {
        let (a, b) = (clock(&[(1, 5)]), clock(&[(1, 5), (2, 1)]));
        assert_eq!(a.partial_cmp(&b), Some(Ordering::Less));
        assert_eq!(b.partial_cmp(&a), Some(Ordering::Greater));
        assert_eq!(a.partial_cmp(&a.clone()), Some(Ordering::Equal));
        assert_eq!(clock(&[(1, 6)]).partial_cmp(&b), None);
        assert_eq!(clock(&[(0, 9), (1, 5)]).replicated(), a);
    }

    #[test]
    fn signature_is_the_sum() {
        assert_eq!(clock(&[(0, 1), (1, 267), (31, 2)]).signature(), 270);
        assert_eq!(clock(&[(1, u64::MAX), (2, 2)]).signature(), 1);
        assert_eq!(Vclock::new().get(99), 0);
        assert!(Vclock::new().set(32, 1).is_err());
    }

    #[test]
    fn encoded_as_in_a_ballot() {
        let mut out = Vec::new();
        clock(&[(1, 24)]).encode(&mut out);
        assert_eq!(out, [0x81, 0x01, 0x18]);
        for wrong in
            [&[0x90][..], &[0x81, 0x20, 0x01], &[0x81, 0x01, 0xff], &[0x82, 1, 1, 1, 1], &[0x81, 0x01]]
        {
            assert!(Vclock::decode(&mut Reader::new(wrong)).is_err(), "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn both_forms_round_trip(components in prop::collection::vec((0_u32..32, any::<u64>()), 0..32)) {
            let clock = clock(&components);
            prop_assert_eq!(clock.to_string().parse(), Ok(clock.clone()));
            let mut out = Vec::new();
            clock.encode(&mut out);
            prop_assert_eq!(Vclock::decode(&mut Reader::new(&out)), Ok(clock));
        }

        #[test]
        fn no_text_panics(text in "[{}: ,0-9é]{0,20}") {
            let _ = text.parse::<Vclock>();
        }
    }
}
