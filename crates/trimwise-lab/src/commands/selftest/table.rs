//! The text of `selftest`: a row for each device.

use crate::requests::selftest::SelfTests;
use trimwise_cli::figures::{NONE, grouped};
use trimwise_cli::table::{bold, folded, laid_out};
use trimwise_study::command_text::CommandText;

pub fn render(tests: &SelfTests) -> String {
    const HEADER: [&str; 7] = ["device", "parts", "operations", "audits", "host units", "WA", "wrong"];
    let rows = tests.devices.iter().map(|device| {
        let amplification = match device.host_units_written {
            0 => NONE.to_owned(),
            written => format!("{:.2}", device.nand_units_written as f64 / written as f64),
        };
        [
            device.device.clone(),
            grouped(device.parts),
            grouped(device.operations),
            grouped(device.audits),
            grouped(device.host_units_written),
            amplification,
            grouped(device.violations),
        ]
    });
    let mut text = format!("{}\n", laid_out(&HEADER, &rows.collect::<Vec<_>>()));
    for violation in &tests.violations {
        text += &bold(&format!("{}, operation {}", violation.device, violation.operation));
        text.push('\n');
        text += &folded(&format!("{}: {}", violation.command, violation.what), 2);
        let mut command = CommandText::new("selftest");
        command.option("--part", violation.part);
        command.option("--seed", tests.seed);
        text += &format!("  repeat with: {}\n\n", command.into_text());
    }
    let operations = grouped(tests.devices.iter().map(|d| d.operations).sum());
    let verdict = match tests.violations.len() {
        0 => format!("{operations} operations, no violation."),
        1 => format!("{operations} operations; one part failed."),
        parts => format!("{operations} operations; {parts} parts failed."),
    };
    text += &bold(&verdict);
    text += "\n";
    text += &folded(
        "Each part runs random commands on a built-in profile, scaled down. Its contents are compared with a flat \
         array, and its accounting is audited. WA says nothing about the drive: the commands are chosen to be hard.",
        0,
    );
    text + &format!("\ntrimwise {}, seed {}; repeat with:\n  {}\n", tests.trimwise, tests.seed, tests.command)
}
