//! fio job files: no text panics, a refusal is one line, and what is accepted stays below the workload's directory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::units::Bytes;
use trimwise::workload::fio::{Io, JobFile, Sequence};

fuzz_target!(|text: &str| {
    let parsed = match JobFile::parse(text) {
        Ok(parsed) => parsed,
        Err(errors) => {
            assert!(!errors.0.is_empty());
            for error in &errors.0 {
                let message = error.to_string();
                assert!(!message.contains(char::is_control), "not one line: {message:?}");
                assert!((1..=text.lines().count().max(1)).contains(&error.place.line), "no such line: {message}");
            }
            return;
        }
    };
    assert!(parsed.tasks() >= 1);
    let again = JobFile::parse(&parsed.text).expect("a flat job file reads as the same");
    assert_eq!(again.jobs, parsed.jobs, "{:?}", parsed.text);
    let _ = (parsed.description().to_string(), parsed.scaled(0.1), parsed.scale_min());
    let Ok(parsed) = parsed.fitted(Bytes::mib(1)) else { return };
    // A larger job needs more memory than a fuzzer may have.
    if parsed.needed().0 > 1 << 22 || parsed.jobs.len() > 16 {
        return;
    }
    for job in &parsed.jobs {
        let mut sequence = Sequence::new(job, 1);
        for _ in 0..200 {
            let Some(io) = sequence.next() else { break };
            let (Io::Transfer { file, .. } | Io::Trim { file, .. } | Io::Fsync(file) | Io::Fdatasync(file)) = io else {
                continue;
            };
            let name = sequence.file_name(file);
            assert!(!name.starts_with('/') && name.split('/').all(|part| !part.is_empty() && part != ".."));
        }
    }
});
