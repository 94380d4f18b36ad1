use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn range(start: u64, units: u64) -> UnitRange {
    UnitRange::new(Lpn(start), units)
}

fn pool(chunk: Bytes) -> ThinConfig {
    ThinConfig::new(ThinKind::Pool, chunk)
}

/// A volume of `total` units with everything written.
fn full(config: ThinConfig, total: u64) -> ThinVolume {
    let mut volume = ThinVolume::new(config, total);
    volume.write(SimTime::ZERO, range(0, total));
    volume
}

fn kib(volume: &mut ThinVolume) -> u64 {
    volume.held(SimTime::ZERO).now.0 / KIB
}

/// What discards of a full volume of 64 units give back, and the KiB that stay.
fn after(config: ThinConfig, discards: &[UnitRange]) -> (Vec<UnitRange>, u64) {
    let mut volume = full(config, 64);
    let back = discards.iter().flat_map(|&one| volume.discard(SimTime::ZERO, one)).collect();
    (back, kib(&mut volume))
}

#[test]
fn the_first_write_into_a_chunk_takes_it() {
    let mut volume = ThinVolume::new(pool(Bytes::kib(64)), 1_024);
    for (written, held) in [
        (range(5, 1), 64),
        (range(0, 16), 64),
        (range(15, 2), 128),
        (range(100, 0), 128),
        (range(47, 66), 128 + 6 * 64),
    ] {
        volume.write(SimTime::ZERO, written);
        assert_eq!(kib(&mut volume), held, "{written:?}");
    }
}

#[test]
fn a_chunk_comes_back_when_one_discard_covers_all_of_it() {
    let config = pool(Bytes::kib(64));
    assert_eq!(after(config, &[range(16, 16)]), (vec![range(16, 16)], 192));
    assert_eq!(after(config, &[range(17, 15)]), (vec![], 256), "an unaligned start");
    assert_eq!(after(config, &[range(16, 15)]), (vec![], 256), "a unit too short");
    assert_eq!(after(config, &[range(15, 34)]), (vec![range(16, 32)], 128), "two of four");
    assert_eq!(
        after(config, &[range(16, 8), range(24, 8)]),
        (vec![], 256),
        "two halves, and nobody remembers"
    );
    assert_eq!(after(config, &[range(0, 64), range(0, 64)]), (vec![range(0, 64)], 0), "once");
}

#[test]
fn a_pool_that_remembers_adds_up_halves_until_something_is_written() {
    let config = ThinConfig::new(ThinKind::Zeros, Bytes::kib(64));
    assert_eq!(after(config, &[range(24, 8), range(16, 8)]), (vec![range(16, 16)], 192));
    assert_eq!(after(config, &[range(24, 8), range(16, 7)]), (vec![], 256));
    let mut volume = full(config, 64);
    volume.discard(SimTime::ZERO, range(24, 8));
    volume.write(SimTime::ZERO, range(31, 1));
    assert_eq!(volume.discard(SimTime::ZERO, range(16, 8)), []);
    assert_eq!(volume.discard(SimTime::ZERO, range(31, 1)), [range(16, 16)]);
    // Free space that was never written does not keep its chunk.
    let mut sparse = ThinVolume::new(config, 64);
    sparse.write(SimTime::ZERO, range(3, 1));
    assert_eq!(sparse.discard(SimTime::ZERO, range(3, 1)), [range(0, 16)]);
}

#[test]
fn revealed_space_adds_up_in_every_kind() {
    let mut volume = full(pool(Bytes::kib(64)), 64);
    assert_eq!(volume.reveal(SimTime::ZERO, range(16, 8)), []);
    assert_eq!(volume.reveal(SimTime::ZERO, range(24, 8)), [range(16, 16)]);
}

#[test]
fn the_last_chunk_of_a_volume_that_is_no_multiple_comes_back_only_in_qcow2() {
    let all = range(0, 40);
    for (kind, back, left) in [(ThinKind::Pool, range(0, 32), 64), (ThinKind::Qcow2, all, 0)] {
        let mut volume = full(ThinConfig::new(kind, Bytes::kib(64)), 40);
        assert_eq!(kib(&mut volume), 192, "the last takes a whole chunk: {kind:?}");
        assert_eq!(volume.discard(SimTime::ZERO, all), [back], "{kind:?}");
        assert_eq!(kib(&mut volume), left, "{kind:?}");
    }
    let mut volume = full(ThinConfig::new(ThinKind::Qcow2, Bytes::kib(64)), 40);
    assert_eq!(volume.discard(SimTime::ZERO, range(33, 7)), [], "not all of the last");
    assert_eq!(volume.discard(SimTime::ZERO, range(32, 100)), [range(32, 8)], "beyond the end");
}

#[test]
fn chunks_that_are_no_power_of_two_lie_at_their_multiples() {
    let config = pool(Bytes::kib(192));
    let mut volume = full(config, 480);
    assert_eq!(kib(&mut volume), 10 * 192);
    assert_eq!(volume.discard(SimTime::ZERO, range(90, 110)), [range(96, 96)]);
    assert_eq!(kib(&mut volume), 8 * 192);
}

/// A partition that begins 24 KiB into a chunk of 64 KiB: its chunks end at 10, 26, 42...
#[test]
fn a_volume_that_begins_within_a_chunk_shares_it() {
    let config = ThinConfig { offset: Bytes::kib(24), ..pool(Bytes::kib(64)) };
    let mut volume = full(config, 42);
    assert_eq!(kib(&mut volume), 192);
    assert_eq!(
        volume.discard(SimTime::ZERO, range(0, 26)),
        [range(10, 16)],
        "the first has other data before"
    );
    assert_eq!(volume.discard(SimTime::ZERO, range(16, 26)), [range(26, 16)]);
    assert_eq!(kib(&mut volume), 64);
}

#[test]
fn mean_and_maximum_are_over_time() {
    let mut volume = ThinVolume::new(pool(Bytes::mib(1)), 4_096);
    volume.write(SimTime(0), range(0, 4_096));
    volume.restart(SimTime(100));
    volume.discard(SimTime(200), range(0, 1_024)); // 16 MiB for 100 ns
    volume.write(SimTime(500), range(0, 1)); // 12 MiB for 300 ns
    volume.write(SimTime(600), range(1_000, 1)); // 13 MiB for 100 ns, then 14
    let held = volume.held(SimTime(1_100));
    assert_eq!((held.now, held.max), (Bytes::mib(14), Bytes::mib(16)));
    assert_eq!(
        held.mean_bytes,
        (16.0 * 100.0 + 12.0 * 300.0 + 13.0 * 100.0 + 14.0 * 500.0) / 1e3 * MIB as f64
    );
}

/// 192 KiB are 384 sectors. As `round_up` has it, 383 is a mask: from sector 8 the next place is 384, but from 392 it is
/// 512, which lies in the middle of the chunk from 384 to 768.
#[test]
fn the_block_layer_cuts_where_a_power_of_two_would_end() {
    let cuts = |config: ThinConfig, whole: UnitRange| -> Vec<(u64, u64)> {
        config.bios(whole).into_iter().map(|bio| (bio.start.0, bio.end().0)).collect()
    };
    let even = pool(Bytes::kib(64));
    assert_eq!(cuts(even, range(0, 100)), [(0, 100)]);
    assert_eq!(cuts(even, range(5, 100)), [(5, 16), (16, 105)]);
    assert_eq!(cuts(even, range(5, 8)), [(5, 13)]);
    assert_eq!(cuts(even, range(16, 8)), [(16, 24)]);
    let odd = pool(Bytes::kib(192));
    assert_eq!(cuts(odd, range(1, 200)), [(1, 48), (48, 201)]);
    assert_eq!(cuts(odd, range(49, 200)), [(49, 64), (64, 249)]);
    // At most 1,024 chunks.
    assert_eq!(cuts(even, range(16_380, 20)), [(16_380, 16_384), (16_384, 16_400)]);
    assert_eq!(cuts(ThinConfig::new(ThinKind::Qcow2, Bytes::kib(64)), range(5, 100)), [(5, 105)]);
    // A partition counts from the start of the device.
    let partition = ThinConfig { offset: Bytes::kib(24), ..even };
    assert_eq!(cuts(partition, range(0, 100)), [(0, 10), (10, 100)]);
}

#[test]
fn bits_are_set_across_words() {
    for (from, to) in [(0, 1), (63, 65), (0, 64), (64, 128), (10, 200), (5, 5)] {
        let mut bits = [0; 4];
        set(&mut bits, from, to, true);
        let found: Vec<u64> = (0..256).filter(|&at| is_set(&bits, at)).collect();
        assert_eq!(found, (from..to).collect::<Vec<_>>());
        set(&mut bits, from, to, false);
        assert_eq!(bits, [0; 4]);
    }
}

#[test]
fn sizes_are_read_and_others_refused_with_those_that_exist() {
    for (text, kind, chunk, name) in [
        ("64KiB", ThinKind::Pool, 64 * KIB, "thin:64KiB"),
        ("1GiB", ThinKind::Pool, 1 << 30, "thin:1GiB"),
        ("192 KiB", ThinKind::Pool, 192 * KIB, "thin:192KiB"),
        ("4096", ThinKind::Image, 4 * KIB, "image:4KiB"),
        ("qcow2:2MiB", ThinKind::Qcow2, 2 * MIB, "qcow2:2MiB"),
        ("thin:12KiB", ThinKind::Pool, 12 * KIB, "thin:12KiB"),
        ("zeros:16KiB", ThinKind::Zeros, 16 * KIB, "zeros:16KiB"),
    ] {
        let read: ThinConfig = text.parse().unwrap();
        assert_eq!(read, ThinConfig::new(kind, Bytes(chunk)), "{text}");
        assert_eq!(read.to_string(), name);
        assert_eq!(name.parse(), Ok(read));
    }
    for (text, told) in [
        ("0", "chunks of 0 B do not exist: expected a multiple of 4 KiB from 4 KiB to 1 GiB"),
        ("3KiB", "chunks of 3 KiB do not exist: expected a multiple of 4 KiB from 4 KiB to 1 GiB"),
        ("2GiB", "chunks of 2 GiB do not exist: expected a multiple of 4 KiB from 4 KiB to 1 GiB"),
        ("66KiB", "chunks of 66 KiB do not exist: expected a multiple of 4 KiB from 4 KiB to 1 GiB"),
        ("qcow2:192KiB", "chunks of 192 KiB do not exist: expected a power of two from 4 KiB to 2 MiB"),
        ("image:128KiB", "chunks of 128 KiB do not exist: expected a power of two from 4 KiB to 64 KiB"),
        ("lvm:64KiB", "'lvm' is no kind of thin storage: expected thin, qcow2, image, zeros"),
        ("much", "'much' is not a size: "),
    ] {
        let error = text.parse::<ThinConfig>().unwrap_err();
        assert!(error.starts_with(told), "{text}: {error}");
    }
}

#[test]
fn a_device_is_split_from_its_volume() {
    for (name, split) in [
        ("sata-small+thin:64KiB", Some(("sata-small", "thin:64KiB"))),
        ("sata-small:2GiB+qcow2:64KiB", Some(("sata-small:2GiB", "qcow2:64KiB"))),
        ("vertex-60gb@1.41+b", None),
        ("a+b:64KiB", None),
        ("sata-small:2GiB", None),
    ] {
        assert_eq!(ThinConfig::split(name), split, "{name}");
    }
}
