//! The text of what is public about a model.

use trimwise::drives::models::{Model, SlcKind};
use trimwise::drives::{Flash, MapPlace};
use trimwise_study::devices::KnownModel;

use crate::table::{described, export, folded, plain};

const NOT_KNOWN: &str = "not known";

/// Renders the facts with their sources, and what stands in for such a drive.
pub fn text(model: &KnownModel) -> String {
    let facts = rows(model.facts);
    export::keep(
        "",
        &["fact", "value"],
        facts.iter().map(|(fact, value)| [(*fact).to_owned(), value.clone()]),
        &[],
    );
    let Model { maker, family, names, sources, .. } = model.facts;
    let mut text = folded(&format!("{}: {maker} {family}", plain(&model.model)), 0);
    text += &format!("\n{}\n", described(&facts, 2));
    for one in &model.stand_ins {
        text += &folded(&format!("In its place: {}, {}.", one.profile, one.why), 0);
    }
    if let Some(why) = model.why_none {
        text += &folded(&format!("Nothing stands in its place: it is {why}."), 0);
    }
    text += "\nSources:\n";
    text.extend(sources.iter().map(|source| folded(source, 2)));
    text += &folded(&format!("Names: {}", names.join(", ")), 0);
    text + &folded(
        "Makers change parts under the same name; what no source says is not known, never \"no\".",
        0,
    )
}

fn rows(model: &Model) -> Vec<(&'static str, String)> {
    let kind = model.slc.map(|kind| slc_words(kind).to_owned());
    let size = model.slc_gb_per_tb.map(|gb| format!("{gb} GB per TB when empty"));
    let slc: Vec<String> = kind.into_iter().chain(size).collect();
    let facts = [
        ("link", Some(model.link.name().to_owned())),
        ("flash", model.flash.map(|flash| flash_words(flash).to_owned())),
        ("map", model.map.map(|map| map_words(map).to_owned())),
        ("SLC cache", (!slc.is_empty()).then(|| slc.join(", "))),
        ("spare flash", model.spare_percent.map(|percent| format!("{percent} %"))),
        ("writes at a power cut", model.keeps_writes_at_power_loss.map(power_words)),
        ("TRIM", model.trim_quirk.map(|quirk| quirk.words().to_owned())),
        ("year", model.year.map(|year| year.to_string())),
    ];
    facts.into_iter().map(|(fact, value)| (fact, value.unwrap_or_else(|| NOT_KNOWN.to_owned()))).collect()
}

const fn flash_words(flash: Flash) -> &'static str {
    match flash {
        Flash::Optane => "none (Optane)",
        flash => flash.name(),
    }
}

const fn slc_words(kind: SlcKind) -> &'static str {
    match kind {
        SlcKind::None => "none",
        SlcKind::Static => "static",
        SlcKind::Dynamic => "dynamic, of free space",
        SlcKind::Hybrid => "static and dynamic",
    }
}

const fn map_words(map: MapPlace) -> &'static str {
    match map {
        MapPlace::Dram => "in DRAM on the drive",
        MapPlace::Hmb => "partly in the host's memory (HMB)",
        MapPlace::None => "in the controller and the flash, without DRAM",
    }
}

fn power_words(are_kept: bool) -> String {
    (if are_kept { "kept, says the maker" } else { "lost" }).to_owned()
}

#[cfg(test)]
mod tests {
    use trimwise_study::devices::known_model;

    use super::*;

    fn shown(model: &str) -> String {
        text(&known_model(model).unwrap()).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn facts_are_shown_with_what_stands_in_and_their_sources() {
        let p1 = shown("CT1000P1SSD8");
        for expected in [
            "CT1000P1SSD8: Crucial P1 link NVMe flash QLC map in DRAM on the drive SLC cache static and dynamic, 140 GB per \
             TB when empty spare flash not known writes at a power cut not known TRIM not known year 2018",
            "In its place: nvme-512gb-qlc, chosen by class (Crucial P1: QLC with a static and a dynamic SLC cache, by \
             profiles/models.toml), since no profile names its model.",
            "Sources: linuxhw/SMART: All_NVMe.md",
        ] {
            assert!(p1.contains(expected), "{p1}");
        }
        let sata = shown("INTEL SSDSC2BA400G3");
        assert!(sata.contains("spare flash 41.7 % writes at a power cut kept, says the maker"), "{sata}");
        let quirk = shown("Samsung SSD 860 PRO 512GB");
        assert!(quirk.contains("TRIM Linux sends it no queued TRIM"), "{quirk}");
        assert!(shown("INTEL MEMPEK1J032GA").contains("Nothing stands in its place: it is Optane"));
    }
}
