//! Arithmetic in the values of options, such as `(4*64k)`, as fio 3.42 computes it.
//!
//! The grammar is that of fio's `exp/expression-parser.y`, with its oddities: a unit binds less than `*`, so that
//! `(4096/2k)` is 2 MiB, and fractions are cut off early. fio computes plain numbers in 32 bits; what overflows there is
//! no value here. A fio built without lex, such as Debian's, has none of this.

/// Units as fio's lexer has them: longest first where one begins like another. They do not follow `kb_base`.
const UNITS: [(&str, i64); 15] = [
    ("kib", 1_000),
    ("mib", 1_000_000),
    ("gib", 1_000_000_000),
    ("pib", 1_000_000_000_000),
    ("ms", 1_000),
    ("us", 1),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("pb", 1 << 50),
    ("k", 1 << 10),
    ("g", 1 << 30),
    ("t", 1 << 40),
    ("p", 1 << 50),
];
const SECOND_US: i64 = 1_000_000;
/// Longest expression, as in fio.
const BYTES_MAX: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Computed {
    pub value: i64,
    pub has_unit: bool,
}

#[derive(Clone, Copy)]
struct Number {
    whole: i64,
    real: f64,
    /// The number was written with a fraction. A result is like its left operand.
    is_real: bool,
}

struct Parser<'a> {
    rest: &'a str,
    is_time: bool,
    largest: i64,
    has_unit: bool,
}

/// Computes an expression in parentheses; times are in microseconds. Numbers may be up to `largest`, as may a result
/// without a unit.
pub fn computed(text: &str, is_time: bool, largest: i64) -> Option<Computed> {
    if text.len() > BYTES_MAX {
        return None;
    }
    let mut parser = Parser { rest: text, is_time, largest, has_unit: false };
    let value = parser.expression(0)?.whole;
    let (rest, has_unit) = (parser.rest.trim_ascii(), parser.has_unit);
    (rest.is_empty() && (has_unit || value.abs() <= largest)).then_some(Computed { value, has_unit })
}

impl Parser<'_> {
    fn eats(&mut self, c: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(c);
        rest.map(|rest| self.rest = rest).is_some()
    }

    /// Parses an expression of operators that bind at least so much.
    fn expression(&mut self, least: u32) -> Option<Number> {
        let mut left = self.operand()?;
        loop {
            self.rest = self.rest.trim_start();
            let operator = self.rest.chars().next().unwrap_or(')');
            let (binds, right_binds) = match operator {
                '+' | '-' => (1, 2),
                '*' | '/' => (3, 4),
                '^' => (5, 5),
                '%' => (6, 7),
                _ if self.unit().is_some() => (2, 0),
                _ => return Some(left),
            };
            if binds < least {
                return Some(left);
            }
            left = if right_binds > 0 {
                self.rest = &self.rest[1..];
                let right = self.expression(right_binds)?;
                combined(left, operator, right)?
            } else {
                let (factor, letters) = self.unit()?;
                self.rest = &self.rest[letters..];
                self.has_unit = true;
                let whole = left.whole.checked_mul(factor)?;
                Number { whole, real: left.real * factor as f64, ..left }
            };
        }
    }

    fn operand(&mut self) -> Option<Number> {
        if self.eats('(') {
            let inner = self.expression(0)?;
            return self.eats(')').then_some(inner);
        }
        if self.eats('-') {
            let of = self.expression(7)?;
            return Some(Number { whole: of.whole.checked_neg()?, real: -of.real, is_real: false });
        }
        self.rest = self.rest.trim_start();
        if let Some(digits) = self.rest.strip_prefix("0x") {
            let end = digits.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(digits.len());
            let whole = i64::from_str_radix(&digits[..end], 16).ok().filter(|n| *n <= self.largest)?;
            self.rest = &digits[end..];
            return Some(Number { whole, real: whole as f64, is_real: false });
        }
        let end = self.rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        if digits.contains('.') {
            let real: f64 = digits.parse().ok()?;
            return Some(Number { whole: real as i64, real, is_real: true });
        }
        let whole = digits.parse().ok().filter(|n| *n <= self.largest)?;
        Some(Number { whole, real: whole as f64, is_real: false })
    }

    /// Returns the unit that comes next and the number of its letters.
    fn unit(&self) -> Option<(i64, usize)> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
        let word = self.rest[..end].to_ascii_lowercase();
        let factor = match (word.as_str(), self.is_time) {
            ("m", true) => 60 * SECOND_US,
            ("m", false) => 1 << 20,
            ("s", _) => SECOND_US,
            ("h", _) => 3_600 * SECOND_US,
            ("d", _) => 86_400 * SECOND_US,
            (word, _) => UNITS.iter().find(|(unit, _)| *unit == word)?.1,
        };
        Some((factor, end))
    }
}

fn combined(left: Number, operator: char, right: Number) -> Option<Number> {
    let is_whole = !left.is_real && !right.is_real;
    let (real, whole) = match operator {
        '+' => (left.real + right.real, left.whole.checked_add(right.whole)),
        '-' => (left.real - right.real, left.whole.checked_sub(right.whole)),
        '*' => (left.real * right.real, left.whole.checked_mul(right.whole)),
        '/' => (left.real / right.real, left.whole.checked_div(right.whole)),
        '%' => {
            let whole = left.whole.checked_rem(right.whole).filter(|_| is_whole)?;
            (whole as f64, Some(whole))
        }
        _ => (
            libm::pow(left.real, right.real),
            u32::try_from(right.whole).ok().and_then(|power| left.whole.checked_pow(power)),
        ),
    };
    let whole = if is_whole { whole? } else { real as i64 };
    real.is_finite().then_some(Number { whole, real, is_real: left.is_real })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values are those of fio 3.42's own parser; `None` also where it overflows or divides by zero.
    #[test]
    fn arithmetic_is_fio_s() {
        for (text, expected) in [
            ("(1024*1024)", Some(1 << 20)),
            ("(1m-4k)", Some(1_044_480)),
            ("(1024*64)k", Some(64 << 20)),
            ("( 4 * 1k )", Some(4096)),
            // A unit binds less than a product and more than a sum, and fractions are cut off before it.
            ("(4096/2k)", Some(2 << 20)),
            ("(1m+64)", Some((1 << 20) + 64)),
            ("(8k/2)", Some(4096)),
            ("(0.5m)", Some(0)),
            ("(0.5*2m)", Some(1 << 20)),
            ("(1.5*1m)", Some(1 << 20)),
            ("(7/2)", Some(3)),
            ("(7.0/2)", Some(3)),
            ("(2^3^2)", Some(512)),
            ("(100%64k)", Some(36 << 10)),
            ("(3m % 2m)", Some(0)),
            ("(-1m*-1)", Some(1 << 20)),
            ("(2--3)", Some(5)),
            ("(1-2)", Some(-1)),
            ("(10-4-3)", Some(3)),
            ("(1m*(2+1))", Some(3 << 20)),
            ("(1mib)", Some(1_000_000)),
            ("(1kib*4)", Some(4000)),
            ("(1s)", Some(1_000_000)),
            ("(4096m)", Some(4 << 30)),
            ("(0x10*4k)", Some(64 << 10)),
            ("(2147483647)", Some(2_147_483_647)),
            ("(2147483648)", None),
            ("(1024*1024*4096)", None),
            ("(1/0)", None),
            ("(1ki*4)", None),
            ("(1tib)", None),
            ("(10x)", None),
            ("(1m", None),
            ("(4k)(2)", None),
            ("(2 3)", None),
            ("()", None),
        ] {
            let found = computed(text, false, i32::MAX.into()).map(|computed| computed.value);
            assert_eq!(found, expected, "{text}");
        }
        let us = |text: &str| computed(text, true, i32::MAX.into());
        assert_eq!(us("(2m)"), Some(Computed { value: 120_000_000, has_unit: true }));
        assert_eq!(us("(1s+500ms)"), Some(Computed { value: 1_500_000, has_unit: true }));
        assert_eq!(us("(1*2)"), Some(Computed { value: 2, has_unit: false }));
        // Deeper than any stack, and beyond fio's buffer.
        assert_eq!(us(&"(".repeat(100_000)), None);
    }
}
