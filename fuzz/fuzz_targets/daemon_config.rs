//! The daemon's configuration: text from an administrator.

#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use trimwise_linux::daemon::config::Config;

fuzz_target!(|text: &str| {
    let file = PathBuf::from("/etc/trimwise.toml");
    match Config::parse(&[(file.clone(), text.to_owned())]) {
        Ok(config) => assert!(config.mounts.keys().all(|point| point.is_absolute())),
        Err(errors) => {
            assert!(!errors.0.is_empty());
            let lines = text.split('\n').count();
            for error in &errors.0 {
                assert!(error.file == file && (1..=lines).contains(&error.line), "{error}");
                assert!(!error.to_string().contains('\n'), "one line each: {error}");
            }
        }
    }
});
