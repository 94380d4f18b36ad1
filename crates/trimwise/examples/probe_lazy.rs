use std::time::Instant;
use trimwise::experiment::lazy::*;
use trimwise::units::Bytes;
fn main() {
    for policy in std::env::args().skip(1) {
        let spec = policy.parse().unwrap();
        for append in [Bytes::kib(64), Bytes::mib(1), Bytes::mib(64)] {
            let t = Instant::now();
            println!("{policy} {append} {:?} {:?}", run_size(spec, append, 0, 1), t.elapsed());
        }
        for fsync in FSYNC {
            let t = Instant::now();
            println!("{policy} {fsync} {:?} {:?}", run_write(spec, fsync, 0, 1), t.elapsed());
        }
    }
}
