//! Chooses the built-in profile that stands in for a drive of this host.

use trimwise::profile::Profile;
use trimwise_linux::doctor::Transport;
use trimwise_linux::here::Drive;

/// SATA drives of at least this size are assumed to have an SLC cache.
const WITH_SLC_CACHE: u64 = 384_000_000_000;

/// Flash storage of phones and boards up to this size is assumed to be old.
const OLD_UFS: u64 = 128_000_000_000;

/// Returns the name of the profile, how it was chosen, and why.
pub fn profile_for(drive: &Drive) -> (String, &'static str, String) {
    // Most profiles name no model, and parsing them all was half of the doctor's time.
    let model = Profile::embedded_names()
        .filter(|name| Profile::embedded_text(name).is_some_and(|text| text.contains("models")))
        .filter_map(Profile::embedded)
        .find(|profile| profile.describes(&drive.model));
    if let Some(profile) = model {
        return (profile.name, "model", "made from published figures of this model".to_owned());
    }
    let (name, class) = match drive.link {
        Transport::Nvme if drive.borrows_memory => ("nvme-500gb-dramless", "an NVMe drive without DRAM"),
        Transport::Nvme if !drive.is_volatile => {
            ("nvme-960gb-enterprise", "an NVMe drive whose write cache survives a power cut")
        }
        Transport::Nvme => ("nvme-generic", "an NVMe drive with DRAM"),
        Transport::Ufs | Transport::Mmc if drive.size.0 <= OLD_UFS => {
            ("ufs21-64gb", "UFS or eMMC up to 128 GB")
        }
        Transport::Ufs | Transport::Mmc => ("ufs4-256gb", "UFS or eMMC above 128 GB"),
        Transport::Ata | Transport::AtaBehindSas | Transport::Usb if drive.size.0 >= WITH_SLC_CACHE => {
            ("sata-500gb-slc", "a SATA SSD of 384 GB or more")
        }
        Transport::Ata | Transport::AtaBehindSas | Transport::Usb => {
            ("sata-generic", "a SATA SSD below 384 GB")
        }
        Transport::Virtio
        | Transport::Xen
        | Transport::Network(_)
        | Transport::Drbd
        | Transport::Zvol
        | Transport::Scsi
        | Transport::Other => ("sata-generic", "a guess, since nothing shows what flash is below this disk"),
    };
    (name.to_owned(), "class", format!("chosen by class ({class}), since no profile names its model"))
}
