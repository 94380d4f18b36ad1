//! PostMark's configuration files: no text panics, and what is accepted keeps its promises.

#![no_main]

use libfuzzer_sys::fuzz_target;
use trimwise::workload::postmark::PostmarkConfig;
use trimwise::workload::postmark::layout::Layout;

fuzz_target!(|text: &str| {
    let parsed = match PostmarkConfig::parse(text, "fuzz.pmrc") {
        Ok(parsed) => parsed,
        Err(error) => {
            let message = error.to_string();
            assert!(!message.contains(char::is_control), "not one line: {message:?}");
            assert!((1..=text.split('\n').count()).contains(&error.line), "no such line: {message}");
            return;
        }
    };
    assert!(!parsed.runs.is_empty());
    for run in &parsed.runs {
        let config = &run.config;
        assert!(config.number >= 1 && config.size_low >= 1 && config.size_low <= config.size_high);
        assert!(config.read_block >= 1 && config.write_block >= 1);
        assert!(config.locations.iter().all(|location| location.weight >= 1));
        for rooted in [config.for_model(), config.for_directory("/mnt/test")].into_iter().flatten() {
            let layout =
                Layout::new(&rooted).expect("a location that was brought below the root stays there");
            for directory in layout.location_directories() {
                assert!(!directory.starts_with('/') && directory.split('/').all(|part| part != ".."));
            }
        }
    }
});
