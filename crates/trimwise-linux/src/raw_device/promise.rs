//! Finds out if a device promises that trimmed units read as zeros.
//!
//! Without the promise neither zeros nor old data prove anything: a drive may return either from one read to the next.
//! The sources are: for ATA, word 69 of IDENTIFY DEVICE (bit 14: reads are deterministic, DRAT; bit 5: and zeros,
//! RZAT), with word 169 bit 0 for TRIM itself; for SCSI, LBPRZ of the page Logical Block Provisioning; for NVMe, DLFEAT
//! of Identify Namespace (bits 2 to 0: 001b). The kernel exposes the pages of ATA and SCSI in sysfs (`vpd_pg89`, Linux
//! 5.5, and `vpd_pgb2`, 5.17); NVMe is queried directly. A loop device punches holes and zram drops pages, so both
//! promise zeros too.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd as _;

use crate::block_device::BlockDevice;
use crate::ioctl::nvme_identify_namespace;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Promise {
    Zeros { by: String },
    Nothing { why: String },
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros { by } => write!(f, "zeros are promised after TRIM ({by})"),
            Self::Nothing { why } => write!(f, "nothing is promised about reads after TRIM ({why})"),
        }
    }
}

impl Promise {
    pub fn is_zeros(&self) -> bool {
        matches!(self, Self::Zeros { .. })
    }

    /// Returns the promise of the disk of `device`. `file` is open on that device, or on another part of its disk.
    pub fn of(device: &BlockDevice, file: &File) -> Self {
        let disk = device.sysfs.whole();
        let name = disk.name();
        let says = |is_promised: Option<bool>, yes: &str, no: &str| match is_promised {
            Some(true) => Self::Zeros { by: yes.to_owned() },
            Some(false) => Self::Nothing { why: no.to_owned() },
            None => Self::Nothing { why: format!("the response of {name} cannot be parsed") },
        };
        if name.starts_with("loop") {
            return Self::Zeros { by: "a loop device punches holes into its file".to_owned() };
        }
        if name.starts_with("zram") {
            return Self::Zeros { by: "zram drops trimmed pages".to_owned() };
        }
        if name.starts_with("nvme") {
            return match nvme_identify_namespace(file.as_fd()) {
                Ok(answer) => says(
                    dlfeat_promises_zeros(&answer[..]),
                    "NVMe: DLFEAT is 001b",
                    "NVMe: DLFEAT is not 001b",
                ),
                Err(error) => Self::Nothing { why: format!("NVMe Identify Namespace failed: {error}") },
            };
        }
        if let Some(page) = disk.bytes("device/vpd_pg89") {
            // The page has a header of 60 bytes before the IDENTIFY DEVICE data.
            let identify = page.get(60..).unwrap_or_default();
            return says(identify_promises_zeros(identify), "ATA: RZAT", "ATA: no RZAT");
        }
        if let Some(page) = disk.bytes("device/vpd_pgb2") {
            return says(lbprz_promises_zeros(&page), "SCSI: LBPRZ", "SCSI: no LBPRZ");
        }
        Self::Nothing { why: format!("Linux does not report it for {name}") }
    }
}

/// Returns true if an ATA drive promises zeros, from the 512 bytes of its IDENTIFY DEVICE data; `None` if there are
/// fewer.
pub fn identify_promises_zeros(identify: &[u8]) -> Option<bool> {
    let word = |n: usize| Some(u16::from_le_bytes(identify.get(2 * n..2 * n + 2)?.try_into().ok()?));
    let (support, trim) = (word(69)?, word(169)?);
    word(255)?;
    Some(trim & 1 != 0 && support & (1 << 14) != 0 && support & (1 << 5) != 0)
}

/// Returns true if a SCSI device promises zeros, from its page B2h (Logical Block Provisioning); `None` if that is
/// another page or too short. LBPRZ is the lowest of three bits: xx1b means zeros, 010b a vendor-specific pattern.
pub fn lbprz_promises_zeros(page: &[u8]) -> Option<bool> {
    (page.get(1) == Some(&0xb2)).then_some(())?;
    page.get(5).map(|byte| byte & (1 << 2) != 0)
}

/// Returns true if an NVMe namespace promises zeros, from the 4,096 bytes of its Identify Namespace data; `None` if
/// there are fewer.
pub fn dlfeat_promises_zeros(namespace: &[u8]) -> Option<bool> {
    namespace.get(4095)?;
    namespace.get(33).map(|byte| byte & 0b111 == 0b001)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identify(words: &[(usize, u16)]) -> Vec<u8> {
        let mut identify = vec![0; 512];
        for &(n, word) in words {
            identify[2 * n..2 * n + 2].copy_from_slice(&word.to_le_bytes());
        }
        identify
    }

    #[test]
    fn ata_promises_zeros_with_trim_drat_and_rzat_only() {
        let promised = |words: &[(usize, u16)]| identify_promises_zeros(&identify(words));
        assert_eq!(promised(&[(69, 1 << 14 | 1 << 5), (169, 1)]), Some(true));
        assert_eq!(promised(&[(69, 1 << 14), (169, 1)]), Some(false), "deterministic, but not zeros");
        assert_eq!(promised(&[(69, 1 << 5), (169, 1)]), Some(false), "RZAT has no meaning without DRAT");
        assert_eq!(promised(&[(69, 1 << 14 | 1 << 5)]), Some(false), "no TRIM");
        assert_eq!(identify_promises_zeros(&[0; 511]), None);
    }

    #[test]
    fn scsi_and_nvme_encode_it_in_three_bits() {
        let page = |byte| [0, 0xb2, 0, 4, 0, byte, 2, 0];
        assert_eq!(lbprz_promises_zeros(&page(0xe4)), Some(true));
        assert_eq!(lbprz_promises_zeros(&page(0xe8)), Some(false));
        assert_eq!(lbprz_promises_zeros(&page(0xe0)), Some(false));
        assert_eq!(lbprz_promises_zeros(&[0, 0xb0, 0, 4, 0, 4]), None);
        assert_eq!(lbprz_promises_zeros(&[0, 0xb2]), None);
        let namespace = |byte| {
            let mut answer = vec![0; 4096];
            answer[33] = byte;
            dlfeat_promises_zeros(&answer)
        };
        assert_eq!([0b1001, 0b0010, 0b0000].map(namespace), [Some(true), Some(false), Some(false)]);
        assert_eq!(dlfeat_promises_zeros(&[1; 100]), None);
    }
}
