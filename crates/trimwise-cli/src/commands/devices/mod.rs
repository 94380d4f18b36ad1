//! `trimwise devices`: the built-in profiles, one in full, what is public about a model, and published measurements.

pub mod arguments;
mod facts;
mod measured;
pub mod table;

use trimwise::failure::Failure;
use trimwise_study::{devices, import};

use crate::commands::devices::arguments::DevicesArguments;
use crate::output::{self, Destinations};

pub fn run(arguments: &DevicesArguments) -> Result<String, Failure> {
    let destinations = Destinations::check_forms(&arguments.json, &arguments.tables)?;
    if let Some(file) = &arguments.import {
        let imported = import::import(file)?;
        destinations.deliver(&imported, String::new)?;
        // This text is meant to be saved as a file, so its lines are not wrapped.
        return match destinations.result_to_stdout() {
            true => Ok(String::new()),
            false => output::print_always(&imported.profile).map(|()| String::new()),
        };
    }
    if let Some(pattern) = &arguments.measured {
        let measured = devices::measured(pattern.as_deref())?;
        let has_summary = pattern.is_none();
        return destinations.deliver(&measured, || measured::text(&measured, has_summary, arguments.details));
    }
    if let Some(model) = arguments.device.as_deref().and_then(devices::known_model) {
        return destinations.deliver(&model, || facts::text(&model));
    }
    match &arguments.device {
        None => {
            let all = devices::all();
            destinations.deliver(&all, || table::list(&all.devices))
        }
        Some(argument) => {
            let one = devices::one(argument)?;
            destinations.deliver(&one, || table::full(&one.device, &one.settings, &one.ranges))
        }
    }
}

#[cfg(test)]
mod tests {
    use trimwise::profile::Profile;

    use super::*;
    use crate::arguments::{JsonArguments, TableArguments};

    fn text(device: Option<&str>) -> String {
        run(&DevicesArguments {
            device: device.map(str::to_owned),
            import: None,
            measured: None,
            details: false,
            json: JsonArguments::default(),
            tables: TableArguments::default(),
        })
        .unwrap()
    }

    #[test]
    fn the_list_fits_and_names_every_profile_and_every_firmware() {
        let list = text(None);
        assert!(list.lines().all(|line| line.chars().count() <= 100), "{list}");
        for name in Profile::embedded_names() {
            let profile = Profile::embedded(name).unwrap();
            let at = list.lines().position(|line| line.split_whitespace().next() == Some(name));
            let at = at.unwrap_or_else(|| panic!("{name} is not in\n{list}"));
            let below: String = list.lines().skip(at + 1).take(3).collect::<Vec<_>>().join(" ");
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words(&below).contains(&words(&profile.description)), "{name}: {below}");
            for firmware in &profile.firmware_variants {
                assert!(below.contains(&firmware.version), "{name}: {below}");
            }
        }
    }

    #[test]
    fn every_profile_is_shown_in_full_with_its_sources() {
        for name in Profile::embedded_names() {
            let profile = Profile::embedded(name).unwrap();
            let variants = profile.firmware_variants.iter().map(|v| profile.name_with(&v.version));
            for name in std::iter::once(name.to_owned()).chain(variants) {
                let full = text(Some(&name));
                // Only a single long word may exceed a line.
                assert!(full.lines().all(|line| line.chars().count() <= 100), "{full}");
                assert!(full.starts_with(&format!("{name}: ")), "{full}");
                let profile = Profile::embedded(&name).unwrap();
                let all: String = full.split_whitespace().collect::<Vec<_>>().join(" ");
                for setting in &profile.settings {
                    assert!(all.contains(&format!("{} = ", setting.name)), "{name}: {}", setting.name);
                    let source = profile.source(&setting.name).unwrap();
                    assert!(
                        all.contains(&source.split_whitespace().collect::<Vec<_>>().join(" ")),
                        "{source}"
                    );
                }
            }
        }
        let variant = text(Some("vertex-60gb@1.41"));
        assert!(variant.contains("trim.kind = unsupported (firmware 1.41)"), "{variant}");
    }

    #[test]
    fn the_json_has_units_in_its_keys_and_the_source_of_each_number() {
        let dir = tempfile::tempdir().unwrap();
        let json = |device: Option<&str>, name: &str| -> serde_json::Value {
            let path = dir.path().join(name);
            let device = device.map(str::to_owned);
            run(&DevicesArguments {
                device,
                import: None,
                measured: None,
                details: false,
                json: JsonArguments { json: Some(path.clone()), force: false },
                tables: TableArguments::default(),
            })
            .unwrap();
            serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
        };
        let list = json(None, "list");
        assert_eq!(list["devices"].as_array().unwrap().len(), Profile::embedded_names().count());
        let one = json(Some("vertex-60gb@1.3"), "one");
        assert_eq!(one["device"]["capacity_bytes"], 64_023_257_088_u64);
        assert_eq!(one["device"]["firmware"], "1.3");
        assert_eq!(one["device"]["firmware_variants"][0]["version"], "1.3");
        assert!(one["device"]["trim"].is_null() && one["device"]["slc"].is_null());
        let setting = |name: &str| {
            let settings = one["settings"].as_array().unwrap();
            settings.iter().find(|s| s["setting"] == name).unwrap().clone()
        };
        let prog = setting("nand.t_prog_ns");
        assert_eq!((&prog["value"], &prog["by_firmware"]), (&800_000.into(), &false.into()));
        assert!(prog["source"].as_str().unwrap().contains("K9GAG08U0M"));
        let idle = setting("gc.idle");
        assert_eq!((&idle["value"], &idle["by_firmware"]), (&false.into(), &true.into()));
    }
}
