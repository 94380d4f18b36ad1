//! Drives whose TRIM the kernel lists as faulty, by model and firmware.
//!
//! From `__ata_dev_quirks` in Linux's drivers/ata/libata-core.c (6.12). The kernel works around these faults; the
//! report still says what that costs. NVMe has no such list.

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
