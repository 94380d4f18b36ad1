//! ext4's hash of a name (`DX_HASH_HALF_MD4` in fs/ext4/hash.c), by which a directory of the root finds its flex group.

/// Seed of the file system (`s_hash_seed`). mke2fs draws one; this is that of every guest, so that a guest and the model
/// spread directories alike.
const SEED: [u32; 4] = [0x776d_7274, 0x2065_7369, 0x2065_6e6f, 0x2072_6f66];
/// Largest hash, which marks the end of a directory (`EXT4_HTREE_EOF_32BIT`).
const END: u32 = 0x7fff_ffff;

type Mix = fn(u32, u32, u32) -> u32;

/// Returns the hash of a name.
pub(super) fn of_name(name: &str) -> u32 {
    let mut state = SEED;
    let mut left = name.as_bytes();
    while !left.is_empty() {
        transform(&mut state, words(left));
        left = &left[left.len().min(32)..];
    }
    match state[1] & !1 {
        hash if hash == END << 1 => (END - 1) << 1,
        hash => hash,
    }
}

/// Packs up to 32 bytes into words, padded with the length of all that is left (`str2hashbuf_signed`).
fn words(bytes: &[u8]) -> [u32; 8] {
    let length = bytes.len() as u32;
    let pad = (length | length << 8) & 0xffff | (length | length << 8) << 16;
    let mut words = [pad; 8];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
        // Bytes are signed.
        *word = bytes
            .iter()
            .fold(pad, |word, &byte| (word << 8).wrapping_add(i32::from(byte.cast_signed()) as u32));
    }
    words
}

fn transform(state: &mut [u32; 4], input: [u32; 8]) {
    let rounds: [(Mix, u32, [u32; 4], [usize; 8]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [3, 7, 11, 19], [0, 1, 2, 3, 4, 5, 6, 7]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [3, 5, 9, 13], [1, 3, 5, 7, 0, 2, 4, 6]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 9, 11, 15], [3, 7, 2, 6, 1, 5, 0, 4]),
    ];
    let [mut a, mut b, mut c, mut d] = *state;
    for (mix, constant, shifts, order) in rounds {
        for (step, &at) in order.iter().enumerate() {
            let sum = a.wrapping_add(mix(b, c, d)).wrapping_add(input[at]).wrapping_add(constant);
            (a, b, c, d) = (d, sum.rotate_left(shifts[step % 4]), b, c);
        }
    }
    for (word, mixed) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(mixed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From debugfs, with the seed of a guest: `dx_hash -h half_md4 -s 74726d77-6973-6520-6f6e-6520666f7220 NAME`.
    #[test]
    fn names_have_the_hashes_of_ext4() {
        let names = [
            "aged",
            "s0",
            "s63",
            "a",
            "a name of more than thirty-two bytes, in fact of 60",
            "\u{e9}t\u{e9}",
        ];
        let hashes = names.map(of_name);
        assert_eq!(
            hashes,
            [0xce76_37de, 0x4b9d_ab3e, 0x86c9_b39a, 0x7e66_64f8, 0xdaac_aaf8, 0x274b_80ce],
            "{hashes:#x?}"
        );
    }
}
