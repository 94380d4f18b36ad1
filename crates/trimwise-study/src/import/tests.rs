//! Small files of the three simulators, made for these tests.

use trimwise::ssd::{Ssd, VictimPolicy};

use super::*;

const MQSIM: &str = include_str!("../../tests/import/ssdconfig.xml");
const FEMU: &str = include_str!("../../tests/import/run-femu.sh");
const SIMPLESSD: &str = include_str!("../../tests/import/simplessd.cfg");

fn imported(text: &str) -> Result<Imported, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive");
    std::fs::write(&path, text).unwrap();
    import(path.to_str().unwrap()).map_err(|failure| match failure {
        Failure::Usage(message) => message.replace(path.to_str().unwrap(), "drive"),
        other => panic!("{other:?}"),
    })
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
    assert_eq!(nand(SIMPLESSD), (52_500, 900_000, 3_500_000, 400_000_000));
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
        .replace("<Page_Capacity>8192</Page_Capacity>", "");
    let error = imported(&text).unwrap_err();
    let line = |of: &str| text.lines().position(|line| line.contains(of)).unwrap() + 1;
    for expected in [
        format!(
            "drive:{}: Block_Erase_Latency: 'soon' is not accepted; expected a number from 1",
            line("soon")
        ),
        format!("drive:{}: Flash_Technology: 'PLC' is not accepted; expected SLC, MLC, TLC", line("PLC")),
        "drive: Page_Capacity is missing".to_owned(),
    ] {
        assert!(error.contains(&expected), "{expected}\n{error}");
    }
    // A drive that has no profile is told with the parameter that is at fault.
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
fn a_workload_becomes_a_job_of_its_flows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("workload.xml");
    std::fs::write(&path, include_str!("../../tests/import/workload.xml")).unwrap();
    let job = job_of(path.to_str().unwrap()).unwrap();
    let lines: Vec<&str> = job.lines().skip(2).collect();
    assert_eq!(lines.join("\n"), include_str!("../../tests/import/workload.fio").trim_end());
    std::fs::write(&path, "<MQSim_IO_Scenarios><IO_Scenario><Other/></IO_Scenario></MQSim_IO_Scenarios>")
        .unwrap();
    let failure = job_of(path.to_str().unwrap()).unwrap_err();
    assert!(
        matches!(&failure, Failure::Usage(m) if m.contains("workload.xml:1: Other is not accepted")),
        "{failure:?}"
    );
}
