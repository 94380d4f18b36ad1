//! Images in a cache, without building any.

use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use trimwise_linux::kernel_name::check_version;

use super::*;

/// A cache with these images, as `put` leaves them.
fn cache_with(images: &[(&str, &str)]) -> (TempDir, Cache) {
    let dir = tempfile::tempdir().unwrap();
    for (version, recipe) in images {
        let folder = dir.path().join(format!("{version}-{recipe}"));
        fs::create_dir(&folder).unwrap();
        let description = Description {
            version: (*version).to_owned(),
            release: format!("{version}.7"),
            source: format!("linux-source-{version} {version}.7-1"),
            patches: Vec::new(),
            compiler: "gcc".to_owned(),
            recipe: (*recipe).to_owned(),
        };
        fs::write(folder.join("image.json"), serde_json::to_string(&description).unwrap()).unwrap();
        fs::write(folder.join("linux"), "kernel").unwrap();
        fs::set_permissions(folder.join("linux"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(folder.join("preload.so"), "").unwrap();
    }
    let cache = Cache::at(dir.path().to_owned());
    (dir, cache)
}

fn recipe_of(name: &str) -> String {
    recipe(&name.parse().unwrap(), &[])
}

fn folder_of(name: &str) -> String {
    folder(&name.parse().unwrap(), &recipe_of(name))
}

#[test]
fn an_image_is_found_by_its_version() {
    let ours = recipe_of("6.1");
    let (dir, cache) = cache_with(&[("6.1", &ours), ("5.10", &recipe_of("5.10")), ("6.12", "0123456789ab")]);
    let image = cache.find("6.1").unwrap();
    assert_eq!((image.release.as_str(), image.size_bytes, image.is_current()), ("6.1.7", 6, true));
    assert_eq!(image.linux, dir.path().join(format!("6.1-{ours}/linux")));
    let listed: Vec<_> =
        cache.list().unwrap().into_iter().map(|i| (i.name.to_string(), i.is_current())).collect();
    assert_eq!(listed, [("5.10", true), ("6.1", true), ("6.12", false)].map(|(v, c)| (v.to_owned(), c)));
}

#[test]
fn a_package_s_images_come_first_and_stay() {
    let ours = recipe_of("6.1");
    let (package, installed) = cache_with(&[("6.1", &ours), ("6.12", "0123456789ab")]);
    let (dir, own) = cache_with(&[("6.1", &ours), ("6.12", &recipe_of("6.12"))]);
    let cache = Cache { installed: Some(package.path().to_owned()), ..own };
    let of = |version: &str| cache.find(version).unwrap().directory;
    assert_eq!(of("6.1"), package.path().join(folder_of("6.1")));
    // One of another trimwise is passed over.
    assert_eq!(of("6.12"), dir.path().join(folder_of("6.12")));
    assert_eq!(cache.list().unwrap().len(), 4);

    assert_eq!(cache.remove("6.1").unwrap(), 1);
    let told = cache.remove("6.1").unwrap_err().to_string();
    assert!(told.contains("apt-get remove trimwise-kernels"), "{told}");
    assert_eq!(installed.list().unwrap().len(), 2);
}

#[test]
fn an_image_that_is_not_there_comes_with_the_command_that_builds_it() {
    let (_dir, cache) = cache_with(&[("6.12", "0123456789ab")]);
    let says = |version| {
        let error = cache.find(version).unwrap_err();
        assert!(error.is_usage(), "{error}");
        error.to_string()
    };
    assert!(says("6.1").ends_with("trimwise kernel build --version 6.1"), "{}", says("6.1"));
    assert!(says("6.12").contains("not built for this trimwise, only for another"), "{}", says("6.12"));
    assert!(says("6.6").ends_with("--version 6.6 --source DIR|TARBALL"), "{}", says("6.6"));
    let nowhere = Cache::at("/nonexistent/kernels".into());
    assert!(matches!(nowhere.find("6.1"), Err(KernelError::NotBuilt { .. })));
    assert_eq!(nowhere.list().unwrap(), []);
}

#[test]
fn only_numbers_are_versions() {
    for version in ["", "6", "6.", "6.1.2.3", "../6.1", "6.1/..", "6.1-rc1", "v6.1", "6.123456", "6.\u{661}"]
    {
        assert!(matches!(check_version(version), Err(KernelNameError::NoVersion { .. })), "{version}");
    }
    for version in ["6.1", "5.10", "6.6.30"] {
        check_version(version).unwrap();
    }
    let key = |name: &str| name.parse::<KernelName>().unwrap().sort_key();
    assert!(key("5.4") < key("5.10") && key("5.10") < key("5.10+a") && key("5.10+a") < key("5.11"));
}

#[test]
fn a_damaged_image_is_told_and_not_run_but_removed() {
    let ours = recipe_of("6.1");
    let (dir, cache) = cache_with(&[("6.1", &ours), ("6.12", &recipe_of("6.12"))]);
    let folder = dir.path().join(folder_of("6.1"));
    fs::remove_file(folder.join("linux")).unwrap();
    let error = cache.find("6.1").unwrap_err().to_string();
    let replace = "trimwise kernel remove 6.1 && trimwise kernel build --version 6.1";
    assert!(error.contains("linux") && error.ends_with(replace), "{error}");
    // What cannot be run is no kernel: a folder, or a file without that permission.
    fs::create_dir(folder.join("linux")).unwrap();
    let error = cache.find("6.1").unwrap_err().to_string();
    assert!(error.contains("linux: expected a program that can be run"), "{error}");
    fs::remove_dir(folder.join("linux")).unwrap();
    fs::write(folder.join("linux"), "kernel").unwrap();
    fs::set_permissions(folder.join("linux"), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(matches!(cache.find("6.1"), Err(KernelError::Damaged { .. })));
    fs::write(folder.join("image.json"), "{").unwrap();
    assert!(matches!(cache.find("6.1"), Err(KernelError::Damaged { .. })));
    assert_eq!((cache.remove("6.12").unwrap(), cache.remove("6.1").unwrap()), (1, 1));
    assert_eq!(cache.list().unwrap(), []);
}

#[test]
fn a_kernel_of_another_machine_a_half_one_or_one_without_the_file_system_is_told() {
    let (dir, cache) = cache_with(&[("6.1", &recipe_of("6.1"))]);
    let linux = dir.path().join(folder_of("6.1")).join("linux");
    let mut program = fs::read(std::env::current_exe().unwrap()).unwrap();
    let preload = linux.with_file_name("preload.so");
    fs::write(&preload, &program).unwrap();
    let told = |bytes: &[u8], file_system| {
        fs::write(&linux, bytes).unwrap();
        cache.find("6.1").unwrap().check(file_system).map_err(|e| e.to_string())
    };
    assert_eq!(told(&program, None), Ok(()));
    for (bytes, what) in [
        (&program[..program.len() - 1], "is cut off: it has"),
        (&program[..20], "is cut off;"),
        (&[b'#'; 100][..], "is no ELF program"),
    ] {
        let error = told(bytes, None).unwrap_err();
        assert!(error.contains(what) && error.contains("trimwise kernel build --version 6.1"), "{error}");
    }
    fs::write(linux.with_file_name("config"), "CONFIG_EXT4_FS=y\n# CONFIG_XFS_FS is not set\n").unwrap();
    assert_eq!(told(&program, Some(FileSystem::Ext4)), Ok(()));
    let error = told(&program, Some(FileSystem::Xfs)).unwrap_err();
    assert!(error.contains("has no CONFIG_XFS_FS=y, so this kernel cannot mount xfs"), "{error}");
    fs::write(&preload, "").unwrap();
    let error = told(&program, None).unwrap_err();
    assert!(error.contains("preload.so: is cut off"), "{error}");
    fs::write(&preload, &program).unwrap();
    // RISC-V.
    program[18] = 243;
    let error = told(&program, None).unwrap_err();
    assert!(error.contains("is for another machine (ELF number 243)"), "{error}");
}

#[test]
fn what_the_package_has_is_found_though_the_user_s_own_is_damaged() {
    let (package, _) = cache_with(&[("6.1", &recipe_of("6.1"))]);
    let (dir, cache) = cache_with(&[("6.1", &recipe_of("6.1"))]);
    fs::write(dir.path().join(folder_of("6.1")).join("image.json"), "{").unwrap();
    let cache = Cache { installed: Some(package.path().to_owned()), ..cache };
    assert!(cache.find("6.1").unwrap().directory.starts_with(package.path()));
}

#[test]
fn a_kernel_is_removed_with_all_its_images_and_nothing_else() {
    let ours = recipe_of("6.1");
    let (dir, cache) = cache_with(&[("6.1", &ours), ("6.1", "0123456789ab"), ("6.12", &recipe_of("6.12"))]);
    fs::write(cache.log(&"6.1".parse().unwrap(), &ours), "").unwrap();
    assert_eq!(cache.remove("6.1").unwrap(), 2);
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [OsString::from(folder_of("6.12"))]);
    assert!(matches!(cache.remove("6.1"), Err(KernelError::NotBuilt { .. })));
}

#[test]
fn whatever_changes_a_kernel_changes_the_name_of_its_folder() {
    // The hash in existing caches: change it whenever a kernel changes, and only then.
    let names = ["5.10", "6.1", "6.11", "6.12", "6.12+dm", "7.3"];
    let recipes =
        ["e394bdb1116e", "42cbb3519e4c", "42cbb3519e4c", "9c7be66da149", "096ea6fbcc97", "880b06f21604"];
    assert_eq!(names.map(recipe_of), recipes);
}

#[test]
fn all_that_is_missing_is_named_at_once_with_the_command_that_installs_it() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, mode| {
        let path = dir.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let check =
        |download, keyring: &str| tools::check(dir.path().as_os_str(), download, true, Path::new(keyring));
    let all = check(true, "/nonexistent.gpg").unwrap_err().to_string();
    let words = "gcc, make, flex, bison, bc, tar, xz, patch, apt-get, dpkg-deb, /nonexistent.gpg; to install them: apt-get install \
                 gcc libc6-dev make flex bison bc tar xz-utils patch apt dpkg debian-archive-keyring";
    assert!(all.contains(words), "{all}");

    for name in ["gcc", "make", "flex", "bison", "tar", "dnf", "patch"] {
        program(name, 0o755);
    }
    program("bc", 0o644); // there, and no program
    let some = check(false, "/nonexistent.gpg").unwrap_err().to_string();
    assert!(some.ends_with("without bc, xz; to install them: dnf install bc xz"), "{some}");
    let download = check(true, "/").unwrap_err().to_string();
    assert!(download.contains("--source DIR|TARBALL"), "{download}");

    program("bc", 0o755);
    program("xz", 0o755);
    check(false, "/nonexistent.gpg").unwrap();
}

#[test]
fn the_closest_series_is_counted_in_releases() {
    let names = || ["5.10", "6.1", "6.12", "7.3"].into_iter().map(|name| name.parse::<KernelName>().unwrap());
    for (wanted, closest) in [
        ("6.12", "6.12"),
        ("6.12.43-amd64", "6.12"),
        ("6.1.0-39-amd64", "6.1"),
        ("6.18.44", "7.3"),
        ("6.17", "6.12"),
        ("5.15", "5.10"),
        ("2.6.32", "5.10"),
        ("99.0", "7.3"),
        ("4294967295.4294967295", "7.3"),
        ("unknown", "5.10"),
    ] {
        assert_eq!(closest_of(names(), wanted).unwrap().to_string(), closest, "{wanted}");
    }
    // As far from 6.2 as from 6.10: the newer.
    let two = ["6.2", "6.10"].into_iter().map(|name| name.parse().unwrap());
    assert_eq!(closest_of(two, "6.6").unwrap().to_string(), "6.10");
    assert_eq!(closest_of(std::iter::empty(), "6.6"), None);
}
