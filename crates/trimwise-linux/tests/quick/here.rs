//! The drives below a directory, on fake hosts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use trimwise::units::Bytes;
use trimwise_linux::doctor::Transport;
use trimwise_linux::here::Here;
use trimwise_linux::host_root::HostRoot;

use trimwise_testing::fake_host::{GIB, Host, SDA};

const NVME: &str = "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1";

/// On a controller that is no SATA port.
const LUN: &str = "pci0000:00/host2/target2:0:0/2:0:0:0/block/sdc";

fn look(host: &Host, path: &str) -> Here {
    fs::create_dir_all(host.0.path().join(path.trim_start_matches('/'))).unwrap();
    Here::of(&HostRoot::new(host.0.path()), Path::new("/run/trimwise"), Path::new(path)).unwrap()
}

fn names(here: &Here) -> Vec<&str> {
    here.drives.iter().map(|drive| drive.name.as_str()).collect()
}

/// A disk with a model and a size in GiB.
fn disk(host: &Host, place: &str, numbers: &str, model: &str, gib: u64) {
    host.device(place, numbers, 2 * GIB);
    host.file(&format!("sys/devices/{place}/size"), &(gib * GIB / 512).to_string());
    host.file(&format!("sys/devices/{place}/device/model"), model);
}

fn partition(host: &Host, place: &str, numbers: &str) {
    host.device(place, numbers, 0).file(&format!("sys/devices/{place}/partition"), "1");
}

#[test]
fn a_sata_ssd_with_ext4_is_known_by_udevs_whole_model() {
    let host = Host::new(
        "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw,discard\n23 22 0:5 / /srv rw - tmpfs tmpfs rw\n",
    );
    disk(&host, SDA, "8:0", "Samsung SSD 870\n", 465);
    partition(&host, &format!("{SDA}/sda1"), "8:1");
    host.file("run/udev/data/b8:0", "S:disk/by-id/x\nE:ID_MODEL=Samsung_SSD_870_EVO_500GB\n");
    host.file("proc/meminfo", "MemTotal:       16384 kB\n");
    host.file("etc/systemd/system/timers.target.wants/fstrim.timer", "");
    fs::create_dir_all(host.0.path().join("run/systemd/system")).unwrap();
    let here = look(&host, "/home/me");
    assert_eq!(here.mount.mount_point, Path::new("/"));
    assert_eq!((here.kernel.as_str(), here.memory), ("6.12.43", Some(Bytes::mib(16))));
    assert_eq!(here.policy(), "discard, fstrim.timer");
    let [drive] = &here.drives[..] else { panic!("{here:?}") };
    assert_eq!((drive.name.as_str(), drive.model.as_str()), ("sda", "Samsung SSD 870 EVO 500GB"));
    assert_eq!((drive.size, drive.link, drive.discard_max), (Bytes::gib(465), Transport::Ata, Bytes::gib(2)));
    assert!(drive.is_volatile && !drive.rotates && drive.why_no_ssd().is_none());
    // Memory has no drive.
    let memory = look(&host, "/srv/x");
    assert_eq!((names(&memory).len(), memory.why_no_drive()), (0, "it is in memory"));
}

#[test]
fn an_nvme_partition_shows_whether_its_drive_has_dram_and_a_safe_cache() {
    let host = Host::new("22 1 259:1 / / rw - xfs /dev/nvme0n1p1 rw\n");
    disk(&host, NVME, "259:0", "WD Blue SN570 500GB", 465);
    partition(&host, &format!("{NVME}/nvme0n1p1"), "259:1");
    host.file(&format!("sys/devices/{NVME}/queue/write_cache"), "write through\n");
    let here = look(&host, "/");
    let drive = &here.drives[0];
    assert_eq!((names(&here), drive.link), (vec!["nvme0n1"], Transport::Nvme));
    assert!(!drive.borrows_memory && !drive.is_volatile && drive.why_no_ssd().is_none());
    host.file(&format!("sys/devices/{NVME}/device/hmb"), "1\n");
    assert!(look(&host, "/").drives[0].borrows_memory);
    host.file(&format!("sys/devices/{NVME}/device/transport"), "tcp\n");
    assert_eq!(look(&host, "/").drives[0].why_no_ssd(), Some("a drive on the network"));
}

#[test]
fn lvm_is_followed_to_its_drive_and_through_a_loop_device() {
    let lv = "virtual/block/dm-0";
    let host = Host::new(
        "22 1 252:0 / / rw - ext4 /dev/mapper/vg-root rw\n30 22 7:0 / /mnt rw - ext4 /dev/loop0 rw\n",
    );
    disk(&host, SDA, "8:0", "INTEL SSDSC2BB48", 447);
    partition(&host, &format!("{SDA}/sda1"), "8:1");
    host.device(lv, "252:0", GIB).slave(lv, &format!("{SDA}/sda1"));
    host.file(&format!("sys/devices/{lv}/dm/name"), "vg-root");
    host.device("virtual/block/loop0", "7:0", GIB);
    host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/var/image\n");
    let (home, mnt) = (look(&host, "/home"), look(&host, "/mnt"));
    assert_eq!((names(&home), home.drives[0].why_no_ssd()), (vec!["sda"], None));
    assert_eq!(names(&mnt), ["sda"]);
    let why = mnt.drives[0].why_no_ssd();
    assert_eq!(why, Some("a loop device, whose TRIM frees space in a file and not on the drive below it"));
}

#[test]
fn drives_that_are_no_ssd_say_so() {
    let host = Host::new("22 1 8:0 / / rw - ext4 /dev/sda rw\n23 22 254:0 / /v rw - ext4 /dev/vda rw\n");
    disk(&host, SDA, "8:0", "ST2000DM008", 1863);
    host.file(&format!("sys/devices/{SDA}/queue/rotational"), "1\n");
    assert!(look(&host, "/").drives[0].why_no_ssd().is_some_and(|why| why.starts_with("a hard disk")));
    // A virtual disk's word for it means nothing.
    const VIRTUAL: Option<&str> = Some("a virtual disk, which does not show what drive is below it");
    disk(&host, "pci0000:00/virtio1/block/vda", "254:0", "", 20);
    host.file("sys/devices/pci0000:00/virtio1/block/vda/queue/rotational", "1\n");
    let virtual_disk = look(&host, "/v");
    assert_eq!(
        (virtual_disk.drives[0].link, virtual_disk.drives[0].why_no_ssd()),
        (Transport::Virtio, VIRTUAL)
    );
    for (place, model, why) in [
        (NVME, "Amazon Elastic Block Store", VIRTUAL),
        (NVME, "Amazon EC2 NVMe Instance Storage", None),
        (NVME, "QEMU NVMe Ctrl", VIRTUAL),
        (
            LUN,
            "LOGICAL VOLUME",
            Some("a disk that does not show what drive it is (a LUN, a volume of a controller)"),
        ),
        // A drive that its controller passes through with its name.
        (LUN, "INTEL SSDSC2KB480G7", None),
    ] {
        let host = Host::new("22 1 8:0 / / rw - ext4 /dev/x rw\n");
        disk(&host, place, "8:0", model, 100);
        assert_eq!(look(&host, "/").drives[0].why_no_ssd(), why, "{model}");
    }
}

#[test]
fn btrfs_on_two_devices_has_two_drives() {
    let host = Host::new("22 1 0:40 / / rw - btrfs /dev/sda rw,discard=async\n");
    let sdb = SDA.replace("sda", "sdb");
    disk(&host, SDA, "8:0", "A", 100);
    disk(&host, &sdb, "8:16", "B", 200);
    let sys = host.0.path().join("sys");
    {
        let folder = "fs/btrfs/0-1/devices";
        fs::create_dir_all(sys.join(folder)).unwrap();
        symlink(sys.join("devices").join(SDA), sys.join(folder).join("sda")).unwrap();
        symlink(sys.join("devices").join(&sdb), sys.join(folder).join("sdb")).unwrap();
    }
    let here = look(&host, "/");
    assert_eq!((names(&here), here.policy().as_str()), (vec!["sda", "sdb"], "discard=async"));
}
