//! Finding the device that an argument names.

use std::path::Path;

use trimwise::profile::Profile;

use super::input;
use crate::failure::Failure;

/// Name in messages for an argument that should be a profile's file.
const WHAT: &str = "a profile (TOML)";

/// Finds the profile of this name or in this file, or one of its firmware variants: NAME, FILE, NAME@VERSION or
/// FILE@VERSION. Messages name `option`. A file with exactly this name takes precedence over a variant.
pub fn profile(argument: &str, option: &str) -> Result<Profile, Failure> {
    let names: Vec<&str> = Profile::embedded_names().collect();
    if let Some(text) = Profile::embedded_text(argument) {
        return Profile::parse(text, argument).map_err(Failure::usage);
    }
    let variant = Profile::split_firmware(argument).filter(|_| !Path::new(argument).exists());
    let Some((name, version)) = variant else {
        let text = input::read(argument, option, WHAT, &names)?;
        return Profile::parse(&text, argument).map_err(Failure::usage);
    };
    match Profile::embedded_text(name) {
        Some(text) => Profile::parse_firmware(text, name, version),
        None => Profile::parse_firmware(&input::read(name, option, WHAT, &names)?, name, version),
    }
    .map_err(Failure::usage)
}

/// Rewords the failure for a profile that is a plain argument, not the value of `--device`.
pub fn as_argument(failure: Failure) -> Failure {
    match failure {
        Failure::Usage(message) => Failure::usage(message.trim_start_matches("--device ")),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_named_behind_the_sign_and_a_file_as_written_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let text = Profile::embedded_text("vertex-60gb").unwrap();
        std::fs::write(path("my.toml"), text).unwrap();
        let name = |argument: &str| profile(argument, "device").map(|p| p.name);
        assert_eq!(name("vertex-60gb@1.41").as_deref(), Ok("vertex-60gb@1.41"));
        assert_eq!(name(&path("my.toml@1.3")).as_deref(), Ok("vertex-60gb@1.3"));
        std::fs::write(path("my.toml@1.3"), Profile::embedded_text("sata-small").unwrap()).unwrap();
        assert_eq!(name(&path("my.toml@1.3")).as_deref(), Ok("sata-small"));
        std::fs::create_dir(path("me@home")).unwrap();
        std::fs::write(path("me@home/my.toml"), text).unwrap();
        assert_eq!(name(&path("me@home/my.toml")).as_deref(), Ok("vertex-60gb"));
        assert_eq!(name(&path("me@home/my.toml@1.5")).as_deref(), Ok("vertex-60gb@1.5"));

        let refused = |argument: &str, words: &str| {
            let message = name(argument).unwrap_err().to_string();
            assert!(message.contains(words), "{argument}: {message}");
        };
        refused("vertex-60gb@1.6", "firmware: \"1.6\" is not accepted; expected one of 1.3, 1.4, 1.41, 1.5");
        refused("sata-small@1", "expected none, this profile has no firmware variants");
        refused("nosuch@1", "--device nosuch: neither a built-in name (sata-small");
        refused("nosuch", "--device nosuch: neither a built-in name");
    }
}
