//! Drives whose TRIM the kernel lists as faulty, by model and firmware.
//!
//! From `__ata_dev_quirks` in Linux's drivers/ata/libata-core.c (6.12). The kernel works around these faults; the
//! report still says what that costs. The NVMe driver's quirks say what a deallocated block reads as
//! (`NVME_QUIRK_DEALLOCATE_ZEROES`) and forbid Write Zeroes (`NVME_QUIRK_DISABLE_WRITE_ZEROES`), never Deallocate; USB storage
//! has none about UNMAP. Drives that users have reported, and eMMC with `MMC_QUIRK_TRIM_BROKEN`, are in a list of their own.

use trimwise::drives::wildcard::matches;

/// A fault in a drive's TRIM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quirk {
    /// Queued TRIM loses data; the kernel sends unqueued TRIMs, each of which drains the queue.
    NoQueuedTrim,
    /// TRIM is faulty; the kernel sends none.
    NoTrim,
}

/// Patterns for model and firmware (empty: any); `*` matches any text, brackets one of their characters.
const LIST: [(&str, &str, Quirk); 16] = [
    ("Micron_M500IT_*", "MU01", Quirk::NoQueuedTrim),
    ("Micron_M500_*", "", Quirk::NoQueuedTrim),
    ("Micron_M5[15]0_*", "MU01", Quirk::NoQueuedTrim),
    ("Micron_1100_*", "", Quirk::NoQueuedTrim),
    ("Crucial_CT*M500*", "", Quirk::NoQueuedTrim),
    ("Crucial_CT*M550*", "MU01", Quirk::NoQueuedTrim),
    ("Crucial_CT*MX100*", "MU01", Quirk::NoQueuedTrim),
    ("Samsung SSD 840 EVO*", "", Quirk::NoQueuedTrim),
    ("Samsung SSD 840*", "", Quirk::NoQueuedTrim),
    ("Samsung SSD 850*", "", Quirk::NoQueuedTrim),
    ("Samsung SSD 860*", "", Quirk::NoQueuedTrim),
    ("Samsung SSD 870*", "", Quirk::NoQueuedTrim),
    ("SAMSUNG*MZ7LH*", "", Quirk::NoQueuedTrim),
    ("FCCT*M500*", "", Quirk::NoQueuedTrim),
    ("M88V29*", "", Quirk::NoTrim),
    ("SuperSSpeed S238*", "", Quirk::NoTrim),
];

/// A fault that somebody has reported of a drive, or that only concerns how TRIM is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported {
    model: &'static str,
    /// Empty: any.
    firmware: &'static str,
    pub what: &'static str,
    pub mend: &'static str,
    pub source: &'static str,
}

const MMC: &str = "MMC_QUIRK_TRIM_BROKEN in Linux's drivers/mmc/core/quirks.h";
const HANGS: &str = "if the host stops while fstrim runs, switch fstrim.timer off (`systemctl disable --now fstrim.timer`), mount \
                     without discard, and look for newer firmware";
const ERASES: &str =
    "nothing: the kernel knows it, and erases whole groups in place of TRIM, which takes longer";

const REPORTED: [Reported; 6] = [
    Reported {
        model: "Netac NVMe SSD*",
        firmware: "SN26904",
        what: "one such drive was reported to hang under fstrim, and the host with it",
        mend: HANGS,
        source: "https://github.com/util-linux/util-linux/issues/4576",
    },
    Reported {
        model: "BIWIN CE430T5D100-*",
        firmware: "1.4.7.67",
        what: "such drives were reported to acknowledge TRIM and to ignore it",
        mend: "try it: `trimwise verify dir:PATH`; look for newer firmware",
        source: "https://github.com/raspberrypi/linux/issues/6627",
    },
    Reported {
        model: "V10008",
        firmware: "",
        what: "TRIM now and then destroys data on this eMMC of Kingston",
        mend: ERASES,
        source: MMC,
    },
    Reported {
        model: "V10016",
        firmware: "",
        what: "TRIM now and then destroys data on this eMMC of Kingston",
        mend: ERASES,
        source: MMC,
    },
    Reported {
        model: "M62704",
        firmware: "",
        what: "this eMMC of Kingston offers TRIM and does not carry it out",
        mend: ERASES,
        source: MMC,
    },
    Reported {
        model: "Q2J54A",
        firmware: "",
        what: "this eMMC of Micron offers TRIM and does not carry it out",
        mend: ERASES,
        source: MMC,
    },
];

/// Returns what was reported of a drive, if anything.
pub(crate) fn reported(model: &str, firmware: &str) -> Option<&'static Reported> {
    REPORTED
        .iter()
        .find(|one| matches(one.model, model) && (one.firmware.is_empty() || one.firmware == firmware))
}

/// Returns the known fault of a drive, if any.
pub fn of(model: &str, firmware: &str) -> Option<Quirk> {
    let found = LIST.iter().find(|(models, firmwares, _)| {
        matches(models, model) && (firmwares.is_empty() || matches(firmwares, firmware))
    });
    found.map(|&(_, _, quirk)| quirk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_matched_by_model_and_firmware() {
        assert_eq!(of("Samsung SSD 860 EVO 500GB", "RVT01B6Q"), Some(Quirk::NoQueuedTrim));
        assert_eq!(of("Crucial_CT512MX100SSD1", "MU01"), Some(Quirk::NoQueuedTrim));
        assert_eq!(of("Crucial_CT512MX100SSD1", "MU02"), None);
        assert_eq!(of("Micron_M550_MTFD", "MU01"), Some(Quirk::NoQueuedTrim));
        assert_eq!(of("Micron_M540_MTFD", "MU01"), None);
        assert_eq!(of("SuperSSpeed S238 120G", "x"), Some(Quirk::NoTrim));
        assert_eq!(of("INTEL SSDSC2BB480G4", "D2010370"), None);
    }
}
