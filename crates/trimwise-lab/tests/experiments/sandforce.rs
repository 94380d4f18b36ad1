//! The experiment `sandforce`, sampled: the same code on drives of a sixtieth of the size, tortured for as much
//! less time.
//!
//! All of it: `SANDFORCE=full cargo test --release -p trimwise-lab --test experiments sandforce::`, or `trimwise reproduce sandforce`.

use trimwise::units::Bytes;
use trimwise_lab::experiment::sandforce::files::run_files;
use trimwise_lab::experiment::sandforce::{
    CLASSES, Measured, Setting, evaluate, run_class, run_page_mapped, run_sharing,
};

const SEED: u64 = 1;

/// What the model does not show; the README of the experiment says why.
const NOT_MET: [&str; 1] = ["sandforce-filesystem"];

#[test]
fn torture_trim_and_firmware() {
    let mut setting = Setting::published();
    if !std::env::var("SANDFORCE").is_ok_and(|v| v == "full") {
        setting = setting.shrunk(Bytes(4_000_000_000)).unwrap();
    }
    let none = &|| ();
    let measured = Measured {
        classes: CLASSES.map(|class| run_class(&setting, class, SEED, none).unwrap()).to_vec(),
        page_mapped: run_page_mapped(&setting, SEED, none).unwrap(),
        files: run_files(&setting.files, SEED, none).unwrap(),
        sharing: run_sharing(&setting, SEED).unwrap(),
    };
    let result = evaluate(&measured, SEED);
    let open: Vec<_> = result.claims.iter().filter(|c| !c.met && !NOT_MET.contains(&c.id.as_str())).collect();
    assert!(result.claims.len() == 10 && open.is_empty(), "{open:#?}");
    // What compresses takes an eighth of its length, and random writes no more than others.
    let write_amplification = measured.classes[0].torture_write_amplification;
    assert!((0.125..0.2).contains(&write_amplification), "{write_amplification}");
}
