//! fio job files: no text panics, a refusal is one line, and what is accepted stays below the workload's directory.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::workload::fio::{Io, JobFile, Sequence};

fuzz_target!(|text: &str| {
    let parsed = match JobFile::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control), "not one line: {message:?}");
            assert!((1..=text.lines().count().max(1)).contains(&error.line), "no such line: {message}");
            return;
        }
    };
    assert!(parsed.tasks() >= 1);
    // A larger job needs more memory than a fuzzer may have.
    if parsed.needed().0 > 1 << 26 {
        return;
    }
    for job in &parsed.jobs {
        let mut sequence = Sequence::new(job, 1);
        for _ in 0..1_000 {
            let Some(io) = sequence.next() else { break };
            let (Io::Transfer { file, .. } | Io::Fsync(file) | Io::Fdatasync(file)) = io;
            let name = sequence.file_name(file);
            assert!(!name.starts_with('/') && name.split('/').all(|part| !part.is_empty() && part != ".."));
        }
    }
});
