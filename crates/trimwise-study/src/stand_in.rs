//! Chooses the built-in profile that stands in for a drive of this host.

use trimwise::drives::models::{FILE, Model, SlcKind, known};
use trimwise::drives::{Flash, Link, MapPlace};
use trimwise::profile::Profile;
use trimwise::units::Bytes;
use trimwise_linux::doctor::Transport;
use trimwise_linux::here::Drive;

use crate::conclusion::class::usual_drive;

/// SATA drives of at least this size are assumed to have an SLC cache.
const WITH_SLC_CACHE: u64 = 384_000_000_000;

/// SATA drives up to this year had no SLC cache, with few exceptions that the list names.
const OLD_SATA: u16 = 2014;

/// Flash storage of phones and boards up to this size is assumed to be old.
const OLD_UFS: u64 = 128_000_000_000;

/// The profile that stands in for a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub profile: String,
    /// `model` or `class`.
    pub by: &'static str,
    /// Continues a sentence that names the profile.
    pub why: String,
}

/// Chooses the profile that stands in for a drive: one that names its model, or that of its class, by what is public
/// about the model and by what the host shows.
///
/// # Errors
/// What the drive is, if no profile can stand in for it.
pub fn profile_for(drive: &Drive) -> Result<Chosen, &'static str> {
    // Most profiles name no model, and parsing them all was half of the doctor's time.
    let profile = Profile::embedded_names()
        .filter(|name| Profile::embedded_text(name).is_some_and(|text| text.contains("models")))
        .filter_map(Profile::embedded)
        .find(|profile| profile.describes(&drive.model));
    if let Some(profile) = profile {
        let why = "made from published figures of this model".to_owned();
        return Ok(Chosen { profile: profile.name, by: "model", why });
    }
    if let Some(why) = drive.why_no_ssd() {
        return Err(why);
    }
    let model = known(&drive.model);
    if model.is_some_and(|model| model.flash == Some(Flash::Optane)) {
        return Err("Optane, which has no flash to trim");
    }
    let (name, class) = match model.and_then(|model| Some((model, of_facts(drive, model)?))) {
        Some((model, (name, facts))) => {
            (name, format!("{} {}: {facts}, by {FILE}", model.maker, model.family))
        }
        None => {
            let (name, class) = of_host(drive);
            (name, class.to_owned())
        }
    };
    let why = format!("chosen by class ({class}), since no profile names its model");
    Ok(Chosen { profile: name.to_owned(), by: "class", why })
}

/// Chooses by what is public about the model; `None` if that does not decide. What the host shows of this very drive
/// counts more than the list: makers change parts under the same name.
fn of_facts(drive: &Drive, model: &Model) -> Option<(&'static str, String)> {
    let flash = model.flash_words();
    let keeps = || "its write cache survives a power cut".to_owned();
    match drive.link {
        Transport::Nvme if model.flash == Some(Flash::Qlc) => Some(("nvme-512gb-qlc", flash?)),
        Transport::Nvme if drive.borrows_memory => None,
        Transport::Nvme => match model.map {
            Some(map @ (MapPlace::Hmb | MapPlace::None)) => {
                Some(("nvme-500gb-dramless", map.words().to_owned()))
            }
            _ if model.keeps_writes_at_power_loss == Some(true) => Some(("nvme-960gb-enterprise", keeps())),
            Some(MapPlace::Dram) if drive.is_volatile => {
                let profile = if has_no_slc(model) { "nvme-generic" } else { "nvme-1tb-slc" };
                Some((profile, format!("{} with DRAM", model.flash.map_or("flash", Flash::name))))
            }
            _ => None,
        },
        Transport::Ufs | Transport::Mmc => None,
        // All others that may have a stand-in are SATA drives, behind one thing or another.
        _ if model.keeps_writes_at_power_loss == Some(true) => Some(("sata-960gb-enterprise", keeps())),
        _ if model.flash == Some(Flash::Qlc) => Some(("sata-1tb-qlc", flash?)),
        _ if has_no_slc(model) => {
            let is_old = model.flash != Some(Flash::Tlc) && model.year.is_none_or(|year| year <= OLD_SATA);
            Some((if is_old { "sata-240gb-2012" } else { "sata-generic" }, flash?))
        }
        _ if model.slc.is_some() => Some(("sata-500gb-slc", flash?)),
        _ if model.flash.is_none() => {
            let year = model.year.filter(|&year| year <= OLD_SATA)?;
            Some(("sata-240gb-2012", format!("a SATA SSD of {year}")))
        }
        _ => None,
    }
}

/// Returns true if the drive has no SLC cache, or is of a kind of flash that needs none.
fn has_no_slc(model: &Model) -> bool {
    match model.slc {
        Some(kind) => kind == SlcKind::None,
        None => matches!(model.flash, Some(Flash::Slc | Flash::Mlc)),
    }
}

/// Chooses by what the host shows.
fn of_host(drive: &Drive) -> (&'static str, &'static str) {
    match drive.link {
        Transport::Nvme if drive.borrows_memory => ("nvme-500gb-dramless", "an NVMe drive without DRAM"),
        Transport::Nvme if !drive.is_volatile => {
            ("nvme-960gb-enterprise", "an NVMe drive whose write cache survives a power cut")
        }
        Transport::Nvme => ("nvme-1tb-slc", "an NVMe drive with DRAM"),
        Transport::Ufs | Transport::Mmc if drive.size.0 <= OLD_UFS => {
            ("ufs21-64gb", "UFS or eMMC up to 128 GB")
        }
        Transport::Ufs | Transport::Mmc => ("ufs4-256gb", "UFS or eMMC above 128 GB"),
        _ if !drive.is_volatile => {
            ("sata-960gb-enterprise", "a SATA SSD whose write cache survives a power cut, or is off")
        }
        _ if drive.size.0 >= WITH_SLC_CACHE => ("sata-500gb-slc", "a SATA SSD of 384 GB or more"),
        _ => ("sata-generic", "a SATA SSD below 384 GB"),
    }
}

/// Returns what stands in for drives that report this model: one profile, or two if that depends on the size.
pub fn profiles_for_model(name: &str, model: &Model) -> Result<Vec<Chosen>, &'static str> {
    let link = match model.link {
        Link::Nvme => Transport::Nvme,
        Link::Sata => Transport::Ata,
        Link::Sas => Transport::Scsi,
        Link::Ufs => Transport::Ufs,
        Link::Emmc => Transport::Mmc,
        Link::Usb => Transport::Usb,
    };
    let of_size = |bytes: u64| profile_for(&usual_drive(link, name, Bytes(bytes)));
    let mut chosen = vec![of_size(OLD_UFS)?, of_size(WITH_SLC_CACHE)?];
    chosen.dedup();
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(link: Transport, model: &str, gb: u64) -> Drive {
        usual_drive(link, model, Bytes(gb * 1_000_000_000))
    }

    #[test]
    fn facts_about_the_model_choose_the_class_and_the_line_names_them() {
        for (link, model, gb, profile, fact) in [
            (
                Transport::Nvme,
                "CT1000P1SSD8",
                1000,
                "nvme-512gb-qlc",
                "Crucial P1: QLC with a static and a dynamic SLC cache",
            ),
            (
                Transport::Nvme,
                "CT1000P3SSD8",
                1000,
                "nvme-512gb-qlc",
                "Crucial P3: QLC with a dynamic SLC cache",
            ),
            (
                Transport::Nvme,
                "KBG30ZMS256G NVMe TOSHIBA 256GB",
                256,
                "nvme-500gb-dramless",
                "Toshiba BG3: without DRAM, with its map in the host's memory (HMB)",
            ),
            (
                Transport::Nvme,
                "Samsung SSD 970 EVO 500GB",
                500,
                "nvme-1tb-slc",
                "Samsung 970 EVO: TLC with DRAM",
            ),
            (Transport::Nvme, "SHPP41-2000GM", 2000, "nvme-1tb-slc", "Platinum P41: flash with DRAM"),
            (Transport::Nvme, "Samsung SSD 960 PRO 512GB", 512, "nvme-generic", "960 PRO: MLC with DRAM"),
            (
                Transport::Ata,
                "Samsung SSD 860 QVO 1TB",
                1000,
                "sata-1tb-qlc",
                "860 QVO: QLC with a static and",
            ),
            (Transport::Ata, "Samsung SSD 860 PRO 512GB", 512, "sata-generic", "860 PRO: MLC"),
            (Transport::Ata, "Crucial_CT240M500SSD1", 240, "sata-240gb-2012", "Crucial M500: MLC"),
            (Transport::Ata, "M4-CT128M4SSD2", 128, "sata-240gb-2012", "Crucial m4: a SATA SSD of 2011"),
            (
                Transport::Ata,
                "Samsung SSD 840 EVO 120GB",
                120,
                "sata-500gb-slc",
                "840 EVO: TLC with a static SLC cache",
            ),
            (
                Transport::Ata,
                "INTEL SSDSC2KB480G7",
                480,
                "sata-960gb-enterprise",
                "DC S4500: its write cache survives",
            ),
            // A SATA drive behind a controller that gives away only its model.
            (
                Transport::Scsi,
                "INTEL SSDSC2KB480G7",
                480,
                "sata-960gb-enterprise",
                "DC S4500: its write cache survives",
            ),
        ] {
            let chosen = profile_for(&drive(link, model, gb)).unwrap();
            assert_eq!((chosen.profile.as_str(), chosen.by), (profile, "class"), "{model}");
            assert!(chosen.why.contains(fact), "{model}: {}", chosen.why);
            assert!(
                chosen.why.contains(", by profiles/models.toml), since no profile names"),
                "{}",
                chosen.why
            );
        }
    }

    #[test]
    fn where_the_list_does_not_decide_the_host_does() {
        for (found, profile, class) in [
            // Known, but neither its flash nor its map.
            (drive(Transport::Nvme, "PNY CS3030 500GB", 500), "nvme-1tb-slc", "an NVMe drive with DRAM"),
            (drive(Transport::Nvme, "A drive of nobody", 500), "nvme-1tb-slc", "an NVMe drive with DRAM"),
            (drive(Transport::Ata, "ADATA SU800", 128), "sata-generic", "a SATA SSD below 384 GB"),
            (drive(Transport::Ata, "ADATA SU800", 512), "sata-500gb-slc", "a SATA SSD of 384 GB or more"),
            // The drive itself asks for memory, whatever the list says of its name.
            (
                Drive { borrows_memory: true, ..drive(Transport::Nvme, "Samsung SSD 970 EVO 500GB", 500) },
                "nvme-500gb-dramless",
                "an NVMe drive without DRAM",
            ),
            (
                Drive { is_volatile: false, ..drive(Transport::Nvme, "Samsung SSD 970 EVO 500GB", 500) },
                "nvme-960gb-enterprise",
                "an NVMe drive whose write cache survives a power cut",
            ),
            (
                Drive { is_volatile: false, ..drive(Transport::Ata, "A drive of nobody", 250) },
                "sata-960gb-enterprise",
                "a SATA SSD whose write cache survives a power cut, or is off",
            ),
        ] {
            let chosen = profile_for(&found).unwrap();
            assert_eq!(chosen.profile, profile, "{found:?}");
            assert_eq!(chosen.why, format!("chosen by class ({class}), since no profile names its model"));
        }
    }

    #[test]
    fn a_profile_of_the_model_comes_before_its_class() {
        let chosen = profile_for(&drive(Transport::Ata, "Samsung SSD 870 EVO 500GB", 500)).unwrap();
        assert_eq!((chosen.profile.as_str(), chosen.by), ("sata-500gb-slc", "model"));
        let chosen = profile_for(&drive(Transport::Nvme, "Samsung SSD 970 EVO 1TB", 1000)).unwrap();
        assert_eq!((chosen.profile.as_str(), chosen.by), ("nvme-1tb-slc", "model"));
    }

    #[test]
    fn what_is_no_flash_drive_of_this_host_has_no_stand_in() {
        let ssd = drive(Transport::Nvme, "Samsung SSD 970 EVO 500GB", 500);
        for (found, why) in [
            (drive(Transport::Virtio, "", 20), "a virtual disk"),
            (drive(Transport::Xen, "", 20), "a virtual disk"),
            (
                Drive { is_virtual: true, ..drive(Transport::Nvme, "Amazon Elastic Block Store", 20) },
                "a virtual",
            ),
            (Drive { is_below_loop: true, ..ssd.clone() }, "a loop device"),
            (Drive { name: "zram0".to_owned(), ..drive(Transport::Other, "", 4) }, "a RAM disk"),
            (drive(Transport::Scsi, "LOGICAL VOLUME", 900), "a disk that does not show what drive it is"),
            (drive(Transport::Other, "", 900), "a disk that does not show what drive it is"),
            (drive(Transport::Nvme, "INTEL MEMPEK1J032GA", 29), "Optane"),
        ] {
            let refused = profile_for(&found).unwrap_err();
            assert!(refused.starts_with(why), "{refused}");
        }
        assert!(profile_for(&ssd).is_ok());
    }

    #[test]
    fn a_model_without_a_size_may_have_two_stand_ins() {
        let of = |name: &str| {
            let chosen = profiles_for_model(name, known(name).unwrap());
            chosen.map(|all| all.into_iter().map(|one| one.profile).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of("CT1000P1SSD8").unwrap(), "nvme-512gb-qlc");
        assert_eq!(of("ADATA SU800").unwrap(), "sata-generic sata-500gb-slc");
        assert_eq!(of("IY2964").unwrap(), "ufs21-64gb ufs4-256gb");
        assert!(of("INTEL MEMPEK1J032GA").unwrap_err().starts_with("Optane"));
    }
}
