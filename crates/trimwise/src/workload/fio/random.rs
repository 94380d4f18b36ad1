//! fio's random numbers, as its source defines them, so that a job has the offsets that fio gives it.
//!
//! Offsets come from a combined Tausworthe generator (L'Ecuyer; 32 or 64 bits) or a linear feedback shift register.
//! Zipf and Pareto distributions use `pow` from the crate `libm`, which computes the same on every machine. fio uses
//! that of its C library, which may differ from it in the last bit, and so now and then in an offset.

use super::Shape;

#[derive(Clone, Debug)]
pub enum Tausworthe {
    Bits32([u32; 3]),
    Bits64([u64; 5]),
}

const TWO_32: f64 = 4_294_967_296.0;

/// Shifts, mask and shift of each component.
const COMPONENTS_32: [(u32, u32, u32, u32); 3] = [(13, 19, !1, 12), (2, 25, !7, 4), (3, 11, !15, 17)];
const COMPONENTS_64: [(u32, u32, u64, u32); 5] = [
    (1, 53, !1, 10),
    (24, 50, !0x1ff, 5),
    (3, 23, !0xfff, 29),
    (5, 24, !0x1_ffff, 23),
    (3, 33, !0x7f_ffff, 8),
];
const LEAST: [u32; 5] = [1, 7, 15, 33, 49];
const WARM_UP: u32 = 6;
/// Seed of the first component: in the source `(2^31) + (2^17) + (2^7)`, where `^` is an exclusive or.
const ORIGIN: u32 = (2 ^ 31) + (2 ^ 17) + (2 ^ 7);

impl Tausworthe {
    pub fn new(seed: u64, is_64: bool) -> Self {
        let mut new = if is_64 {
            let mut last = u64::from(ORIGIN);
            Self::Bits64(LEAST.map(|least| {
                last = last.wrapping_mul(6_906_969_069) ^ seed;
                if last < u64::from(least) {
                    last += u64::from(least);
                }
                last
            }))
        } else {
            let mut last = ORIGIN;
            Self::Bits32([LEAST[0], LEAST[1], LEAST[2]].map(|least| {
                last = last.wrapping_mul(69_069) ^ seed as u32;
                if last < least {
                    last += least;
                }
                last
            }))
        };
        for _ in 0..WARM_UP {
            new.draw();
        }
        new
    }

    pub fn draw(&mut self) -> u64 {
        match self {
            Self::Bits32(state) => {
                for (s, (left, right, mask, shift)) in state.iter_mut().zip(COMPONENTS_32) {
                    *s = (*s & mask) << shift ^ (*s << left ^ *s) >> right;
                }
                u64::from(state[0] ^ state[1] ^ state[2])
            }
            Self::Bits64(state) => {
                for (s, (left, right, mask, shift)) in state.iter_mut().zip(COMPONENTS_64) {
                    *s = (*s & mask) << shift ^ (*s << left ^ *s) >> right;
                }
                state.iter().fold(0, |all, s| all ^ s)
            }
        }
    }

    pub fn most(&self) -> u64 {
        if matches!(self, Self::Bits32(_)) { u32::MAX.into() } else { u64::MAX }
    }

    /// Returns a fraction from 0 to below 1.
    pub fn fraction(&mut self) -> f64 {
        let range = if matches!(self, Self::Bits32(_)) { TWO_32 } else { TWO_32 * TWO_32 };
        self.draw() as f64 / range
    }

    /// Returns a number below `n`, as fio scales it: in double precision.
    pub fn below(&mut self, n: u64) -> u64 {
        (n as f64 * self.fraction()) as u64
    }

    pub fn percent(&mut self) -> u64 {
        1 + self.below(100)
    }
}

/// Taps of the shift register of each number of bits, from 3.
const TAPS: [&[u32]; 61] = [
    &[3, 2],
    &[4, 3],
    &[5, 3],
    &[6, 5],
    &[7, 6],
    &[8, 6, 5, 4],
    &[9, 5],
    &[10, 7],
    &[11, 9],
    &[12, 6, 4, 1],
    &[13, 4, 3, 1],
    &[14, 5, 3, 1],
    &[15, 14],
    &[16, 15, 13, 4],
    &[17, 14],
    &[18, 11],
    &[19, 6, 2, 1],
    &[20, 17],
    &[21, 19],
    &[22, 21],
    &[23, 18],
    &[24, 23, 22, 17],
    &[25, 22],
    &[26, 6, 2, 1],
    &[27, 5, 2, 1],
    &[28, 25],
    &[29, 27],
    &[30, 6, 4, 1],
    &[31, 28],
    &[32, 31, 29, 1],
    &[33, 20],
    &[34, 27, 2, 1],
    &[35, 33],
    &[36, 25],
    &[37, 5, 4, 3, 2, 1],
    &[38, 6, 5, 1],
    &[39, 35],
    &[40, 38, 21, 19],
    &[41, 38],
    &[42, 41, 20, 19],
    &[43, 42, 38, 37],
    &[44, 43, 18, 17],
    &[45, 44, 42, 41],
    &[46, 45, 26, 25],
    &[47, 42],
    &[48, 47, 21, 20],
    &[49, 40],
    &[50, 49, 24, 23],
    &[51, 50, 36, 35],
    &[52, 49],
    &[53, 52, 38, 37],
    &[54, 53, 18, 17],
    &[55, 31],
    &[56, 55, 35, 34],
    &[57, 50],
    &[58, 39],
    &[59, 58, 38, 37],
    &[60, 59],
    &[61, 60, 46, 45],
    &[62, 61, 6, 5],
    &[63, 62],
];

#[derive(Clone, Debug)]
pub struct Lfsr {
    value: u64,
    blocks: u64,
    visited: u64,
    mask: u64,
    top_bit: u64,
    /// fio's register takes one more step before its first block, but not after a reset.
    has_begun: bool,
}

impl Lfsr {
    /// Returns `None` if the seed is the one state that the register cannot leave, which fio refuses too.
    pub fn new(blocks: u64, seed: u64) -> Option<Self> {
        let taps = (3..).zip(TAPS).find(|(bits, _)| 1_u64 << bits > blocks)?.1;
        let top_bit = 1 << (taps[0] - 1);
        let mask = taps.iter().fold(0, |mask, tap| mask | 1_u64 << (tap - 1));
        let mut new = Self { value: 0, blocks, visited: 0, mask, top_bit, has_begun: false };
        new.reset(seed);
        (new.value != (top_bit << 1) - 1 && blocks > 0).then_some(new)
    }

    pub fn reset(&mut self, seed: u64) {
        self.value = seed & ((self.top_bit << 1) - 1);
        self.visited = 0;
    }

    pub fn next(&mut self) -> Option<u64> {
        if self.visited >= self.blocks {
            return None;
        }
        self.visited += 1;
        if !std::mem::replace(&mut self.has_begun, true) {
            self.step();
        }
        loop {
            self.step();
            if self.value < self.blocks {
                return Some(self.value);
            }
        }
    }

    fn step(&mut self) {
        // Of the value shifted down with its top bit set, the taps change if the bit shifted out was 0.
        let flipped = if self.value & 1 == 0 { self.mask } else { 0 };
        self.value = (self.value >> 1 | self.top_bit) ^ flipped;
    }
}

/// A skewed distribution over the blocks of a file, or over files.
#[derive(Clone, Debug)]
pub struct Skewed {
    rng: Tausworthe,
    blocks: u64,
    offset: u64,
    law: Law,
    /// Popular blocks are spread over the file.
    spreads: bool,
}

#[derive(Clone, Debug)]
enum Law {
    Zipf { theta: f64, zeta_2: f64, zeta_n: f64 },
    Pareto { power: f64 },
    Normal { deviation: u32 },
}

const ZETA_TERMS_MAX: u64 = 10_000_000;
/// Number of draws that fio adds up for a normal distribution.
const NORMAL_DRAWS: u64 = 12;

impl Skewed {
    /// Creates a distribution over `blocks`, which must not be 0.
    pub fn new(blocks: u64, seed: u32, shape: Shape, spreads: bool) -> Self {
        let mut rng = Tausworthe::new(seed.into(), false);
        let at = |center: f64| (blocks as f64 * center) as i64 as u64;
        let (law, offset) = match shape {
            Shape::Zipf { theta, center } => {
                let terms = 1..=blocks.min(ZETA_TERMS_MAX);
                let zeta_n = terms.fold(0.0, |sum, i| sum + libm::pow(1.0 / i as f64, theta));
                let drawn = rng.draw();
                (Law::Zipf { theta, zeta_2: 1.0 + libm::pow(0.5, theta), zeta_n }, center.map_or(drawn, at))
            }
            Shape::Pareto { h, center } => {
                let drawn = rng.draw();
                (Law::Pareto { power: libm::log(h) / libm::log(1.0 - h) }, center.map_or(drawn, at))
            }
            Shape::Normal { deviation, center } => {
                let deviation = libm::ceil(blocks as f64 * deviation / 100.0) as u64;
                let deviation = deviation.min(blocks / 2) as u32;
                (Law::Normal { deviation }, center.map_or(0, |center| at(center - 0.5)))
            }
        };
        Self { rng, blocks, offset, law, spreads }
    }

    pub fn next(&mut self) -> u64 {
        let rank = match self.law {
            Law::Pareto { power } => ((self.blocks - 1) as f64 * libm::pow(self.uniform(), power)) as u64,
            Law::Zipf { theta, zeta_2, zeta_n } => {
                let blocks = self.blocks as f64;
                let uniform = self.uniform();
                let eta = (1.0 - libm::pow(2.0 / blocks, 1.0 - theta)) / (1.0 - zeta_2 / zeta_n);
                let z = uniform * zeta_n;
                if z < 1.0 {
                    0
                } else if z < 1.0 + libm::pow(0.5, theta) {
                    1
                } else {
                    (blocks * libm::pow(eta * uniform - eta + 1.0, 1.0 / (1.0 - theta))) as u64
                }
            }
            Law::Normal { deviation } => self.normal(deviation),
        };
        let rank = if self.spreads { rank.wrapping_mul(0x61c8_8646_80b5_83eb) } else { rank };
        rank.wrapping_add(self.offset) % self.blocks
    }

    fn uniform(&mut self) -> f64 {
        self.rng.draw() as f64 / f64::from(u32::MAX)
    }

    fn normal(&mut self, deviation: u32) -> u64 {
        let sum: u64 = (0..NORMAL_DRAWS).map(|_| self.rng.draw() % (self.blocks + 1)).sum();
        let mean = sum.div_ceil(NORMAL_DRAWS);
        if deviation == 0 {
            return mean;
        }
        let drawn = (f64::from(deviation) * self.rng.fraction()) as i64;
        let mut deviation = drawn - i64::from(deviation / 2);
        while mean.wrapping_add_signed(deviation) >= self.blocks && deviation != 0 {
            deviation /= 2;
        }
        mean.wrapping_add_signed(deviation)
    }
}

pub fn name_hash(name: &str) -> u32 {
    let mut bytes = name.as_bytes();
    let start = 0x61c8_8647_u32.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    while bytes.len() > 12 {
        a = a.wrapping_add(bytes[0].into());
        b = b.wrapping_add(bytes[4].into());
        c = c.wrapping_add(bytes[8].into());
        for [x, y, z] in [[4, 6, 8], [16, 19, 4]] {
            a = a.wrapping_sub(c) ^ c.rotate_left(x);
            c = c.wrapping_add(b);
            b = b.wrapping_sub(a) ^ a.rotate_left(y);
            a = a.wrapping_add(c);
            c = c.wrapping_sub(b) ^ b.rotate_left(z);
            b = b.wrapping_add(a);
        }
        bytes = &bytes[12..];
    }
    if bytes.is_empty() {
        return c;
    }
    let word = |from: usize| {
        let tail = bytes.iter().skip(from).take(4).zip([0, 8, 16, 24]);
        tail.fold(0_u32, |word, (&byte, shift)| word.wrapping_add(u32::from(byte) << shift))
    };
    a = a.wrapping_add(word(0));
    b = b.wrapping_add(word(4));
    c = c.wrapping_add(word(8));
    let fold = |x: u32, y: u32, turn: u32| (x ^ y).wrapping_sub(y.rotate_left(turn));
    c = fold(c, b, 14);
    a = fold(a, c, 11);
    b = fold(b, a, 25);
    c = fold(c, b, 16);
    a = fold(a, c, 4);
    b = fold(b, a, 14);
    fold(c, b, 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first blocks of 4,096 that fio 3.33 writes with these distributions. It seeds them with 2,991,980,687
    /// (`randseed=0x89`, `randrepeat=0`) or with the hash of the file's name alone (`randrepeat=1`).
    #[test]
    fn skewed_blocks_are_fio_s() {
        let zipf = |blocks, seed, theta| Skewed::new(blocks, seed, Shape::Zipf { theta, center: None }, true);
        let pareto = |blocks, seed, h| Skewed::new(blocks, seed, Shape::Pareto { h, center: None }, true);
        let by_name = name_hash("a-long-job-name.0.0");
        for (mut blocks, expected) in [
            (zipf(4096, 2_991_980_687, 1.2), [2907, 2349, 1682, 1514, 1274, 2853, 3856, 763]),
            (zipf(4096, 2_991_980_687, 0.7), [1165, 3909, 3717, 2096, 1544, 2853, 3767, 1835]),
            (pareto(4096, 2_991_980_687, 0.3), [2178, 495, 802, 1607, 4054, 2853, 1262, 2927]),
            (zipf(4096, by_name, 1.2), [1599, 1599, 1599, 344, 507, 3817, 2350, 4086]),
            (zipf(4096, by_name, 0.7), [1515, 428, 3269, 1025, 3613, 3572, 3441, 33]),
            (pareto(4096, by_name, 0.3), [1599, 2602, 3521, 3461, 199, 321, 1865, 2459]),
        ] {
            assert_eq!([0; 8].map(|_| blocks.next()), expected);
        }
    }

    /// The first blocks of 1,024 that fio 3.33 and 3.42 write with `randseed=2`, whose seed is even.
    #[test]
    fn a_shift_register_begins_where_fio_s_does() {
        let mut lfsr = Lfsr::new(1024, 637_909_735_719_043_080).unwrap();
        let first = [(); 4].map(|()| lfsr.next().unwrap());
        assert_eq!(first, [386, 449, 880, 184]);
        // After a reset it takes no step more.
        lfsr.reset(637_909_735_719_043_080);
        assert_ne!(lfsr.next(), Some(386));
    }

    #[test]
    fn a_shift_register_visits_each_block_once() {
        for blocks in [1, 7, 8, 1000, 4096] {
            let mut lfsr = Lfsr::new(blocks, 0x89).unwrap();
            let mut visited: Vec<u64> = std::iter::from_fn(|| lfsr.next()).collect();
            visited.sort_unstable();
            assert_eq!(visited, (0..blocks).collect::<Vec<_>>());
        }
    }
}
