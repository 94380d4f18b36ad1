//! The registry of finding codes, such as `layer.luks.discards-off`, which never change between versions.
//!
//! `doctor`, `status`, `trim`, `verify` and `fleet` describe findings in sentences that may change; programs match the
//! code. To add a finding, add an entry here. Every finding is built from a code, and the tests below check that some test
//! states each code and that `docs/findings.md` is current; `FINDINGS=write cargo test -p trimwise-linux codes` writes
//! that page.

use std::fmt;

use serde::{Serialize, Serializer};

/// Default severity of a finding; the code that makes the finding may override it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// TRIM is not sent or does not arrive, or two settings contradict each other.
    Problem,
    /// Worth knowing; nothing is wrong.
    Note,
    /// trimwise cannot check this.
    Unchecked,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Problem => "a problem",
            Self::Note => "a note",
            Self::Unchecked => "not checked",
        }
    }
}

/// An entry of the registry.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// Area, thing and problem, separated by dots.
    pub code: &'static str,
    pub severity: Severity,
    pub meaning: &'static str,
    /// What the user can do about it.
    pub remedy: &'static str,
    /// What trimwise saw that led to the finding.
    pub found_by: &'static str,
    /// Page of the repository with more about it, and the anchor of its heading.
    pub page: &'static str,
    /// Names of tests that assert the code.
    #[serde(skip)]
    pub tests: &'static [&'static str],
}

macro_rules! codes {
    ($($name:ident $severity:ident $code:literal, $page:expr, [$($test:literal),*];
        $meaning:literal $remedy:literal $found_by:literal)+) => {
        /// Code of a finding.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $meaning] $name,)+
        }

        /// All codes, in the order of [`Code`].
        pub const CODES: &[Entry] = &[$(Entry {
            code: $code,
            severity: Severity::$severity,
            meaning: $meaning,
            remedy: $remedy,
            found_by: $found_by,
            page: $page,
            tests: &[$($test),*],
        },)+];
    };
}

const DOCTOR: &str = "docs/guide.md#is-trim-on-and-does-it-arrive-doctor";
const FLEET: &str = "docs/guide.md#many-hosts";
const CONFIGURING: &str = "docs/guide.md#configuring-it";
const FAILS: &str = "docs/guide.md#when-a-drive-or-a-path-fails";
const OPTIONS: &str = "docs/guide.md#mount-options";
const METRICS: &str = "docs/guide.md#metrics";
const TRIM: &str = "docs/guide.md#trimming-a-mounted-file-system";
const SECRECY: &str = "docs/book/secrecy.md#what-discards-reveal-through-encryption";
const VERIFY: &str = "docs/guide.md#does-trim-work-here-verify";

codes! {
    LimitSwitchedOff Problem "layer.limit.switched-off", DOCTOR, ["a_layer_above_is_judged_by_its_own_kind", "steps_are_in_an_order_that_helps"];
        "Somebody set the device's largest discard to 0, so the kernel sends it no TRIM."
        "Write a limit into queue/discard_max_bytes, and remove what sets it to 0 at boot."
        "queue/discard_max_bytes is 0 in sysfs while discard_max_hw_bytes is not."
    LuksDiscardsOff Problem "layer.luks.discards-off", DOCTOR, ["the_layer_at_which_trim_stops_is_named", "steps_are_in_an_order_that_helps"];
        "A LUKS volume drops TRIM, as it does by default: TRIM reveals which blocks are free, though not their contents."
        "If you accept that, refresh it with --allow-discards; for LUKS1, also add `discard` to /etc/crypttab."
        "The mapping accepts no TRIM though the devices below do, and nothing asks for discard."
    CryptPassesTrim Note "layer.crypt.passes-trim", SECRECY, ["an_option_counts_where_something_reads_it"];
        "An encrypted layer passes TRIM on, so the drive shows which blocks are free, though not their contents."
        "If others must not know how full the volume is, leave TRIM off."
        "A dm-crypt mapping accepts TRIM."
    CryptDiscardsOff Problem "layer.crypt.discards-off", DOCTOR, ["the_table_tells_what_stops_trim", "a_remedy_fits_its_layer"];
        "A dm-crypt mapping without LUKS (plain, TrueCrypt, VeraCrypt) drops TRIM, as it does by default."
        "Open it with allow_discards, unless it hides a second volume, whose data TRIM would destroy."
        "The mapping accepts no TRIM though the devices below do; its UUID, name or table says that it is dm-crypt."
    CryptOpenedBeforeOption Problem "layer.crypt.opened-before-option", DOCTOR, ["the_cause_is_the_likeliest"];
        "/etc/crypttab or the kernel's command line asks for discard, but the mapping was opened without it."
        "Refresh the mapping, and rebuild the initramfs, which has its own copy of /etc/crypttab."
        "The mapping accepts no TRIM, though crypttab or the command line asks for discard."
    CryptOptionNotHeard Problem "layer.crypt.option-not-heard", DOCTOR, ["an_option_counts_where_something_reads_it"];
        "Something asks for discard, but whatever opens the volume does not read it."
        "For LUKS2 set the flag in the header (`cryptsetup refresh --allow-discards --persistent`); otherwise ask where it is read."
        "The command line or crypttab asks for discard; what opens the volume is known by generated units, udisks's state, the initramfs's program and the mount point."
    CryptOpenedBeforeTrim Problem "layer.crypt.opened-before-trim", DOCTOR, ["the_table_tells_what_stops_trim"];
        "A dm-crypt mapping passes TRIM on, but was opened before the devices below accepted any."
        "Refresh the mapping, so that it picks up the limit of the devices below."
        "Its table has allow_discards, but its largest discard is 0."
    IntegrityNoTrim Problem "layer.integrity.no-trim", DOCTOR, ["a_stack_is_a_graph"];
        "dm-integrity drops TRIM: a trimmed sector would no longer match its checksum."
        "Choose between TRIM and checksums: LVM RAID without integrity passes TRIM on."
        "A dm-integrity mapping accepts no TRIM though the devices below do."
    ThinKeptInPool Note "layer.thin.kept-in-pool", DOCTOR, ["a_stack_is_a_graph"];
        "Trimming a thin volume frees space in its pool, but TRIM goes no further down."
        "Look at the finding on the layer below the pool."
        "The volume accepts TRIM, but TRIM does not pass from its pool to a disk."
    ThinNoPassdown Problem "layer.thin.no-passdown", DOCTOR, ["a_stack_is_a_graph"];
        "A thin pool reuses trimmed space itself, and does not pass TRIM on to the devices below."
        "Make it pass TRIM on: `lvchange --discards passdown`."
        "The pool accepts no TRIM though its volumes and the devices below do."
    ThinIgnores Problem "layer.thin.ignores", DOCTOR, ["a_stack_is_a_graph", "no_remedy_does_harm"];
        "A thin pool ignores TRIM altogether."
        "Deactivate the pool and its volumes, and set it to passdown."
        "Neither the pool nor its volume accepts TRIM though the devices below do."
    VdoKeepsTrim Note "layer.vdo.keeps-trim", DOCTOR, ["vdo_passes_nothing_on"];
        "VDO reuses trimmed space itself, and does not pass TRIM on to the devices below."
        "Nothing on this host helps; use the disk without VDO."
        "A device below the file system is an LVM VDO pool."
    VdoTrimLoad Note "layer.vdo.trim-load", DOCTOR, ["vdo_passes_nothing_on"];
        "VDO takes discards in blocks of 4 KiB, so an fstrim of a large volume may load it for a long time."
        "Trim at quiet times and in slices, or raise vdo_max_discard."
        "A VDO pool below the file system takes discards far smaller than its disks do."
    SnapshotNoTrim Problem "layer.snapshot.no-trim", DOCTOR, ["the_cause_is_the_likeliest"];
        "Neither an LVM snapshot nor its origin passes TRIM on, because they share blocks."
        "Remove the snapshot, or use thin volumes, which pass TRIM on even with snapshots."
        "LVM's `-real` or `-cow` layers lie below a volume that accepts no TRIM."
    MappingOlder Problem "layer.mapping.older-than-below", DOCTOR, ["the_table_tells_what_stops_trim", "the_cause_is_the_likeliest"];
        "A mapping was loaded before the devices below accepted TRIM, and still has its limits from then."
        "Reload its table; if a udev rule enables TRIM on the disk, add the rule to the initramfs, too."
        "A mapping of a kind that passes TRIM on accepts none though everything below does."
    MappingNoTrim Problem "layer.mapping.no-trim", DOCTOR, ["the_table_tells_what_stops_trim"];
        "This kind of device-mapper mapping drops TRIM."
        "Use a kind that passes it on: linear, striped, thin, crypt with allow_discards."
        "The mapping's table names its kind."
    MappingKindUnknown Problem "layer.mapping.kind-unknown", DOCTOR, ["what_needs_no_trim_or_must_not_have_it_is_told"];
        "A mapping accepts no TRIM, and its kind is unknown."
        "`dmsetup table` shows its kind: linear and striped pass TRIM on, crypt only with allow_discards."
        "The mapping accepts no TRIM though everything below does; its table cannot be read."
    MappingCauseUnknown Problem "layer.mapping.cause-unknown", DOCTOR, ["a_stack_is_a_graph", "no_remedy_does_harm"];
        "A mapping or an array accepts no TRIM, and sysfs does not show everything below it."
        "See what is missing: `lsblk --inverse`."
        "The layer accepts no TRIM, and a device below it is missing or reports no limit."
    RaidOlder Problem "layer.raid.older-than-disks", DOCTOR, ["steps_are_in_an_order_that_helps", "the_cause_is_the_likeliest"];
        "A Linux RAID was assembled before its disks accepted TRIM, and still has its limits from then."
        "Reassemble it; if a udev rule enables TRIM on the disks, add the rule to the initramfs, too."
        "The array accepts no TRIM though all its disks do, and no parameter forbids it."
    RaidParityNotAllowed Problem "layer.raid.parity-not-allowed", DOCTOR, ["the_layer_at_which_trim_stops_is_named", "steps_are_in_an_order_that_helps"];
        "RAID with parity accepts TRIM only if devices_handle_discard_safely is set."
        "Set it only if all disks return zeros for trimmed blocks, then reassemble the array."
        "The array has parity (RAID 4, 5 or 6), and the parameter of raid456 or dm_raid is off."
    RaidSwitchedOff Problem "layer.raid.switched-off", DOCTOR, ["steps_are_in_an_order_that_helps", "a_remedy_fits_its_layer"];
        "This kernel disables TRIM for arrays of this level."
        "Set the module's parameter devices_discard_performance, now and at each boot, and reassemble the array."
        "The parameter exists and is N."
    RaidStripeTooLarge Problem "layer.raid.stripe-too-large", DOCTOR, ["no_remedy_does_harm", "a_remedy_fits_its_layer"];
        "RAID with parity trims whole stripes, and a disk below accepts less than a stripe at a time."
        "Nothing on this host helps; create an array with smaller chunks."
        "Chunk size times data disks is larger than the largest discard of a disk."
    RaidLevelUnknown Problem "layer.raid.level-unknown", DOCTOR, ["no_remedy_does_harm"];
        "An LVM RAID volume accepts no TRIM, and its level is unknown."
        "`lvs -o lv_name,segtype` shows the level; reactivate a mirror, and set the parameter only for parity."
        "`_rimage_` volumes lie below it, but its table cannot be read."
    BcacheNoTrim Problem "layer.bcache.no-trim", DOCTOR, ["a_cache_or_a_loop_device_over_a_disk_may_drop_trim"];
        "bcache drops TRIM."
        "Nothing on this host helps; newer kernels pass it on to the backing device."
        "A bcache device accepts no TRIM though its backing device does."
    LoopPunchesHoles Note "layer.loop.punches-holes", DOCTOR, ["a_loop_device_refers_to_the_file_system_of_its_file"];
        "Trimming a loop device punches holes in its file; they become free space of the file system below."
        "Also trim the file system that holds the file."
        "The loop device accepts TRIM, and lies on a file."
    LoopNoWriteZeroes Problem "layer.loop.no-write-zeroes", DOCTOR, ["a_cache_or_a_loop_device_over_a_disk_may_drop_trim"];
        "A loop device over a block device is read-only, or that device lacks Write Zeroes, to which TRIM is translated."
        "Mount the device without the loop device."
        "The loop device accepts no TRIM though the block device below it does."
    LoopReadOnly Problem "layer.loop.read-only", DOCTOR, ["a_loop_device_is_followed_as_far_as_it_can_be"];
        "A loop device is read-only, or was attached by an old kernel, though its file could have holes."
        "Attach it again, writable."
        "The loop device accepts no TRIM though the file system of its file punches holes."
    LoopNoHoles Problem "layer.loop.no-holes", DOCTOR, ["a_stack_is_a_graph", "a_loop_device_is_followed_as_far_as_it_can_be"];
        "The file of a loop device lies on a file system that cannot punch holes."
        "Put the file on ext4, XFS, btrfs or tmpfs."
        "The type of the file system that holds the file, even if the loop device accepts TRIM."
    LimitTiny Note "layer.limit.tiny", DOCTOR, ["a_kernel_that_harms_or_barely_trims_is_named"];
        "A layer cuts discards into far smaller pieces than the devices below take, so a trim takes very many commands."
        "For RAID 10, use Linux 5.13 or later; trim at quiet times."
        "The layer's largest discard is at most 16 MiB, and that of every device below is at least 64 times as large."
    DriveNoTrim Problem "disk.drive.no-trim", DOCTOR, ["a_forced_value_counts_for_its_port", "a_controller_hides_what_is_behind_it"];
        "A drive does not support TRIM."
        "Nothing on this host helps; use another drive, or newer firmware."
        "The disk's largest discard is 0, and nothing on this host switched it off."
    DriveTrimReported Note "disk.drive.trim-reported", DOCTOR, ["a_drive_with_a_known_fault_is_named"];
        "Such drives were reported to hang at TRIM or to ignore it, or the kernel carries TRIM out in another way on them."
        "The finding says what to do; `trimwise verify` tests your own drive."
        "Its model, and for some its firmware, are on trimwise's list, which names the reports."
    SataForbidden Problem "disk.sata.forbidden", DOCTOR, ["a_forced_value_counts_for_its_port", "a_remedy_fits_its_layer"];
        "The kernel's command line forbids TRIM to a SATA drive (libata.force)."
        "If the drive handles TRIM well, remove `notrim` from the command line and reboot."
        "/proc/cmdline has libata.force with notrim for the drive's port."
    SataTrimFaulty Problem "disk.sata.trim-faulty", DOCTOR, ["a_drive_whose_trim_is_faulty_is_sent_none"];
        "The drive handles TRIM wrongly, so the kernel sends it none."
        "Nothing on this host helps; use another drive."
        "Its model is on the kernel's list of faulty drives."
    SataQueuedTrimFaulty Note "disk.sata.queued-trim-faulty", DOCTOR, ["a_drive_with_a_known_fault_is_named", "a_drive_whose_trim_is_faulty_is_sent_none"];
        "The drive loses data with queued TRIM; the kernel sends unqueued TRIMs, each of which stalls the drive's queue."
        "Trim at quiet times or in small slices."
        "Its model is on the kernel's list of faulty drives, and the command line does not force it off."
    SasHbaNoTrim Problem "disk.sas-hba.no-trim", DOCTOR, ["a_controller_hides_what_is_behind_it", "a_remedy_fits_its_layer"];
        "The SAS HBA passes no TRIM on to a SATA drive without DRAT and RZAT."
        "Use a SATA port on the mainboard, newer firmware for the HBA, or a drive with DRAT and RZAT."
        "A SATA drive is on a SAS port, and does not announce UNMAP."
    RaidControllerNoTrim Problem "disk.raid-controller.no-trim", DOCTOR, ["a_controller_hides_what_is_behind_it"];
        "A RAID controller does not pass TRIM on to its drives."
        "Set the controller to HBA mode (JBOD)."
        "The SCSI host's driver is that of a RAID controller, and its disk does not announce UNMAP."
    RaidControllerRotates Problem "disk.raid-controller.claims-to-rotate", DOCTOR, ["a_controller_hides_what_is_behind_it"];
        "A RAID controller's volume claims to be a hard disk; if SSDs are behind it, they get no TRIM."
        "A real hard disk needs none; for SSDs, set the controller to HBA mode."
        "queue/rotational is 1, and the SCSI host's driver is that of a RAID controller."
    ScsiNoUnmap Problem "disk.scsi.no-unmap", DOCTOR, ["a_controller_hides_what_is_behind_it", "a_switch_is_looked_at_whatever_connects_the_disk"];
        "A SCSI disk does not accept UNMAP: it has no thin provisioning, or a RAID controller hides it."
        "Set a RAID controller to HBA mode; a disk without thin provisioning has no TRIM."
        "Its provisioning_mode, and its page B2 where the kernel shows it."
    ScsiLimitZero Problem "disk.scsi.limit-zero", DOCTOR, ["a_switch_is_looked_at_whatever_connects_the_disk", "a_remedy_fits_its_layer"];
        "A SCSI disk's provisioning_mode allows TRIM, but its limit is 0, so the kernel sends none."
        "Write the same mode again: the kernel then recomputes the limit."
        "provisioning_mode is unmap or writesame, and discard_max_bytes is 0."
    ScsiClaimUnused Problem "disk.scsi.claim-unused", DOCTOR, ["a_stack_is_a_graph", "a_remedy_fits_its_layer"];
        "A SCSI disk claims to offer TRIM, but the kernel does not use it."
        "Write the method that it claims into provisioning_mode, and add a udev rule that does so at each boot."
        "The disk's page B2 names a way to discard, but provisioning_mode is something else."
    ScsiOtherMode Note "disk.scsi.other-mode", DOCTOR, ["accounts_of_the_host_are_given"];
        "A SCSI disk claims UNMAP first, but is sent WRITE SAME, which some disks refuse. A problem before Linux 4.12, which prefers it."
        "Write `unmap` into provisioning_mode, and add a udev rule that does so at each boot."
        "provisioning_mode is writesame_16 or writesame_10, and the disk's page B2 has LBPU."
    ScsiDisabled Problem "disk.scsi.disabled", DOCTOR, ["a_switch_is_looked_at_whatever_connects_the_disk", "a_remedy_fits_its_layer"];
        "TRIM is switched off for a SCSI disk: by hand, or by the kernel because the disk rejected a discard."
        "Switch it on; if the disk rejects TRIM again, nothing helps."
        "provisioning_mode is `disabled`, and the disk does not say that it lacks TRIM."
    UsbAdapterNoTrim Problem "disk.usb.adapter-no-trim", DOCTOR, ["the_layer_at_which_trim_stops_is_named", "a_switch_is_looked_at_whatever_connects_the_disk"];
        "A USB adapter does not offer TRIM, or the kernel does not trust it."
        "If `sg_vpd --page=lbpv` shows LBPU as 1, write `unmap` into provisioning_mode; otherwise use another adapter."
        "The disk is on USB, accepts no TRIM, and claims none."
    UsbClaimsToRotate Note "disk.usb.claims-to-rotate", DOCTOR, ["steps_are_in_an_order_that_helps", "a_switch_is_looked_at_whatever_connects_the_disk"];
        "A USB disk claims to be a hard disk, which needs no TRIM; adapters claim that of SSDs, too."
        "For an SSD, follow the finding's advice about its adapter."
        "The disk is on USB, accepts no TRIM, and queue/rotational is 1."
    VirtualNoTrim Problem "disk.virtual.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps", "a_switch_is_looked_at_whatever_connects_the_disk"];
        "The hypervisor's disk does not accept TRIM."
        "Change the disk's settings on the host; the finding says how."
        "The disk's model, vendor or driver is that of a hypervisor, and its largest discard is 0."
    VirtualHostUnknown Note "disk.virtual.host-unknown", DOCTOR, ["what_provides_a_disk_decides_what_helps", "a_remedy_fits_its_layer"];
        "A virtual disk accepts TRIM; whether its host passes that on cannot be seen from inside."
        "Check on the host: the disk's image must shrink after a trim."
        "The disk's model, vendor or driver is that of a hypervisor."
    NetworkNoTrim Problem "disk.network.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps", "a_switch_is_looked_at_whatever_connects_the_disk"];
        "A disk on another host does not accept TRIM."
        "Make the host that serves it announce UNMAP or TRIM, then reconnect."
        "The disk's name or transport is that of a network protocol (iSCSI, NBD, RBD...), and its largest discard is 0."
    DrbdNoTrim Problem "disk.drbd.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps"];
        "DRBD accepts no TRIM, because its disk here or one of its peers accepts none."
        "Find out which one accepts none, fix that, and reconnect."
        "A DRBD device's largest discard is 0."
    ZvolNoTrim Problem "disk.zvol.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps"];
        "A ZFS volume accepts no TRIM."
        "If zvol_max_discard_blocks is 0, raise it and import the pool again."
        "The largest discard of a device zdN is 0."
    RotationalNoTrim Note "disk.rotational.no-trim", DOCTOR, ["the_layer_at_which_trim_stops_is_named", "a_controller_hides_what_is_behind_it"];
        "A hard disk, which has no TRIM and needs none."
        "Nothing."
        "queue/rotational is 1, and the largest discard is 0."
    MemoryNoTrim Note "disk.memory.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps"];
        "A disk in memory, which needs no TRIM."
        "Nothing."
        "The device's name begins with pmem, ram or zram."
    UnknownNoTrim Problem "disk.unknown.no-trim", DOCTOR, ["what_provides_a_disk_decides_what_helps"];
        "A disk accepts no TRIM, and trimwise does not know its driver."
        "Consult the documentation of its driver."
        "The largest discard is 0, and nothing in sysfs identifies its transport."
    Failed Problem "fs.state.failed", DOCTOR, ["what_needs_no_trim_or_must_not_have_it_is_told"];
        "The file system failed and stopped all writes; space that it calls free may hold files, so it must not be trimmed."
        "Find the cause in the kernel's log, unmount the file system, and run fsck before mounting it again."
        "Its options in effect include emergency_ro or shutdown."
    KernelTooOld Problem "fs.fstrim.kernel-too-old", DOCTOR, ["fstrim_needs_a_kernel_and_its_devices"];
        "fstrim cannot trim this type of file system on this kernel."
        "Mount it with discard, or use a newer kernel."
        "The kernel is older than the first one with FITRIM for this type."
    Ntfs3NeedsDiscard Problem "fs.ntfs3.needs-discard", DOCTOR, ["ntfs3_trims_only_if_it_is_mounted_with_discard"];
        "ntfs3 refuses all TRIM, even from fstrim, unless it is mounted with discard."
        "Mount it with discard, and add that option to its line in /etc/fstab."
        "The type is ntfs3, and discard is not among its options in effect."
    RealtimeUntrimmed Note "fs.xfs.realtime-untrimmed", DOCTOR, ["fstrim_needs_a_kernel_and_its_devices"];
        "Linux before 6.11 does not trim the real-time device of an XFS file system."
        "Use a newer kernel."
        "The mount has the option rtdev=, and the kernel is older than 6.11."
    Ext4DiscardsTooMuch Note "fs.ext4.discards-too-much", DOCTOR, ["ext4_s_discard_option_sends_too_much_on_new_kernels", "a_loop_device_refers_to_the_file_system_of_its_file"];
        "ext4's online discard sends far more than was freed when scattered files are removed."
        "`trimwise advise --here` says whether that costs anything on this drive."
        "An ext4 file system is mounted with discard on Linux 6.8 or later, or on a stable kernel with that change: 5.15.149, 6.1.77, 6.6.16, 6.7.4 and later ones."
    Ext4Errors Problem "fs.ext4.errors", DOCTOR, ["accounts_of_the_host_are_given"];
        "ext4 has recorded errors in its superblock: what it calls free may hold files, and a trim would destroy them."
        "Find the cause in the kernel's log, and check the file system before trimming it."
        "errors_count in /sys/fs/ext4/DEV is not 0."
    KernelLosesData Problem "kernel.discard.loses-data", DOCTOR, ["a_kernel_that_harms_or_barely_trims_is_named"];
        "This kernel discards blocks that are in use on a stack like this."
        "Do not trim it, neither by a timer nor by discard, before the kernel is updated."
        "The kernel's version, or the one that its distribution started from, and the layers below; a note if the version only may have the fault."
    KernelCrashes Problem "kernel.discard.crashes", DOCTOR, ["a_kernel_that_harms_or_barely_trims_is_named"];
        "This kernel crashes or hangs when a stack like this is trimmed."
        "Do not trim it, neither by a timer nor by discard, before the kernel is updated."
        "The kernel's version, or the one that its distribution started from, and the layers below; a note if the version only may have the fault."
    ReadOnly Note "mount.options.read-only", DOCTOR, ["ntfs3_trims_only_if_it_is_mounted_with_discard", "what_needs_no_trim_or_must_not_have_it_is_told"];
        "The file system is mounted read-only: there is nothing to trim."
        "Nothing."
        "Its options in effect include ro."
    MountedSeveralTimes Note "mount.bind.several", DOCTOR, ["bind_mounts_are_one_file_system_and_a_path_is_a_mount_point", "the_state_in_effect_counts"];
        "The file system is mounted several times, but needs to be trimmed only once."
        "Nothing."
        "Several lines of mountinfo have the same device numbers."
    Exempt Note "mount.fstab.exempt", DOCTOR, ["nothing_trims_or_two_things_do"];
        "/etc/fstab exempts the file system from fstrim.timer and trimwised."
        "Remove X-fstrim.notrim from its line if it should be trimmed."
        "Its line in /etc/fstab has X-fstrim.notrim."
    NothingTrims Note "mount.trim.nothing", DOCTOR, ["a_loop_device_refers_to_the_file_system_of_its_file", "nothing_trims_or_two_things_do"];
        "Nothing trims the file system: it is mounted without discard, and no timer, cron job or daemon trims it."
        "`trimwise advise --here` says whether that costs anything on this drive."
        "No timer, cron job or daemon covers it, and discard is not in effect."
    NothingComesBack Note "space.trim.nothing-comes-back", DOCTOR, ["where_only_space_counts_it_is_to_be_trimmed"];
        "A pool, an image, a host outside or memory lends the file system space, and nothing gives it back; a problem for a pool of this host, which stops all of its volumes when it is full."
        "Trim it now, and at intervals from then on."
        "A discard would reach the lender, but nothing trims the file system."
    GranularityTooCoarse Note "space.granularity.too-coarse", DOCTOR, ["pieces_smaller_than_a_chunk_stay_with_discard_alone"];
        "The mount option discard sends what is freed piece by piece, and pieces smaller than the lender's chunk do not come back."
        "Trim at intervals as well: fstrim sends neighbouring free pieces as one."
        "discard_granularity of a layer down to the lender is 64 KiB or more, discard is in effect, and nothing trims at intervals, or what does is ext4's fstrim before Linux 6.12, 6.1.113 and 5.10.227."
    PoolNearlyFull Problem "space.pool.nearly-full", DOCTOR, ["a_pool_that_runs_full_is_a_problem"];
        "The pool below the file system is 80 % full or fuller, in space or metadata, or takes no more writes; a note for the file system that holds an image."
        "Trim every file system that lies on it, remove snapshots, or extend it."
        "`dmsetup status` of the pool, which only root can read, or the space of the file system that holds an image."
    BtrfsSyncDiscard Note "fs.btrfs.discard-sync", DOCTOR, ["btrfs_has_two_kinds_of_discard"];
        "btrfs is mounted with plain `discard`, the synchronous kind: each commit waits until its discards are done."
        "Mount it with discard=async, btrfs's own default since Linux 6.2, or without discard and with fstrim.timer."
        "The mount options have `discard` without `async`."
    DiscardAndTimer Note "mount.discard.and-timer", DOCTOR, ["ntfs3_trims_only_if_it_is_mounted_with_discard", "who_turned_discard_on_is_told"];
        "The file system discards what it frees, so a periodic trim finds little left."
        "Keep one of the two; `trimwise advise --here` says which."
        "discard is in effect, and a timer or a cron job covers it."
    DiscardNotInEffect Note "mount.fstab.discard-not-in-effect", DOCTOR, ["who_turned_discard_on_is_told"];
        "/etc/fstab lists discard, but the file system is mounted without it."
        "Unmount it and mount it again; XFS applies the option only at mount time, not on remount."
        "Its line in /etc/fstab has discard, but its options in effect do not."
    TimerMasked Problem "mount.timer.masked", DOCTOR, ["what_needs_no_trim_or_must_not_have_it_is_told", "each_finding_of_a_fleet_has_a_code"];
        "Nothing trims the file system: fstrim.service is masked."
        "Unmask fstrim.service."
        "fstrim.timer is enabled, and fstrim.service is a link to /dev/null."
    TimerRunsNothing Problem "mount.timer.runs-nothing", DOCTOR, ["what_needs_no_trim_or_must_not_have_it_is_told"];
        "Nothing trims the file system: fstrim.service runs no fstrim."
        "Remove the file that replaces its command; `systemctl cat fstrim.service` shows which."
        "fstrim.timer is enabled, but ExecStart of its service does not call fstrim."
    CronNotExecutable Problem "mount.cron.not-executable", DOCTOR, ["accounts_of_the_host_are_given"];
        "Nothing trims the file system: the script for cron that would is not executable, so run-parts leaves it out."
        "Make it executable."
        "A script in /etc/cron.* or /etc/periodic calls fstrim, and its mode has no x."
    ReadOnlyInFstab Problem "mount.fstab.read-only", DOCTOR, ["only_what_runs_trims"];
        "Nothing trims the file system: its line in /etc/fstab says ro, and fstrim skips such file systems."
        "Remove ro from its line, or let fstrim.timer follow all mounts."
        "It is mounted writable, but fstrim follows /etc/fstab, whose line for it has ro."
    MissingInFstab Problem "mount.fstab.missing", DOCTOR, ["nothing_trims_or_two_things_do", "the_state_in_effect_counts"];
        "Nothing trims the file system: fstrim.timer follows /etc/fstab, which does not list it."
        "Add it to /etc/fstab, let the timer follow all mounts, or let trimwised manage it."
        "No line of /etc/fstab names its mount points, and fstrim.service follows that file."
    LeftOut Problem "mount.trim.left-out", DOCTOR, ["only_what_runs_trims", "the_state_in_effect_counts"];
        "Nothing trims the file system: every timer, job and daemon on this host leaves it out."
        "Let one of them cover it, or let trimwised manage it."
        "The calls of fstrim on this host and the daemon's status; the finding says why for each."
    LvmIssueDiscards Note "host.lvm.issue-discards-off", DOCTOR, ["accounts_of_the_host_are_given"];
        "LVM does not discard removed logical volumes, so the disk below, which others could use, keeps their space."
        "Set issue_discards = 1 in /etc/lvm/lvm.conf."
        "lvm.conf does not set issue_discards to 1, and a logical volume lies on a virtual disk or one of another host."
    SeveralTrimmers Note "host.trimmers.several", DOCTOR, ["nothing_trims_or_two_things_do", "the_state_in_effect_counts"];
        "More than one timer, job or daemon trims the same free space."
        "Keep one of them."
        "More than one of them covers the same file system."
    FstrimFailed Problem "host.fstrim.failed", DOCTOR, ["how_fstrim_ended_counts_more_than_when"];
        "The last run of fstrim.service failed."
        "`journalctl --unit fstrim.service` says why."
        "systemd's Result of fstrim.service is not success."
    FstrimLate Note "host.fstrim.late", DOCTOR, ["the_last_run_of_the_timer_is_told", "how_fstrim_ended_counts_more_than_when"];
        "fstrim.timer last elapsed more than twice its interval ago."
        "Nothing, if the host was off; otherwise see `systemctl status fstrim.timer`."
        "The modification time of systemd's stamp file for the timer."
    FstrimRan Note "host.fstrim.ran", DOCTOR, ["the_last_run_of_the_timer_is_told", "how_fstrim_ended_counts_more_than_when"];
        "Tells when fstrim.timer last elapsed."
        "Nothing."
        "The modification time of systemd's stamp file for the timer."
    Container Unchecked "host.container.may-not-trim", DOCTOR, ["what_was_not_checked_is_not_called_sound"];
        "Nothing in this container may trim; what its host does was not checked."
        "Trim on the host of this container, and run `trimwise doctor` there."
        "No process here can have CAP_SYS_ADMIN, or root here is another user outside."
    SwapNoTrim Note "swap.discard.no-trim", DOCTOR, ["swap_is_told_of_by_its_own_line"];
        "/etc/fstab asks for discard on a swap area, but its device accepts no TRIM."
        "Make the device accept it; for dm-crypt, also add `discard` to /etc/crypttab."
        "Its line in /etc/fstab, and the devices below the area."
    SwapOn Note "swap.discard.on", DOCTOR, ["swap_is_told_of_by_its_own_line"];
        "/etc/fstab asks for discard on a swap area; /proc/swaps does not show whether swapon did it."
        "Nothing."
        "Its line in /etc/fstab."
    SwapInMemory Note "swap.zram.freed-by-linux", DOCTOR, ["swap_in_memory_needs_no_discard_and_a_line_may_name_its_device_in_any_way"];
        "Swap on zram: Linux frees the memory of each page that swap no longer needs, without discard."
        "Nothing to do."
        "/proc/swaps lists a zram device."
    SwapOff Note "swap.discard.off", DOCTOR, ["swap_is_told_of_by_its_own_line", "what_was_not_checked_is_not_called_sound"];
        "swapon does not discard a swap area, so the drive keeps everything that was ever swapped out."
        "If swap is large and rarely used, use `discard=once`."
        "No line in /etc/fstab has discard for the area."
    LayersHidden Unchecked "unchecked.layers.hidden", DOCTOR, ["what_provides_a_disk_decides_what_helps", "what_was_not_checked_is_not_called_sound"];
        "sysfs does not show all devices below the file system, so it is unknown whether TRIM gets through."
        "Run `trimwise doctor` where sysfs shows them, or try it: `trimwise verify dir:PATH`."
        "A device is missing from sysfs, appears below itself, or is on a file system of another host."
    Bcachefs Unchecked "unchecked.bcachefs.by-itself", DOCTOR, ["what_was_not_checked_is_not_called_sound"];
        "bcachefs has no FITRIM, and discards freed space by itself; whether it does was not checked."
        "/sys/fs/bcachefs/*/dev-*/discard shows whether it does."
        "The type of the file system."
    Zfs Unchecked "unchecked.zfs.by-itself", DOCTOR, ["what_was_not_checked_is_not_called_sound", "a_loop_device_is_followed_as_far_as_it_can_be"];
        "ZFS has no FITRIM, and trims by itself; whether it does was not checked."
        "`zpool get autotrim` shows whether it trims, `zpool status -t` when it last did."
        "The type of the file system."
    NamespaceMount Unchecked "unchecked.namespace.mounted", DOCTOR, ["what_uses_devices_without_a_mount_here_is_told"];
        "A file system is mounted only in another mount namespace, such as a container's, which this host's fstrim does not see."
        "On Proxmox `pct fstrim ID`; elsewhere `nsenter --target PID --mount fstrim MOUNT`."
        "/proc/PID/mountinfo of one process of each other mount namespace."
    CephOsd Unchecked "unchecked.ceph.osd", DOCTOR, ["what_uses_devices_without_a_mount_here_is_told"];
        "A Ceph OSD uses a device directly; whether it discards was not checked."
        "`ceph config get osd bdev_enable_discard` shows whether it does."
        "The name of the logical volume, /var/lib/ceph/osd/*/block, or a process that has the device open."
    DeviceRaw Unchecked "unchecked.device.in-use", DOCTOR, ["what_uses_devices_without_a_mount_here_is_told"];
        "A program uses a block device directly: a virtual machine, a database or another. Whether anything trims it was not checked."
        "Trim in the guest, or let the program discard; the finding says which it is."
        "A process has the device open, and no mount, swap area or other device lies on it."
    BcacheCache Note "layer.bcache-cache.no-discard", DOCTOR, ["what_uses_devices_without_a_mount_here_is_told"];
        "The cache of a bcache is never trimmed: no fstrim reaches it, and bcache does not discard freed buckets unless told to."
        "Write 1 into bcache/discard of the device."
        "bcache/discard of a cache device is 0."
    ProcessesHidden Unchecked "unchecked.processes.hidden", DOCTOR, ["open_files_are_looked_at_up_to_a_number"];
        "Not all processes could be looked at, so devices may be in use without a mount here."
        "Run `trimwise doctor` as root."
        "/proc/PID/ns of other users' processes cannot be read, or there are too many open files."
    Served Unchecked "unchecked.fuse.served", DOCTOR, ["only_local_data_that_was_not_checked_counts", "what_was_not_checked_is_not_called_sound"];
        "A process serves the file system (FUSE), and only that process knows whether it passes TRIM on."
        "Try it: `fstrim --verbose MOUNT`; ntfs-3g has supported it since 2015."
        "The type of the file system, whose source is a device."
    UnknownFileSystem Unchecked "unchecked.fs.unknown", DOCTOR, ["only_local_data_that_was_not_checked_counts"];
        "trimwise does not know whether this type of file system has FITRIM."
        "Try it: `fstrim --verbose MOUNT`."
        "The type of the file system is on none of trimwise's lists."
    StopsBelow Problem "fleet.trim.stops", FLEET, ["each_finding_of_a_fleet_has_a_code"];
        "TRIM of a file system does not reach its drive, though the doctor there reported no problem."
        "See `trimwise doctor MOUNT` on that host; hard disks and disks in memory need no TRIM."
        "`passes` is false in the doctor's JSON, and none of its findings is a problem."
    DaemonNotRunning Problem "daemon.service.not-running", CONFIGURING, ["an_enabled_daemon_that_does_not_run_is_a_problem"];
        "trimwised.service is enabled, but trimwised is not running."
        "`systemctl status trimwised` says why it does not run."
        "The unit is enabled, and nothing listens on its socket."
    DaemonConfig Problem "daemon.config.broken", CONFIGURING, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon's configuration is broken, so the last good one is in use."
        "`trimwise config check` names each error with its file and line."
        "The daemon reloaded its configuration and rejected it."
    DaemonState Problem "daemon.state.broken", FAILS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon cannot read or write its state, so a restart forgets what it knows."
        "Free space for the state folder, or repair its disk."
        "A read or a write in the state folder failed."
    DaemonHistory Problem "daemon.history.broken", FAILS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon cannot write its history."
        "Free space for the state folder, or repair its disk."
        "A write to history.db failed."
    DaemonMounts Problem "daemon.mounts.unreadable", FAILS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon cannot read the list of mounted file systems."
        "`trimwise status` shows the operating system's error."
        "A read of /proc/self/mountinfo failed."
    DaemonLimits Problem "daemon.limits.too-low", FAILS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon may open fewer files than there are devices, so it reopens some for each sample."
        "Raise LimitNOFILE= in the unit trimwised.service."
        "The daemon's RLIMIT_NOFILE, and the number of devices on the host."
    DaemonMetrics Problem "daemon.metrics.broken", METRICS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "The daemon cannot publish its metrics."
        "Free the port, or remove whatever is in the way of the socket or the file."
        "Opening the socket or writing the file failed; the daemon tries again."
    DaemonMount Problem "daemon.mount.problem", FAILS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_a_file_system_has_its_code"];
        "The daemon cannot manage a file system."
        "`trimwise explain MOUNT` says why."
        "The daemon failed to examine it, or one of its helper processes hangs."
    DaemonMountTaken Problem "daemon.mount.taken", OPTIONS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code"];
        "Another trimwised manages a file system, so this one leaves it alone."
        "Let one daemon manage it: `manage = \"listed\"`, or stop one of them."
        "Another daemon holds the lock of the file system in /run/trimwise/file-systems."
    DaemonOption Problem "daemon.option.unchanged", OPTIONS, ["each_finding_of_a_fleet_has_a_code", "each_problem_of_the_daemon_has_its_code", "each_problem_of_a_file_system_has_its_code"];
        "The daemon could not change the mount option `discard`, or put it back."
        "`trimwise explain MOUNT` and `trimwise history MOUNT` say why."
        "A remount failed, or its old value could not be written down before."
    DaemonTrouble Problem "daemon.trim.trouble", FAILS, ["stale_space_drives_that_ignore_trim_and_policies_that_differ_are_shown", "each_problem_of_a_file_system_has_its_code"];
        "Trimming a file system fails, hangs or is refused."
        "`trimwise explain MOUNT` says why; see the kernel's log, too."
        "The last slices on it failed, did not finish, or were refused."
    DaemonUncounted Problem "daemon.trim.uncounted", FAILS, ["stale_space_drives_that_ignore_trim_and_policies_that_differ_are_shown", "a_code_of_a_newer_version_is_kept_and_counted", "each_problem_of_a_file_system_has_its_code"];
        "The daemon trimmed a file system, but its device counted no discards meanwhile."
        "`trimwise verify dir:MOUNT` tests whether TRIM arrives."
        "trimmed_bytes of the daemon's status is above 0, and counted_bytes is 0."
    TrimFailed Problem "trim.sent.failed", TRIM, ["each_verdict_of_a_trim_has_its_code", "a_trim_by_the_daemon_has_the_code_of_how_it_ended"];
        "A TRIM failed, so free space is left untrimmed."
        "See the error and the kernel's log; `trimwise doctor MOUNT` checks the way to the drive."
        "FITRIM returned an error, or the device reported failed discards."
    TrimStops Problem "trim.sent.stops", TRIM, ["each_verdict_of_a_trim_has_its_code"];
        "TRIM was sent, but a layer below passes none on."
        "`trimwise doctor MOUNT` names the layer, and what helps."
        "The doctor looked at the layers after the trim."
    TrimUnverified Unchecked "trim.sent.unverified", TRIM, ["each_verdict_of_a_trim_has_its_code", "a_trim_by_the_daemon_has_the_code_of_how_it_ended"];
        "TRIM was sent, but a failure would not have shown."
        "`trimwise verify dir:MOUNT` reads the disk."
        "Neither the file system nor a tracepoint reports failed discards here, less was sent than its map shows, or they do not reach every drive."
    TrimOnVirtualDisk Note "trim.sent.on-virtual-disk", TRIM, ["each_verdict_of_a_trim_has_its_code", "a_trim_by_the_daemon_has_the_code_of_how_it_ended"];
        "A virtual disk accepted the TRIM; its host may ignore it."
        "Let the host pass discards on, as QEMU does with discard=unmap."
        "A hypervisor provides a disk below."
    TrimLeft Problem "trim.asked.left", TRIM, ["a_trim_by_the_daemon_has_the_code_of_how_it_ended"];
        "The daemon ended a trim before all free space was trimmed."
        "Ask again: `trimwise trim MOUNT --now --wait`."
        "It was paused, the file system is gone, or the daemon started over there."
    VerifyIgnored Problem "verify.trim.ignored", VERIFY, ["each_finding_of_a_fleet_has_a_code", "each_verdict_has_its_code", "each_verdict_on_a_drive_has_its_code"];
        "The drive ignores TRIM."
        "Use another drive, or newer firmware."
        "`trimwise verify` found that TRIM changes nothing."
    VerifyHarmful Problem "verify.trim.harmful", VERIFY, ["each_finding_of_a_fleet_has_a_code", "each_verdict_on_a_drive_has_its_code"];
        "TRIM destroys other data, returns data where zeros were promised, or makes the drive slower."
        "Do not trim this drive."
        "`trimwise verify` read data or measured times that show it; its reasons say which."
    VerifyUnsupported Problem "verify.trim.unsupported", VERIFY, ["each_finding_of_a_fleet_has_a_code", "each_verdict_on_a_drive_has_its_code"];
        "The device does not accept TRIM."
        "`trimwise doctor` names the layer that stops it."
        "`trimwise verify` asked the device."
    VerifyInPart Problem "verify.trim.in-part", VERIFY, ["each_finding_of_a_fleet_has_a_code", "each_verdict_has_its_code"];
        "TRIM takes effect on only part of its range, or only on some of the drives."
        "Read the reasons; trim in larger pieces, or use another drive."
        "`trimwise verify` still read old data in part of what it had trimmed."
    VerifySmallIgnored Note "verify.trim.small-ignored", VERIFY, ["small_pieces_that_are_ignored_are_told_beside_a_good_verdict"];
        "TRIM of a large file arrives, but the device frees nothing of small pieces, although it acknowledges them."
        "Leave them out with `fstrim --minimum`; their space comes back together with what is next to it."
        "`trimwise verify dir:` freed pieces of several sizes, trimmed, and read the disk."
    VerifyRestoresInPart Problem "verify.trim.restores-in-part", VERIFY, ["each_finding_of_a_fleet_has_a_code", "each_verdict_on_a_drive_has_its_code"];
        "TRIM restores only part of the drive's speed."
        "Read the reasons; keep more of the drive free."
        "`trimwise verify` measured the drive clean, worn down and trimmed."
    VerifyStops Problem "verify.trim.stops", VERIFY, ["each_verdict_has_its_code"];
        "A layer below passes no TRIM on to at least one of the drives."
        "`trimwise doctor MOUNT` names the layer, and what helps."
        "`trimwise verify` looked at the layers below the file system."
    VerifyFailed Problem "verify.trim.failed", VERIFY, ["each_verdict_has_its_code", "what_fails_half_way_shows_what_was_measured_and_gives_no_verdict"];
        "The verification failed, so there is no verdict."
        "See the error and the kernel's log, and verify again."
        "FITRIM or an operation on the device failed."
    VerifyUnproven Unchecked "verify.trim.unproven", VERIFY, ["each_verdict_has_its_code"];
        "Old data are still there, from a disk that promises nothing about them."
        "See whether the device counted discards; `trimwise verify dev:PATH` tests an unused drive."
        "`trimwise verify` read old data after the trim, and the disk promises no zeros."
    VerifyUndetermined Unchecked "verify.trim.undetermined", VERIFY, ["each_verdict_has_its_code", "each_verdict_on_a_drive_has_its_code"];
        "Nothing showed whether TRIM works."
        "Verify again with a larger size, while little else uses the drive."
        "Too few blocks were left to judge, or noise hides the effect of TRIM."
    VerifyNotSent Problem "verify.trim.not-sent", VERIFY, ["each_finding_of_a_fleet_has_a_code", "a_finding_is_explained_without_a_daemon", "each_verdict_has_its_code"];
        "The kernel did not send the TRIM that `verify` asked for."
        "`trimwise doctor` names the layer that stops it."
        "The device counted no discards during the trim."
}

impl Code {
    /// True for what is wrong in such a way that the file system must not be trimmed before it is mended.
    pub fn forbids_trim(self) -> bool {
        matches!(self, Self::Failed | Self::Ext4Errors | Self::KernelLosesData | Self::KernelCrashes)
    }

    pub fn entry(self) -> &'static Entry {
        &CODES[self as usize]
    }

    /// Returns the code as programs see it: `layer.luks.discards-off`.
    pub fn as_str(self) -> &'static str {
        self.entry().code
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Looks up a code; `None` if this version does not know it.
pub fn named(code: &str) -> Option<&'static Entry> {
    CODES.iter().find(|entry| entry.code == code)
}

/// Returns true for a text that has the form of a code, known or not: three words of lower-case letters, digits and
/// hyphens, separated by dots.
pub fn is_code(text: &str) -> bool {
    let is_word = |word: &str| {
        let is_inside = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        word.starts_with(|c: char| c.is_ascii_lowercase())
            && word.chars().all(is_inside)
            && !word.ends_with('-')
    };
    let words: Vec<&str> = text.split('.').collect();
    words.len() == 3 && words.into_iter().all(is_word)
}

/// Renders docs/findings.md.
pub fn page() -> String {
    let mut page = "# Findings\n\n\
        <!-- Made by FINDINGS=write cargo test -p trimwise-linux codes; do not edit. -->\n\n\
        What `trimwise doctor`, the daemon, `trim`, `verify` and `fleet` find has a code, which stays the same over versions\n\
        while sentences may change. It is in the JSON (`code`), in the daemon's metrics (`trimwise_finding`) and in the text, and\n\
        `trimwise explain CODE` prints what stands here.\n"
        .to_owned();
    let mut area = "";
    for Entry { code, severity, meaning, remedy, found_by, page: more, .. } in CODES {
        let this = code.split('.').next().unwrap_or_default();
        if this != area {
            page += &format!("\n## {this}\n");
            area = this;
        }
        // Relative to docs/.
        let more = more.strip_prefix("docs/").unwrap_or(more);
        let file = more.split('#').next().unwrap_or(more);
        page += &format!(
            "\n### {code}\n\n{meaning}\n\n- Severity: {}\n- What to do: {remedy}\n- How it is found: {found_by}\n\
             - More: [{file}]({more})\n",
            severity.word()
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    /// Adds the texts of all Rust files below a folder.
    fn add_sources(folder: &Path, texts: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                add_sources(&path, texts);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                texts.push(fs::read_to_string(path).unwrap());
            }
        }
    }

    /// Returns the body of a test: everything up to the closing brace with the same indentation as its `fn`.
    fn body_of<'a>(sources: &'a [String], name: &str) -> Option<&'a str> {
        let head = format!("fn {name}(");
        let (source, at) = sources.iter().find_map(|source| Some((source, source.find(&head)?)))?;
        let line = source[..at].rfind('\n').map_or(0, |end| end + 1);
        let is_test = source[..line].trim_end().ends_with("#[test]");
        let end = format!("\n{}}}\n", &source[line..at]);
        is_test.then(|| &source[at..at + source[at..].find(&end).unwrap()])
    }

    /// Returns the anchor that GitHub and mdBook make for a heading.
    fn anchor(heading: &str) -> String {
        let kept = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = kept.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    }

    #[test]
    fn codes_are_unique_well_formed_and_in_the_order_of_the_enum() {
        let mut known = BTreeSet::new();
        for entry in CODES {
            assert!(is_code(entry.code), "{} does not have the form area.thing.problem", entry.code);
            assert!(known.insert(entry.code), "{} is listed twice", entry.code);
            for text in [entry.meaning, entry.remedy, entry.found_by] {
                assert!(text.ends_with('.') && text.len() > 5, "{}: '{text}' is not a sentence", entry.code);
            }
            assert_eq!(named(entry.code).map(|found| found.meaning), Some(entry.meaning));
        }
        assert_eq!(Code::LuksDiscardsOff.as_str(), "layer.luks.discards-off");
        assert_eq!(Code::VerifyNotSent.as_str(), "verify.trim.not-sent");
        for other in
            ["/home", "luks", "a.b", "a.b.c.d", "A.b.c", "a..c", "a.b.-c", "a.b.c-", "a.b.c/d", "a.b.1", ""]
        {
            assert!(!is_code(other), "'{other}' has the form of a code");
        }
    }

    #[test]
    fn codes_name_pages_that_there_are() {
        for entry in CODES {
            let (page, heading) = entry.page.split_once('#').unwrap();
            let text = fs::read_to_string(repository().join(page)).unwrap();
            let is_there = text.lines().any(|line| line.starts_with('#') && anchor(line) == heading);
            assert!(is_there, "{}: {page} has no heading #{heading}", entry.code);
        }
    }

    /// Returns the texts of the source files in these folders of all crates.
    fn sources(folders: &[&str]) -> Vec<String> {
        let mut texts = Vec::new();
        for one in fs::read_dir(repository().join("crates")).unwrap().flatten() {
            let folders = folders.iter().map(|name| one.path().join(name));
            folders.filter(|folder| folder.is_dir()).for_each(|folder| add_sources(&folder, &mut texts));
        }
        texts
    }

    /// The text of a finding may change; its code does not.
    #[test]
    fn no_program_asks_the_text_where_there_are_codes() {
        let asks = [
            "contains",
            "starts_with",
            "ends_with",
            "strip_prefix",
            "strip_suffix",
            "split",
            "replace",
            "find",
        ];
        for source in sources(&["src"]) {
            let program = source.split("#[cfg(test)]").next().unwrap();
            for (ask, text) in asks.iter().flat_map(|ask| ["what", "mend", "why_not"].map(|text| (ask, text)))
            {
                let call = format!(".{text}.{ask}(");
                let asking = program.lines().find(|line| line.contains(&call));
                assert_eq!(asking, None, "match the code of the finding, or an enum, instead of its text");
            }
        }
    }

    #[test]
    fn codes_name_tests_that_state_them() {
        let sources = sources(&["src", "tests"]);
        for entry in CODES {
            assert!(!entry.tests.is_empty(), "{}: no test asserts it; name one in code.rs", entry.code);
            for name in entry.tests {
                let body = body_of(&sources, name);
                let body = body.unwrap_or_else(|| panic!("{}: there is no test {name}", entry.code));
                assert!(body.contains(entry.code), "{name} does not state {}", entry.code);
            }
        }
    }

    #[test]
    fn codes_are_on_the_page_of_findings() {
        let file = repository().join("docs/findings.md");
        if env::var_os("FINDINGS").is_some_and(|word| word == "write") {
            fs::write(&file, page()).unwrap();
        }
        let hint = "docs/findings.md is out of date; run FINDINGS=write cargo test -p trimwise-linux codes";
        assert!(fs::read_to_string(&file).unwrap_or_default() == page(), "{hint}");
    }
}
