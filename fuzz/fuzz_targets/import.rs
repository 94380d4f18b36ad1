//! Files of other simulators: MQSim's drives and workloads, SimpleSSD's configuration, FEMU's options.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::profile::Profile;
use trimwise::workload::fio::JobFile;
use trimwise_study::import::{job_of, profile_of};

fuzz_target!(|text: &str| {
    let refused = match profile_of(text, "drive") {
        Ok(imported) => {
            let profile = Profile::parse(&imported.profile, "made").expect("a profile that was made");
            assert!(profile.settings.iter().all(|setting| profile.source(&setting.name).is_some()));
            None
        }
        Err(failure) => Some(failure),
    };
    let refused = match job_of(text, "workload") {
        Ok(job) => {
            JobFile::parse(&job).expect("a job that was made");
            refused
        }
        Err(failure) => refused.or(Some(failure)),
    };
    for line in refused.iter().flat_map(|failure| failure.to_string().lines().map(str::to_owned).collect::<Vec<_>>()) {
        assert!(!line.contains(char::is_control), "not one line: {line:?}");
    }
});
