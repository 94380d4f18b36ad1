//! File systems on loop devices over sparse files, for tests that run as root.
//!
//! Each test makes its own image and device, touches no others, and removes both, even if it fails.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use trimwise_linux::tracefs::TRACING;

use crate::{program, scratch, skipped};

/// A file system on its own loop device, perhaps mounted.
pub struct Loop {
    pub image: PathBuf,
    /// `loop3` or `loop3p1`.
    pub device: String,
    pub point: PathBuf,
    disk: String,
    mounted: bool,
    // Fields drop in this order: the first lies in the second.
    _memory: Option<Memory>,
    _directory: tempfile::TempDir,
}

/// A ramfs, in whose files no holes can be punched.
struct Memory(PathBuf);

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

/// Creates a directory for images in which holes can be punched; it is removed when the test ends.
fn directory() -> tempfile::TempDir {
    let directory = scratch();
    // One test looks at the mount as another user.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    directory
}

/// Returns true if loop devices can be made and the programs are installed; otherwise skips the test.
pub fn can_run(programs: &[&str]) -> bool {
    if ["losetup", "mount", "umount"].iter().chain(programs).any(|name| program(name).is_none()) {
        return false;
    }
    let why = if fs::metadata("/proc/self").is_ok_and(|found| found.uid() != 0) {
        "only root may mount"
    } else if fs::OpenOptions::new().write(true).open("/dev/loop-control").is_err() {
        "there are no loop devices"
    } else {
        return true;
    };
    skipped(why);
    false
}

/// Returns true if tracefs is available, after mounting it if necessary; otherwise skips the test.
pub fn can_trace() -> bool {
    let there = || Path::new(TRACING).join("events/ext4").is_dir();
    let mount =
        || Command::new("mount").args(["-t", "tracefs", "nodev", TRACING]).stderr(Stdio::null()).status();
    let found = there() || (mount().is_ok_and(|status| status.success()) && there());
    if !found {
        skipped(&format!("no tracefs at {TRACING}, so no free is seen as it happens"));
    }
    found
}

/// Runs a program that must succeed, and returns its output.
pub fn sh(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {}: {said}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

impl Loop {
    /// Creates and mounts a new file system. `mkfs` is a program and its arguments; the image is appended.
    pub fn new(bytes: u64, mkfs: &[&str]) -> Self {
        let mut made = Self::attached(directory(), |image| {
            fs::File::create(image).unwrap().set_len(bytes).unwrap();
            let image = image.to_str().unwrap();
            sh(mkfs[0], &[&mkfs[1..], &[image]].concat());
        });
        made.mount();
        made
    }

    pub fn ext4(bytes: u64) -> Self {
        // Disable background initialisation of inode tables, which would write while a test counts.
        Self::new(bytes, &["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
    }

    pub fn xfs(bytes: u64) -> Self {
        Self::new(bytes, &["mkfs.xfs", "-q", "-f", "-K"])
    }

    /// Creates a device of zeros.
    pub fn blank(bytes: u64) -> Self {
        Self::attached(directory(), |image| fs::File::create(image).unwrap().set_len(bytes).unwrap())
    }

    /// Returns its node in `/dev`.
    pub fn node(&self) -> PathBuf {
        Path::new("/dev").join(&self.device)
    }

    /// Returns the node of the disk, or the device's own if it is not a partition.
    pub fn disk_node(&self) -> PathBuf {
        Path::new("/dev").join(&self.disk)
    }

    /// Copies the contents to another device, without mounting it.
    pub fn copy(&self) -> Self {
        Self::attached(directory(), |image| {
            sh("cp", &["--sparse=always", self.image.to_str().unwrap(), image.to_str().unwrap()]);
        })
    }

    /// Creates a disk with one partition that begins at `start_sectors`, with a mounted file system in it.
    pub fn partition(bytes: u64, start_sectors: u32, mkfs: &[&str]) -> Self {
        let mut made = Self::attached(directory(), |image| {
            fs::File::create(image).unwrap().set_len(bytes).unwrap();
        });
        // Not every kernel reads partition tables.
        let (start, length) =
            (start_sectors.to_string(), (bytes / 512 - u64::from(start_sectors)).to_string());
        sh("addpart", &[&format!("/dev/{}", made.disk), "1", &start, &length]);
        made.device = format!("{}p1", made.disk);
        let node = format!("/dev/{}", made.device);
        sh(mkfs[0], &[&mkfs[1..], &[node.as_str()]].concat());
        made.mount();
        made
    }

    /// Creates an ext4 on a device that takes no discards.
    pub fn without_discards() -> Self {
        let directory = directory();
        let path = directory.path().join("memory");
        fs::create_dir(&path).unwrap();
        sh("mount", &["-t", "ramfs", "ramfs", path.to_str().unwrap()]);
        let memory = Memory(path);
        let mut made = Self::attached_at(directory, Some(memory), |image| {
            fs::File::create(image).unwrap().set_len(32 << 20).unwrap();
            sh("mkfs.ext4", &["-q", "-F", image.to_str().unwrap()]);
        });
        made.mount();
        made
    }

    fn attached(directory: tempfile::TempDir, make: impl FnOnce(&Path)) -> Self {
        Self::attached_at(directory, None, make)
    }

    fn attached_at(directory: tempfile::TempDir, memory: Option<Memory>, make: impl FnOnce(&Path)) -> Self {
        let of_image = memory.as_ref().map_or(directory.path(), |memory| &memory.0);
        let (image, point) = (of_image.join("image"), directory.path().join("mounted"));
        fs::create_dir(&point).unwrap();
        make(&image);
        let disk = attach(&image);
        let made = Self {
            image,
            device: disk.clone(),
            point,
            disk,
            mounted: false,
            _memory: memory,
            _directory: directory,
        };
        // An earlier user of this device may have left a limit on it.
        let _ = fs::write(made.limit_path(), UNLIMITED.to_string());
        made
    }

    pub fn mount(&mut self) {
        let node = format!("/dev/{}", self.device);
        sh("mount", &[&node, self.point.to_str().unwrap()]);
        self.mounted = true;
    }

    pub fn unmount(&mut self) {
        sh("umount", &[self.point.to_str().unwrap()]);
        self.mounted = false;
    }

    /// Records that it was unmounted elsewhere.
    pub fn was_unmounted(&mut self) {
        self.mounted = false;
    }

    /// Mounts again, so that nothing is remembered as trimmed.
    pub fn remount(&mut self) {
        self.unmount();
        self.mount();
    }

    /// Limits discards to this many bytes. Never 0: the kernel would forget the granularity too, and accept no other
    /// limit from then on, even from the device's next user.
    pub fn limit_discards(&self, bytes: u64) {
        assert!(bytes > 0);
        fs::write(self.limit_path(), bytes.to_string()).unwrap();
    }

    fn limit_path(&self) -> String {
        format!("/sys/block/{}/queue/discard_max_bytes", self.disk)
    }

    /// Returns the commands and bytes of the discards that the kernel counted. Reads them without the code under test.
    pub fn discards(&self) -> (u64, u64) {
        let text = fs::read_to_string(format!("/sys/class/block/{}/stat", self.device)).unwrap();
        let fields: Vec<u64> = text.split_whitespace().map(|field| field.parse().unwrap()).collect();
        (fields[11], fields[13] * 512)
    }

    /// Returns the bytes that the image occupies.
    pub fn allocated(&self) -> u64 {
        sh("sync", &["-f", self.image.to_str().unwrap()]);
        fs::metadata(&self.image).unwrap().blocks() * 512
    }

    /// Writes files of this size to the disk.
    pub fn fill(&self, names: impl IntoIterator<Item = String>, bytes: usize) {
        let data: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 | 1).collect();
        for name in names {
            fs::write(self.point.join(name), &data).unwrap();
        }
        self.sync();
    }

    pub fn sync(&self) {
        sh("sync", &["-f", self.point.to_str().unwrap()]);
    }

    /// Makes free extents of many lengths: removes every other of `files` files of 60 KiB, and one large file.
    pub fn fragment(&self, files: usize) {
        self.fill(["large".to_string()], 64 << 20);
        self.fill((0..files).map(|i| format!("small{i}")), 60 << 10);
        for i in (0..files).step_by(2) {
            fs::remove_file(self.point.join(format!("small{i}"))).unwrap();
        }
        fs::remove_file(self.point.join("large")).unwrap();
        self.sync();
    }
}

/// The highest limit that the kernel accepts: 32 bits, in multiples of the granularity.
const UNLIMITED: u64 = (1 << 32) - 4096;

fn attach(image: &Path) -> String {
    let node = sh("losetup", &["-f", "--show", image.to_str().unwrap()]);
    node.trim().strip_prefix("/dev/").unwrap().to_string()
}

impl Drop for Loop {
    fn drop(&mut self) {
        // Do not assert here: the test may already be failing.
        let run = |program: &str, arguments: &[&str]| {
            let mut command = Command::new(program);
            let status = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        if self.mounted {
            // A killed helper may hold the mount for a moment longer.
            let point = self.point.to_str().unwrap_or_default();
            let gone = (0..50).any(|_| {
                run("umount", &[point]) || {
                    std::thread::sleep(std::time::Duration::from_millis(100));
                    false
                }
            });
            if !gone {
                eprintln!("{point} could not be unmounted: it is removed when no longer in use");
                run("umount", &["--lazy", point]);
            }
        }
        let _ = fs::write(self.limit_path(), UNLIMITED.to_string());
        if self.device != self.disk {
            run("delpart", &[&format!("/dev/{}", self.disk), "1"]);
        }
        run("losetup", &["-d", &format!("/dev/{}", self.disk)]);
    }
}
