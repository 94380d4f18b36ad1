//! Runs that a real directory rejects, and the absence of leftovers in it.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use trimwise::files::{FileError, Files, OpenMode};
use trimwise::units::Bytes;
use trimwise::workload::postmark::{PostmarkConfig, run};
use trimwise_linux::{DirectoryError, RealDirectory, block_on};
use trimwise_testing::{directory, open};

fn config(text: &str) -> PostmarkConfig {
    PostmarkConfig::parse(text, "test").unwrap().runs.remove(0).config
}

fn refusal(path: &Path, text: &str) -> String {
    let target = RealDirectory::open(path, Arc::default()).unwrap();
    target.plan(&config(text)).unwrap_err().to_string()
}

#[test]
fn anything_but_a_writable_directory_is_refused() {
    let work = directory(false);
    let message = |path: &Path| RealDirectory::open(path, Arc::default()).unwrap_err().to_string();
    let file = work.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(message(&file), format!("{}: not a directory", file.display()));
    let missing = work.path().join("missing");
    assert_eq!(message(&missing), format!("{}: no such directory", missing.display()));
    assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 1);
    // The superuser may write anywhere except on a file system like this one.
    let proc = RealDirectory::open(Path::new("/proc"), Arc::default());
    assert!(
        matches!(proc, Err(DirectoryError::ReadOnly { .. } | DirectoryError::NotWritable { .. }))
            || is_root()
    );
    std::fs::set_permissions(work.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
    let locked = RealDirectory::open(work.path(), Arc::default());
    assert!(matches!(locked, Err(DirectoryError::NotWritable { .. })) || is_root());
    std::fs::set_permissions(work.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn names_that_postmark_would_use_are_refused() {
    let work = directory(false);
    let path = |name: &str| work.path().join(name);
    std::fs::write(path("12"), "mine").unwrap();
    std::fs::write(path("7"), "mine").unwrap();
    std::fs::create_dir(path("s1")).unwrap();
    let occupied = |name: &str| {
        format!(
            "{}: already exists, and the workload would use that name; give an empty directory",
            path(name).display()
        )
    };
    assert_eq!(refusal(work.path(), "set number 20\n"), occupied("7"));
    assert_eq!(refusal(work.path(), "set subdirectories 2\n"), occupied("s1"));
    // Names that this run does not use are no obstacle, nor is another location.
    let target = open(&work);
    let few = "set number 2\nset transactions 10\nset bias create 0\n";
    assert!(target.plan(&config(few)).is_ok());
    assert!(target.plan(&config("set location elsewhere\n")).is_ok());
    assert_eq!(std::fs::read_to_string(path("7")).unwrap(), "mine");
}

#[test]
fn a_run_that_does_not_fit_is_refused() {
    let work = directory(false);
    let message = refusal(work.path(), "set number 1000000\nset size 1000000000\nset transactions 10\n");
    assert!(message.contains("the run needs at least 909.") && message.ends_with(" are free"), "{message}");
    // The pool alone would fit, but not after the transactions.
    let target = open(&work);
    let number = block_on(target.statfs()).unwrap().unwrap().free.0 / 4 * 3 / 65_536;
    let grows = |transactions: u64| {
        format!("set number {number}\nset size 65536\nset bias create 10\nset transactions {transactions}\n")
    };
    assert!(target.plan(&config(&grows(10))).is_ok());
    let needed = Bytes(number * 2 * 65_536).to_string();
    let message = refusal(work.path(), &grows(number));
    assert!(message.contains(&needed), "{message}, but {needed} are needed");
}

#[test]
fn no_location_leads_out() {
    let work = directory(false);
    let outside = directory(false);
    symlink(outside.path(), work.path().join("link")).unwrap();
    std::fs::write(work.path().join("file"), "").unwrap();
    let leads_out = format!(
        "{}: leads out of the directory under test (a symbolic link or another mount)",
        work.path().join("link").display()
    );
    assert_eq!(refusal(work.path(), "set location link\n"), leads_out);
    assert_eq!(refusal(work.path(), "set location link/x\n"), leads_out);
    let not_a_directory = format!("{}: not a directory", work.path().join("file").display());
    assert_eq!(refusal(work.path(), "set location file/x\n"), not_a_directory);
    for location in ["/", "/tmp", "../x", "a/../../x"] {
        let message = refusal(work.path(), &format!("set location {location}\n"));
        assert!(message.starts_with(&format!("set location: '{location}' is not accepted")), "{message}");
    }
    let target = open(&work);
    for path in ["/tmp/x", "../x", "a/../x", "link/x", ""] {
        assert!(block_on(target.open(path, OpenMode::Create)).unwrap().is_err(), "{path} was opened");
        assert!(block_on(target.mkdir(path)).unwrap().is_err(), "{path} was made");
        assert!(block_on(target.unlink(path)).unwrap().is_err(), "{path} was removed");
    }
    assert!(block_on(target.open("link", OpenMode::Read)).unwrap().is_err());
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

/// A parent was checked once and then used by name.
#[test]
fn regression_a_link_in_the_place_of_a_directory_leads_nowhere() {
    let (work, outside) = (directory(false), directory(false));
    let target = open(&work);
    block_on(target.mkdir("own")).unwrap().unwrap();
    block_on(target.open("own/first", OpenMode::Create)).unwrap().unwrap();
    std::fs::rename(work.path().join("own"), work.path().join("moved")).unwrap();
    symlink(outside.path(), work.path().join("own")).unwrap();
    std::fs::write(outside.path().join("first"), "somebody's").unwrap();
    block_on(target.open("own/second", OpenMode::Create)).unwrap().unwrap();
    block_on(target.mkdir("own/below")).unwrap().unwrap();
    block_on(target.unlink("own/first")).unwrap().unwrap();
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert!(work.path().join("moved/second").exists() && work.path().join("moved/below").exists());
}

#[test]
fn locations_may_be_absolute_and_written_through_a_link() {
    let work = directory(true);
    let elsewhere = directory(false);
    let link = elsewhere.path().join("link");
    symlink(work.path(), &link).unwrap();
    let target = RealDirectory::open(&link, Arc::default()).unwrap();
    for (written, expected) in
        [(work.path().to_owned(), ""), (link.join("a"), "a"), (work.path().join("b/./c/"), "b/c")]
    {
        let config = config(&format!("set location {}\n", written.display()));
        assert_eq!(target.plan(&config).unwrap().locations[0].path, expected);
    }
}

#[test]
fn an_interrupted_run_removes_what_it_made() {
    let work = directory(false);
    std::fs::write(work.path().join("mine"), "mine").unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let target = RealDirectory::open(work.path(), Arc::clone(&flag)).unwrap();
    let text =
        "set number 50\nset transactions 100\nset location x/y\nset location +z\nset subdirectories 3\n";
    let config = target.plan(&config(text)).unwrap();
    for at in [1, 30, 60, 120] {
        flag.store(false, Ordering::Relaxed);
        let mut operations = 0;
        let mut interrupt = |_| {
            operations += 1;
            if operations == at {
                assert!(work.path().join("x/y/s0").is_dir(), "the run is not under way");
                flag.store(true, Ordering::Relaxed);
            }
        };
        let error = block_on(run(&target, &config, &mut interrupt)).unwrap().unwrap_err();
        assert!(error.is_interrupt() && target.is_interrupted(), "{error}");
        let left: Vec<_> = std::fs::read_dir(work.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["mine"], "after {at} operations");
    }
}

#[test]
fn a_file_holds_what_was_written() {
    let work = directory(false);
    let target = open(&work);
    let write = |mode, data: &'static [u8]| {
        block_on(async {
            let mut file = target.open("f", mode).await?;
            target.write(&mut file, data).await?;
            target.fsync(&mut file).await?;
            target.close(file).await
        })
        .unwrap()
    };
    write(OpenMode::Create, b"0123456789").unwrap();
    write(OpenMode::Append, b"ab").unwrap();
    write(OpenMode::CreateKeep, b"xy").unwrap();
    let read = block_on(async {
        let mut buffer = [0; 100];
        let mut file = target.open("f", OpenMode::Read).await?;
        target.seek(&mut file, 1).await?;
        let got = target.read(&mut file, &mut buffer).await?;
        Ok::<_, FileError>(buffer[..got].to_vec())
    });
    assert_eq!(read.unwrap().unwrap(), b"y23456789ab");
    write(OpenMode::Create, b"z").unwrap();
    assert_eq!(std::fs::read(work.path().join("f")).unwrap(), b"z");
    let missing = block_on(target.open("g", OpenMode::Append)).unwrap().unwrap_err();
    assert_eq!(missing, FileError::NotFound { path: "g".to_owned() });
    let space = block_on(target.statfs()).unwrap().unwrap();
    assert!(space.free <= space.total && space.total.0 > 0);
    assert_eq!(block_on(target.mkdir("f")).unwrap(), Err(FileError::Exists { path: "f".to_owned() }));
}
