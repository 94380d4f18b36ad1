//! Profiles as a user writes them: every refusal names file, line, setting and value; no text panics.

use proptest::prelude::*;
use trimwise::profile::{Profile, Setting, SettingValue};
use trimwise::ssd::{
    BlockMappingConfig, Faults, MapCacheConfig, MappingConfig, Ssd, SsdConfig, TrimKind, TrimMap, TrimPlace,
};

fn small() -> &'static str {
    Profile::embedded_text("sata-small").expect("an embedded profile")
}

/// The message after one line of the small profile was replaced.
fn refusal(from: &str, to: &str) -> String {
    assert!(small().contains(from), "{from} is not in the profile");
    let text = small().replacen(from, to, 1);
    Profile::parse(&text, "my.toml").expect_err("must be refused").to_string()
}

fn line_of(text: &str) -> usize {
    1 + small().lines().position(|line| line.starts_with(text)).expect("a line of the profile")
}

#[test]
fn every_embedded_profile_is_valid_and_its_numbers_have_a_source() {
    for name in Profile::embedded_names() {
        let text = Profile::embedded_text(name).unwrap();
        let profile = Profile::parse(text, name).unwrap();
        assert_eq!(profile.name, name);
        assert_eq!(Profile::embedded(name), Some(profile.clone()));
        let mut table = String::new();
        for line in text.lines().take_while(|&line| line != "[sources]") {
            if let Some(header) = line.strip_prefix('[') {
                table = format!("{}.", header.trim_end_matches(']'));
            } else if let Some((key, _)) = line.split_once(" = ")
                && !["name", "description", "models"].contains(&key)
            {
                assert!(
                    profile.source(&format!("{table}{key}")).is_some(),
                    "{name}: {table}{key} has no source"
                );
            }
        }
    }
}

/// A variant says for itself where its numbers come from: those of the file are about other numbers.
#[test]
fn every_variant_of_an_embedded_profile_has_a_description_and_sources_of_its_own() {
    let mut variants = 0;
    for name in Profile::embedded_names() {
        let text = Profile::embedded_text(name).unwrap();
        let base = Profile::embedded(name).unwrap();
        let document: toml::Table = text.parse().unwrap();
        for firmware in &base.firmware_variants {
            variants += 1;
            let full_name = base.name_with(&firmware.version);
            let variant = Profile::embedded(&full_name).unwrap();
            assert_eq!(variant.name, full_name);
            assert!(firmware.description.is_some(), "{full_name} does not say what is different");
            let tables = document["firmware"][&firmware.version].as_table().unwrap();
            let set = tables.iter().filter(|(key, _)| !["description", "sources"].contains(&key.as_str()));
            for (table, settings) in set {
                for key in settings.as_table().unwrap().keys() {
                    let setting = format!("{table}.{key}");
                    let sources = tables.get("sources").and_then(|sources| sources.as_table());
                    assert!(
                        sources.is_some_and(|s| s.contains_key(&setting) || s.contains_key(table)),
                        "{full_name}: {setting} has no source"
                    );
                }
            }
            let same = (&variant.config, variant.faults) == (&base.config, base.faults);
            assert_eq!(same, tables.len() == 1, "{full_name} sets what is set already, or nothing");
        }
    }
    assert_eq!(variants, 7);
}

#[test]
fn the_vertex_has_the_four_firmwares_of_the_article() {
    let facts = |version: &str| {
        let profile = Profile::embedded(&format!("vertex-60gb@{version}")).unwrap();
        (profile.config.trim.is_supported(), profile.config.gc.idle)
    };
    assert_eq!(
        ["1.3", "1.4", "1.41", "1.5"].map(facts),
        [(false, false), (true, false), (false, true), (true, true)]
    );
    assert_eq!(Profile::embedded("vertex-60gb@1.6"), None);
}

#[test]
fn the_force_gs_has_the_fault_that_was_found_and_mended() {
    let trims = |version: &str| {
        Profile::embedded(&format!("sandforce-240gb@{version}")).unwrap().faults.trims_percent
    };
    assert_eq!(["3.x", "5.0.2", "5.0.3"].map(trims), [100, 50, 100]);
}

#[test]
fn the_six_drives_of_2010_differ_in_three_fitted_numbers() {
    let fitted = ["controller.read_overhead_ns", "controller.write_bytes_per_s", "trim.cost_per_command_ns"];
    let drive = |v: u32| Profile::embedded(&format!("vendor{v}")).unwrap();
    let first = drive(1);
    for v in 1..=6 {
        let profile = drive(v);
        // Of the sixth, how TRIM works is an assumption that was chosen with its column in view.
        let of_sixth = ["trim.cost_per_mapped_unit_ns", "trim.cost_per_unit_ns", "trim.slowdown_percent"];
        let expected: Vec<&str> = fitted.into_iter().chain(of_sixth.into_iter().filter(|_| v == 6)).collect();
        assert_eq!(profile.fitted().collect::<Vec<_>>(), expected);
        let mut config = profile.config.clone();
        config.controller = first.config.controller.clone();
        config.trim.cost_per_command_ns = first.config.trim.cost_per_command_ns;
        if v == 6 {
            // The source's own note: it works TRIM off afterwards.
            assert_eq!(config.trim.place, TrimPlace::Background);
            config.trim = first.config.trim.clone();
        }
        assert_eq!(config, first.config, "vendor {v} differs in more than the fitted numbers");
        assert_eq!(config.capacity_units(), 60_000_000_000 / 4096);
        assert_eq!(config.trim.kind, TrimKind::AtaNonQueued);
    }
}

#[test]
fn of_the_phones_storage_the_two_numbers_of_trim_are_fitted() {
    let profile = Profile::embedded("ufs21-64gb").unwrap();
    let fitted = ["trim.cost_per_command_ns", "trim.latency_per_command_ns"];
    assert_eq!(profile.fitted().collect::<Vec<_>>(), fitted);
    assert!(profile.config.trim.is_queued());
    // A profile without the latency has none.
    let text = Profile::embedded_text("ufs21-64gb").unwrap();
    let without: String =
        text.lines().filter(|l| !l.contains("latency_per_command_ns")).map(|l| format!("{l}\n")).collect();
    assert_eq!(Profile::parse(&without, "without").unwrap().config.trim.latency_per_command_ns, 0);
}

#[test]
fn the_default_of_the_library_is_the_small_drive() {
    assert_eq!(Profile::embedded("sata-small").unwrap().config, SsdConfig::default());
}

#[test]
fn a_negative_number_is_named_with_its_line() {
    let line = line_of("t_prog_ns");
    assert_eq!(
        refusal("t_prog_ns = 700_000", "t_prog_ns = -5"),
        format!(
            "my.toml:{line}: nand.t_prog_ns: -5 is not accepted; expected a whole number from 1 to \
             3600000000000 (one hour)"
        )
    );
}

#[test]
fn a_zero_is_refused_by_the_device_and_still_has_its_line() {
    let line = line_of("t_prog_ns");
    assert_eq!(
        refusal("t_prog_ns = 700_000", "t_prog_ns = 0"),
        format!(
            "my.toml:{line}: nand.t_prog_ns: 0 is not accepted; expected a whole number from 1 to \
             3600000000000 (one hour)"
        )
    );
}

#[test]
fn other_mistakes_are_named() {
    let expect = |from: &str, to: &str, parts: &[&str]| {
        let message = refusal(from, to);
        assert_eq!(message.lines().count(), 1, "{message}");
        for part in parts {
            assert!(message.contains(part), "{message:?} does not say {part:?}");
        }
    };
    expect("t_read_ns = 60_000\n", "", &["nand.t_read_ns is missing"]);
    expect("[nand]", "[nnad]", &["nnad is not a setting; expected one of", "nand"]);
    expect("t_read_ns", "t_raed_ns", &["nand.t_raed_ns is not a setting", "t_read_ns"]);
    expect("name = ", "nmae = ", &["my.toml:4: nmae is not a setting", "name"]);
    expect("name = \"sata", "name = \"\\u001b[2Jsata", &["my.toml:4: name:", "control characters"]);
    expect("t_read_ns", "t_read_ns = 1\nt_read_ns", &["t_read_ns: duplicate key"]);
    expect("t_read_ns", "t_raed_ns = 1\nt_read_ns", &["nand.t_raed_ns is not a setting", "t_read_ns"]);
    expect("channels = 4", "channels = 4.5", &["geometry.channels: 4.5", "a whole number"]);
    expect("channels = 4", "channels = \"4\"", &["geometry.channels: \"4\"", "a whole number"]);
    expect("channels = 4", "channels = 99999999999", &["geometry.channels: 99999999999", "from 1 to"]);
    expect("channels = 4", "channels = -4", &["geometry.channels: -4", "from 1 to"]);
    expect("volatile = true", "volatile = true\nnew = -1", &["cache.new is not a setting"]);
    expect("channels = 4", "channels = 0", &["geometry.channels: 0", "from 1"]);
    expect("kind = \"sata\"", "kind = \"scsi\"", &["link.kind: \"scsi\"", "\"sata\", \"nvme\", \"ufs\""]);
    expect("volatile = true", "volatile = 1", &["cache.volatile: 1", "true or false"]);
    expect("victim = \"greedy\"", "victim = \"d_choices\"", &["gc.d_choices is missing"]);
    expect("name = ", "name : ", &["my.toml:4:"]);
    expect("nand = ", "nadn = ", &["sources.nadn", "not a setting"]);
    // More logical than physical space, and both numbers at once, though they disagree.
    expect(
        "over_provisioning_percent = 7\n\n[geometry]",
        "\n[geometry]\nblocks_per_plane = 100",
        &["capacity_bytes: 8589934592", "at most the physical space, 838860800 bytes"],
    );
    expect("[geometry]", "[geometry]\nblocks_per_plane = 100", &["geometry.blocks_per_plane: 100", "1096"]);
    expect(
        "over_provisioning_percent = 7\n",
        "",
        &["over_provisioning_percent", "geometry.blocks_per_plane"],
    );
    expect(
        "over_provisioning_percent = 7",
        "over_provisioning_percent = 0",
        &["capacity_bytes", "superblocks"],
    );
    expect("superblock_planes = 8", "superblock_planes = 3", &["geometry.superblock_planes: 3"]);
    let parity = |n: &str| format!("superblock_planes = 8\nparity_one_in = {n}");
    expect("superblock_planes = 8", &parity("1"), &["geometry.parity_one_in: 1 is", "from 2 to 512"]);
    expect("superblock_planes = 8", &parity("513"), &["geometry.parity_one_in: 513", "from 2 to 512"]);
    expect(
        "superblock_planes = 8",
        &format!("{}\n[mapping]\nkind = \"block\"\nlog_superblocks = 8\n", parity("8")),
        &["mapping.kind: block", "\"page\" or \"compressing\" with geometry.parity_one_in"],
    );
    expect("bytes = 4_194_304", "bytes = 4096", &["cache.bytes: 4096", "0 (no cache)"]);
    expect("capacity_bytes = 8_589_934_592", "capacity_bytes = 9223372036854775807", &["capacity_bytes"]);
}

/// A drive of 256 GB from 256 GiB has 7.37 % to spare.
#[test]
fn over_provisioning_may_have_decimals() {
    const LINE: &str = "over_provisioning_percent = 7";
    let read = |value: &str| {
        let text = small().replacen(LINE, &format!("over_provisioning_percent = {value}"), 1);
        Profile::parse(&text, "my.toml").map_err(|e| e.to_string())
    };
    // Superblocks of 8 MiB, of which 1,024 hold the data.
    let superblocks = |value: &str| read(value).unwrap().config.physical_bytes().unwrap() >> 23;
    let counts = ["7", "7.0", "7.04", "7.37", "12.4"].map(superblocks);
    assert_eq!(counts, [1_096, 1_096, 1_097, 1_100, 1_151]);
    let setting = |value: &str| read(value).unwrap().settings[1].value.clone();
    assert_eq!(setting("7"), SettingValue::Whole(7));
    assert_eq!(serde_json::to_string(&setting("12.4")).unwrap(), "12.4");
    for value in ["7.375", "-1", "-0.5", "nan", "inf", "4294967296", "\"7\"", "true", "[7]"] {
        let message = read(value).unwrap_err();
        let shown = if value.starts_with('[') { "an array" } else { value };
        assert!(
            message.ends_with(&format!(
                "over_provisioning_percent: {shown} is not accepted; expected percent, a number of at least 0 with at \
                 most two decimals"
            )),
            "{message}"
        );
    }
}

/// The small profile with a piece at its end.
fn with(addition: &str) -> String {
    format!("{}\n{addition}", small())
}

fn last_line() -> usize {
    with("").lines().count()
}

const VARIANTS: &str = "[firmware.\"2.0\"]\n\
    description = \"collects while the host is idle no more\"\n\
    [firmware.\"2.0\".gc]\nidle = false\n\
    [firmware.\"2.0\".sources]\n\"gc.idle\" = \"assumed\"\n\
    [firmware.\"1.0-beta\".trim]\nkind = \"unsupported\"\n";

#[test]
fn a_firmware_variant_sets_what_it_names_and_nothing_else() {
    let text = with(VARIANTS);
    let base = Profile::parse(&text, "my.toml").unwrap();
    assert_eq!((base.firmware.as_deref(), base.config.clone()), (None, SsdConfig::default()));
    let versions: Vec<&str> = base.firmware_variants.iter().map(|v| v.version.as_str()).collect();
    assert_eq!(versions, ["2.0", "1.0-beta"], "in the order of the file");

    let variant = Profile::parse_firmware(&text, "my.toml", "2.0").unwrap();
    assert_eq!((variant.name.as_str(), variant.base_name()), ("sata-small@2.0", "sata-small"));
    assert_eq!(variant.firmware.as_deref(), Some("2.0"));
    assert_eq!(variant.firmware_variants, base.firmware_variants);
    assert_eq!(variant.description, base.description, "a variant's description says what is different");
    assert_eq!(
        variant.firmware_variants[0].description.as_deref(),
        Some("collects while the host is idle no more")
    );
    assert_eq!((base.source("gc.idle"), variant.source("gc.idle")), (base.source("gc"), Some("assumed")));
    let mut config = SsdConfig::default();
    config.gc.idle = false;
    assert_eq!(variant.config, config);
    let differ: Vec<_> = variant.settings.iter().filter(|s| s.by_firmware).collect();
    let idle = Setting { name: "gc.idle".to_owned(), value: SettingValue::Flag(false), by_firmware: true };
    assert_eq!(differ, [&idle]);
    let first = &base.settings[0];
    assert_eq!((first.name.as_str(), &first.value), ("capacity_bytes", &SettingValue::Whole(8 << 30)));
    assert_eq!(base.settings.len(), variant.settings.len());

    let other = Profile::parse_firmware(&text, "my.toml", "1.0-beta").unwrap();
    assert_eq!(other.config.trim.kind, TrimKind::Unsupported);
    assert_eq!(other.firmware_variants[1].description, None);
}

#[test]
fn a_variant_may_repeat_nothing_and_still_be_named() {
    let text = with("[firmware.3]\ndescription = \"as it is\"");
    let base = Profile::parse(&text, "my.toml").unwrap();
    let variant = Profile::parse_firmware(&text, "my.toml", "3").unwrap();
    assert_eq!((variant.config, variant.name.as_str()), (base.config, "sata-small@3"));
}

#[test]
fn an_unknown_variant_is_answered_with_those_there_are() {
    let unknown = |text: &str| Profile::parse_firmware(text, "my.toml", "9").unwrap_err().to_string();
    let line = last_line() + 1;
    assert_eq!(
        unknown(&with(VARIANTS)),
        format!("my.toml:{line}: firmware: \"9\" is not accepted; expected one of 2.0, 1.0-beta")
    );
    assert_eq!(
        unknown(small()),
        "my.toml:1: firmware: \"9\" is not accepted; expected none, this profile has no firmware variants"
    );
}

#[test]
fn a_mistake_in_a_variant_is_found_with_its_line_whichever_is_read() {
    let expect = |addition: &str, line: usize, message: &str| {
        let error = Profile::parse(&with(addition), "my.toml").unwrap_err();
        assert_eq!(error.to_string(), format!("my.toml:{}: {message}", last_line() + line), "{addition}");
    };
    expect(
        "[firmware.\"2\".gc]\nidle = 1",
        2,
        "firmware \"2\": gc.idle: 1 is not accepted; expected true or false",
    );
    expect(
        "[firmware.2.nand]\nt_prog_ns = -5",
        2,
        "firmware \"2\": nand.t_prog_ns: -5 is not accepted; expected a whole number from 1 to \
         3600000000000 (one hour)",
    );
    // Two wholes that do not go together: the variant is to blame, not the line that it does not set.
    expect(
        "[firmware.2]\nover_provisioning_percent = 0",
        1,
        "firmware \"2\": capacity_bytes: 8589934592 is not accepted; expected room for 5 superblocks of 8388608 \
         bytes in addition (open blocks and the free pool); the physical space is 8589934592 bytes",
    );
    expect("[firmware.2.gc]\nidel = true", 2, {
        "firmware \"2\": gc.idel is not a setting; expected one of victim, shared_frontier, host_frontiers, \
         free_superblocks_min, idle, idle_threshold_ns, idle_free_superblocks"
    });
    expect(
        "[firmware.2.sources]\ngarbage = \"x\"",
        2,
        "firmware \"2\": sources.garbage is not a setting; expected the name of a setting or table of this profile",
    );
    expect("[firmware.2.gc]\nvictim = \"d_choices\"", 1, {
        "firmware \"2\": gc.d_choices is missing; expected a whole number"
    });
    expect("[firmware.2]\ngc = 1", 2, "firmware \"2\": gc: 1 is not accepted; expected a table");
    expect(
        "[firmware.2]\nname = \"other\"",
        2,
        "firmware \"2\": name cannot be set by a variant; expected a setting of the device, description or sources",
    );
    expect("[firmware]\n2 = true", 2, "firmware.\"2\" is not a table; expected a table [firmware.\"2\"]");
    expect(
        "[firmware.\"a b\"]",
        1,
        "firmware: \"a b\" is not accepted; expected a version made of letters, digits, '.', '-', '_' and '+'",
    );
}

#[test]
fn firmware_is_a_table() {
    let message = refusal("name = ", "firmware = 2\nname = ");
    assert_eq!(message, "my.toml:4: firmware: 2 is not accepted; expected a table");
}

#[test]
fn a_variants_name_is_cut_at_the_last_sign() {
    assert_eq!(Profile::split_firmware("vertex-60gb@1.41"), Some(("vertex-60gb", "1.41")));
    assert_eq!(Profile::split_firmware("me@home.toml@2"), Some(("me@home.toml", "2")));
    for no in ["vertex", "@1", "a@", "dir@2/my.toml", "a@b c"] {
        assert_eq!(Profile::split_firmware(no), None, "{no}");
    }
}

#[test]
fn without_trim_nothing_needs_to_be_said_about_it() {
    let start = small().find("[trim]").unwrap();
    let end = start + small()[start..].find("\n\n").unwrap();
    let text = small().replace(&small()[start..end], "[trim]\nkind = \"unsupported\"");
    let sources: String =
        text.lines().filter(|line| !line.starts_with("\"trim.")).map(|line| format!("{line}\n")).collect();
    let profile = Profile::parse(&sources, "my.toml").unwrap();
    assert!(!profile.config.trim.is_supported());
    // Any other kind has to say it.
    let other = sources.replace("\"unsupported\"", "\"nvme\"");
    let error = Profile::parse(&other, "my.toml").unwrap_err().to_string();
    assert!(error.contains("trim.max_ranges is missing"), "{error}");
}

#[test]
fn mappings_caches_and_faults_are_read_and_checked() {
    let read = |addition: &str| {
        let tables = small().replace("[sources]", &format!("{addition}\n\n[sources]"));
        Profile::parse(&tables, "my.toml")
    };
    let config = |addition: &str| read(addition).unwrap().config;
    assert_eq!(config("").mapping, MappingConfig::default());
    assert_eq!(
        config("[mapping]\nkind = \"page\"\nmap_cache_bytes = 1_048_576").mapping,
        MappingConfig::Page {
            map_cache: Some(MapCacheConfig { bytes: 1 << 20 }),
            trim_map: TrimMap::Dropped
        }
    );
    let written = "[mapping]\nkind = \"page\"\nmap_cache_bytes = 1_048_576\ntrim_map = \"written\"";
    let MappingConfig::Page { trim_map, .. } = config(written).mapping else { panic!("another mapping") };
    assert_eq!(trim_map, TrimMap::Written);
    assert_eq!(
        config("[mapping]\nkind = \"block\"\nlog_superblocks = 8").mapping,
        MappingConfig::Block(BlockMappingConfig { log_superblocks: 8 })
    );
    const COMPRESSING: &str = "[mapping]\nkind = \"compressing\"\ngranule_bytes = 512\nhead_bytes = 16\n\
        deduplicates = true\nread_latency_ns = 0\nfragment_read_ns = 1000\nreferences_checked_at_collection = false";
    // 16 bytes of head make 4,608 bytes of a unit: with 7 % over-provisioning there is no room for that.
    let message = read(COMPRESSING).unwrap_err().message;
    assert!(
        message.starts_with("mapping.head_bytes: 16 is not accepted; expected so little that"),
        "{message}"
    );
    let compressing = config(&COMPRESSING.replace("= 16", "= 0"));
    let MappingConfig::Compressing(mapping) = compressing.mapping else { panic!("another mapping") };
    assert_eq!((mapping.granule_bytes, mapping.stored_bytes_max()), (512, 4096));

    const SLC: &str = "[slc]\nstatic_superblocks = 4\ndynamic_percent = 50\nbits_per_cell = 3\n\
        t_prog_ns = 200_000\nt_read_ns = 25_000\nfold_when_idle = true\nfold_threshold_percent = 60";
    assert_eq!(config(SLC).slc.map(|slc| (slc.static_superblocks, slc.t_prog_ns)), Some((4, 200_000)));

    let faults = read("[faults]\ntrims_percent = 50").unwrap().faults;
    assert_eq!(faults, Faults { trims_percent: 50, ..Faults::default() });
    assert!(read("[faults]").unwrap().faults.is_sound());

    let refused = |addition: &str, message: &str| {
        let error = read(addition).unwrap_err();
        assert!(error.message.contains(message), "{addition}: {error}");
        let named =
            addition.lines().position(|line| line.split(" =").next() == message.split(['.', ':']).nth(1));
        let line = 1 + small().lines().position(|line| line == "[sources]").unwrap();
        assert!(error.line >= line && error.line <= line + addition.lines().count(), "{error}");
        if let Some(named) = named {
            assert_eq!(error.line, line + named, "{addition}: {error}");
        }
    };
    refused(
        "[mapping]\nkind = \"hash\"",
        "mapping.kind: \"hash\" is not accepted; expected \"page\", \"block\"",
    );
    refused("[mapping]\nkind = \"block\"", "mapping.log_superblocks is missing");
    refused("[mapping]\nkind = \"block\"\nlog_superblocks = 0", "mapping.log_superblocks: 0");
    refused(
        "[mapping]\nkind = \"block\"\nlog_superblocks = 72",
        "from 1 to 71: of 1096 superblocks 1024 hold data",
    );
    refused("[mapping]\nkind = \"block\"\nmap_cache_bytes = 1", "mapping.map_cache_bytes is not a setting");
    refused(
        "[mapping]\nkind = \"page\"\ntrim_map = \"changed\"",
        "mapping.trim_map: changed is not accepted; expected \"dropped\" without mapping.map_cache_bytes",
    );
    refused(
        "[mapping]\nkind = \"page\"\ntrim_map = \"lazy\"",
        "mapping.trim_map: \"lazy\" is not accepted; expected \"dropped\", \"changed\"",
    );
    refused("[mapping]\nkind = \"page\"\nmap_cache_bytes = 4095", "from 4096 (one unit of the map) to 1 TiB");
    refused(
        &COMPRESSING.replace("512", "48"),
        "mapping.granule_bytes: 48 is not accepted; expected a divisor of 4096",
    );
    refused(&COMPRESSING.replace("512", "1"), "at least 4, so that");
    refused(
        &SLC.replace("= 3", "= 1"),
        "slc.bits_per_cell: 1 is not accepted; expected a whole number from 2 to 8",
    );
    refused(
        &SLC.replace("= 4", "= 68"),
        "slc.static_superblocks: 68 is not accepted; expected a whole number from 0 to 66",
    );
    refused(
        &SLC.replace("= 4", "= 0").replace("= 50", "= 0"),
        "slc.dynamic_percent: 0 is not accepted; expected more than 0 where slc.static_superblocks is 0",
    );
    refused(
        &format!("{SLC}\n[mapping]\nkind = \"block\"\nlog_superblocks = 8"),
        "mapping.kind: block is not accepted; expected \"page\" where there is a table [slc]",
    );
    refused("[faults]\ntrims_percent = 101", "faults.trims_percent: 101");
    refused(
        "[faults]\nqueued_trim_late_writes = 5",
        "expected 0 where TRIM is not queued among other commands",
    );
    refused("[faults]\nignores_trim = 1", "faults.ignores_trim: 1 is not accepted; expected true or false");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_the_reader(text in "\\PC*") {
        let _ = Profile::parse(&text, "any.toml");
    }

    /// A valid profile with a piece cut out or another piece, or a number, put in its place: one with firmware variants,
    /// a block mapping, faults, an SLC cache. A refusal is one line, and names a line of the text.
    #[test]
    fn no_damaged_profile_panics_the_reader(
        name in prop::sample::select(vec!["sata-small", "vertex-60gb", "sandforce-240gb", "nvme-500gb-dramless"]),
        from in 0usize..7000, cut in 0usize..40, graft in "([0-9]{1,20}|[\\[\\]=\"\n.a-z_-]{0,6}|\\PC{0,4})"
    ) {
        let mut bytes = Profile::embedded_text(name).unwrap().as_bytes().to_vec();
        let from = from % (bytes.len() + 1);
        let to = (from + cut).min(bytes.len());
        bytes.splice(from..to, graft.into_bytes());
        let text = String::from_utf8_lossy(&bytes);
        match Profile::parse(&text, "any.toml") {
            Ok(profile) => for firmware in &profile.firmware_variants {
                let variant = Profile::parse_firmware(&text, "any.toml", &firmware.version).unwrap();
                prop_assert_eq!(variant.name, profile.name_with(&firmware.version));
            },
            Err(error) => {
                prop_assert!(!error.message.contains('\n'), "{}", error);
                prop_assert!((1..=text.split('\n').count()).contains(&error.line), "{}", error);
            }
        }
    }

    /// Any numbers at all: refused, or a device can be made of them.
    #[test]
    fn what_is_accepted_makes_a_device(
        capacity in prop_oneof![0u64..1 << 24, any::<u64>()],
        percent in proptest::option::of(prop_oneof![0u32..300, any::<u32>()]),
        blocks in proptest::option::of(prop_oneof![0u32..100, any::<u32>()]),
        shape in proptest::array::uniform6(prop_oneof![4 => 0u32..9, 1 => any::<u32>()]),
        frontiers in prop_oneof![1u32..4, any::<u32>()],
        minimum in prop_oneof![1u32..9, any::<u32>()],
        log in proptest::option::of(prop_oneof![0u32..9, any::<u32>()]),
    ) {
        let mut config = SsdConfig { capacity_bytes: capacity, over_provisioning_percent: percent.map(Into::into), ..SsdConfig::default() };
        config.geometry.blocks_per_plane = blocks;
        config.geometry.channels = shape[0];
        config.geometry.dies_per_channel = shape[1];
        config.geometry.planes_per_die = shape[2];
        config.geometry.pages_per_block = shape[3];
        config.geometry.page_bytes = shape[4].saturating_mul(4096);
        config.geometry.superblock_planes = shape[5];
        config.gc.host_frontiers = frontiers;
        config.gc.free_superblocks_min = minimum;
        if let Some(log_superblocks) = log {
            config.mapping = MappingConfig::Block(BlockMappingConfig { log_superblocks });
        }
        let small = config.capacity_units() < 1 << 16 && config.geometry.channels < 9;
        if config.validate().is_ok() && small {
            let ssd = Ssd::new(&config, 0).expect("what validates can be made");
            prop_assert!(ssd.physical_units() > ssd.capacity_units());
            prop_assert!(ssd.audit().is_ok());
        }
    }
}
