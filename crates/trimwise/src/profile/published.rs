//! Profiles to compare with published measurements: drives in terms of the built-in profile that is nearest.

use super::reader::{Found, Source, entries};
use super::{Profile, ProfileError, document};

const FILE: &str = "profiles/published.toml";
const TEXT: &str = include_str!("../../../../profiles/published.toml");

impl Profile {
    /// Returns the profiles of drives whose writes were measured dirty and clean, each named as its drive is in the
    /// register of measurements. They are made of public specifications.
    ///
    /// # Errors
    /// The first error in the file, which a test rules out.
    pub fn published() -> Result<Vec<Self>, ProfileError> {
        published(TEXT)
    }
}

fn published(text: &str) -> Result<Vec<Profile>, ProfileError> {
    let source = Source { text, file: FILE, variant: None };
    let all = document(source)?;
    let mut profiles = Vec::new();
    for (base, at, drives) in entries(Some(&all)) {
        let Some(text) = Profile::embedded_text(base) else {
            return Err(source.refuse(&at, format!("{base} is not accepted; expected a built-in profile")));
        };
        let base = document(Source { text, file: base, variant: None })?;
        for (drive, at, table) in entries(Some(drives)) {
            let source = Source { variant: Some((drive, at.start)), ..source };
            let found = Found { file: Some(&base), variant: Some(table) };
            let profile = Profile::read(source, found, u64::MAX)?;
            profiles.push(Profile { name: drive.to_owned(), models: Vec::new(), ..profile });
        }
    }
    Ok(profiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_that_a_published_drive_sets_has_a_source_of_its_own() {
        let all: toml::Table = TEXT.parse().unwrap();
        let set: Vec<_> = all.values().flat_map(|drives| drives.as_table().unwrap()).collect();
        let profiles = Profile::published().unwrap();
        assert_eq!(profiles.len(), set.len());
        for (drive, table) in set {
            let profile = profiles.iter().find(|profile| profile.name == *drive).unwrap();
            let own = table["sources"].as_table().unwrap();
            for setting in profile.settings.iter().filter(|setting| setting.by_firmware) {
                let table = setting.name.split_once('.').map_or("", |(table, _)| table);
                let is_told = own.contains_key(&setting.name) || own.contains_key(table);
                assert!(is_told, "{drive}: {} has no source of its own", setting.name);
            }
        }
    }

    #[test]
    fn a_published_drive_is_its_base_but_for_what_it_sets() {
        let text = "[\"nvme-1tb-slc\".\"A drive\"]\nslc = { static_superblocks = 7 }\n\
                    [\"nvme-1tb-slc\".\"A drive\".sources]\n\"slc.static_superblocks\" = \"a review\"\n";
        let [drive] = published(text).unwrap().try_into().unwrap();
        let mut base = Profile::embedded("nvme-1tb-slc").unwrap();
        base.config.slc.as_mut().unwrap().static_superblocks = 7;
        assert_eq!(drive.config, base.config);
        assert_eq!((drive.name.as_str(), drive.models.len()), ("A drive", 0));
        assert_eq!(drive.source("slc.static_superblocks"), Some("a review"));
        assert_eq!(drive.source("nand.t_prog_ns"), base.source("nand.t_prog_ns"));
        let refused = |text: &str| published(text).unwrap_err().to_string();
        assert_eq!(
            refused("[no-base.\"A drive\"]\n"),
            "profiles/published.toml:1: no-base is not accepted; expected a built-in profile"
        );
        assert!(refused(&text.replace("= 7", "= -7")).starts_with("profiles/published.toml:2: "));
    }
}
