//! Small samples of each format after its documentation, and errors in traces.

use proptest::prelude::*;

use super::*;
use crate::units::Lba;

type Read = (Vec<Record>, Header, Option<String>);

/// Reads a trace to its end or to its first error.
fn read_as(format: Option<Format>, bytes: &[u8]) -> Read {
    let mut source = match open(bytes, format) {
        Ok(source) => source,
        Err(error) => return (Vec::new(), Header::default(), Some(error.to_string())),
    };
    let mut records = Vec::new();
    loop {
        match source.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, source.header().clone(), None),
            Err(error) => return (records, source.header().clone(), Some(error.to_string())),
        }
    }
}

/// Time in nanoseconds, device, kind, first sector, sectors, latency in nanoseconds.
type Short = (u64, u32, &'static str, u64, u64, Option<u64>);

fn short(record: &Record) -> Short {
    let Event::Request(request) = record.event else { panic!("{record:?}") };
    let latency = request.latency.map(SimDuration::as_nanos);
    let SectorRange { first, sectors } = request.sectors;
    (record.at.0, record.device, request.kind.name(), first.0, sectors, latency)
}

fn read_short(format: Option<Format>, text: &[u8]) -> (Vec<Short>, Vec<String>) {
    let (records, header, error) = read_as(format, text);
    assert_eq!(error, None);
    (records.iter().map(short).collect(), header.devices.into_iter().map(|device| device.name).collect())
}

fn error_of(format: Option<Format>, text: &[u8]) -> String {
    read_as(format, text).2.expect("an error")
}

const BLKPARSE: &str = "\
  8,0    1        1     0.000000000  1234  A   W 2048 + 8 <- (8,1) 0
  8,0    1        2     0.000000500  1234  Q   W 2048 + 8 [fio]
  8,0    1        3     0.000001000  1234  G   W 2048 + 8 [fio]
  8,0    1        4     0.000002000  1234  D   W 2048 + 8 [fio]
  8,0    0        5     0.000003000  1234  D  RS 4096 + 16 [fio]
  8,0    0        6     0.000103000     0  C  RS 4096 + 16 [0]
  8,0    1        7     0.000202000     0  C   W 2048 + 8 [0]
  8,0    0        8     0.000300000    77  D  DS 8192 + 1024 [kworker/0:1H]
  8,0    0        9     0.000301000    77  D  FN [kworker/0:1H]
  8,0    0       10     0.000302000    77  m   N cfq workload slice:100
  8,0    0       11     0.000400000     0  C  DS 8192 + 1024 [0]
  8,0    0       12     0.000401000     0  C  FN 0 [0]
  8,0    0       13     0.000500000    77  D WFSM 16 + 8 [jbd2/sda1-8]
CPU0 (8,0):
 Reads Queued:           1,        8KiB\t Writes Queued:           1,        4KiB
";

#[test]
fn blkparse_text_pairs_issues_with_completions() {
    let (records, devices) = read_short(None, BLKPARSE.as_bytes());
    assert_eq!(devices, ["8,0"]);
    let expected = [
        (0, 0, "write", 2048, 8, Some(200_000)),
        (1_000, 0, "read", 4096, 16, Some(100_000)),
        (298_000, 0, "discard", 8192, 1024, Some(100_000)),
        (299_000, 0, "flush", 0, 0, Some(100_000)),
        (498_000, 0, "write", 16, 8, None),
    ];
    // Time counts from the first event that was read, which was the queueing of the first write.
    let expected: Vec<Short> = expected.map(|(at, d, k, f, s, l)| (at + 1_500, d, k, f, s, l)).to_vec();
    assert_eq!(records, expected);
    let (records, ..) = read_as(None, BLKPARSE.as_bytes());
    let Event::Request(last) = records[4].event else { panic!() };
    assert!(last.sync && last.fua && last.meta, "{last:?}");
}

/// The same sectors are in flight twice, after a request that the driver put back (R).
#[test]
fn a_completion_is_of_the_oldest_request_and_a_requeued_one_was_none() {
    let text = "\
  8,0    1        1     0.000000000  10  D   W 64 + 8 [a]
  8,0    1        2     0.000001000  10  R   W 64 + 8 [0]
  8,0    1        3     0.000010000  10  D   W 64 + 8 [a]
  8,0    1        4     0.000020000  10  D   W 64 + 8 [a]
  8,0    1        5     0.000110000   0  C   W 64 + 8 [0]
  8,0    1        6     0.000420000   0  C   W 64 + 8 [0]
";
    let (records, _) = read_short(None, text.as_bytes());
    let expected = [(10_000, 0, "write", 64, 8, Some(100_000)), (20_000, 0, "write", 64, 8, Some(400_000))];
    assert_eq!(records, expected);
}

#[test]
fn a_device_without_issues_is_read_from_its_queue() {
    let text = "\
  9,0    1        1     0.000000000  10  Q  FWS 0 + 8 [a]
  9,0    1        2     0.000010000  10  Q  W 64 + 8 [a]
  9,0    1        3     0.000050000  10  C  W 64 + 8 [0]
  9,0    1        4     0.000060000  10  C  WS 0 + 8 [0]
";
    let (records, _) = read_short(None, text.as_bytes());
    let expected = [
        (0, 0, "flush", 0, 0, None),
        (0, 0, "write", 0, 8, Some(60_000)),
        (10_000, 0, "write", 64, 8, Some(40_000)),
    ];
    assert_eq!(records, expected);
}

/// A record of blktrace: time, sector, bytes, action, device, and the length of its data.
fn blktrace(is_big: bool, at: u64, sector: u64, bytes: u32, action: u32, data: u16) -> Vec<u8> {
    let mut record = Vec::new();
    let mut put = |number: u64, width: usize| {
        let all = if is_big { number.to_be_bytes() } else { number.to_le_bytes() };
        record.extend_from_slice(if is_big { &all[8 - width..] } else { &all[..width] });
    };
    for (number, width) in [
        (0x6561_7407, 4),
        (1, 4),
        (at, 8),
        (sector, 8),
        (bytes.into(), 4),
        (action.into(), 4),
        (99, 4),
        (8 << 20 | 16, 4),
        (0, 4),
        (0, 2),
        (data.into(), 2),
    ] {
        put(number, width);
    }
    record.extend(std::iter::repeat_n(7, data.into()));
    record
}

#[test]
fn binary_blktrace_is_read_in_either_byte_order() {
    const WRITE: u32 = 1 << 17;
    const SYNC: u32 = 1 << 19;
    const DISCARD: u32 = 1 << 29;
    for is_big in [false, true] {
        let record = |at, sector, bytes, action, data| blktrace(is_big, at, sector, bytes, action, data);
        let trace = [
            record(1_000, 0, 0, 1 << 26, 12), // the name of a process
            record(2_000, 800, 4096, 7 | 1 << 22 | WRITE | SYNC, 0),
            record(2_500, 8000, 1 << 20, 7 | 1 << 22 | DISCARD | WRITE, 0),
            record(3_000, 800, 4096, 8 | 1 << 23 | WRITE | SYNC, 0),
            record(4_000, 8000, 1 << 20, 8 | 1 << 23 | DISCARD | WRITE, 0),
        ]
        .concat();
        let (records, devices) = read_short(None, &trace);
        assert_eq!(devices, ["8,16"]);
        let expected = [(0, 0, "write", 800, 8, Some(1_000)), (500, 0, "discard", 8000, 2048, Some(1_500))];
        assert_eq!(records, expected);
        assert_eq!(error_of(None, &trace[..200]), "record 4, byte 156: the trace is cut off");
    }
}

#[test]
fn fio_logs_keep_their_trims() {
    let two = "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 0 4096\n/dev/sdb wait 500 0\n\
               /dev/sdb trim 1000 9000\n/dev/sdb sync 0 0\n/dev/sdb wait 250 0\n/dev/sdb read 512 100\n/dev/sdb close\n";
    let (records, devices) = read_short(None, two.as_bytes());
    assert_eq!(devices, ["/dev/sdb"]);
    let expected = [
        (0, 0, "write", 0, 8, None),
        (500_000, 0, "discard", 2, 17, None),
        (500_000, 0, "flush", 0, 0, None),
        (750_000, 0, "read", 1, 1, None),
    ];
    assert_eq!(records, expected);
    let three = "fio version 3 iolog\n50 a add\n100 a open\n10000 a write 0 4096\n30000 a trim 0 4096\n50000 a close\n";
    let (records, _) = read_short(None, three.as_bytes());
    assert_eq!(records, [(0, 0, "write", 0, 8, None), (20_000_000, 0, "discard", 0, 8, None)]);
    assert_eq!(
        error_of(None, b"fio version 3 iolog\n1 a fly 0 1\n"),
        "line 2: action 'fly'; expected add, open, close, read, write, trim, sync, datasync or (version 2) wait"
    );
    assert!(error_of(None, b"fio version 1 iolog\n").contains("'fio version 2 iolog' or"));
}

#[test]
fn published_traces_are_read() {
    let msr = "128166372003061629,usr,0,Read,7014609920,24576,41286\n128166372016382155,usr,0,Write,2517696512,4096,56736\n\
               128166372016382155,hm,1,Write,1,1,0\n";
    let (records, devices) = read_short(None, msr.as_bytes());
    assert_eq!(devices, ["usr,0", "hm,1"]);
    let expected = [
        (0, 0, "read", 13_700_410, 48, Some(4_128_600)),
        (1_332_052_600, 0, "write", 4_917_376, 8, Some(5_673_600)),
        (1_332_052_600, 1, "write", 0, 1, Some(0)),
    ];
    assert_eq!(records, expected);

    let alibaba = "device_id,opcode,offset,length,timestamp\n0,R,126703644672,4096,1577808000000626\n7,W,512,0,1577808000000627\n\
                   7,W,512,1024,1577808000000630\n";
    let (records, devices) = read_short(None, alibaba.as_bytes());
    assert_eq!(devices, ["0", "7"]);
    assert_eq!(records, [(0, 0, "read", 247_468_056, 8, None), (4_000, 1, "write", 1, 2, None)]);

    let tencent = "1538323199,2132480,8,0,1063\n1538323200,61049264,16,1,1282\n";
    let (records, _) = read_short(Some(Format::Tencent), tencent.as_bytes());
    let expected = [(0, 0, "read", 2_132_480, 8, None), (1_000_000_000, 1, "write", 61_049_264, 16, None)];
    assert_eq!(records, expected);

    let mqsim = "4851300 1 524288 16 0\n4864300 1 524304 16 1\n";
    let (records, _) = read_short(Some(Format::Mqsim), mqsim.as_bytes());
    assert_eq!(records, [(0, 0, "write", 524_288, 16, None), (13_000, 0, "read", 524_304, 16, None)]);

    let object = |at: u32, object: u64, size: u32| {
        [&at.to_le_bytes()[..], &object.to_le_bytes(), &size.to_le_bytes(), &(-1i64).to_le_bytes()].concat()
    };
    let oracle = [object(5, 800, 4096), object(5, 1, 0), object(7, 9, 1)].concat();
    let (records, _) = read_short(Some(Format::OracleGeneral), &oracle);
    assert_eq!(records, [(0, 0, "read", 800, 8, None), (2_000_000_000, 0, "read", 9, 1, None)]);
    assert!(
        error_of(Some(Format::OracleGeneral), &oracle[..30])
            .starts_with("record 2, byte 24: the trace is cut off")
    );
    let hashed = object(1, u64::MAX / 3, 4096);
    assert!(error_of(Some(Format::OracleGeneral), &hashed).contains("sectors below 2^54"));
}

/// The same three requests in each format that has latencies, and without them in the others.
#[test]
fn more_published_traces_are_read() {
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\r\n1456135200.013118000,0.000806000,R,0,8192,4096\r\n\
                  1456135200.014118000,,,0,0,4096\r\n1456135201.013118000,0.5,W,3,512,1024\r\n";
    let (records, devices) = read_short(None, systor.as_bytes());
    assert_eq!(devices, ["0", "3"]);
    let expected =
        [(0, 0, "read", 16, 8, Some(806_000)), (1_000_000_000, 1, "write", 1, 2, Some(500_000_000))];
    assert_eq!(records, expected);
    assert_eq!(
        read_short(None, systor.split_once("\n").unwrap().1.as_bytes()).0,
        expected,
        "without its heading"
    );
    let unknown = b"1456135200.013118000,,R,0,8192,4096\r\n";
    assert_eq!(read_short(None, unknown).0, [(0, 0, "read", 16, 8, None)], "no response time is not 0 s");

    let spc = "0,20941264,8192,W,0.551706,Alpha/NT\n1, 3435888,513, r,1.609859\n";
    let expected = [(0, 0, "write", 20_941_264, 16, None), (1_058_153_000, 1, "read", 3_435_888, 2, None)];
    assert_eq!(read_short(None, spc.as_bytes()).0, expected);

    let cloudphysics =
        "version,time,op,size,lbn\n1,5633898,2a,512,42932745\n1,5633898,35,0,0\n1,5633900,28,4096,16\n";
    let expected = [(0, 0, "write", 42_932_745, 1, None), (2_000_000_000, 0, "read", 16, 8, None)];
    assert_eq!(read_short(None, cloudphysics.as_bytes()).0, expected);
    for (command, kind) in [
        ("08", "read"),
        ("28", "read"),
        ("88", "read"),
        ("a8", "read"),
        ("0a", "write"),
        ("2a", "write"),
        ("8a", "write"),
        ("aa", "write"),
    ] {
        let line = format!("1,5633898,{command},512,16\n");
        let records = read_short(Some(Format::CloudPhysics), line.as_bytes()).0;
        assert_eq!(records, [(0, 0, kind, 16, 1, None)], "SCSI command {command}");
    }
    let sectors = read_short(Some(Format::CloudPhysics), b"42932745\n42932746\n").0;
    assert_eq!(sectors, [(0, 0, "read", 42_932_745, 1, None), (0, 0, "read", 42_932_746, 1, None)]);

    // Lines in the order of completion: what was issued first took longest.
    let etw = "BeginHeader\n   DiskRead,  TimeStamp,     Process Name ( PID),   ThreadID, CPU,   IrpPtr,   ByteOffset, \
               IOSize, ElapsedTime,  DiskNum, IrpFlags, DiskSvcTime, I/O Pri,  VolSnap,  FileObject, FileName\n\
               DiskFlush,  TimeStamp,  Process Name ( PID),   ThreadID, CPU, IrpPtr,  ElapsedTime,  DiskNum\n\
               EndHeader\nOS Version: 10.0.19041, Trace Size: 1KB\n\
               DiskRead,  100,  a.exe (12),  7, 1, 0xff, 0x0000002000, 0x00001000,  50,  1, 0x060043\n\
               FileIoCreate,  110,  a.exe (12)\n\
               DiskFlush,  130,  a.exe (12),  7, 1, 0xff, 100, 0, 0x0, 12\n";
    let (records, devices) = read_short(None, etw.as_bytes());
    assert_eq!(devices, ["1", "0"]);
    assert_eq!(records, [(0, 1, "flush", 0, 0, Some(100_000)), (20_000, 0, "read", 16, 8, Some(50_000))]);
    let short = "DiskWrite,  100,  a.exe (12),  7, 0xff, 0x0000002000, 0x00001000,  5000000,  1, 0x060043\n";
    assert_eq!(read_short(None, short.as_bytes()).0, [(0, 0, "write", 16, 8, Some(5_000_000_000))]);

    let biosnoop = "TIME(s)     COMM           PID    DISK      T SECTOR     BYTES  LAT(ms)\n\
                    0.000004    Chrome IO 7    1950   xvda1     W 13092560   4096      0.74\n\
                    0.000100    ?              0                R -1         8         0.26\n\
                    0.000178    kworker        1956   xvda1     R 13092432   8192      0.01\n";
    let (records, devices) = read_short(None, biosnoop.as_bytes());
    assert_eq!(devices, ["xvda1"]);
    let expected =
        [(0, 0, "write", 13_092_560, 8, Some(740_000)), (904_000, 0, "read", 13_092_432, 16, Some(10_000))];
    assert_eq!(records, expected);
}

#[test]
fn columns_of_snoops_are_those_of_their_heading() {
    let rows = |text: &str| read_short(None, text.as_bytes());
    // `biosnoop -P` has a column of patterns; `-Q` one of waiting.
    let plain = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.5 a b 1 sda W 8 4096 0.25\n0.6 a 1 sda R 8 512 0.5\n";
    for other in [
        "TIME(s) COMM PID DISK T SECTOR BYTES P LAT(ms)\n0.5 a b 1 sda W 8 4096 S 0.25\n0.6 a 1 sda R 8 512 R 0.5\n",
        "TIME(s) COMM PID DISK T SECTOR BYTES QUE(ms) LAT(ms)\n0.5 a b 1 sda W 8 4096 9 0.25\n\
         0.6 a 1 sda R 8 512 9 0.5\n",
        "TIME(s) COMM PID DISK T SECTOR BYTES P QUE(ms) LAT(ms)\n0.5 a b 1 sda W 8 4096 S 9 0.25\n\
         0.6 a 1 sda R 8 512 R 9 0.5\n",
        // iosnoop of perf-tools, with its first and last lines.
        "Tracing block I/O for 1 seconds (buffered)...\nENDs COMM PID TYPE DEV BLOCK BYTES LATms\n\
         0.5 a 1 W sda 8 4096 0.25\n0.6 a 1 R sda 8 512 0.5\n\nEnding tracing...\n",
    ] {
        assert_eq!(rows(other), rows(plain), "{other}");
    }
    let both = "STARTs ENDs COMM PID TYPE DEV BLOCK BYTES LATms\n5.0 5.1 a 1 WS 8,16 8 4096 100\n5.05 5.2 a 1 D 8,16 8 8192 9\n";
    let (records, devices) = rows(both);
    assert_eq!(devices, ["8,16"]);
    assert_eq!(records.iter().map(|record| record.0).collect::<Vec<_>>(), [0, 50_000_000]);
    // Neither `-s` nor `-t`: the order is all that is known.
    let (records, _) =
        rows("COMM PID TYPE DEV BLOCK BYTES LATms\na 1 W 8,0 8 4096 100\na 1 R 8,0 16 512 0.1\n");
    assert_eq!(records.iter().map(|record| record.0).collect::<Vec<_>>(), [0, 0]);
    let error = error_of(None, b"TIME(s) COMM PID DISK T SECTOR LAT(ms)\n0.5 a 1 sda W 8 0.1\n");
    assert!(error.starts_with("line 2: a column is missing in the heading; expected the columns"), "{error}");
}

#[test]
fn disksim_counts_milliseconds_and_its_lowest_flag_is_a_read() {
    let text = b"10.5 0 100 8 1\n11.25 1 7 16 0\n11.25 0 0 1 11\n";
    let (records, devices) = read_short(Some(Format::DiskSim), text);
    assert_eq!(
        records,
        [(0, 0, "read", 100, 8, None), (750_000, 1, "write", 7, 16, None), (750_000, 0, "read", 0, 1, None),]
    );
    assert_eq!(devices, ["0", "1"]);
    let hint = error_of(None, text);
    assert!(hint.ends_with("; a time in milliseconds and four numbers may be disksim:FILE"), "{hint}");
    let error = error_of(Some(Format::DiskSim), b"1.5 0 1 8 R\n");
    assert!(error.contains("'R'; expected flags in hexadecimal"), "{error}");
}

#[test]
fn the_kernels_text_has_the_requests_of_blkparse() {
    let text = "# tracer: nop\n#\n\
        raft-bench-37801   [003] .....  9904.831159: block_rq_issue: 259,0 WS 4096 () 498455480 + 8 [raft-bench]\n\
        raft-bench-37801   [003] .....  9904.831160: nvme_sq: nvme0: disk=nvme0n1, qid=4\n\
        <idle>-0   [003] d.h..  9904.831178: block_rq_complete: 259,0 WS () 498455480 + 8 [0]\n\
        a 12 [001]  9905.000000:   block:block_rq_issue: 8,0 FF 0 () 18446744073709551615 + 0 none,0,0 [a]\n\
        a 12 [001]  9905.000002: block:block_rq_complete: 8,0 FF () 18446744073709551615 + 0 none,0,0 [0]\n";
    let (records, devices) = read_short(None, text.as_bytes());
    assert_eq!(devices, ["259,0", "8,0"]);
    let expected =
        [(0, 0, "write", 498_455_480, 8, Some(19_000)), (168_841_000, 1, "flush", 0, 0, Some(2_000))];
    assert_eq!(records, expected);
    // What comes first need be no request.
    let insert = "a-1 [0] .... 1.0: block_rq_insert: 8,0 W 4096 () 8 + 8 rt,4 [a[1]]\na-1 [0] 1.1: block_rq_issue: 8,0 W \
        4096 () 8 + 8 none,0,0 [a]\n";
    assert_eq!(read_short(None, insert.as_bytes()).0, [(0, 0, "write", 8, 8, None)]);
    assert_eq!(
        error_of(None, b"a-1 [0] 1.0: block_rq_issue: 8,0 W 0 () 5 8\n"),
        "line 1: a field is missing; expected a sector"
    );
}

#[test]
fn vscsi_is_read_in_both_versions() {
    let one = |command: u16, at: u64, sector: u64, bytes: u32| {
        let mut record = [1u32.to_le_bytes(), bytes.to_le_bytes(), 1u32.to_le_bytes()].concat();
        record.extend([command.to_le_bytes(), 0x100u16.to_le_bytes()].concat());
        record.extend([sector.to_le_bytes(), at.to_le_bytes()].concat());
        record
    };
    let two = |command: u16, at: u64, sector: u64, bytes: u32| {
        let mut record = [command.to_le_bytes(), 0x200u16.to_le_bytes()].concat();
        record.extend([1u32.to_le_bytes(), bytes.to_le_bytes(), 1u32.to_le_bytes()].concat());
        record.extend([sector.to_le_bytes(), at.to_le_bytes(), 7u64.to_le_bytes()].concat());
        record
    };
    type Make<'a> = &'a dyn Fn(u16, u64, u64, u32) -> Vec<u8>;
    for make in [&one as Make<'_>, &two] {
        let trace =
            [make(0x2a, 1_000, 42, 512), make(0x35, 1_001, 0, 0), make(0x28, 1_500, 80, 4096)].concat();
        let (records, _) = read_short(None, &trace);
        assert_eq!(records, [(0, 0, "write", 42, 1, None), (500_000, 0, "read", 80, 8, None)]);
        assert!(error_of(None, &trace[..trace.len() - 1]).ends_with("the trace is cut off"));
        let broken = [trace, vec![9; 40]].concat();
        assert!(error_of(None, &broken).contains("version 9; expected the version of the first record"));
    }
}

/// Input that fails once.
struct Failing(Option<std::io::Error>);

impl std::io::Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

#[test]
fn files_of_single_processors_are_one_trace() {
    const WRITE: u32 = 1 << 17;
    let issue = |at, sector| blktrace(false, at, sector, 4096, 7 | 1 << 22 | WRITE, 0);
    let complete = |at, sector| blktrace(true, at, sector, 4096, 8 | 1 << 23 | WRITE, 0);
    let first = [issue(1_000, 8), issue(5_000, 80)].concat();
    let second = [complete(4_000, 8), complete(9_000, 80)].concat();
    let parts = |parts: &[&[u8]]| -> Vec<Part<'static>> {
        let part = |(index, bytes): (usize, &&[u8])| -> Part<'static> {
            (format!("sda.blktrace.{index}"), Box::new(std::io::Cursor::new(bytes.to_vec())))
        };
        parts.iter().enumerate().map(part).collect()
    };
    let mut source = open_parts(parts(&[&[], &first, &second]), None).unwrap();
    let records: Vec<Short> =
        std::iter::from_fn(|| source.next().unwrap()).map(|record| short(&record)).collect();
    assert_eq!(records, [(0, 0, "write", 8, 8, Some(3_000)), (4_000, 0, "write", 80, 8, Some(4_000))]);
    let mut source = open_parts(parts(&[&first, &second[..60]]), None).unwrap();
    assert!(source.next().unwrap().is_some());
    let error = std::iter::repeat_with(|| source.next().err()).find_map(|error| error).unwrap().to_string();
    assert_eq!(error, "sda.blktrace.1: record 2, byte 48: the trace is cut off");
    // One of which nothing can be read ends the others at their end.
    let unread = || -> Part<'static> {
        let error = std::io::Error::new(std::io::ErrorKind::NotFound, "no such file");
        ("sda.blktrace.9".to_owned(), Box::new(std::io::Read::chain(std::io::empty(), Failing(Some(error)))))
    };
    let mut all = parts(&[&first, &second]);
    all.push(unread());
    let mut source = open_parts(all, None).unwrap();
    let read = std::iter::from_fn(|| source.next().ok().flatten()).count();
    let error = open_parts(vec![unread(), unread()], None).err().unwrap().to_string();
    assert_eq!((read, &*error), (2, "sda.blktrace.9: no such file"));
    let text = open_parts(parts(&[b"fio version 3 iolog\n", b"x"]), None).err().unwrap().to_string();
    assert!(text.contains("several files of fio"), "{text}");
}

/// Headings, byte-order marks and the ends of Windows' lines.
#[test]
fn regression_a_trace_from_windows_is_read() {
    let rows = "4851300 1 524288 16 0\r\n4864300 1 524304 16 1\r\n";
    let plain = read_as(Some(Format::Mqsim), rows.as_bytes());
    assert_eq!(plain.0.len(), 2);
    for text in [
        format!("\u{feff}{rows}"),
        format!("time device lba size op\r\n{rows}"),
        format!("\u{feff}# by hand\r\n\r\n{rows}"),
    ] {
        assert_eq!(read_as(Some(Format::Mqsim), text.as_bytes()).0, plain.0, "{text:?}");
    }
    let msr = "\u{feff}Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime\n1,usr,0,Read,0,512,3\n";
    assert_eq!(read_as(None, msr.as_bytes()).0.len(), 1);
}

#[test]
fn what_is_left_out_is_counted() {
    let left_out = |text: &str| {
        let mut source = open(text.as_bytes(), None).unwrap();
        let info = survey(&mut *source, &mut |_| true);
        (info.records, info.left_out.empty, info.left_out.other)
    };
    assert_eq!(left_out("0,R,0,0,1\n0,R,0,4096,1\n0,W,512,0,2\n"), (1, 2, 0));
    assert_eq!(left_out("1.5,0.1,,0,0,512\n1.5,0.1,R,0,0,0\n1.5,0.1,R,0,0,512\n"), (1, 1, 1));
    assert_eq!(left_out("fio version 3 iolog\n0 a trim 100 200\n0 a write 0 512\n"), (1, 1, 0));
    let snoop = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0 a 9 R 18446744073709551615 0 0.6\n1 a 9 b W 8 512 0.5\n";
    assert_eq!(left_out(snoop), (1, 1, 0));
    let zone = "8,0 1 1 0.1 9 D ZR 8 + 8 [a]\n8,0 1 2 0.2 9 D W 8 + 0 [a]\n8,0 1 3 0.3 9 D W 8 + 8 [a]\n";
    assert_eq!(left_out(zone), (1, 1, 1));
}

#[test]
fn absurd_lengths_and_times_are_errors_with_their_line() {
    let text = "0,R,0,4096,1\n0,R,0,562949953421312,2\n";
    assert_eq!(
        error_of(None, text.as_bytes()),
        "line 2: a read of 562949953421312 bytes; expected at most 4294967296 (4 GiB) in a read or write"
    );
    assert!(
        read_as(None, b"fio version 3 iolog\n0 a trim 0 562949953421312\n").2.is_none(),
        "a whole device"
    );
    let text = "0,R,0,4096,1577808000000626\n0,R,0,4096,2577808000000626\n";
    assert_eq!(
        error_of(None, text.as_bytes()),
        "line 2: a time 1000000000 s from that of the first record; expected times within ten years"
    );
    let header = Header { devices: vec![TraceDevice::default()], ..Header::default() };
    let own = |at, sectors| {
        let mut writer = format::Writer::new(Vec::new(), &header).unwrap();
        let event = Event::Request(plain_write(SectorRange::new(Lba(0), sectors)));
        writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
        error_of(None, &writer.finish().unwrap())
    };
    assert!(own(1 << 60, 8).starts_with("record 1: a time 1152921505 s from the beginning; expected"));
    assert!(
        own(1, 1 << 24).starts_with("record 1: a write of 8589934592 bytes; expected at most 4294967296")
    );
}

#[test]
fn regression_the_log_of_a_second_job_is_named() {
    let text = "fio version 3 iolog\n5 a write 0 4096\nfio version 3 iolog\n0 b write 0 4096\n";
    let (records, _, error) = read_as(None, text.as_bytes());
    assert_eq!(records.len(), 1);
    assert!(error.unwrap().starts_with("line 3: a second log begins here; expected the log of one job"));
}

#[test]
fn regression_what_says_nothing_does_not_hide_the_format() {
    const ETW: &str = "BeginHeader\nDiskRead, TimeStamp, Process, ThreadID, IrpPtr, ByteOffset, IOSize, ElapsedTime, \
        DiskNum\nEndHeader\nDiskRead, 100, a ( 1), 2, 0xf, 0x1000, 0x200, 50, 0\n";
    const BIOSNOOP: &str = "TIME(s) COMM PID DISK T SECTOR BYTES LAT(ms)\n0.5 a 1 sda W 8 4096 0.1\n";
    for (before, text, made_by) in [
        ("# a\n\n", "1,usr,0,Read,0,4096,9\n", "msr"),
        ("\r\n", "0,20941264,8192,w,0\n", "spc"),
        ("# a\n", "0.5,0.1,W,1,0,512\n", "systor"),
        ("\n", "0,R,0,4096,1\n", "alibaba"),
        ("# a\n", "version,time,op,size,lbn\n1,2,2a,512,3\n", "cloudphysics"),
        ("\n# a\n", "fio version 3 iolog\n# b\n0 a write 0 8192\n", "fio"),
        ("#\n", "8,0 1 2 0.5 3 D W 2048 + 8 [a]\n", "blkparse"),
        ("# a\n", ETW, "etw"),
        ("[File]\nOS Version: 10.0.19041\n", ETW, "etw"),
        ("Tracing block device I/O... Hit Ctrl-C to end.\n", BIOSNOOP, "biosnoop"),
    ] {
        for bom in ["", "\u{feff}"] {
            let text = format!("{bom}{before}{text}");
            let (records, header, error) = read_as(None, text.as_bytes());
            assert_eq!((records.len(), header.made_by.as_str(), error), (1, made_by, None), "{text}");
        }
    }
    let long = "# a comment\n".repeat(1000) + "0,R,0,4096,1\n";
    assert_eq!(read_as(None, long.as_bytes()).0.len(), 1);
}

#[test]
fn files_of_other_kinds_are_named() {
    for (bytes, expected) in [
        (&b"\xfd7zXZ\0\0\x04"[..], "compressed with xz; expected plain text, zstd or gzip: xz -dc FILE"),
        (b"BZh91AY", "compressed with bzip2"),
        (b"\xff\xfe1\0,\0", "text in UTF-16; expected UTF-8: iconv"),
        (b"<?xml version=\"1.0\"?>\n", "byte 0: XML"),
        (b"1 2 3 4 0\n", "five numbers may be mqsim:FILE"),
        (b"1,2,3,1,0\n", "five numbers may be tencent:FILE"),
        (b"42932745\n", "a number alone may be cloudphysics:FILE"),
    ] {
        let error = error_of(None, bytes);
        assert!(error.contains(expected), "{error}");
    }
    let named = error_of(Some(Format::Mqsim), b"\xfd7zXZ\0\0\x04");
    assert!(named.starts_with("byte 0: compressed with xz"), "{named}");
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_is_accepted() {
    for (format, text, expected) in [
        (None, "", "byte 0: the trace is empty; expected a block trace"),
        (None, "# a\n\n1,2,3,4,5\n", "line 3: it is the first line, and matches no known format"),
        (
            Some(Format::Msr),
            "1,usr,0,Read,18446744073709551616,1,0\n",
            "is no whole number below 2^64; expected an offset",
        ),
        (
            Some(Format::Msr),
            "1,usr,0,Read,0,-4096,0\n",
            "'-4096' is no whole number below 2^64; expected a size",
        ),
        (Some(Format::Msr), "1,usr,0,Read,9223372036854775807,512,0\n", "expected bytes below 2^63"),
        (
            Some(Format::Msr),
            "1,usr,0,Read,0,4294967297,0\n",
            "of 4294967297 bytes; expected at most 4294967296",
        ),
        (
            None,
            "1,2,3,4,5\n",
            "line 1: it is the first line, and matches no known format; expected one of trimwise",
        ),
        (Some(Format::Msr), "1,usr,0,Trim,0,1,0\n", "line 1: type 'Trim'; expected Read or Write"),
        (Some(Format::Msr), "1,usr,0,Read,0\n", "line 1: 5 columns; expected Timestamp,Hostname"),
        (Some(Format::Alibaba), "0,R,0,4096,1\n0,R,x,4096,2\n", "line 2: 'x'; expected an offset in bytes"),
        (Some(Format::Alibaba), "0,R,18446744073709551615,9,1\n", "expected bytes below 2^63"),
        (Some(Format::Tencent), "18446744073709551615,0,8,0,1\n", "a time that fits into 64 bits"),
        (Some(Format::Tencent), "1,18014398509481980,8,0,1\n", "expected sectors below 2^54"),
        (Some(Format::Mqsim), "1 0 0 8 2\n", "type '2'; expected 0 for a write or 1 for a read"),
        (
            Some(Format::Blkparse),
            "8,0 1 2 0.5 3 D W 1 + x [a]\n",
            "line 1: 'x'; expected a number of sectors",
        ),
        (Some(Format::Blkparse), "hello\n", "line 1: 'hello'; expected a device, as in 8,0"),
        (Some(Format::Blkparse), "8,0 1\n", "line 1: a field is missing; expected a sequence number"),
        (
            Some(Format::Blktrace),
            "hello, this is not what was promised, is it? No, not at all",
            "blktrace's magic",
        ),
    ] {
        let error = error_of(format, text.as_bytes());
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let long = [b"fio version 2 iolog\n".as_slice(), &vec![b'x'; 10_000]].concat();
    assert!(error_of(None, &long).contains("line 2: more than 4096 bytes"));
    assert!(error_of(Some(Format::Msr), b"1,\xff\n").contains("line 1: invalid UTF-8"));
}

#[test]
fn records_out_of_order_are_put_in_order_within_a_second() {
    let line = |at: u64| format!("0,W,{},4096,{at}\n", at * 4096);
    let ordered: String = [1_000_000, 1_300_000, 1_100_000, 1_900_000].map(line).concat();
    let (records, _) = read_short(None, ordered.as_bytes());
    let times: Vec<u64> = records.iter().map(|record| record.0 / 1_000_000).collect();
    assert_eq!(times, [0, 100, 300, 900]);
    let late: String = [1_000_000, 5_000_000, 5_000_001, 500_000].map(line).concat();
    let (records, _, error) = read_as(None, late.as_bytes());
    assert_eq!(records.len(), 3, "what was read before an error comes before it");
    assert_eq!(
        error.unwrap(),
        "line 4: a time 0.500000000 s before that of a record already passed on; expected times in order, within one \
         second or 65,536 records"
    );
}

#[test]
fn the_working_set_counts_each_unit_once_in_whole_and_partly_touched_pieces() {
    const PIECE: u64 = 128 << 20;
    let survey_of = |ranges: &[(u64, u64)]| {
        let lines: String = ranges.iter().map(|(at, bytes)| format!("0 a write {at} {bytes}\n")).collect();
        let text = format!("fio version 3 iolog\n{lines}");
        survey(&mut *open(text.as_bytes(), None).unwrap(), &mut |_| true).working_set_bytes
    };
    assert_eq!(survey_of(&[(PIECE / 2, PIECE), (0, 2 * PIECE), (PIECE, PIECE)]), 2 * PIECE);
    assert_eq!(survey_of(&[(0, PIECE), (PIECE / 4, PIECE)]), PIECE + PIECE / 4);
    assert_eq!(survey_of(&[(4096, 8192), (8192, 8192)]), 12_288);
}

#[test]
fn a_survey_counts_each_record_once_under_what_it_is() {
    const HOUR: u64 = 3_600_000_000_000;
    let devices = vec![TraceDevice::default(), TraceDevice::default()];
    let header = Header { devices, ..Header::default() };
    let mut writer = format::Writer::new(Vec::new(), &header).unwrap();
    let request = |kind, first, sectors, sync, latency: Option<u64>| {
        let plain = input::plain(kind, SectorRange::new(Lba(first), sectors));
        Event::Request(Request { sync, latency: latency.map(SimDuration), ..plain })
    };
    let sectors = |first, sectors| SectorRange::new(Lba(first), sectors);
    for (at, device, event) in [
        (5, 0, request(RequestKind::Write, 0, 8, true, Some(100))),
        (5, 1, request(RequestKind::Write, 8, 16, false, Some(300))),
        // Too short, and not at the beginning of a unit.
        (6, 1, request(RequestKind::Write, 64, 4, false, None)),
        (7, 1, request(RequestKind::Write, 36, 8, true, None)),
        // Exactly an hour is no jump of the clock, a nanosecond more is one.
        (7 + HOUR, 0, request(RequestKind::Flush, 0, 0, true, Some(50))),
        (8 + 2 * HOUR, 0, request(RequestKind::Discard, 800, 8, false, None)),
        (9 + 2 * HOUR, 0, Event::Freed(sectors(1000, 24))),
        (9 + 2 * HOUR, 0, Event::Allocated(sectors(2000, 48))),
        (9 + 2 * HOUR, 0, Event::Committed),
        (9 + 2 * HOUR, 0, Event::Lost(3)),
        (10 + 2 * HOUR, 0, Event::Lost(4)),
    ] {
        writer.write(&Record { at: SimTime(at), device, event }).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let info = survey(&mut *open(&bytes[..], None).unwrap(), &mut |_| true);
    assert_eq!(info.ended_early, None);
    let kind = |name: &str| {
        let KindFigures { count, bytes, bytes_min, bytes_max, unaligned, sync } = info.requests[name];
        (count, bytes, bytes_min, bytes_max, unaligned, sync)
    };
    assert_eq!(info.requests.keys().collect::<Vec<_>>(), ["discard", "flush", "write"], "kinds that occur");
    assert_eq!(kind("write"), (4, 36 * 512, 2048, 8192, 2, 2), "count, bytes, least, most, unaligned, sync");
    assert_eq!(kind("discard"), (1, 4096, 4096, 4096, 0, 0), "count, bytes, least, most, unaligned, sync");
    assert_eq!((kind("flush").0, kind("flush").1, kind("flush").5), (1, 0, 1), "flushes, bytes, sync");
    assert_eq!((info.records, info.requests_by_device), (11, vec![3, 3]), "records, requests by device");
    assert_eq!(info.unknown_latencies, 3, "requests without a latency");
    assert_eq!((info.freed, info.allocated, info.committed, info.lost_events), (1, 1, 1, 7), "other records");
    assert_eq!((info.span_ns, info.longest_pause_ns), (5 + 2 * HOUR, HOUR + 1), "span, longest pause");
    assert_eq!(info.pauses_over_an_hour, 1);
    // Units 0 and 100 of the first device; 1, 2, 8, and 4 and 5 (half of each) of the second.
    assert_eq!(info.working_set_bytes, 7 * 4096, "working set");
    assert_eq!(info.needed_bytes, 2048 * 512, "the end of what was allocated");
    let write = &info.latency["write"];
    assert_eq!((info.latency.len(), write.count), (2, 2), "kinds with latencies, writes with one");
}

#[test]
fn fields_of_a_line_have_their_places_units_and_limits() {
    use Format::*;
    // What is wrong in the second line of each, with its number; the first one is right.
    for (format, right, wrong, expected) in [
        (Msr, "1,usr,0,Read,0,4096,9", "x,usr,0,Read,0,4096,9", "line 2: 'x'"),
        (Msr, "1,usr,0,Read,0,4096,9", "2,usr,0,read ,x,4096,9", "line 2: "),
        (Msr, "1,usr,0,Read,0,4096,9", "2,usr,0,Write,0,4096,x", "line 2: 'x'"),
        (Alibaba, "0,R,0,4096,1", "0,X,0,4096,1", "line 2: "),
        (Alibaba, "0,R,0,4096,1", "0,R,0,y,1", "line 2: 'y'"),
        (Alibaba, "0,R,0,4096,1", "0,R,0,4096", "line 2: 4 columns"),
        (Alibaba, "0,R,0,4096,1", "0,R,0,4096,1,9", "line 2: more than 5 columns"),
        (Tencent, "1,0,8,0,7", "1,0,8,2,7", "line 2: "),
        (Mqsim, "1 0 0 8 1", "1 0 0 8", "line 2: "),
        (Spc, "0,8,4096,w,0.5", "0,8,4096,x,0.5", "line 2: "),
        (Spc, "0,8,4096,w,0.5", "0,8,4096,w,-1", "line 2: "),
    ] {
        let (records, _, error) = read_as(Some(format), format!("{right}\n{wrong}\n").as_bytes());
        let error = error.unwrap_or_else(|| panic!("no error in {wrong}"));
        assert!(error.starts_with(expected), "{format:?} {wrong}: {error}");
        assert_eq!(records.len(), 1, "records before the wrong line {wrong}");
    }
    // Units and rounding: MSR's ticks of 100 ns, Alibaba's microseconds, Tencent's seconds, SPC's seconds with a point.
    for (format, text, expected) in [
        (
            Msr,
            "10,a,0,Write,512,513,7\n12,a,0,Read,511,2,0\n",
            [(0, "write", 1, 2, Some(700)), (200, "read", 0, 2, Some(0))],
        ),
        (
            Alibaba,
            "3,W,4096,4096,10\n3,R,1023,1,12\n",
            [(0, "write", 8, 8, None), (2_000, "read", 1, 1, None)],
        ),
        (
            Tencent,
            "5,16,8,1,3\n6,24,1,0,3\n",
            [(0, "write", 16, 8, None), (1_000_000_000, "read", 24, 1, None)],
        ),
        (Mqsim, "10 0 8 16 0\n11 0 9 1 1\n", [(0, "write", 8, 16, None), (1, "read", 9, 1, None)]),
        (
            Spc,
            "0,8,1024,R,0.5\n0,9,512,W,0.500001\n",
            [(0, "read", 8, 2, None), (1_000, "write", 9, 1, None)],
        ),
    ] {
        let found: Vec<_> = read_short(Some(format), text.as_bytes()).0;
        let found: Vec<_> =
            found.into_iter().map(|(at, _, kind, first, n, latency)| (at, kind, first, n, latency)).collect();
        assert_eq!(found, expected, "{format:?}: time in ns, kind, sector, sectors, latency in ns");
    }
}

/// Records are put in order within a second, to the microsecond.
#[test]
fn a_record_may_be_late_by_a_second_and_no_more() {
    let read = |times: [u64; 3]| {
        let line = |(offset, at): (u64, u64)| format!("0,W,{},4096,{at}\n", offset * 4096);
        let text: String = (0..).zip(times).map(line).collect();
        let (records, _, error) = read_as(Some(Format::Alibaba), text.as_bytes());
        let brief = |record: &Record| (short(record).0, short(record).3 / 8);
        (records.iter().map(brief).collect::<Vec<_>>(), error)
    };
    // Time in nanoseconds, and which line it was.
    assert_eq!(
        read([1_000_000, 2_000_000, 999_999]),
        (vec![(0, 2), (1_000, 0), (1_000_001_000, 1)], None),
        "exactly a second"
    );
    let (records, error) = read([1_000_000, 2_000_001, 999_999]);
    assert_eq!(records, [(0, 0), (1_000_001_000, 1)], "a microsecond more");
    let error = error.unwrap_or_default();
    assert!(error.starts_with("line 3: a time 0.000001000 s before"), "{error}");
    // What came at the same time stays in the order of the lines.
    assert_eq!(read([7, 7, 7]), (vec![(0, 0), (0, 1), (0, 2)], None));
    assert_eq!(read([7, 8, 7]), (vec![(0, 0), (0, 2), (1_000, 1)], None));
}

#[test]
fn numbers_are_read_up_to_their_limits() {
    for (text, expected) in [
        ("0", Some(0)),
        ("+7", Some(7)),
        ("", None),
        ("+", None),
        ("-1", None),
        ("1a", None),
        ("1:", None),
        ("1/", None),
        ("1234567890123456789x", None),
        ("18446744073709551615", Some(u64::MAX)),
        ("18446744073709551616", None),
        ("99999999999999999999", None),
        ("000000000000000000000000017", Some(17)),
    ] {
        assert_eq!(input::number(text.as_bytes()), expected, "{text}");
    }
    for (text, expected) in [
        ("1", Some(1_000_000_000)),
        ("0.5", Some(500_000_000)),
        ("12.000000001", Some(12_000_000_001)),
        // More than nine digits are cut, not rounded.
        ("1.0000000019", Some(1_000_000_001)),
        ("1.", None),
        (".5", None),
        ("1.x", None),
        ("1.5x", None),
        ("18446744073.709551615", Some(u64::MAX)),
        ("18446744073.709551616", None),
        ("18446744074", None),
    ] {
        assert_eq!(input::billionths(text.as_bytes()), expected, "{text}");
    }
    for (text, expected) in
        [("0x1F", Some(31)), ("ff", Some(255)), ("", None), ("0x", None), ("fg", None), ("+f", None)]
    {
        assert_eq!(input::hexadecimal(text.as_bytes()), expected, "{text}");
    }
}

#[test]
fn bytes_become_the_sectors_that_they_touch_or_fill() {
    use RequestKind::{Discard, Read, Write};
    const DRIVE: u64 = 1 << 63;
    const MOST: u64 = 4 << 30;
    // Kind, first byte, bytes; first sector and sectors.
    for (kind, offset, bytes, expected) in [
        (Write, 0, 512, Some((0, 1))),
        (Write, 0, 513, Some((0, 2))),
        (Write, 511, 2, Some((0, 2))),
        (Read, 512, 0, Some((1, 0))),
        (Discard, 0, 1024, Some((0, 2))),
        (Discard, 1, 1023, Some((1, 1))),
        (Discard, 1, 1022, Some((1, 0))),
        (Discard, 1, 510, Some((1, 0))),
        (Read, 0, MOST, Some((0, MOST / 512))),
        (Read, 0, MOST + 1, None),
        (Write, 0, MOST + 1, None),
        (Discard, 0, MOST + 512, Some((0, MOST / 512 + 1))),
        (Write, DRIVE - 513, 512, Some((DRIVE / 512 - 2, 2))),
        (Write, DRIVE - 512, 512, None),
        (Write, u64::MAX, 1, None),
    ] {
        let found = input::sectors_of_bytes(kind, offset, bytes).ok();
        let found = found.map(|range| (range.first.0, range.sectors));
        assert_eq!(found, expected, "{kind:?} of {bytes} bytes at {offset}");
    }
    for (kind, first, count, is_possible) in [
        (Write, 0, MOST / 512, true),
        (Write, 0, MOST / 512 + 1, false),
        (Discard, 0, MOST / 512 + 1, true),
        (Read, (1 << 54) - 9, 8, true),
        (Read, (1 << 54) - 8, 8, false),
        (Read, u64::MAX, 1, false),
    ] {
        let found = input::sectors(kind, first, count).is_ok();
        assert_eq!(found, is_possible, "{kind:?} of {count} sectors at {first}");
    }
}

#[test]
fn a_survey_says_what_is_in_a_trace() {
    let text = "fio version 3 iolog\n0 a write 0 8192\n10 a write 4096 4096\n20 a read 512 512\n4000000000 a trim 0 4096\n";
    let mut source = open(text.as_bytes(), None).unwrap();
    let info = survey(&mut *source, &mut |_| true);
    assert_eq!((info.records, info.requests_by_device.clone(), info.unknown_latencies), (4, vec![4], 4));
    let writes = info.requests["write"];
    assert_eq!((writes.count, writes.bytes, writes.bytes_min, writes.bytes_max), (2, 12_288, 4096, 8192));
    assert_eq!((info.requests["read"].unaligned, info.requests.contains_key("flush")), (1, false));
    assert_eq!((info.working_set_bytes, info.needed_bytes), (8192, 8192));
    assert_eq!((info.pauses_over_an_hour, info.span_ns), (1, 4_000_000_000_000));
    assert_eq!(info.ended_early, None);
    let mut source = open(&b"fio version 3 iolog\n0 a write 0 1\n0 b nothing\n"[..], None).unwrap();
    let info = survey(&mut *source, &mut |_| true);
    assert_eq!(info.records, 1);
    assert!(info.ended_early.unwrap().starts_with("line 3: action 'nothing'"));
}

#[test]
fn a_trace_is_the_same_after_conversion() {
    let several: String =
        (0..5).map(|i| format!("{},W,{},4096,{}\n", i % 3, i * 4096, i * 3_000_000)).collect();
    for (text, devices) in [(BLKPARSE, 1), (&several, 3)] {
        let mut source = open(text.as_bytes(), None).unwrap();
        let mut bytes = Vec::new();
        let Converted { records, .. } = convert(&mut *source, &mut bytes, &mut |_| true).unwrap();
        assert_eq!(records, 5);
        let ((copy, header, None), (original, names, None)) =
            (read_as(None, &bytes), read_as(None, text.as_bytes()))
        else {
            panic!("an error")
        };
        assert_eq!((copy, header.devices.len()), (original, devices));
        assert_eq!(header, names);
    }
}

/// Input without an end: the same line again and again, with times that grow.
struct Endless {
    line: Vec<u8>,
    at: usize,
    count: u64,
}

impl std::io::Read for Endless {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.line.len() {
            self.count += 1;
            // Completions never come.
            self.line = format!("8,0 0 1 {}.000000000 1 D W {} + 8 [a]\n", self.count / 100, self.count * 8)
                .into_bytes();
            self.at = 0;
        }
        let n = out.len().min(self.line.len() - self.at);
        out[..n].copy_from_slice(&self.line[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

#[test]
fn endless_input_is_read_as_it_comes() {
    let endless = Endless { line: Vec::new(), at: 0, count: 0 };
    let mut source = open(endless, Some(Format::Blkparse)).unwrap();
    // A survey that is told to stop stops; a request that never completes is passed on after a minute.
    let mut calls = 0;
    let info = survey(&mut *source, &mut |_| {
        calls += 1;
        calls < 3
    });
    assert_eq!((info.records, info.ended_early.as_deref()), (3 * 65_536, Some("interrupted")));
    assert_eq!(info.unknown_latencies, info.records);
}

fn formats() -> impl Strategy<Value = Option<Format>> {
    (0..=Format::ALL.len()).prop_map(|i| Format::ALL.get(i).map(|(format, ..)| *format))
}

proptest! {
    #[test]
    fn no_bytes_panic(format in formats(), bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (records, header, _) = read_as(format, &bytes);
        prop_assert!(records.iter().all(|record| (record.device as usize) < header.devices.len()));
    }

    #[test]
    fn no_changed_text_panics(at in any::<prop::sample::Index>(), byte: u8, format in formats()) {
        let mut bytes = BLKPARSE.as_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let (records, ..) = read_as(None, &bytes);
        prop_assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
        read_as(format, &bytes);
    }

    #[test]
    fn a_cut_off_text_gives_what_comes_before(cut in 0..BLKPARSE.len()) {
        let whole = read_as(None, BLKPARSE.as_bytes()).0;
        let (records, ..) = read_as(Some(Format::Blkparse), &BLKPARSE.as_bytes()[..cut]);
        prop_assert!(records.len() <= whole.len() + 1);
    }
}

/// Requests in time order, each of its own sectors, since blktrace identifies requests by their first sector.
fn requests() -> impl Strategy<Value = Vec<Record>> {
    let kind = prop_oneof![
        Just(RequestKind::Read),
        Just(RequestKind::Write),
        Just(RequestKind::Discard),
        Just(RequestKind::Flush)
    ];
    let one = (kind, 0..2_000_000_u64, 1..u64::from(u32::MAX) / 512, any::<[bool; 3]>(), 0..1_000_000_u64);
    proptest::collection::vec(one, 1..100).prop_map(|all| {
        let mut at = 0;
        type Drawn = (usize, (RequestKind, u64, u64, [bool; 3], u64));
        let of = |(index, (kind, pause, sectors, [sync, fua, meta], latency)): Drawn| {
            at += if index == 0 { 0 } else { pause };
            let is_flush = kind == RequestKind::Flush;
            let range = SectorRange::new(Lba((index as u64 + 1) << 32), sectors);
            let request = Request {
                kind,
                sectors: if is_flush { SectorRange::new(Lba(0), 0) } else { range },
                sync: sync || kind == RequestKind::Read,
                fua: fua && kind == RequestKind::Write,
                meta,
                latency: Some(SimDuration(if is_flush { 1_000 } else { latency })),
            };
            Record { at: SimTime(at), device: 0, event: Event::Request(request) }
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn as_blktrace(records: &[Record]) -> std::io::Result<Vec<u8>> {
    let mut writer = blktrace::Writer::new(Vec::new());
    records.iter().try_for_each(|record| writer.write(record))?;
    writer.finish()
}

proptest! {
    #[test]
    fn what_is_written_as_blktrace_is_read_back_the_same(records in requests()) {
        let (read, header, error) = read_as(None, &as_blktrace(&records).unwrap());
        prop_assert_eq!((read, error), (records, None));
        prop_assert_eq!(&header.devices[0].name, "254,0");
    }
}

#[test]
fn what_blktrace_has_no_room_for_is_an_error() {
    let write = plain_write(SectorRange::new(Lba(0), 1 << 23));
    let record = |device, event| Record { at: SimTime(0), device, event };
    let error = as_blktrace(&[record(0, Event::Request(write))]).unwrap_err();
    assert!(error.to_string().starts_with("a request of 8388608 sectors"), "{error}");
    let write = plain_write(SectorRange::new(Lba(0), 8));
    let error = as_blktrace(&[record(65_536, Event::Request(write))]).unwrap_err();
    assert!(error.to_string().starts_with("device 65536"), "{error}");
    // What is no request is left out.
    assert!(as_blktrace(&[record(0, Event::Committed)]).unwrap().is_empty());
}

#[test]
fn a_request_that_never_completes_is_written_without_a_completion() {
    let record = |request| Record { at: SimTime(0), device: 3, event: Event::Request(request) };
    let open = record(plain_write(SectorRange::new(Lba(8), 8)));
    let bytes = as_blktrace(&[open]).unwrap();
    assert_eq!(bytes.len(), 2 * 48);
    let (read, header, _) = read_as(None, &bytes);
    assert_eq!((read, header.devices[0].name.as_str()), (vec![Record { device: 0, ..open }], "254,48"));
}

fn plain_write(sectors: SectorRange) -> Request {
    input::plain(RequestKind::Write, sectors)
}

#[test]
fn a_read_of_blktrace_is_synchronous_even_if_its_letters_do_not_say_so() {
    for (rwbs, sync) in [("R", true), ("RA", true), ("RS", true), ("W", false), ("WS", true), ("D", false)] {
        let (_, _, request) = blktrace::parse_rwbs(rwbs.as_bytes()).unwrap();
        assert_eq!(request.sync, sync, "{rwbs}");
    }
}

#[test]
fn a_survey_of_a_recording_needs_the_space_of_what_was_before_it() {
    let header = Header { devices: vec![TraceDevice::default()], has_prelude: true, ..Header::default() };
    let mut writer = format::Writer::new(Vec::new(), &header).unwrap();
    let write = |first| Event::Request(input::plain(RequestKind::Write, SectorRange::new(Lba(first), 8)));
    for (at, event) in [(1, write(4096)), (2, Event::Begun), (5, write(8)), (7, write(8))] {
        writer.write(&Record { at: SimTime(at), device: 0, event }).unwrap();
    }
    let bytes = writer.finish().unwrap();
    let info = survey(&mut *open(&bytes[..], None).unwrap(), &mut |_| true);
    assert_eq!((info.prelude_records, info.records, info.span_ns), (2, 2, 5));
    assert_eq!((info.working_set_bytes, info.needed_bytes), (4096, 4104 * 512));
}
