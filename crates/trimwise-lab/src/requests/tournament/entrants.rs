//! The user's own policies: finds them in a folder, and says how to start each.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use trimwise::failure::{Failure, Mistake, argument, set};
use trimwise::policy::{Policy, PolicyId};
use trimwise::words;
use trimwise_linux::files::read_input;
use trimwise_linux::kept::hash;

use super::process::Start;
use super::{RULES_FILE, TournamentRequest};
use trimwise_study::caller::Caller;
use trimwise_study::sweep::Named;

/// Runs a policy written in Python, without needing any package.
const HARNESS: &str = include_str!("../../../../../python/trimwise/governor.py");
/// Largest file of a policy: a program with all its debugging information.
const BYTES_MAX: u64 = 1 << 30;

/// A file that takes part.
pub struct Entrant {
    /// The file's name.
    pub name: String,
    /// Hash of the file or, for a policy in Rust, of the program built from it.
    pub sha256: String,
    /// How to start it, or why it cannot be started.
    pub start: Result<Start, String>,
}

impl Entrant {
    /// Returns the policy's identifier in results.
    pub fn id(&self) -> PolicyId {
        PolicyId::Named(self.name.as_str().into())
    }

    /// Returns the file's name with its hash.
    pub fn named(&self) -> Named {
        Named { name: self.name.clone(), sha256: self.sha256.clone() }
    }

    /// Returns the policy, which starts a new process for each governor.
    pub fn policy(&self) -> Result<Policy, String> {
        let start = self.start.clone()?;
        Ok(Policy::new(&self.name, move || start.governor()))
    }
}

/// Finds the policies in a folder, in the order of their names. Fails if a file cannot be read, or if something needed
/// to run a policy is missing.
pub fn find(
    request: &TournamentRequest,
    patience: Duration,
    stop: &Arc<AtomicBool>,
    caller: &dyn Caller,
) -> Result<Vec<Entrant>, Failure> {
    let folder = &request.dir;
    let failed = |path: &Path, error: &dyn std::fmt::Display| {
        Mistake::that(format!("{}: {error}", path.display())).fail()
    };
    let folder = fs::canonicalize(folder).map_err(|error| {
        let expected =
            "an existing folder, which may be empty: then only the policies of the rules take part";
        let of = Mistake::of(argument("dir"), folder.display());
        of.because(error.to_string()).expected(expected).fail()
    })?;
    let mut files = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|error| failed(&folder, &error))? {
        let path = entry.map_err(|error| failed(&folder, &error))?.path();
        // Symbolic links count as the file that they point to.
        let is_file = fs::metadata(&path).is_ok_and(|found| found.is_file());
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if is_file && !name.starts_with('.') && name != RULES_FILE {
            files.push((name, path));
        }
    }
    files.sort();
    let mut entrants = Vec::new();
    for (name, path) in files {
        let start =
            |words: Vec<OsString>| Start { words, folder: folder.clone(), patience, stop: Arc::clone(stop) };
        let is_executable = fs::metadata(&path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0);
        let extension = path.extension().unwrap_or_default().to_string_lossy().into_owned();
        let words = match &*extension {
            "py" => {
                expect_program("python3", "Python 3.10 or later", &name)?;
                Ok(vec!["python3".into(), "-B".into(), "-c".into(), HARNESS.into(), path.clone().into()])
            }
            "rs" if request.is_dry => Ok(Vec::new()),
            "rs" => {
                compiled(&name, &path, request.source.as_deref(), caller)?.map(|built| vec![built.into()])
            }
            _ if is_executable => Ok(vec![path.clone().into()]),
            _ => {
                let expected = "a policy is a .py, a .rs or an executable file";
                caller.note(&format!("{name} does not take part: {expected}"));
                continue;
            }
        };
        // For Rust, hash the program: the library that it was built with matters too.
        let built = words.as_ref().ok().and_then(|words| words.first()).filter(|_| extension == "rs");
        let decides = built.map_or(path.as_path(), Path::new);
        let bytes = read_input(decides, BYTES_MAX).map_err(|error| failed(decides, &error))?;
        entrants.push(Entrant { name, sha256: hash(&bytes), start: words.map(start) });
    }
    Ok(entrants)
}

/// Rejects a policy that needs a program which is not installed.
fn expect_program(program: &str, what: &str, policy: &str) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().map(drop).map_err(|error| {
        let why = format!("{policy}: needs {program}: {error}");
        Mistake::that(why).expected(format!("{what} on the PATH")).fail()
    })
}

/// Compiles a policy in Rust with the library of a checkout. Returns the program, or why it does not compile.
fn compiled(
    name: &str,
    file: &Path,
    source: Option<&Path>,
    caller: &dyn Caller,
) -> Result<Result<PathBuf, String>, Failure> {
    let expected = "a checkout of trimwise's source, whose library it is compiled with";
    let Some(source) = source else {
        let why = words![format!("{name}: needs "), set("source", "CHECKOUT")];
        return Err(Mistake::that(why).expected(expected).fail());
    };
    let refuse = |why: &dyn std::fmt::Display| {
        Mistake::of("source", source.display()).because(why.to_string()).expected(expected).fail()
    };
    let library = source.join("crates/trimwise");
    let library = library.canonicalize().map_err(|error| refuse(&format!("crates/trimwise: {error}")))?;
    let lock =
        fs::read(source.join("Cargo.lock")).map_err(|error| refuse(&format!("Cargo.lock: {error}")))?;
    expect_program("cargo", "a Rust toolchain", name)?;
    let cache = cache().ok_or_else(|| {
        let why = format!("{name}: nowhere to compile it");
        Mistake::that(why).expected("XDG_CACHE_HOME or HOME to be set").fail()
    })?;
    let package =
        format!("policy-{}", &hash(format!("{} {}", file.display(), library.display()).as_bytes())[..12]);
    let folder = cache.join(&package);
    let failed = |error: std::io::Error| Failure::run(format!("{}: {error}", folder.display()));
    let quoted = |path: &Path| toml::Value::String(path.display().to_string()).to_string();
    // Uses the versions of the library's lock file, and as little optimisation as is worthwhile.
    let manifest = format!(
        "[package]\nname = \"{package}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
         [[bin]]\nname = \"{package}\"\npath = {}\n\n\
         [dependencies]\ntrimwise = {{ path = {} }}\n\n\
         [profile.release]\nopt-level = 1\nstrip = true\n\n[workspace]\n",
        quoted(file),
        quoted(&library),
    );
    fs::create_dir_all(&folder).map_err(failed)?;
    fs::write(folder.join("Cargo.toml"), manifest).map_err(failed)?;
    fs::write(folder.join("Cargo.lock"), lock).map_err(failed)?;
    caller.note(&format!("{name}: compiling; the first time takes a minute or two"));
    let target = cache.join("target");
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--quiet", "--color", "never"]).current_dir(&folder);
    cargo.env("CARGO_TARGET_DIR", &target).stdin(Stdio::null());
    let built = cargo.output().map_err(failed)?;
    if built.status.success() {
        return Ok(Ok(target.join("release").join(&package)));
    }
    let said = String::from_utf8_lossy(&built.stderr);
    let errors: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("error")).take(6).collect();
    Ok(Err(format!("does not compile: {}", errors.join(" / "))))
}

/// Returns the folder in which compiled policies are kept.
fn cache() -> Option<PathBuf> {
    let of = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = of("XDG_CACHE_HOME").or_else(|| of("HOME").map(|home| home.join(".cache")))?;
    Some(cache.join("trimwise/tournament"))
}
