//! `trimwise reproduce verdicts-fs`, two cells of it.

use serde_json::Value;

use crate::reproduction::{error, image, refused, reproduce};

#[test]
fn a_mail_spool_on_xfs_is_run_once_and_then_found() {
    if image("6.12").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("cells");
    let run = || {
        let words = format!(
            "verdicts-fs --only xfs vm sata-small 80% off discard --reps 1 --out {} --json -",
            out.display()
        );
        let output = reproduce(&words).output().unwrap();
        assert!(output.status.success(), "{}", error(&output));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let first = run();
    let rows = first["rows"].as_array().unwrap();
    let of = |way: &str, key: &str| {
        rows.iter().find(|row| row["way"] == way).and_then(|row| row["runs"][0][key].as_u64()).unwrap()
    };
    assert_eq!((rows.len(), of("off", "trims")), (2, 0));
    assert!(of("discard", "trims") > 0 && of("discard", "released_bytes") > 0, "{first:#}");
    assert!(of("off", "written_bytes") > 100 << 20 && of("off", "fsync_p99_ns") > 0, "{first:#}");
    let made = &first["made_by"];
    assert!(made["kernels"][0].as_str().unwrap().starts_with("Linux 6.12."), "{made:#}");
    assert_eq!(made["code"].as_object().unwrap().len(), 5);

    // A file that is not whole is not believed; of the others nothing is run again.
    let cells: Vec<_> = std::fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(cells.len(), 2);
    assert_eq!(run(), first);
    let written = |path| std::fs::metadata(path).unwrap().modified().unwrap();
    let before = written(&cells[0]);
    std::fs::write(&cells[1], "trimwise").unwrap();
    assert_eq!(run(), first);
    assert_eq!(written(&cells[0]), before, "a cell that is there was run again");
    assert!(std::fs::metadata(&cells[1]).unwrap().len() > 100, "the damaged one was not");
}

#[test]
fn cells_that_there_are_not_are_refused_with_those_there_are() {
    refused("verdicts-fs --only tiny", &["--only tiny", "desktop-day", "nvme-generic", "50%"]);
    refused("verdicts-ext4 --out /tmp/x", &["--out", "verdicts-fs"]);
    refused("lazy-3 --full", &["--full", "--on kernel"]);
}
