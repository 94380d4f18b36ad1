//! The operations of small jobs, each written out.
//!
//! Those with a formula behind them were worked out by hand, and fio 3.33 logs the same (`write_iolog`); those that depend
//! on random numbers are from fio's log.

use super::super::JobFile;
use super::*;

/// Writes operations briefly: `1w8k+4k` is a write of 4 KiB at 8 KiB into the second file, `s` an fsync of the first one,
/// `d` an fdatasync.
fn brief(io: Io) -> String {
    let size = |bytes: u64| match bytes {
        0 => "0".to_owned(),
        bytes if bytes % 1024 == 0 => format!("{}k", bytes / 1024),
        bytes => bytes.to_string(),
    };
    let of = |file: usize| if file == 0 { String::new() } else { file.to_string() };
    match io {
        Io::Transfer { file, writes, offset, bytes } => {
            format!("{}{}{}+{}", of(file), if writes { "w" } else { "r" }, size(offset), size(bytes))
        }
        Io::Trim { file, offset, bytes } => format!("{}t{}+{}", of(file), size(offset), size(bytes)),
        Io::Fsync(file) => format!("{}s", of(file)),
        Io::Fdatasync(file) => format!("{}d", of(file)),
        Io::FsyncAll => "sync".to_owned(),
        Io::Unlink => "unlink".to_owned(),
    }
}

fn job(options: &str) -> Job {
    let seed = if options.contains("rand") && !options.contains("randseed") { "randseed=0x89\n" } else { "" };
    let text = format!("[job]\n{}\n{seed}randrepeat=0\n", options.replace(' ', "\n"));
    JobFile::parse(&text).unwrap_or_else(|e| panic!("{options}: {e}")).jobs.remove(0)
}

/// The first operations of a job, at most `most`.
fn first(job: &Job, most: usize) -> String {
    Sequence::new(job, 1).take(most).map(brief).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(cases: &[(&str, &str)]) {
    for (options, expected) in cases {
        // One more than expected shows where a sequence goes on too long.
        let most = expected.split(' ').count() + 1;
        assert_eq!(first(&job(options), most), *expected, "{options}");
    }
}

#[test]
fn sequential_jobs_go_through_their_files_in_order() {
    check(&[
        ("rw=read bs=4k size=16k", "r0+4k r4k+4k r8k+4k r12k+4k"),
        // What is left after whole blocks is not written.
        ("rw=write bs=4k size=10k", "w0+4k w4k+4k"),
        ("rw=write bs=4k size=16k offset=8k", "w8k+4k w12k+4k w16k+4k w20k+4k"),
        ("rw=write bs=4k filesize=32k size=50%", "w0+4k w4k+4k w8k+4k w12k+4k"),
        ("rw=write bs=4k size=8k offset=4k offset_increment=8k", "w4k+4k w8k+4k"),
        ("rw=trim bs=4k size=12k", "t0+4k t4k+4k t8k+4k"),
        ("rw=trimwrite bs=4k size=8k", "t0+4k w0+4k t4k+4k w4k+4k"),
        ("rw=trimwrite bs=4k size=16k number_ios=1", "t0+4k w0+4k"),
        // Steps forward leave gaps of 8 KiB; steps back begin with the last block.
        ("rw=write:8k bs=4k size=64k", "w0+4k w12k+4k w24k+4k w36k+4k w48k+4k w60k+4k"),
        (
            "rw=read:-8k bs=4k size=32k offset=32k",
            "r32k+4k r56k+4k r52k+4k r48k+4k r44k+4k r40k+4k r36k+4k r32k+4k",
        ),
        ("rw=read bs=4k,16k bs_is_seq_rand=1 size=16k", "r0+4k r4k+4k r8k+4k r12k+4k"),
    ]);
}

#[test]
fn loops_sizes_and_counts_end_a_job() {
    check(&[
        ("rw=write bs=4k size=8k loops=3", "w0+4k w4k+4k w0+4k w4k+4k w0+4k w4k+4k"),
        ("rw=write bs=4k size=8k loops=2 unlink_each_loop=1", "w0+4k w4k+4k unlink w0+4k w4k+4k"),
        ("rw=write bs=4k size=8k io_size=16k", "w0+4k w4k+4k w0+4k w4k+4k"),
        ("rw=write bs=4k size=16k io_size=8k", "w0+4k w4k+4k"),
        ("rw=write bs=4k size=32k number_ios=3", "w0+4k w4k+4k w8k+4k"),
        ("rw=write bs=4k size=8k number_ios=3 loops=2", "w0+4k w4k+4k w0+4k w4k+4k"),
        (
            "rw=randwrite bs=4k size=16k io_size=32k norandommap",
            "w12k+4k w12k+4k w8k+4k w8k+4k w8k+4k w12k+4k w0+4k w0+4k",
        ),
        // Each loop draws on: the random numbers begin anew only without a seed of the job's own.
        ("rw=randwrite bs=4k size=16k loops=2", "w12k+4k w0+4k w8k+4k w4k+4k w12k+4k w0+4k w4k+4k w8k+4k"),
    ]);
    // A job for a time has no other end.
    let timed = job("rw=read bs=4k size=8k time_based runtime=1");
    assert_eq!(first(&timed, 5), "r0+4k r4k+4k r0+4k r4k+4k r0+4k");
    let timed = job("rw=randread bs=4k size=16k time_based runtime=1");
    assert_eq!(
        first(&timed, 12),
        "r12k+4k r0+4k r8k+4k r4k+4k r12k+4k r0+4k r4k+4k r8k+4k r8k+4k r12k+4k r0+4k r4k+4k"
    );
}

#[test]
fn syncs_come_after_so_many_writes() {
    check(&[
        ("rw=write bs=4k size=16k fsync=2", "w0+4k w4k+4k s w8k+4k w12k+4k"),
        ("rw=write bs=4k size=16k fdatasync=3", "w0+4k w4k+4k w8k+4k d w12k+4k"),
        // Where both are due, the stronger one is made.
        ("rw=write bs=4k size=16k fsync=2 fdatasync=2", "w0+4k w4k+4k s w8k+4k w12k+4k"),
        ("rw=write bs=4k size=12k fsync=2 fdatasync=1", "w0+4k d w4k+4k s w8k+4k"),
        ("rw=read bs=4k size=12k fsync=1", "r0+4k r4k+4k r8k+4k"),
    ]);
}

#[test]
fn each_loop_ends_with_a_sync_before_what_was_written_is_read_again() {
    check(&[
        ("rw=write bs=4k size=8k end_fsync=1", "w0+4k w4k+4k sync"),
        ("rw=write bs=4k size=8k end_fsync=1 verify=crc32c", "w0+4k w4k+4k sync r0+4k r4k+4k"),
        ("rw=write bs=4k size=8k fsync_on_close=1 verify=crc32c", "w0+4k w4k+4k sync r0+4k r4k+4k"),
        ("rw=write bs=4k size=8k end_fsync=1 loops=2", "w0+4k w4k+4k sync w0+4k w4k+4k sync"),
        // The last operation was a sync already.
        ("rw=write bs=4k size=12k end_fsync=1 fsync=2 number_ios=2", "w0+4k w4k+4k sync"),
        ("rw=write bs=4k size=12k end_fsync=1 fsync=2", "w0+4k w4k+4k s w8k+4k sync"),
        ("rw=read bs=4k size=8k end_fsync=1", "r0+4k r4k+4k"),
        // A file that is done is closed, and synced by itself; all are again at the end.
        (
            "rw=write bs=4k size=16k nrfiles=2 fsync_on_close=1 file_service_type=sequential",
            "w0+4k w4k+4k s 1w0+4k 1w4k+4k sync",
        ),
    ]);
}

#[test]
fn files_take_turns_as_the_job_says() {
    check(&[
        ("rw=write bs=4k size=16k nrfiles=2", "w0+4k 1w0+4k w4k+4k 1w4k+4k"),
        (
            "rw=write bs=4k size=24k nrfiles=2 file_service_type=roundrobin:2",
            "w0+4k w4k+4k 1w0+4k 1w4k+4k w8k+4k 1w8k+4k",
        ),
        ("rw=write bs=4k size=16k nrfiles=2 file_service_type=sequential", "w0+4k w4k+4k 1w0+4k 1w4k+4k"),
        // Two of three can be open: the third begins when one of the others is done.
        ("rw=randread bs=4k nrfiles=3 openfiles=2 size=24k", "r4k+4k 1r4k+4k r0+4k 1r0+4k 2r0+4k 2r4k+4k"),
        (
            "rw=randwrite bs=4k nrfiles=3 size=48k file_service_type=random:2",
            "2w12k+4k 2w0+4k 2w8k+4k 2w4k+4k w8k+4k w12k+4k w0+4k w4k+4k 1w8k+4k 1w12k+4k 1w0+4k 1w4k+4k",
        ),
        (
            "rw=randwrite bs=4k filesize=8k-64k nrfiles=3",
            "w12k+4k 1w20k+4k 2w12k+4k w8k+4k 1w12k+4k 2w20k+4k w0+4k 1w4k+4k 2w4k+4k w4k+4k 1w16k+4k 2w16k+4k \
             1w8k+4k 2w0+4k 1w0+4k 2w8k+4k",
        ),
    ]);
}

#[test]
fn random_offsets_are_fio_s() {
    check(&[
        ("rw=randwrite bs=4k size=32k", "w28k+4k w24k+4k w20k+4k w16k+4k w0+4k w4k+4k w8k+4k w12k+4k"),
        (
            "rw=randwrite bs=4k size=32k random_generator=tausworthe64",
            "w8k+4k w4k+4k w20k+4k w16k+4k w24k+4k w12k+4k w28k+4k w0+4k",
        ),
        // Without a map blocks are drawn twice.
        (
            "rw=randread bs=4k size=32k norandommap",
            "r28k+4k r24k+4k r20k+4k r16k+4k r16k+4k r28k+4k r0+4k r4k+4k",
        ),
        // An offset is drawn for each third operation; the next two follow it.
        (
            "rw=randread:3 bs=4k size=48k",
            "r44k+4k r40k+4k r44k+4k r28k+4k r32k+4k r36k+4k r24k+4k r28k+4k r32k+4k r32k+4k r36k+4k r40k+4k",
        ),
        (
            "rw=randwrite:2 rw_sequencer=identical bs=4k size=32k",
            "w28k+4k w28k+4k w24k+4k w24k+4k w20k+4k w20k+4k w16k+4k w16k+4k",
        ),
        // Unaligned to its blocks, but to their halves.
        ("rw=randwrite bs=8k blockalign=4k size=48k", "w40k+8k w36k+8k w28k+8k w20k+8k w24k+8k w40k+8k"),
        (
            "rw=randread bs=4k size=32k percentage_random=50",
            "r28k+4k r24k+4k r28k+4k r20k+4k r24k+4k r16k+4k r20k+4k r24k+4k",
        ),
        (
            "rw=randwrite bs=4k size=64k random_distribution=zoned:50/25:50/75",
            "w12k+4k w12k+4k w8k+4k w40k+4k w44k+4k w12k+4k w16k+4k w0+4k w28k+4k w56k+4k w48k+4k w8k+4k w12k+4k \
             w4k+4k w16k+4k w8k+4k",
        ),
        (
            "rw=randread bs=4k size=64k random_distribution=zoned_abs:60/16k:40/32k",
            "r12k+4k r12k+4k r8k+4k r32k+4k r32k+4k r12k+4k r16k+4k r0+4k r24k+4k r40k+4k r36k+4k r8k+4k r12k+4k \
             r4k+4k r16k+4k r8k+4k",
        ),
        // Blocks in the order given; with a stride, the second time round behind the first three.
        (
            "rw=randread bs=4k size=64k random_distribution=sequence:3,1,7 number_ios=5",
            "r12k+4k r4k+4k r28k+4k r12k+4k r4k+4k",
        ),
        (
            "rw=randread bs=4k size=64k random_distribution=sequence:3,1,7 random_sequence_stride=1 number_ios=5",
            "r12k+4k r4k+4k r28k+4k r24k+4k r16k+4k",
        ),
        // Each block is trimmed, and then written.
        ("rw=randtrimwrite bs=4k size=16k", "t12k+4k w12k+4k t0+4k w0+4k t8k+4k w8k+4k t4k+4k w4k+4k"),
    ]);
}

#[test]
fn reads_and_writes_are_mixed_by_their_share() {
    check(&[
        (
            "rw=rw bs=4k size=48k rwmixread=75 randseed=0x89",
            "r0+4k r4k+4k r8k+4k w0+4k r12k+4k r16k+4k w4k+4k r20k+4k r24k+4k r28k+4k w8k+4k r32k+4k",
        ),
        (
            "rw=randrw bs=4k,8k size=48k rwmixread=30",
            "w40k+8k r40k+4k w24k+8k w32k+8k r28k+4k r44k+4k w0+8k w8k+8k",
        ),
    ]);
}

#[test]
fn sizes_of_blocks_are_drawn_as_fio_draws_them() {
    check(&[
        (
            "rw=randwrite bsrange=4k-16k size=64k",
            "w60k+4k w52k+4k w40k+8k w32k+8k w48k+4k w0+8k w8k+16k w24k+4k w28k+4k w56k+4k",
        ),
        (
            "rw=randwrite bssplit=4k/50:8k/30:16k/20 size=64k",
            "w60k+4k w52k+8k w40k+8k w32k+4k w36k+4k w0+8k w8k+4k w12k+16k w28k+4k w48k+4k",
        ),
        (
            "rw=randwrite bsrange=1k-4k bs_unaligned size=16k",
            "w15k+1k w13k+2027 w10k+3k w8k+1776 w0+4k w4k+3480",
        ),
    ]);
}

#[test]
fn what_was_written_is_read_again() {
    check(&[
        ("rw=write bs=4k size=12k verify=crc32c", "w0+4k w4k+4k w8k+4k r0+4k r4k+4k r8k+4k"),
        ("rw=write bs=4k size=12k verify=md5 do_verify=0", "w0+4k w4k+4k w8k+4k"),
        ("rw=write bs=4k size=8k verify=md5 verify_only=1", "r0+4k r4k+4k"),
        // In the order of the writes with a map, and by offset, each block once, without one.
        ("rw=randwrite bs=4k size=16k verify=md5", "w12k+4k w0+4k w8k+4k w4k+4k r12k+4k r0+4k r8k+4k r4k+4k"),
        (
            "rw=randwrite bs=4k size=16k verify=md5 norandommap",
            "w12k+4k w12k+4k w8k+4k w8k+4k r8k+4k r12k+4k",
        ),
        (
            "rw=write bs=4k size=16k verify=md5 verify_backlog=2",
            "w0+4k w4k+4k r0+4k r4k+4k w8k+4k w12k+4k r8k+4k r12k+4k",
        ),
        (
            "rw=write bs=4k size=24k verify=md5 verify_backlog=4 verify_backlog_batch=2",
            "w0+4k w4k+4k w8k+4k w12k+4k r0+4k r4k+4k w16k+4k w20k+4k r8k+4k r12k+4k r16k+4k r20k+4k",
        ),
    ]);
}

#[test]
fn zones_with_gaps_are_passed_through_one_after_another() {
    let zones = "w0+4k w4k+4k w16k+4k w20k+4k w32k+4k w36k+4k w48k+4k w52k+4k";
    // After the last zone comes the first again, until all bytes are written.
    let twice = format!("{zones} {zones}");
    check(&[
        ("rw=write bs=4k size=64k zonemode=strided zonesize=8k zoneskip=8k", &twice),
        ("rw=write bs=4k size=64k zonemode=strided zonesize=8k zonerange=16k zoneskip=0", &twice),
        (
            "rw=randread bs=4k size=64k zonemode=strided zonesize=8k zonerange=16k zoneskip=16k",
            "r12k+4k r0+4k r40k+4k r44k+4k r8k+4k r12k+4k r32k+4k r36k+4k r4k+4k r12k+4k r40k+4k r44k+4k r12k+4k \
             r4k+4k r32k+4k r40k+4k",
        ),
    ]);
}

#[test]
fn an_overwritten_part_is_read_once() {
    let mut sorted = History::Sorted(BTreeMap::new());
    for (file, offset, bytes) in [(0, 0, 4), (0, 8, 4), (1, 0, 4), (0, 2, 4), (0, 8, 8), (0, 16, 4)] {
        sorted.add(file, offset, bytes);
    }
    // The write at 2 replaces the one at 0, which it overlaps; the second at 8 replaces the first; 16 only touches it.
    let left: Vec<_> = std::iter::from_fn(|| sorted.pop()).collect();
    assert_eq!(left, [(0, 2, 4), (0, 8, 8), (0, 16, 4), (1, 0, 4)], "file, offset, bytes");
}
