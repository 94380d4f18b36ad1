//! The text of `device list` and `device detach`.

use crate::requests::device::Shown;
use trimwise::units::Bytes;

use trimwise_cli::figures::{NONE, grouped};
use trimwise_cli::table::laid_out;

const HEADER: [&str; 9] =
    ["device", "profile", "size", "state", "reads", "writes", "flushes", "discards", "discarded"];

/// Renders a row for each device, with remarks below.
pub fn render(devices: &[Shown]) -> String {
    if devices.is_empty() {
        return "no emulated device\n".to_owned();
    }
    let mut text = laid_out(&HEADER, &devices.iter().map(row).collect::<Vec<_>>());
    for device in devices {
        let name = &device.record.name;
        if *name != device.record.profile {
            text += &format!("{} is named {name}\n", device.place());
        }
        if let Some(in_use) = &device.in_use {
            text += &format!(
                "{}: its server was killed, and it is {in_use}; unmount it, and the next command removes it\n",
                device.place()
            );
        }
    }
    text
}

fn row(device: &Shown) -> Vec<String> {
    let record = &device.record;
    let counts = device.status.as_ref().map(|status| status.counts);
    let figure = |of: fn(&trimwise::block::PortCounts) -> u64| {
        counts.as_ref().map_or(NONE.to_owned(), |counts| grouped(of(counts)))
    };
    vec![
        device.place(),
        record.profile.clone(),
        Bytes(record.size_bytes).to_string(),
        device.state.to_owned(),
        figure(|counts| counts.reads),
        figure(|counts| counts.writes),
        figure(|counts| counts.flushes),
        figure(|counts| counts.discards),
        counts.map_or(NONE.to_owned(), |counts| Bytes(counts.discarded_bytes).to_string()),
    ]
}
