//! The JSON that events are made of: a cursor over its tokens. Strict where it reads, and careful where it skips.

use std::borrow::Cow;

/// The rest of a JSON text. Each method takes a token from its front; after `None` it cannot be used again.
#[derive(Clone, Copy)]
pub struct Cursor<'a>(pub &'a [u8]);

impl<'a> Cursor<'a> {
    /// Returns the next byte that is no white space, which is not taken; 0 at the end.
    pub fn peek(&mut self) -> u8 {
        while let [b' ' | b'\t' | b'\n' | b'\r', rest @ ..] = self.0 {
            self.0 = rest;
        }
        self.0.first().copied().unwrap_or(0)
    }

    /// Takes this byte, after white space.
    pub fn take(&mut self, byte: u8) -> Option<()> {
        if self.peek() != byte {
            return None;
        }
        self.0 = self.0.get(1..)?;
        Some(())
    }

    /// Takes the opening of an array or object; returns whether it has an element.
    pub fn open(&mut self, opening: u8, closing: u8) -> Option<bool> {
        self.take(opening)?;
        let is_empty = self.peek() == closing;
        if is_empty {
            self.take(closing)?;
        }
        Some(!is_empty)
    }

    /// Takes a comma or the closing; returns whether there is another element.
    pub fn next(&mut self, closing: u8) -> Option<bool> {
        if self.peek() == b',' {
            self.take(b',')?;
            return Some(true);
        }
        self.take(closing)?;
        Some(false)
    }

    /// Takes a string up to the first quote, without looking at what it contains.
    pub fn raw(&mut self) -> Option<&'a [u8]> {
        self.take(b'"')?;
        let (text, rest) = self.0.split_at_checked(memchr::memchr(b'"', self.0)?)?;
        self.0 = rest.get(1..)?;
        Some(text)
    }

    /// Takes a string of ASCII without escapes.
    pub fn ascii(&mut self) -> Option<&'a str> {
        let text = self.raw()?;
        // Without a branch for each byte, the compiler compares many at a time; so below.
        let is_simple = text.iter().fold(true, |so_far, &byte| so_far & is_simple(byte));
        std::str::from_utf8(text).ok().filter(|_| is_simple)
    }

    /// Takes a string of 1 to `max` digits.
    pub fn digits(&mut self, max: usize) -> Option<&'a [u8]> {
        let text = self.raw()?;
        Some(text).filter(|text| are_digits(text) && (1..=max).contains(&text.len()))
    }

    /// Takes this text.
    pub fn take_text(&mut self, text: &[u8]) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Takes a string of digits that is as long as another one.
    pub fn digits_like(&mut self, other: &[u8]) -> Option<&'a [u8]> {
        self.quoted_like(other).filter(|text| are_digits(text))
    }

    /// Takes a string as `raw` does, and looks for its end first where it is if the string is as long as another one.
    ///
    /// If that is a later quote, the text has a quote in it, as no base64 has.
    pub fn raw_like(&mut self, other: &[u8]) -> Option<&'a [u8]> {
        self.quoted_like(other).or_else(|| self.raw())
    }

    /// Takes a string as `string` does, and looks for its end first where it is if the string is as long as another one.
    pub fn string_like(&mut self, other: &[u8]) -> Option<Cow<'a, [u8]>> {
        let mut ahead = *self;
        let Some(text) = ahead.quoted_like(other) else { return self.string() };
        let is_simple = text.iter().fold(true, |so_far, &byte| so_far & is_simple(byte) & (byte != b'"'));
        if !is_simple {
            return self.string();
        }
        *self = ahead;
        Some(Cow::Borrowed(text))
    }

    /// Takes what is between two quotes, as far apart as those of another string: other quotes may be in it.
    fn quoted_like(&mut self, other: &[u8]) -> Option<&'a [u8]> {
        let (quoted, rest) = self.0.split_at_checked(other.len())?;
        let text = quoted.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        self.0 = rest;
        Some(text)
    }

    /// Takes any string. `None` for half a surrogate pair, an unknown escape, a control character, and for no UTF-8.
    pub fn string(&mut self) -> Option<Cow<'a, [u8]>> {
        let before = *self;
        let text = self.raw()?;
        if text.iter().fold(true, |so_far, &byte| so_far & is_simple(byte)) {
            return Some(Cow::Borrowed(text));
        }
        if text.contains(&b'\\') {
            *self = before;
            self.take(b'"')?;
            return self.unescape().map(Cow::Owned);
        }
        plain(text).map(|text| Cow::Borrowed(text.as_bytes()))
    }

    fn unescape(&mut self) -> Option<Vec<u8>> {
        let mut text = String::new();
        loop {
            let (part, rest) = self.0.split_at_checked(memchr::memchr2(b'"', b'\\', self.0)?)?;
            text.push_str(plain(part)?);
            let [mark, rest @ ..] = rest else { return None };
            self.0 = rest;
            if *mark == b'"' {
                return Some(text.into_bytes());
            }
            let [escape, rest @ ..] = rest else { return None };
            self.0 = rest;
            text.push(match escape {
                b'"' => '"',
                b'\\' => '\\',
                b'/' => '/',
                b'b' => '\u{8}',
                b'f' => '\u{c}',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                b'u' => self.code_point()?,
                _ => return None,
            });
        }
    }

    fn code_point(&mut self) -> Option<char> {
        let unit = self.unit()?;
        if !(0xD800..0xDC00).contains(&unit) {
            return char::from_u32(u32::from(unit));
        }
        self.0 = self.0.strip_prefix(b"\\u")?;
        char::decode_utf16([unit, self.unit()?]).next()?.ok()
    }

    fn unit(&mut self) -> Option<u16> {
        let (digits, rest) = self.0.split_at_checked(4)?;
        self.0 = rest;
        let is_hex = digits.iter().all(u8::is_ascii_hexdigit);
        u16::from_str_radix(std::str::from_utf8(digits).ok().filter(|_| is_hex)?, 16).ok()
    }

    /// Takes a number that is not negative, of at most `MAX_NUMBER` bytes.
    pub fn number(&mut self) -> Option<f64> {
        self.peek();
        if let Some((value, rest)) = short_number(self.0) {
            self.0 = rest;
            return Some(value);
        }
        let is_of_number = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-');
        let length = self.0.iter().take(MAX_NUMBER).take_while(is_of_number).count();
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        let value: f64 = std::str::from_utf8(text).ok().filter(|_| is_number(text))?.parse().ok()?;
        // A longer number goes on here, and so no comma or brace follows.
        value.is_finite().then_some(value)
    }

    /// Takes null; returns whether it is there.
    pub fn null(&mut self) -> bool {
        self.peek();
        match self.0.strip_prefix(b"null") {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Takes a value that every parser accepts: short, and with nothing in it.
    pub fn simple(&mut self) -> Option<()> {
        match self.peek() {
            b'"' => self.ascii().map(|_| ()),
            b'0'..=b'9' => {
                let rest = self.0;
                self.number()?;
                let text = rest.get(..rest.len().checked_sub(self.0.len())?)?;
                (text.len() <= MAX_INTEGER && text.iter().all(u8::is_ascii_digit)).then_some(())
            }
            _ => [&b"null"[..], b"true", b"false"].into_iter().find_map(|word| {
                self.0 = self.0.strip_prefix(word)?;
                Some(())
            }),
        }
    }

    /// Takes a value of any form, if it is valid JSON. If it is not, it may take anything.
    pub fn skip(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.peek() {
                b'"' => self.skip_string()?,
                b'{' | b'[' => {
                    depth = depth.checked_add(1)?;
                    self.0 = self.0.get(1..)?;
                }
                b'}' | b']' => {
                    depth = depth.checked_sub(1)?;
                    self.0 = self.0.get(1..)?;
                }
                0 => return None,
                b',' | b':' if depth > 0 => self.0 = self.0.get(1..)?,
                _ => self.skip_word()?,
            }
            if depth == 0 {
                return Some(());
            }
        }
    }

    fn skip_string(&mut self) -> Option<()> {
        self.take(b'"')?;
        loop {
            let at = memchr::memchr2(b'"', b'\\', self.0)?;
            let is_end = self.0.get(at) == Some(&b'"');
            self.0 = self.0.get(at.checked_add(if is_end { 1 } else { 2 })?..)?;
            if is_end {
                return Some(());
            }
        }
    }

    fn skip_word(&mut self) -> Option<()> {
        let is_of_word = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'+' | b'-');
        let length = self.0.iter().take_while(is_of_word).count();
        self.0 = self.0.get(length..).filter(|_| length > 0)?;
        Some(())
    }
}

/// Longer numbers are left to Python.
const MAX_NUMBER: usize = 32;
/// So many digits are a number below 2**53.
const MAX_EXACT: usize = 15;
/// Those of ten that are needed, and exact.
const POWERS: [f64; MAX_EXACT] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14];
/// Fewer digits than those of the largest `i64`.
const MAX_INTEGER: usize = 18;

/// Whether a byte of a string is a character of ASCII that stands for itself.
fn is_simple(byte: u8) -> bool {
    (byte >= b' ') & (byte != b'\\') & byte.is_ascii()
}

fn are_digits(text: &[u8]) -> bool {
    text.iter().fold(true, |so_far, byte| so_far & byte.is_ascii_digit())
}

/// Returns the text, if it is UTF-8 without control characters.
fn plain(text: &[u8]) -> Option<&str> {
    std::str::from_utf8(text).ok().filter(|_| is_printable(text))
}

/// Whether there is no control character.
fn is_printable(text: &[u8]) -> bool {
    text.iter().fold(true, |so_far, &byte| so_far & (byte >= b' '))
}

/// Reads digits, a point and digits, 15 of them at most, and maybe an exponent of one digit: arrival times are 1.7E9 or
/// 1700000000.0. Returns the number and the rest.
///
/// It is a quotient of two exact numbers then, and so what every correct parser returns (Clinger, 1990).
fn short_number(text: &[u8]) -> Option<(f64, &[u8])> {
    let (whole, whole_length, rest) = appended(0, text);
    let (number, fraction_length, rest) = appended(whole, rest.strip_prefix(b".")?);
    let (exponent, rest) = match rest {
        [b'E', digit @ b'0'..=b'9', rest @ ..] => (usize::from(digit.wrapping_sub(b'0')), rest),
        _ => (0, rest),
    };
    let is_short = whole_length.wrapping_add(fraction_length) <= MAX_EXACT;
    let is_usual = whole_length > 0 && fraction_length > 0 && !text.starts_with(b"0");
    if !is_short || !is_usual || !matches!(rest, [b',' | b'}', ..]) {
        return None;
    }
    let scale = POWERS.get(fraction_length.checked_sub(exponent)?)?;
    #[allow(clippy::cast_precision_loss)] // it is less than 2**53
    Some((number as f64 / scale, rest))
}

/// Appends to a number the digits at the front of the text; returns how many they are, and the rest.
///
/// Of more digits than are exact, the number is of no use.
fn appended(mut number: i64, text: &[u8]) -> (i64, usize, &[u8]) {
    let mut rest = text;
    while let [digit @ b'0'..=b'9', after @ ..] = rest {
        number = number.wrapping_mul(10).wrapping_add(i64::from(digit.wrapping_sub(b'0')));
        rest = after;
    }
    (number, text.len().wrapping_sub(rest.len()), rest)
}

/// Whether the text is a number by JSON's grammar, without a minus.
fn is_number(text: &[u8]) -> bool {
    let (whole, mut rest) = digits(text);
    if whole.is_empty() || (whole.len() > 1 && whole.starts_with(b"0")) {
        return false;
    }
    if let [b'.', fraction @ ..] = rest {
        let (fraction, after) = digits(fraction);
        if fraction.is_empty() {
            return false;
        }
        rest = after;
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = if let [b'+' | b'-', unsigned @ ..] = exponent { unsigned } else { exponent };
        let (exponent, after) = digits(exponent);
        return !exponent.is_empty() && after.is_empty();
    }
    rest.is_empty()
}

/// Splits the text after the digits at its front.
fn digits(text: &[u8]) -> (&[u8], &[u8]) {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at_checked(count).unwrap_or((text, b""))
}
