//! A fake host: sysfs, procfs and fstab in a folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

pub struct Host(pub tempfile::TempDir);

pub const GIB: u64 = 1 << 30;

impl Host {
    /// Creates a host with these mounts, in the format of mountinfo.
    pub fn new(mountinfo: &str) -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        host.file("proc/1/mountinfo", mountinfo);
        host.file("proc/sys/kernel/osrelease", "6.12.43\n");
        host
    }

    pub fn file(&self, path: &str, text: &str) -> &Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    /// Creates an executable file.
    pub fn script(&self, path: &str, text: &str) -> &Self {
        self.file(path, text);
        fs::set_permissions(self.0.path().join(path), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// Creates a device in sysfs; `place` is below /sys/devices.
    pub fn device(&self, place: &str, numbers: &str, discard_max: u64) -> &Self {
        let at = format!("sys/devices/{place}");
        self.file(&format!("{at}/dev"), numbers);
        if !place.contains("/sda/sda") {
            self.file(&format!("{at}/queue/discard_max_bytes"), &discard_max.to_string());
            self.file(&format!("{at}/queue/rotational"), "0");
        }
        self.file(&format!("{at}/stat"), "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17");
        let link = self.0.path().join(format!("sys/dev/block/{numbers}"));
        fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(format!("../../devices/{place}"), link).unwrap();
        let by_name = self.0.path().join("sys/class/block").join(Path::new(place).file_name().unwrap());
        fs::create_dir_all(by_name.parent().unwrap()).unwrap();
        symlink(format!("../../devices/{place}"), by_name).unwrap();
        self
    }

    /// Puts one device on top of another.
    pub fn slave(&self, place: &str, below: &str) -> &Self {
        let slaves = self.0.path().join(format!("sys/devices/{place}/slaves"));
        fs::create_dir_all(&slaves).unwrap();
        symlink(
            self.0.path().join("sys/devices").join(below),
            slaves.join(Path::new(below).file_name().unwrap()),
        )
        .unwrap();
        self
    }
}

/// Path of the SATA drive in sysfs, below /sys/devices.
pub const SDA: &str = "pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda";
