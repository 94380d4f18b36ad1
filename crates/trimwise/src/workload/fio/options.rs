//! fio's options as data: which of them the jobs here follow, which change none of their I/O, and which are beyond the
//! model.
//!
//! The names are those of fio 3.42, and of older versions where job files still use them.

use std::collections::HashMap;
use std::sync::LazyLock;

/// How an option of fio is treated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Jobs follow it.
    Followed,
    /// It changes nothing here, for this reason.
    Ignored(&'static str),
    /// These values change nothing. Any other is beyond the model, for this reason.
    Only(&'static [&'static str], &'static str),
}

use Meaning::{Followed, Ignored, Only};

const REPORT: &str = "only changes what fio reports";
const CHECKS: &str = "only changes how data that was read is verified, which is not done here";
const PLACE: &str = "only changes where fio's threads and memory are";
const SUBMIT: &str = "only changes how requests are handed to the kernel";
const FAILURES: &str = "only changes what happens after an error, and a run here stops at the first one";
const HINT: &str = "is a hint or priority, which the model does not have";
const ENDS: &str = "ends or adjusts a job by its measurements; here it runs as if they were met";
const ENGINE: &str = "belongs to another engine";
const LAYOUT: &str = "only changes how files are made before the run";
const OUTSIDE: &str = "acts on the host outside the job's I/O";

const OFF: &[&str] = &["0", "none", ""];

/// Returns how an option is treated, and fio's name for it; `None` if fio has no such option.
pub fn find(written: &str) -> Option<(&'static str, Meaning)> {
    static BY_NAME: LazyLock<HashMap<&str, (&str, Meaning)>> = LazyLock::new(|| {
        let lines =
            TABLE.iter().flat_map(|(meaning, lines)| lines.iter().map(move |names| (*names, *meaning)));
        let of = |(names, meaning): (&'static str, Meaning)| {
            let first = names.split(' ').next().unwrap_or(names);
            names.split(' ').map(move |name| (name, (first, meaning)))
        };
        lines.flat_map(of).collect()
    });
    BY_NAME.get(written).copied()
}

pub fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().flat_map(|(_, lines)| lines.iter()).flat_map(|names| names.split(' '))
}

/// Each line has the name of an option, then its synonyms.
const TABLE: &[(Meaning, &[&str])] = &[
    (
        Followed,
        &[
            "blockalign ba",
            "bs blocksize",
            "bs_is_seq_rand",
            "bs_unaligned blocksize_unaligned",
            "bsrange blocksize_range",
            "bssplit",
            "buffer_compress_percentage",
            "buffer_pattern",
            "buffered",
            "create_on_open",
            "dedupe_percentage",
            "direct",
            "directory",
            "do_verify",
            "end_fsync end_syncfs",
            "exit_what",
            "exitall",
            "experimental_verify",
            "fdatasync",
            "file_append",
            "file_service_type",
            "filename",
            "filename_format",
            "filesize",
            "fill_device fill_fs",
            "flow",
            "flow_id",
            "flow_sleep",
            "fsync",
            "fsync_on_close",
            "invalidate",
            "io_size io_limit",
            "iodepth",
            "ioengine",
            "kb_base",
            "loops",
            "norandommap",
            "nrfiles nr_files",
            "number_ios",
            "numjobs",
            "offset fileoffset",
            "offset_align",
            "offset_increment",
            "openfiles",
            "percentage_random",
            "ramp_time",
            "random_distribution",
            "random_generator",
            "random_sequence_stride",
            "randrepeat allrandrepeat",
            "randseed",
            "rate",
            "rate_iops",
            "rate_process",
            "runtime timeout",
            "rw readwrite",
            "rw_sequencer",
            "rwmixread",
            "rwmixwrite",
            "size",
            "softrandommap",
            "startdelay",
            "stonewall wait_for_previous",
            "sync",
            "thinktime",
            "thinktime_blocks",
            "time_based",
            "unlink",
            "unlink_each_loop",
            "verify",
            "verify_backlog",
            "verify_backlog_batch",
            "verify_only",
            "wait_for",
            "zero_buffers",
            "zonemode",
            "zonerange",
            "zonesize",
            "zoneskip",
        ],
    ),
    (
        Ignored(REPORT),
        &[
            "block_error_percentiles",
            "bwavgtime",
            "clat_percentiles",
            "clocksource",
            "comm",
            "description",
            "disable_bw disable_bw_measurement",
            "disable_clat",
            "disable_lat",
            "disable_slat",
            "disk_util",
            "eta",
            "eta-newline",
            "group_reporting",
            "gtod_cpu",
            "gtod_reduce",
            "iopsavgtime",
            "job_start_clock_id",
            "lat_percentiles",
            "log_alternate_epoch log_unix_epoch",
            "log_alternate_epoch_clock_id",
            "log_avg_msec",
            "log_compression",
            "log_compression_cpus",
            "log_entries",
            "log_hist_coarseness",
            "log_hist_msec",
            "log_issue_time",
            "log_offset",
            "log_prio",
            "log_store_compressed",
            "log_window_value log_max_value",
            "minimal",
            "name",
            "output",
            "output-format",
            "per_job_logs",
            "percentile_list",
            "significant_figures",
            "slat_percentiles",
            "stats",
            "status-interval",
            "unified_rw_reporting",
            "unit_base",
            "write_bw_log",
            "write_hist_log",
            "write_iolog",
            "write_iops_log",
            "write_lat_log",
        ],
    ),
    (
        Ignored(CHECKS),
        &[
            "trim_verify_zero",
            "verify_async",
            "verify_async_cpus",
            "verify_dump",
            "verify_fatal",
            "verify_header_seed",
            "verify_interval",
            "verify_offset",
            "verify_pattern",
            "verify_pattern_interval",
            "verify_policy",
            "verify_state_load",
            "verify_state_save",
            "verify_write_sequence",
            "verifysort",
            "verifysort_nr",
        ],
    ),
    (
        Ignored(PLACE),
        &[
            "cpumask",
            "cpus_allowed",
            "cpus_allowed_policy",
            "gid",
            "gpu_dev_id",
            "gpu_dev_ids",
            "hugepage-size",
            "iomem_align mem_align",
            "lockmem",
            "mem iomem",
            "nice",
            "numa_cpu_nodes",
            "numa_mem_policy",
            "thread",
            "thinktime_spin",
            "thinkcycles",
            "uid",
        ],
    ),
    (
        Ignored(SUBMIT),
        &[
            "fixedbufs",
            "force_async",
            "hipri",
            "hipri_percentage",
            "io_submit_mode",
            "iodepth_batch iodepth_batch_submit",
            "iodepth_batch_complete_max",
            "iodepth_batch_complete_min iodepth_batch_complete",
            "iodepth_low",
            "lockfile",
            "nonvectored vectored",
            "nowait",
            "registerfiles",
            "serialize_overlap",
            "sqthread_poll",
            "sqthread_poll_cpu",
            "thinktime_blocks_type",
            "uncached",
            "userspace_reap",
        ],
    ),
    (Ignored(FAILURES), &["continue_on_error", "error_dump", "exitall_on_error", "ignore_error"]),
    (
        Ignored(HINT),
        &[
            "apptag",
            "apptag_mask",
            "atomic",
            "buffer_compress_chunk",
            "cmd_type",
            "cmdprio",
            "cmdprio_bssplit",
            "cmdprio_class",
            "cmdprio_hint",
            "cmdprio_percentage",
            "dataplacement data_placement",
            "dedupe_global",
            "dedupe_mode",
            "dedupe_working_set_percentage",
            "dp_scheme",
            "fadvise_hint",
            "fdp",
            "fdp_pli plids",
            "fdp_pli_select plid_select",
            "md_per_io_size",
            "pi_act",
            "pi_chk",
            "prio",
            "prioclass",
            "priohint",
            "refill_buffers",
            "scramble_buffers",
            "sg_write_mode",
            "write_barrier",
            "write_hint",
        ],
    ),
    (
        Ignored(ENDS),
        &[
            "latency_percentile",
            "latency_run",
            "latency_target",
            "latency_window",
            "max_latency",
            "rate_cycle ratecycle",
            "rate_ignore_thinktime",
            "rate_iops_min",
            "rate_min ratemin",
            "steadystate ss",
            "steadystate_check_interval ss_interval",
            "steadystate_duration ss_dur",
            "steadystate_ramp_time ss_ramp",
        ],
    ),
    (
        Ignored(LAYOUT),
        &[
            "allow_file_create",
            "allow_mounted_write",
            "create_fsync",
            "create_serialize",
            "fallocate",
            "filetype",
            "overwrite",
            "pre_read",
            "unique_filename",
        ],
    ),
    (
        Ignored(OUTSIDE),
        &[
            "cgroup",
            "cgroup_nodelete",
            "cgroup_weight",
            "exec_postrun",
            "exec_prerun",
            "flow_watermark",
            "ioscheduler",
            "new_group",
            "rwmixcycle",
        ],
    ),
    (
        Ignored(ENGINE),
        &[
            "arguments",
            "bindname",
            "brick",
            "busy_poll",
            "cdb_len",
            "chunk_size chunck_size",
            "clientname",
            "clustername",
            "conf",
            "cont",
            "cpuchunks",
            "cpuload",
            "cpumode",
            "cuda_io",
            "deac",
            "donorname",
            "exit_on_io_done",
            "grace_time",
            "hdfs_use_direct",
            "hdfsdirectory",
            "hostname",
            "http_host",
            "http_mode",
            "http_object_mode",
            "http_pass",
            "http_s3_key",
            "http_s3_keyid",
            "http_s3_region",
            "http_s3_security_token",
            "http_s3_sse_customer_algorithm",
            "http_s3_sse_customer_key",
            "http_s3_storage_class",
            "http_swift_auth_token",
            "http_user",
            "http_verbose",
            "https",
            "ignore_zone_limits",
            "initiator",
            "inplace",
            "interface",
            "job_max_open_zones",
            "libaio_vectored",
            "libblkio_driver",
            "libblkio_force_enable_completion_eventfd",
            "libblkio_num_entries",
            "libblkio_path",
            "libblkio_pre_connect_props",
            "libblkio_pre_start_props",
            "libblkio_queue_size",
            "libblkio_vectored",
            "libblkio_wait_mode",
            "libblkio_write_zeroes_on_trim",
            "listen",
            "max_open_zones",
            "mss",
            "namenode",
            "netsplice",
            "nfs_url",
            "no_completion_thread",
            "nodelay",
            "object_class",
            "pingpong",
            "pool",
            "port",
            "program",
            "protocol proto",
            "rbd_encryption_format",
            "rbd_encryption_passphrase",
            "rbdname",
            "read_beyond_wp",
            "read_mode",
            "recover_zbd_write_error",
            "replay_align",
            "replay_no_stall",
            "replay_redirect",
            "replay_scale",
            "replay_skip",
            "replay_time_scale",
            "rocm_io",
            "single-instance",
            "single_instance",
            "skip_bad",
            "spr_cs",
            "spr_num_regions",
            "spr_op",
            "stat_type",
            "std_redirect",
            "stream_id",
            "svcl",
            "thp",
            "touch_objects",
            "ttl",
            "uri",
            "verb",
            "verify_bytchk",
            "volume",
            "window_size",
            "write_zone_remainder",
            "xnvme_admin",
            "xnvme_async",
            "xnvme_be",
            "xnvme_dev_nsid",
            "xnvme_dev_subnqn",
            "xnvme_iovec",
            "xnvme_mem",
            "xnvme_sync",
            "zone_reset_frequency",
            "zone_reset_threshold",
            "zonecapacity",
        ],
    ),
    (Only(OFF, "fio only makes the files, so there is no run"), &["create_only"]),
    (Only(OFF, "writes all addresses once in an order of its own"), &["sprandom"]),
    (Only(OFF, "the model has no write-back of a range"), &["sync_file_range"]),
    (Only(OFF, "a job here cannot trim what it has written"), &["trim_backlog", "trim_percentage"]),
    (Only(OFF, "a job here cannot trim what it has written"), &["trim_backlog_batch"]),
    (Only(&["1"], "several ranges in one TRIM"), &["num_range"]),
    (
        Only(&[], "replays a log, which is a trace here (the workload `trace:FILE`)"),
        &["read_iolog", "read_iolog_chunked"],
    ),
    (Only(&[], "merges traces"), &["merge_blktrace_file", "merge_blktrace_iters", "merge_blktrace_scalars"]),
    (Only(&[], "uses files that already are in a directory"), &["opendir"]),
    (Only(&[], "runs a program of fio's own instead of jobs"), &["profile"]),
    (Only(&[], "ends the warm-up after bytes; expected ramp_time"), &["ramp_size"]),
    (Only(&[], "pauses by the time of I/O"), &["thinktime_iotime"]),
    (Only(&["write"], "commands other than writes"), &["write_mode"]),
    (Only(&["read"], "commands other than reads"), &["verify_mode"]),
    (Only(OFF, "every write durable by itself at the drive"), &["writefua", "readfua"]),
];

/// Options beyond the model that Debian's fio (3.33) does not have either.
pub const NEWER_THAN_DEBIAN: [&str; 7] =
    ["num_range", "ramp_size", "readfua", "sprandom", "verify_mode", "write_mode", "writefua"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// One operation at a time, whatever `iodepth` says.
    OneAtATime,
    /// Up to `iodepth` operations at a time.
    Overlapping,
    /// As `Overlapping`, but only past the page cache: buffered operations wait for each other. Linux carries them out
    /// in `io_submit`, and the C library's `aio_read` and `aio_write` work through those of a file one by one.
    OverlappingDirect,
    Idle,
}

/// Engines with I/O on files.
const ENGINES: &[(Engine, &[&str])] = &[
    (Engine::OneAtATime, &["psync", "sync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "sg"]),
    (Engine::Overlapping, &["io_uring", "io_uring_cmd", "windowsaio", "solarisaio", "syslet-rw"]),
    (Engine::OverlappingDirect, &["libaio", "posixaio"]),
    (Engine::Idle, &["cpuio"]),
];

/// Engines that are beyond the model, but that Debian's fio has and that need nothing but files. Others need a library
/// that it is built without, a device, or a server.
const RUN_BY_DEBIAN: [&str; 8] =
    ["e4defrag", "exec", "falloc", "filecreate", "filedelete", "filestat", "ftruncate", "null"];

/// Returns the engine that fio loads for a name (`__load_ioengine`): what begins with `aio` is libaio.
fn loaded(name: &str) -> &str {
    if name.starts_with("aio") || name.starts_with("linuxaio") { "libaio" } else { name }
}

pub fn debian_runs(engine: &str) -> bool {
    RUN_BY_DEBIAN.contains(&engine)
}

/// Returns how an engine carries out operations; `None` if its I/O is not that of a file system.
pub fn engine(name: &str) -> Option<Engine> {
    let name = loaded(name);
    ENGINES.iter().find(|(_, names)| names.contains(&name)).map(|(engine, _)| *engine)
}

/// Returns true if an engine bypasses the file system, so that its jobs are direct.
pub fn is_raw(engine: &str) -> bool {
    matches!(engine, "sg" | "io_uring_cmd")
}

pub fn engines() -> String {
    let files = ENGINES.iter().filter(|(engine, _)| *engine != Engine::Idle);
    files.flat_map(|(_, names)| names.iter().copied()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn fio_s_other_names_of_an_engine_are_known() {
        for (name, expected) in [
            ("aio", Some(Engine::OverlappingDirect)),
            ("linuxaio", Some(Engine::OverlappingDirect)),
            ("aio_ring", Some(Engine::OverlappingDirect)),
            ("libaio", Some(Engine::OverlappingDirect)),
            ("posixaio", Some(Engine::OverlappingDirect)),
            ("linux", None),
            ("ime_aio", None),
            ("libaio2", None),
        ] {
            assert_eq!(engine(name), expected, "{name}");
        }
        assert!(NEWER_THAN_DEBIAN.iter().all(|name| matches!(find(name), Some((_, Only(..))))));
    }

    #[test]
    fn every_name_has_one_meaning() {
        let all: Vec<&str> = names().collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        assert_eq!(find("readwrite"), Some(("rw", Followed)));
        assert_eq!(find("disk_util"), Some(("disk_util", Ignored(REPORT))));
        assert_eq!(find("size_"), None);
        assert_eq!(find(""), None);
    }
}
