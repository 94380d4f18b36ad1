//! Resolves arguments to input files, profiles and policies.

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use trimwise::block::thin::ThinConfig;
use trimwise::failure::{Failure, Key, Mistake, argument, set};
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise::profile::{Profile, ProfileError};
use trimwise::spelling::Accepted;
use trimwise::units::Bytes;
use trimwise::words;
use trimwise_linux::files::read_input;

use crate::given::Given;

/// Rejects a block device given instead of a mounted file system.
pub fn expect_mount(key: &'static str, path: &Path) -> Result<(), Failure> {
    let is_device = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_block_device());
    let shown = path.display();
    match is_device {
        false => Ok(()),
        true => Err(Mistake::of(argument(key), &shown)
            .because("a block device")
            .expected(format!("a mount point of it, which `findmnt {shown}` shows"))
            .fail()),
    }
}

/// Reads an input file.
///
/// Sensible input is far below a mebibyte. A device file or a disk image given by mistake is rejected instead of read
/// to its end.
pub fn read<'a>(
    argument: &'a str,
    key: impl Into<Key>,
    what: &str,
    names: &[&'a str],
) -> Result<String, Failure> {
    const BYTES_MAX: u64 = 1 << 20;

    let of = Mistake::of(key, argument);
    let fail = |reason: String| Err(of.clone().because(reason).fail());
    if let Ok(found) = std::fs::metadata(argument) {
        if found.is_dir() {
            return fail(format!("a directory, not {what}"));
        }
        if found.file_type().is_block_device() {
            return fail(format!(
                "a block device, not {what}; `bench` and `verify` take the device itself as dev:{argument}"
            ));
        }
    }
    let bytes = match read_input(Path::new(argument), BYTES_MAX + 1) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if names.is_empty() {
                return Err(of.because("there is no such file").expected(what).fail());
            }
            // Workload names may carry arguments.
            let head = |text: &'a str| text.split([':', '[']).next().unwrap_or(text);
            let all = format!("{what}, or one of {}", names.join(", "));
            let accepted = Accepted::instead_of(head(argument), names.iter().map(|name| head(name)), all);
            return Err(of.because("neither a built-in name nor a file").expected(accepted).fail());
        }
        Err(e) if e.kind() == ErrorKind::NotADirectory => {
            return fail("there is no such file, since a part of its path is not a directory".to_owned());
        }
        Err(e) => return Err(of.because(e.to_string()).expected(what).fail()),
    };
    if bytes.len() as u64 > BYTES_MAX {
        return fail(format!("larger than 1 MiB: this is not {what}"));
    }
    String::from_utf8(bytes).or_else(|_| fail(format!("not UTF-8 text: this is not {what}")))
}

const WHAT: &str = "a profile (TOML)";

/// Finds a profile by NAME, FILE, NAME@VERSION or FILE@VERSION, where the version selects a firmware variant. A file
/// with exactly this name takes precedence over a variant.
pub fn profile(argument: &str, key: impl Into<Key>) -> Result<Profile, Failure> {
    profile_or(argument, key, WHAT)
}

/// Finds a profile as [`profile`] does, where `what` is accepted.
pub fn profile_or(argument: &str, key: impl Into<Key>, what: &str) -> Result<Profile, Failure> {
    let names: Vec<&str> = Profile::embedded_names().collect();
    let refused = |error: ProfileError| error.mistake().fail();
    if let Some(text) = Profile::embedded_text(argument) {
        return Profile::parse(text, argument).map_err(refused);
    }
    let variant = Profile::split_firmware(argument).filter(|_| !Path::new(argument).exists());
    let Some((name, version)) = variant else {
        let text = read(argument, key, what, &names)?;
        return Profile::parse(&text, argument).map_err(refused);
    };
    match Profile::embedded_text(name) {
        Some(text) => Profile::parse_firmware(text, name, version),
        None => Profile::parse_firmware(&read(name, key, what, &names)?, name, version),
    }
    .map_err(refused)
}

/// Finds a device by NAME, NAME:SIZE, which cuts it to that capacity, or either with +KIND:CHUNK, which puts thin storage on
/// it. Returns it with the name for tables.
pub fn device(argument: &str) -> Result<(String, Profile), Failure> {
    let Some((drive, volume)) = ThinConfig::split(argument).filter(|_| !Path::new(argument).exists()) else {
        return drive(argument);
    };
    let of = Mistake::of("devices", argument);
    let thin: ThinConfig = volume.parse().map_err(|error| of.clone().because(error).fail())?;
    let (name, mut profile) = self::drive(drive)?;
    let capacity = Bytes(profile.config.capacity_bytes);
    if thin.chunk > capacity {
        let why = format!("a chunk of {} is larger than {name}, which has {capacity}", thin.chunk);
        return Err(of.because(why).expected("at most that").fail());
    }
    profile.thin = Some(thin);
    profile.name = format!("{name}+{thin}");
    Ok((profile.name.clone(), profile))
}

fn drive(argument: &str) -> Result<(String, Profile), Failure> {
    let cut =
        argument.rsplit_once(':').and_then(|(whole, size)| Some((whole, size, size.parse::<Bytes>().ok()?)));
    let Some((whole, size, capacity)) = cut.filter(|_| !Path::new(argument).exists()) else {
        let profile = profile(argument, "devices")?;
        return Ok((profile.name.clone(), profile));
    };
    let mut profile = profile(whole, "devices")?;
    let of = Mistake::of("devices", argument);
    if capacity.0 > profile.config.capacity_bytes {
        let most = Bytes(profile.config.capacity_bytes);
        return Err(of.because(format!("{} has {most}", profile.name)).expected("at most that").fail());
    }
    profile.config =
        profile.config.scaled(capacity.0).map_err(|error| of.because(error.to_string()).fail())?;
    profile.name = format!("{}:{size}", profile.name);
    Ok((profile.name.clone(), profile))
}

/// Parses a policy; returns it with the name for tables.
pub fn policy(argument: &str) -> Result<(String, PolicySpec), Failure> {
    let policy = usual_name(argument).parse::<PolicySpec>().map_err(|e| of_policy(e).fail())?;
    Ok((policy.to_string(), policy))
}

/// Returns a policy of the model, or one that the daemon or the target follows, with its name for tables.
pub fn trimmer(asked: &Given<PolicyId>) -> Result<(String, Trimmer), Failure> {
    let policy = asked.value().map_err(|why| why.clone().fail())?;
    let trimmer = policy.known().ok_or_else(|| {
        let of = Mistake::of("policies", asked).because("the model does not have this policy of btrfs");
        of.expected(words![set("fs", "btrfs"), ", which runs on a kernel"]).fail()
    })?;
    Ok((trimmer.to_string(), trimmer))
}

/// The mistake in the text of a policy, which the error repeats.
fn of_policy(error: impl std::fmt::Display) -> Mistake {
    Mistake::on("policies").because(error.to_string())
}

pub fn usual_name(policy: &str) -> String {
    match policy {
        "discard" => "commit".to_owned(),
        "nodiscard" | "none" => "off".to_owned(),
        // Distributions ship a weekly timer.
        "fstrim" => "batch:1w".to_owned(),
        other => other.strip_prefix("fstrim:").map_or(other.to_owned(), |every| format!("batch:{every}")),
    }
}

/// Resolves arguments, and rejects duplicates under different spellings.
pub fn distinct<A: fmt::Display, T>(
    arguments: &[A],
    key: &'static str,
    resolve: impl Fn(&A) -> Result<(String, T), Failure>,
) -> Result<Vec<T>, Failure> {
    Ok(named(arguments, key, resolve)?.into_iter().map(|(_, value)| value).collect())
}

/// Resolves arguments, and rejects duplicates, which would give the table two columns of one name.
pub fn named<A: fmt::Display, T>(
    arguments: &[A],
    key: &'static str,
    resolve: impl Fn(&A) -> Result<(String, T), Failure>,
) -> Result<Vec<(String, T)>, Failure> {
    let mut resolved: Vec<(String, T)> = Vec::new();
    for argument in arguments {
        let (name, value) = resolve(argument)?;
        if let Some(earlier) = resolved.iter().position(|(n, _)| *n == name) {
            let [first, second] = [&arguments[earlier], argument].map(ToString::to_string);
            return Err(given_twice(Mistake::of(key, argument), &name, &first, &second));
        }
        resolved.push((name, value));
    }
    Ok(resolved)
}

/// Rejects a list that has `name` twice, and quotes both spellings.
pub fn given_twice(of: Mistake, name: &str, first: &str, second: &str) -> Failure {
    let twice = if first == second {
        format!("'{first}' is given twice")
    } else {
        format!("'{name}' is given twice, as '{first}' and as '{second}'")
    };
    of.because(twice).expected("each once").fail()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thin_storage_is_put_on_a_device_by_its_name() {
        use trimwise::block::thin::ThinKind;

        for (given, name, thin) in [
            ("sata-small", "sata-small", None),
            ("sata-small+64KiB", "", None),
            ("sata-small+thin:65536", "sata-small+thin:64KiB", Some((ThinKind::Pool, Bytes::kib(64)))),
            (
                "sata-small:2GiB+qcow2:2MiB",
                "sata-small:2GiB+qcow2:2MiB",
                Some((ThinKind::Qcow2, Bytes::mib(2))),
            ),
        ] {
            let found = device(given);
            assert_eq!(found.is_err(), name.is_empty(), "{given}");
            let Ok((found, profile)) = found else { continue };
            let of_profile = profile.thin.map(|thin| (thin.kind, thin.chunk));
            assert_eq!((&*found, &*profile.name, of_profile), (name, name, thin), "{given}");
        }
        for (given, told) in [
            ("sata-small+thin:3KiB", "chunks of 3 KiB do not exist: expected a multiple of 4 KiB"),
            (
                "sata-small:512MiB+thin:1GiB",
                "a chunk of 1 GiB is larger than sata-small:512MiB, which has 512 MiB",
            ),
        ] {
            let Err(Failure::Usage(why)) = device(given) else { panic!("{given}") };
            assert!(why.to_string().contains(told), "{given}: {why}");
        }
    }

    #[test]
    fn variants_are_named_behind_the_sign_and_a_file_as_written_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name).display().to_string();
        let text = Profile::embedded_text("vertex-60gb").unwrap();
        std::fs::write(path("my.toml"), text).unwrap();
        let name = |argument: &str| profile(argument, "devices").map(|p| p.name);
        assert_eq!(name("vertex-60gb@1.41").as_deref(), Ok("vertex-60gb@1.41"));
        assert_eq!(name(&path("my.toml@1.3")).as_deref(), Ok("vertex-60gb@1.3"));
        std::fs::write(path("my.toml@1.3"), Profile::embedded_text("sata-small").unwrap()).unwrap();
        assert_eq!(name(&path("my.toml@1.3")).as_deref(), Ok("sata-small"));
        std::fs::create_dir(path("me@home")).unwrap();
        std::fs::write(path("me@home/my.toml"), text).unwrap();
        assert_eq!(name(&path("me@home/my.toml")).as_deref(), Ok("vertex-60gb"));
        assert_eq!(name(&path("me@home/my.toml@1.5")).as_deref(), Ok("vertex-60gb@1.5"));

        let cut = device("sata-generic:16GiB").unwrap();
        assert_eq!((&*cut.0, cut.1.config.capacity_bytes), ("sata-generic:16GiB", 16 << 30));
        let (cut, _) = device(&format!("{}:1GiB", path("my.toml@1.3"))).unwrap();
        assert_eq!(cut, "sata-small:1GiB", "the file as written goes first");
        for (argument, words) in [
            ("sata-small:9GiB", "--device sata-small:9GiB: sata-small has 8 GiB; expected at most that"),
            ("sata-small:1", "--device sata-small:1: "),
            ("sata-small:x", "neither a built-in name nor a file"),
        ] {
            let message = device(argument).unwrap_err().to_string();
            assert!(message.contains(words), "{argument}: {message}");
        }

        let refused = |argument: &str, words: &str| {
            let message = name(argument).unwrap_err().to_string();
            assert!(message.contains(words), "{argument}: {message}");
        };
        refused("vertex-60gb@1.6", "firmware: \"1.6\" is not accepted; expected one of 1.3, 1.4, 1.41, 1.5");
        refused("sata-small@1", "expected none, this profile has no firmware variants");
        refused(
            "nosuch@1",
            "--device nosuch: neither a built-in name nor a file; expected a profile (TOML), or one of sata-small",
        );
        refused("nosuch", "--device nosuch: neither a built-in name");
    }
}
