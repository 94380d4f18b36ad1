//! Small files of the three simulators, made for these tests.

use trimwise::ssd::{Ssd, VictimPolicy};

use super::*;

const MQSIM: &str = include_str!("../../tests/import/ssdconfig.xml");
const FEMU: &str = include_str!("../../tests/import/run-femu.sh");
const SIMPLESSD: &str = include_str!("../../tests/import/simplessd.cfg");

fn imported(text: &str) -> Result<Imported, String> {
    profile_of(text, "drive").map_err(|failure| failure.to_string())
}

fn profile(text: &str) -> Profile {
    Profile::parse(&imported(text).unwrap().profile, "made").unwrap()
}

#[test]
fn each_simulators_drive_has_its_size_its_times_and_a_source_for_each_number() {
    // MQSim: 2 channels x 2 chips x 1 die x 2 planes x 64 blocks x 64 pages of 8 KiB, an eighth of it spare.
    // FEMU: 4,096 MiB, a line is a block of each of 32 dies. SimpleSSD: 4 x 2 x 1 x 2 planes x 64 x 128 x 16 KiB.
    for (text, capacity, planes, victim, frontiers) in [
        (MQSIM, 234_881_024, 1, VictimPolicy::DChoices(6), 8),
        (FEMU, 4096 << 20, 32, VictimPolicy::Greedy, 1),
        (SIMPLESSD, 1_610_612_736, 8, VictimPolicy::DChoices(3), 2),
    ] {
        let profile = profile(text);
        let config = &profile.config;
        let found = (
            config.capacity_bytes,
            config.geometry.superblock_planes,
            config.gc.victim,
            config.gc.host_frontiers,
        );
        assert_eq!(found, (capacity, planes, victim, frontiers), "{}", profile.description);
        for setting in &profile.settings {
            assert!(profile.source(&setting.name).is_some(), "{}: {}", profile.description, setting.name);
        }
        Ssd::new(config, 1).unwrap();
    }
    let nand = |text: &str| {
        let nand = profile(text).config.nand;
        (nand.t_read_ns, nand.t_prog_ns, nand.t_erase_ns, nand.bus_bytes_per_s)
    };
    assert_eq!(nand(MQSIM), (60_000, 700_000, 3_800_000, 333_333_333));
    assert_eq!(nand(FEMU), (40_000, 200_000, 2_000_000, 1_000_000_000_000));
    assert_eq!(nand(SIMPLESSD), (52_500, 900_000, 3_500_000, 400 << 20));
}

#[test]
fn regression_femus_cost_of_trim_is_taken_and_its_bus_only_where_it_has_one() {
    for (options, trim, bus, capacity) in [
        ("devsz_mb=64", 0, 1_000_000_000_000, 64 << 20),
        ("devsz_mb=64,trim_lat_ns=5000,ch_xfer_lat=10000", 5000, 1_000_000_000_000, 64 << 20),
        ("devsz_mb=64,pg_xfer_lat=10000", 0, 409_600_000, 64 << 20),
        // The flash of FEMU's defaults is 16 GiB.
        ("op_pcent=25", 0, 1_000_000_000_000, (16 << 30) / 5 * 4 / 4096 * 4096),
    ] {
        let text = format!("-device femu,femu_mode=1,{options}\n");
        let profile = profile(&text);
        let config = &profile.config;
        let costs =
            [config.trim.cost_per_command_ns, config.trim.cost_per_range_ns, config.trim.cost_per_unit_ns];
        assert_eq!(costs, [0, trim, 0], "{options}");
        assert_eq!((config.nand.bus_bytes_per_s, config.capacity_bytes), (bus, capacity), "{options}");
        let default = if options.contains("trim") { "" } else { " (FEMU's default: trim_lat_ns)" };
        assert_eq!(profile.source("trim.cost_per_range_ns"), Some(&*format!("trim_lat_ns{default}")));
    }
    let unused = imported("-device femu,femu_mode=1,ch_xfer_lat=10000\n").unwrap().unused;
    assert_eq!(unused[0].because, "FEMU does not use it");
    let links = "-device femu,femu_mode=1,pcie_bandwidth_mbps=1000,fw_cpu_ns=700\n";
    let config = profile(links).config;
    assert_eq!((config.link.bytes_per_s, config.controller.read_overhead_ns), (1_000_000_000, 700));
}

#[test]
fn regression_simplessd_has_defaults_as_well() {
    let all = profile("[pal]\n");
    let config = &all.config;
    // 8 channels x 4 packages x 2 dies x 512 blocks x 512 pages of 16 KiB, a quarter of it spare.
    assert_eq!((config.geometry.channels, config.capacity_bytes), (8, (256 << 30) / 4 * 3));
    assert_eq!(
        (config.nand.t_read_ns, config.nand.t_prog_ns, config.gc.victim),
        (52_500, 900_000, VictimPolicy::Greedy)
    );
    assert_eq!(all.source("geometry.channels"), Some("Channel (SimpleSSD's default: Channel)"));
    for (line, found) in [
        ("DMAWidth = 8", Ok(400 << 20)),
        ("DMAWidth = 16", Ok(800 << 20)),
        ("DMAWidth = 12", Err("drive:2: pal.DMAWidth: '12' is not accepted; expected 8, 16, 24")),
        ("EnableMultiPlaneOperation = True", Ok(400 << 20)),
        ("SuperblockSize = c", Ok(400 << 20)),
    ] {
        let made = imported(&format!("[pal]\n{line}\n"));
        match found {
            Ok(rate) => {
                assert_eq!(
                    Profile::parse(&made.unwrap().profile, "").unwrap().config.nand.bus_bytes_per_s,
                    rate
                );
            }
            Err(expected) => assert!(made.as_ref().is_err_and(|error| error.contains(expected)), "{made:?}"),
        }
    }
    // One of three kinds of pages takes no time.
    assert_eq!(profile("[pal]\nNANDType = 2\nCSBRead = 0\nCSBWrite = 0\n").config.nand.t_read_ns, 35_000);
}

#[test]
fn regression_numbers_are_those_that_the_simulator_works_with() {
    // A transfer takes whole nanoseconds in MQSim.
    for (rate, expected) in [(400, 500_000_000), (800, 1_000_000_000), (1200, 1_000_000_000_000_u64)] {
        let rate = format!("<Channel_Transfer_Rate>{rate}<");
        let text = MQSIM.replace("<Channel_Transfer_Rate>333<", &rate);
        assert_eq!(profile(&text).config.nand.bus_bytes_per_s, expected, "{rate}");
    }
    // 32,768 pages of 8 KiB have entries of ceil((2 * 15 + 16) / 8) = 6 bytes: 10,922 of them cover 21,845 units.
    let text = MQSIM.replace("<Ideal_Mapping_Table>true<", "<Ideal_Mapping_Table>false<");
    assert_eq!(profile(&text).config.mapping.map_cache().map(|cache| cache.bytes), Some(87_381));
    let script = "nchs=${CHANNELS:-4}\nsize=${size:-2048}\nblks=\n\
        -device femu,femu_mode=${MODE-1},nchs=$nchs,devsz_mb=${size},blks_per_pl=${blks:-320}\n";
    let config = profile(script).config;
    let found = (config.geometry.channels, config.capacity_bytes, config.geometry.blocks_per_plane);
    assert_eq!(found, (4, 2048 << 20, Some(320)));
}

#[test]
fn what_has_no_counterpart_is_told_with_the_reason() {
    let unused = imported(MQSIM).unwrap().unused;
    let of = |name: &str| unused.iter().find(|unused| unused.parameter == name).map(|unused| unused.because);
    assert_eq!(of("Plane_Allocation_Scheme"), Some("writes go to the planes in turn"));
    assert_eq!(of("Of_Another_Version"), Some("not known here"));
    assert_eq!(of("Block_Erase_Latency"), None);
    let text = imported(FEMU).unwrap().profile;
    assert!(text.contains("# gc_thres_pcent = 75: "), "{text}");
}

#[test]
fn all_errors_are_told_at_once_with_their_lines() {
    let text = MQSIM
        .replace("<Block_Erase_Latency>3800000<", "<Block_Erase_Latency>soon<")
        .replace("<Flash_Technology>MLC<", "<Flash_Technology>PLC<")
        .replace("<Page_Capacity>8192<", "<Page_Capacity>none<");
    let error = imported(&text).unwrap_err();
    let line = |of: &str| text.lines().position(|line| line.contains(of)).unwrap() + 1;
    for expected in [
        format!(
            "drive:{}: Block_Erase_Latency: 'soon' is not accepted; expected a number from 1",
            line("soon")
        ),
        format!("drive:{}: Flash_Technology: 'PLC' is not accepted; expected SLC, MLC, TLC", line("PLC")),
        format!(
            "drive:{}: Page_Capacity: 'none' is not accepted; expected a number from 1 to",
            line(">none<")
        ),
    ] {
        assert!(error.contains(&expected), "{expected}\n{error}");
    }
    // An impossible drive is reported with the parameter at fault.
    let error = imported(&MQSIM.replace("<Page_Capacity>8192<", "<Page_Capacity>2048<")).unwrap_err();
    assert!(error.contains("geometry.page_bytes: 2048") && error.contains("is Page_Capacity"), "{error}");
}

#[test]
fn other_files_are_refused_with_what_they_are() {
    for (text, expected) in [
        ("<MQSim_IO_Scenarios/>", "trimwise workloads --import"),
        ("<MQSim_Results/>", "the results of a run"),
        ("<html><body/></html>", "the root 'html'"),
        ("<Execution_Parameter_Set>", "as XML"),
        ("<a b\0>", "as XML: expected '=' not '\u{fffd}' at 1:5"),
        ("[geometry]\nchannels = 8\n", "of no known simulator"),
        ("", "of no known simulator"),
        ("-device femu,femu_mode=2,nchs=8", "femu_mode: '2'"),
        ("-device femu,femu_mode=1,nchs=99999999999999999999", "nchs: '99999999999999999999'"),
        ("-device femu,femu_mode=1,devsz_mb=4,blks_per_pl=0", "geometry.blocks_per_plane"),
        ("[pal]\nChannel = 0\n", "pal.Channel: '0'"),
    ] {
        let error = imported(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_mqsim_s_file_leaves_out_has_mqsim_s_default() {
    let all = profile("<Execution_Parameter_Set/>");
    let config = &all.config;
    // 8 channels x 4 chips x 2 dies x 2 planes x 2,048 blocks x 256 pages of 8 KiB, 7 % of it spare.
    let physical = 128 * 2048 * 256 * 8192_u64;
    assert_eq!(config.capacity_bytes, (physical as f64 * 0.93) as u64 / 4096 * 4096);
    assert_eq!((config.nand.t_read_ns, config.nand.t_prog_ns), (75_000, 750_000));
    assert_eq!(
        all.source("geometry.channels"),
        Some("Flash_Channel_Count (MQSim's default: Flash_Channel_Count)")
    );
    // A name that is misspelt in its opening tag is no parameter of MQSim, whatever closes it.
    let text = MQSIM.replace("<Flash_Technology>", "<Flash_Technolog>");
    let made = imported(&text).unwrap();
    assert!(made.unused.iter().any(|unused| unused.parameter == "Flash_Technolog"));
    let read = Profile::parse(&made.profile, "").unwrap();
    assert_eq!(read.config.nand.t_read_ns, 60_000);
    assert!(read.source("nand.t_read_ns").unwrap().ends_with("(MQSim's default: Flash_Technology)"));
    let other = MQSIM.replace("Execution_Parameter_Set>", "ExecParameterSet>");
    assert_eq!(imported(&other).unwrap().profile, imported(MQSIM).unwrap().profile);
}

#[test]
fn closing_tags_are_read_as_rapidxml_reads_them() {
    let wrong = MQSIM
        .replace("</Flash_Technology>", "</Flash_Technolog>")
        .replace("<Seed>", "<!-- <a> --><Seed>")
        .replace("</Execution_Parameter_Set>", "</Execution>");
    assert!(wrong.contains("<Flash_Technology>") && wrong != MQSIM);
    assert_eq!(imported(&wrong).unwrap().profile, imported(MQSIM).unwrap().profile);
    let flows = include_str!("../../tests/import/workload.xml");
    let wrong = flows.replace("</Working_Set_Percentage>", "</Working_Set>");
    assert_eq!(job_of(&wrong, "w").unwrap(), job_of(flows, "w").unwrap());
    // A tag that is missing is still a mistake, of which the line is that of the file.
    let error = imported(&MQSIM.replace("</Seed>", "")).unwrap_err();
    assert!(error.contains("as XML: "), "{error}");
    let later = wrong_at(&MQSIM.replace("</Seed>", "</Sed>"), "Block_Erase_Latency");
    assert_eq!(later, wrong_at(MQSIM, "Block_Erase_Latency"));
}

/// Returns the error of a file in which this parameter is no number.
fn wrong_at(text: &str, parameter: &str) -> String {
    let (before, after) = text.split_once(&format!("<{parameter}>")).unwrap();
    let (_, after) = after.split_once('<').unwrap();
    imported(&format!("{before}<{parameter}>soon<{after}")).unwrap_err()
}

#[test]
fn a_drive_of_thousands_of_planes_has_the_most_open_blocks_and_says_so() {
    let text = MQSIM
        .replace("<Chip_No_Per_Channel>2<", "<Chip_No_Per_Channel>256<")
        .replace("<Block_No_Per_Plane>64<", "<Block_No_Per_Plane>16<")
        .replace("<Flash_Channel_Count>2<", "<Flash_Channel_Count>4<");
    let profile = profile(&text);
    assert_eq!(profile.config.gc.host_frontiers, 1024);
    assert_eq!(
        profile.source("gc.host_frontiers"),
        Some("one open block in each plane, of which there are 2048; 1024 are the most here")
    );
    Ssd::new(&profile.config, 1).unwrap();
}

#[test]
fn drives_of_simulators_that_are_not_imported_are_named() {
    for (text, what, expected) in [
        ("[global]\nMode = 0\n[generator]\nio_size = 1\n[trace]\n", "SimpleSSD-Standalone, not", "[pal]"),
        ("<!-- x -->\n<?xml version=\"1.0\"?>\n<simplessd version=\"2.1\">", "SimpleSSD 3", "by hand"),
        ("<standalone version=\"2.1\"/>", "SimpleSSD-Standalone 3", "by hand"),
        ("PACKAGE_SIZE 2\nPLANE_SIZE 64\nBLOCK_ERASE_DELAY 1\n", "FlashSim", "by hand"),
        ("chip number[0] = 2;\nt_PROG = 200000;\n", "SSDsim", "by hand"),
        ("#define NAND_CHANNELS (8)\n#define LUNS_PER_NAND_CH (2)\n", "NVMeVirt", "by hand"),
    ] {
        let error = imported(text).unwrap_err();
        assert!(error.contains(what) && error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_workload_becomes_a_job_of_its_flows() {
    let job = job_of(include_str!("../../tests/import/workload.xml"), "workload.xml").unwrap();
    let lines: Vec<&str> = job.lines().skip(2).collect();
    assert_eq!(lines.join("\n"), include_str!("../../tests/import/workload.fio").trim_end());
    let other = "<MQSim_IO_Scenarios><IO_Scenario><Other/></IO_Scenario></MQSim_IO_Scenarios>";
    let failure = job_of(other, "workload.xml").unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.to_string().contains("workload.xml:1: Other is not accepted")),
        "{failure:?}"
    );
}
