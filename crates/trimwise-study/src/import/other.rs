//! Files of simulators that are known and not imported.

pub(super) const ACCEPTED: &str = "MQSim's ssdconfig.xml, SimpleSSD 2's configuration ([pal], [ftl]) or a script or \
                                   command line with FEMU's options (-device femu,...)";
const BY_HAND: &str = "a drive of MQSim, SimpleSSD 2 or FEMU; for this one, a profile by hand with its numbers (as the \
                       files in profiles/)";
const DRIVE_OF_SIMPLESSD: &str = "SimpleSSD's own file next to it, which has the drive: simplessd/config/sample.cfg, with \
                                  a section [pal]";

/// Words that all occur in a file, what it is, and what would be accepted.
const FILES: [(&[&str], &str, &str); 8] = [
    (&["[generator]", "[trace]"], "a run of SimpleSSD-Standalone, not its drive", DRIVE_OF_SIMPLESSD),
    (&["<standalone"], "a run of SimpleSSD-Standalone 3, not its drive", BY_HAND),
    (&["<simplessd"], "a drive of SimpleSSD 3, whose XML is not read", BY_HAND),
    (&["NumChannel", "NumPackage"], "a drive of SimpleSSD 1", BY_HAND),
    (&["PACKAGE_SIZE", "PLANE_SIZE", "BLOCK_ERASE_DELAY"], "a drive of FlashSim (ssd.conf)", BY_HAND),
    (&["chip number[0]", "t_PROG"], "a drive of SSDsim (page.parameters)", BY_HAND),
    (&["#define NAND_CHANNELS", "LUNS_PER_NAND_CH"], "drives of NVMeVirt (ssd_config.h)", BY_HAND),
    (&["disksim_iosim", "disksim_"], "a drive of DiskSim", BY_HAND),
];

/// Returns what a file is, and what would be accepted instead; `None` if it may be a drive that is imported.
pub(super) fn named(text: &str) -> Option<(&'static str, &'static str)> {
    let is_simplessd_2 = text.contains("[pal]");
    let found = FILES.iter().find(|(words, ..)| words.iter().all(|word| text.contains(word)))?;
    (!is_simplessd_2).then_some((found.1, found.2))
}
