//! Collations: how strings of a key part are ordered.
//!
//! A collation comes from a row of `_collation`: a type (`BINARY` or `ICU`), a locale and options. Binary order is that
//! of the bytes. Collations apply to strings alone: binary values are always ordered by their bytes.
//!
//! ICU collations are the Unicode Collation Algorithm with CLDR's tailorings, as ICU4X implements it. Against the ICU of
//! Tarantool 2.6.0 the order of letters was found equal in the root locale and in all of Tarantool's predefined
//! locales, but for
//!
//! - characters that Unicode has moved since, and `lv`, `nso` and `tn`, which CLDR has: an index keeps no order on disk,
//!   so that only listings can differ;
//! - the locales of [`WITHOUT_DATA`] and the option `french_collation`, which are refused.
//!
//! Bytes that are not UTF-8 compare as U+FFFD, and equal by that if there are as many of them; NUL is ignored. ICU does
//! both.
//!
//! Without the feature `icu` there is binary order only.

use std::cmp::Ordering;
#[cfg(feature = "icu")]
use std::fmt;
use std::hash::{Hash, Hasher};
#[cfg(feature = "icu")]
use std::sync::Arc;

#[cfg(feature = "icu")]
use icu_collator::options::{AlternateHandling, CaseLevel, CollatorOptions, Strength};
#[cfg(feature = "icu")]
use icu_collator::preferences::{CollationCaseFirst, CollationNumericOrdering};
#[cfg(feature = "icu")]
use icu_collator::{Collator, CollatorBorrowed, CollatorPreferences};
#[cfg(feature = "icu")]
use icu_locale_core::Locale;

/// Locales for which Tarantool has a tailored order and the compiled data has none. Their strings would fall into the
/// root order silently.
pub const WITHOUT_DATA: [&str; 7] = ["haw", "kl", "lkt", "ln", "se", "zh-u-co-big5han", "zh-u-co-gb2312"];

/// The order of a key part's strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Collation {
    /// By bytes, then by length.
    #[default]
    Binary,
    #[cfg(feature = "icu")]
    /// By the Unicode Collation Algorithm.
    Icu(Icu),
}

#[cfg(feature = "icu")]
/// A Unicode collation. Copies share its data.
#[derive(Clone)]
pub struct Icu {
    collator: Arc<CollatorBorrowed<'static>>,
    locale: Box<str>,
    /// As given, sorted.
    options: Box<[(Box<str>, Box<str>)]>,
}

/// Why a collation cannot be used. The texts go into `Failed to initialize collation: %s.` (code 150).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CollationError {
    /// The type is neither `BINARY` nor `ICU`.
    #[error("unknown collation type '{0}'")]
    Type(String),
    /// The locale is no locale.
    #[error("invalid locale '{0}'")]
    Locale(String),
    /// A locale of [`WITHOUT_DATA`].
    #[error("the order of locale '{0}' is not supported")]
    NoData(String),
    /// An option that does not exist, or a value that it does not take or that is not supported.
    #[error("unsupported option {name} = '{value}'")]
    Option {
        /// The option.
        name: String,
        /// Its value.
        value: String,
    },
}

impl Collation {
    /// The collation that a row of `_collation` describes: its type, its locale (`""` is the root) and the pairs of its
    /// options. Names and values are taken in any case.
    ///
    /// # Errors
    /// The name of a collation or locale that does not exist or is not supported.
    pub fn new<'o>(
        kind: &str,
        locale: &str,
        options: impl IntoIterator<Item = (&'o str, &'o str)>,
    ) -> Result<Self, CollationError> {
        #[cfg(feature = "icu")]
        if kind.eq_ignore_ascii_case("ICU") {
            return Icu::new(locale, options).map(Self::Icu);
        }
        #[cfg(not(feature = "icu"))]
        let (_, _) = (locale, options);
        if kind.eq_ignore_ascii_case("BINARY") {
            Ok(Self::Binary)
        } else {
            Err(CollationError::Type(kind.to_owned()))
        }
    }

    /// Whether strings are ordered by their bytes.
    #[inline]
    pub const fn is_binary(&self) -> bool {
        matches!(self, Self::Binary)
    }

    /// Orders two strings.
    #[inline]
    pub fn compare(&self, a: &[u8], b: &[u8]) -> Ordering {
        match self {
            Self::Binary => a.cmp(b),
            #[cfg(feature = "icu")]
            Self::Icu(icu) => icu.collator.compare_utf8(a, b),
        }
    }

    /// Feeds a string to `hasher` so that strings that are equal in this collation give the same. Allocates unless the
    /// collation is binary.
    #[inline]
    pub fn hash(&self, string: &[u8], hasher: &mut impl Hasher) {
        match self {
            Self::Binary => string.hash(hasher),
            #[cfg(feature = "icu")]
            Self::Icu(icu) => {
                let mut sort_key = Vec::with_capacity(string.len() * 2);
                match icu.collator.write_sort_key_utf8_to(string, &mut sort_key) {
                    Ok(()) => sort_key.hash(hasher),
                }
            }
        }
    }
}

#[cfg(feature = "icu")]
impl Icu {
    fn new<'o>(
        locale: &str,
        options: impl IntoIterator<Item = (&'o str, &'o str)>,
    ) -> Result<Self, CollationError> {
        // Tarantool writes subtags in ICU's old way: `de_DE_u_co_phonebk`.
        let tag = locale.replace('_', "-");
        if WITHOUT_DATA.iter().any(|absent| absent.eq_ignore_ascii_case(&tag)) {
            return Err(CollationError::NoData(locale.to_owned()));
        }
        let invalid = || CollationError::Locale(locale.to_owned());
        let parsed: Locale =
            if tag.is_empty() { Locale::UNKNOWN } else { tag.parse().map_err(|_| invalid())? };
        let mut preferences = CollatorPreferences::from(&parsed);
        let mut resolved = CollatorOptions::default();
        let mut given = Vec::new();
        for (name, value) in options {
            let (name, value) = (name.to_ascii_lowercase(), value.to_ascii_lowercase());
            set_option(&name, &value, &mut preferences, &mut resolved)
                .ok_or_else(|| CollationError::Option { name: name.clone(), value: value.clone() })?;
            given.push((name.into(), value.into()));
        }
        given.sort_unstable();
        let collator = Collator::try_new(preferences, resolved).map_err(|_| invalid())?;
        Ok(Self { collator: Arc::new(collator), locale: tag.into(), options: given.into() })
    }
}

#[cfg(feature = "icu")]
/// Applies one option of a `_collation` row; `None` if there is no such option or value.
fn set_option(
    name: &str,
    value: &str,
    preferences: &mut CollatorPreferences,
    options: &mut CollatorOptions,
) -> Option<()> {
    match (name, value) {
        ("strength", "primary") => options.strength = Some(Strength::Primary),
        ("strength", "secondary") => options.strength = Some(Strength::Secondary),
        ("strength", "tertiary") => options.strength = Some(Strength::Tertiary),
        ("strength", "quaternary") => options.strength = Some(Strength::Quaternary),
        ("strength", "identical") => options.strength = Some(Strength::Identical),
        ("alternate_handling", "shifted") => options.alternate_handling = Some(AlternateHandling::Shifted),
        ("alternate_handling", "non_ignorable") => {
            options.alternate_handling = Some(AlternateHandling::NonIgnorable);
        }
        ("case_level", "on") => options.case_level = Some(CaseLevel::On),
        ("case_level", "off") => options.case_level = Some(CaseLevel::Off),
        ("case_first", "upper_first") => preferences.case_first = Some(CollationCaseFirst::Upper),
        ("case_first", "lower_first") => preferences.case_first = Some(CollationCaseFirst::Lower),
        ("case_first", "off") => preferences.case_first = Some(CollationCaseFirst::False),
        ("numeric_collation", "on") => preferences.numeric_ordering = Some(CollationNumericOrdering::True),
        ("numeric_collation", "off") => preferences.numeric_ordering = Some(CollationNumericOrdering::False),
        // Strings are always compared as if normalized, which is what "on" asks for.
        ("normalization_mode", "on" | "off") | ("french_collation", "off") | (_, "default") => {}
        _ => return None,
    }
    Some(())
}

#[cfg(feature = "icu")]
/// The same locale and options.
impl PartialEq for Icu {
    fn eq(&self, other: &Self) -> bool {
        self.locale == other.locale && self.options == other.options
    }
}

#[cfg(feature = "icu")]
impl Eq for Icu {}

#[cfg(feature = "icu")]
impl fmt::Debug for Icu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Icu")
            .field("locale", &self.locale)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "icu")]
#[cfg(test)]
mod tests {
    use std::hash::DefaultHasher;

    use proptest::prelude::*;

    use super::*;

    fn icu(locale: &str, strength: &str) -> Collation {
        Collation::new("ICU", locale, [("strength", strength)]).unwrap()
    }

    fn hashed(collation: &Collation, string: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        collation.hash(string, &mut hasher);
        hasher.finish()
    }

    /// Checks that `order` (words with `<` or `=` between) is that of the collation.
    fn assert_order(collation: &Collation, order: &str) {
        let mut words = order.split(' ');
        let mut previous = words.next().unwrap();
        while let (Some(sign), Some(word)) = (words.next(), words.next()) {
            let expected = if sign == "=" { Ordering::Equal } else { Ordering::Less };
            let (a, b) = (previous.as_bytes(), word.as_bytes());
            assert_eq!(collation.compare(a, b), expected, "{previous} {sign} {word}");
            assert_eq!(collation.compare(b, a), expected.reverse(), "{previous} {sign} {word}");
            assert_eq!(hashed(collation, a) == hashed(collation, b), sign == "=");
            previous = word;
        }
    }

    /// Orders that Tarantool 2.6 gave to indexes with these collations.
    #[test]
    fn orders_are_those_of_the_real_ones() {
        assert_order(
            &icu("", "tertiary"),
            "_ < - < 1 < 10 < 2 < a < A < á < Á < å < ä < ae < az < b < B < co-op < CO-OP < coop < Coop < cz < d < e < \
             E < é < i < I < İ < ı < ñ < ß < z < Z < а < А < е < Е < ё < Ё < ж < 日 < 本",
        );
        assert_order(
            &icu("", "primary"),
            "a = A = á = Á = ä = å < ae < az < b = B < e = E = é < i = I = İ < а = А < е = ё = Ё",
        );
        assert_order(&icu("de_DE_u_co_phonebk", "tertiary"), "ad < ae < ä < af < ö < ud < ue < ü < uf");
        assert_order(&icu("es_u_co_trad", "tertiary"), "co-op < cz < ch < d < l < lz < ll < n < ñ < o");
        assert_order(&icu("sv", "tertiary"), "z < å < ä < ö");
        assert_order(&icu("fr_CA", "secondary"), "cote < côte < coté < côté");
        assert_order(&icu("", "secondary"), "cote < coté < côte < côté");
    }

    #[test]
    fn bytes_that_are_no_text() {
        let collation = icu("", "tertiary");
        assert_eq!(collation.compare(b"a\0", b"a"), Ordering::Equal);
        assert_eq!(collation.compare(b"\xff", b"\xfe"), Ordering::Equal);
        assert_eq!(collation.compare(b"\xff", "本".as_bytes()), Ordering::Greater);
        assert_eq!(Collation::Binary.compare(b"a\0", b"a"), Ordering::Greater);
    }

    #[test]
    fn options() {
        let with = |name: &str, value: &str| Collation::new("icu", "", [(name, value)]);
        assert_order(&with("numeric_collation", "on").unwrap(), "1 < 2 < 10");
        assert_order(&with("case_first", "upper_first").unwrap(), "A < a < b");
        assert_order(&with("alternate_handling", "shifted").unwrap(), "_ = - < 1");
        assert_order(&with("STRENGTH", "PRIMARY").unwrap(), "a = A < b");
        assert!(with("french_collation", "on").is_err());
        assert!(with("strength", "strong").is_err());
        assert!(with("weakness", "primary").is_err());
        assert_eq!(with("strength", "default"), with("strength", "default"));
        assert_ne!(icu("", "primary"), icu("", "secondary"));
        assert_ne!(icu("de", "primary"), icu("", "primary"));
    }

    #[test]
    fn what_is_refused_says_so() {
        let refused =
            |kind: &str, locale: &str| Collation::new(kind, locale, []).map_err(|error| error.to_string());
        assert_eq!(refused("BINARY", ""), Ok(Collation::Binary));
        assert_eq!(refused("ASCII", ""), Err("unknown collation type 'ASCII'".to_owned()));
        assert_eq!(refused("ICU", "no locale!"), Err("invalid locale 'no locale!'".to_owned()));
        let no_data = "the order of locale 'zh_u_co_big5han' is not supported";
        assert_eq!(refused("ICU", "zh_u_co_big5han"), Err(no_data.to_owned()));
    }

    proptest! {
        #[test]
        fn equal_strings_hash_equally(a in "[aAäßs\u{308}\0-]{0,4}", b in "[aAäßs\u{308}\0-]{0,4}") {
            for strength in ["primary", "secondary", "tertiary", "identical"] {
                let collation = icu("", strength);
                let (a, b) = (a.as_bytes(), b.as_bytes());
                let ordering = collation.compare(a, b);
                prop_assert_eq!(ordering, collation.compare(b, a).reverse());
                prop_assert_eq!(ordering.is_eq(), hashed(&collation, a) == hashed(&collation, b));
            }
        }

        #[test]
        fn any_bytes_are_ordered(a: Vec<u8>, b: Vec<u8>) {
            let collation = icu("", "primary");
            let ordering = collation.compare(&a, &b);
            prop_assert_eq!(ordering, collation.compare(&b, &a).reverse());
            prop_assert_eq!(ordering.is_eq(), hashed(&collation, &a) == hashed(&collation, &b));
        }
    }
}
