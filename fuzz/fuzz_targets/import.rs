//! Files of other simulators: MQSim's drives and workloads, SimpleSSD's configuration, FEMU's options.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::profile::Profile;
use trimwise::workload::fio::JobFile;
use trimwise_study::import::{job_of, profile_of};

fn expect_lines(refused: &str) {
    for line in refused.lines() {
        assert!(!line.contains(char::is_control), "not one line: {line:?}");
    }
}

fuzz_target!(|text: &str| {
    match profile_of(text, "drive") {
        Ok(imported) => {
            let profile = Profile::parse(&imported.profile, "made").expect("a profile that was made");
            assert!(profile.settings.iter().all(|setting| profile.source(&setting.name).is_some()));
        }
        Err(failure) => expect_lines(&failure.to_string()),
    }
    match job_of(text, "workload") {
        Ok(job) => drop(JobFile::parse(&job).expect("a job that was made")),
        Err(failure) => expect_lines(&failure.to_string()),
    }
});
