//! Converts discard requests to TRIM commands, as Linux does.

use crate::ssd::{TrimConfig, TrimKind};
use crate::units::UnitRange;

/// Returns the commands for `ranges` submitted together.
///
/// A run that exceeds the maximum range takes several ranges. On NVMe the runs merge into commands of up to
/// `max_ranges` (the driver: `max_discard_segments`); on SATA, SCSI and UFS a command carries only one run, however
/// many ranges it could hold, because libata and sd offer the block layer a single segment.
pub fn commands(trim: &TrimConfig, ranges: &[UnitRange]) -> Vec<Vec<UnitRange>> {
    packed(trim, ranges, trim.kind == TrimKind::Nvme)
}

/// Returns the fewest commands that hold `ranges`, on any link.
pub(crate) fn filled_commands(trim: &TrimConfig, ranges: &[UnitRange]) -> Vec<Vec<UnitRange>> {
    packed(trim, ranges, true)
}

fn packed(trim: &TrimConfig, ranges: &[UnitRange], runs_share_a_command: bool) -> Vec<Vec<UnitRange>> {
    if !trim.is_supported() {
        return Vec::new(); // discard_max_bytes is 0
    }
    let ranges_max = trim.max_ranges.max(1) as usize;
    let mut commands: Vec<Vec<UnitRange>> = Vec::new();
    for &range in ranges {
        let mut continues = runs_share_a_command;
        for piece in range.pieces(trim.max_units_per_range.max(1).into()) {
            match commands.last_mut() {
                Some(last) if continues && last.len() < ranges_max => last.push(piece),
                _ => commands.push(vec![piece]),
            }
            continues = true;
        }
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssd::SsdConfig;
    use crate::units::Lpn;

    fn trim(kind: TrimKind) -> TrimConfig {
        TrimConfig { kind, max_ranges: 4, max_units_per_range: 100, ..SsdConfig::default().trim }
    }

    #[test]
    fn sata_takes_one_run_a_command_and_nvme_merges() {
        let runs: Vec<UnitRange> = (0..6).map(|i| UnitRange::new(Lpn(i * 1000), 10)).collect();
        assert_eq!(commands(&trim(TrimKind::AtaNonQueued), &runs).len(), 6);
        let merged = commands(&trim(TrimKind::Nvme), &runs);
        assert_eq!(merged.iter().map(Vec::len).collect::<Vec<_>>(), [4, 2]);
        assert_eq!(filled_commands(&trim(TrimKind::AtaNonQueued), &runs), merged);
    }

    #[test]
    fn a_long_run_fills_the_ranges_of_its_commands() {
        let long = UnitRange::new(Lpn(0), 950);
        let split = commands(&trim(TrimKind::AtaNonQueued), &[long]);
        assert_eq!(split.iter().map(Vec::len).collect::<Vec<_>>(), [4, 4, 2]);
        assert_eq!(split.iter().flatten().map(|r| r.units).sum::<u64>(), 950);
    }
}
