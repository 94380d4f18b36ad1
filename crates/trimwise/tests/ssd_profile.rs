//! Profiles as a user writes them: every refusal names file, line, setting and value; no text panics.

use proptest::prelude::*;
use trimwise::profile::Profile;
use trimwise::ssd::{Ssd, SsdConfig, TrimKind};

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
                && !["name", "description"].contains(&key)
            {
                assert!(
                    profile.source(&format!("{table}{key}")).is_some(),
                    "{name}: {table}{key} has no source"
                );
            }
        }
    }
}

#[test]
fn the_six_drives_of_2010_differ_in_three_fitted_numbers() {
    let fitted = ["controller.read_overhead_ns", "controller.write_bytes_per_s", "trim.cost_per_command_ns"];
    let drive = |v: u32| Profile::embedded(&format!("vendor{v}")).unwrap();
    let first = drive(1);
    for v in 1..=6 {
        let profile = drive(v);
        assert_eq!(profile.fitted().collect::<Vec<_>>(), fitted);
        let mut config = profile.config.clone();
        config.controller = first.config.controller.clone();
        config.trim.cost_per_command_ns = first.config.trim.cost_per_command_ns;
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
    expect("t_read_ns", "t_read_ns = 1\nt_read_ns", &["t_read_ns: the same key twice"]);
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
    expect("nand = ", "nadn = ", &["sources.nadn", "no setting"]);
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
    expect("bytes = 4_194_304", "bytes = 4096", &["cache.bytes: 4096", "0 (no cache)"]);
    expect("capacity_bytes = 8_589_934_592", "capacity_bytes = 9223372036854775807", &["capacity_bytes"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_the_reader(text in "\\PC*") {
        let _ = Profile::parse(&text, "any.toml");
    }

    /// A valid profile with a piece cut out or another piece, or a number, put in its place.
    #[test]
    fn no_damaged_profile_panics_the_reader(
        from in 0usize..4000, cut in 0usize..40, graft in "([0-9]{1,20}|[\\[\\]=\"\n.a-z_-]{0,6}|\\PC{0,4})"
    ) {
        let mut bytes = small().as_bytes().to_vec();
        let from = from.min(bytes.len());
        let to = (from + cut).min(bytes.len());
        bytes.splice(from..to, graft.into_bytes());
        let text = String::from_utf8_lossy(&bytes);
        let _ = Profile::parse(&text, "any.toml");
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
    ) {
        let mut config = SsdConfig { capacity_bytes: capacity, over_provisioning_percent: percent, ..SsdConfig::default() };
        config.geometry.blocks_per_plane = blocks;
        config.geometry.channels = shape[0];
        config.geometry.dies_per_channel = shape[1];
        config.geometry.planes_per_die = shape[2];
        config.geometry.pages_per_block = shape[3];
        config.geometry.page_bytes = shape[4].saturating_mul(4096);
        config.geometry.superblock_planes = shape[5];
        config.gc.host_frontiers = frontiers;
        config.gc.free_superblocks_min = minimum;
        let small = config.capacity_units() < 1 << 16 && config.geometry.channels < 9;
        if config.validate().is_ok() && small {
            let ssd = Ssd::new(&config, 0).expect("what validates can be made");
            prop_assert!(ssd.physical_units() > ssd.capacity_units());
            prop_assert!(ssd.audit().is_ok());
        }
    }
}
