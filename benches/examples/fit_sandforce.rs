//! What one class of data does to the drive of the experiment `sandforce`, for fitting its profile.
//!
//!     cargo run --release --manifest-path benches/Cargo.toml --example fit_sandforce -- CLASS [GB [FRAGMENT_NS [LATENCY_NS [STALE_PERCENT]]]]

use std::time::Instant;

use trimwise::ssd::MappingConfig;
use trimwise::units::Bytes;
use trimwise_lab::experiment::sandforce::files::run_files;
use trimwise_lab::experiment::sandforce::{AttoSize, Figures, Setting, run_page_mapped, run_class, run_sharing};

fn show(name: &str, f: &Figures) {
    println!("{name:<14} read {:6.1}  write {:6.1}  same {:6.1}", f.read, f.write, f.same_write);
    if !f.atto.is_empty() {
        let line =
            |of: fn(&AttoSize) -> f64| f.atto.iter().map(|a| format!("{:4.0}", of(a))).collect::<String>();
        println!("   atto w {}\n   atto r {}", line(|a| a.write), line(|a| a.read));
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut setting = Setting::published();
    if let Some(gb) = arguments.get(1).and_then(|gb| gb.parse::<u64>().ok()) {
        setting = setting.shrunk(Bytes(gb * 1_000_000_000)).expect("a smaller drive");
    }
    if let MappingConfig::Compressing(mapping) = &mut setting.ssd.mapping {
        let number = |i: usize| arguments.get(i).and_then(|n| n.parse::<u64>().ok());
        mapping.fragment_read_ns = number(2).unwrap_or(mapping.fragment_read_ns);
        mapping.read_latency_ns = number(3).unwrap_or(mapping.read_latency_ns);
        mapping.recycles_from_stale_percent =
            number(4).map(|p| p as u32).or(mapping.recycles_from_stale_percent).filter(|&p| p <= 100);
    }
    let start = Instant::now();
    if arguments[0] == "page-mapped" {
        let run = run_page_mapped(&setting, 1, &|| ()).expect("runs");
        for (name, figures) in [
            ("clean", &run.clean),
            ("full", &run.full),
            ("tortured", &run.tortured),
            ("trimmed", &run.trimmed),
        ] {
            show(name, figures);
        }
        return;
    }
    if arguments[0] == "files" {
        let run = run_files(&setting.files, 1, &|| ()).expect("runs");
        for (name, figures) in
            [("clean", &run.clean), ("raw tortured", &run.raw_tortured), ("raw trimmed", &run.raw_trimmed)]
        {
            show(name, figures);
        }
        println!("raw: {} units", run.raw_units);
        for level in &run.levels {
            println!("{} units, {:.1} % mapped", level.units, level.mapped_percent);
            show("files", &level.in_place);
            show("removed", &level.removed);
        }
        println!("{:?}", run_sharing(&setting, 1).expect("runs"));
        return;
    }
    let class = arguments[0].parse().expect("a class of data");
    let run =
        run_class(&setting, class, 1, &|| println!("{:.1} s", start.elapsed().as_secs_f64())).expect("runs");
    println!("torture: {} units, WA {:.3}", run.torture_units, run.torture_write_amplification);
    show("clean", &run.clean);
    show("tortured", &run.tortured);
    for trimmed in &run.trimmed {
        show("trimmed", &trimmed.once);
        show("again", &trimmed.twice);
    }
    show("erased", &run.erased);
}
