//! PostMark's two reports, character for character.
//!
//! The reports are less precise than the model: the timers count whole seconds (each instant is rounded down, and a
//! difference of 0 counts as 1), the verbose rates are integer divisions, and byte totals are summed in a C `float`, so
//! that 8,615,456,523 bytes are reported as 8,615,364,608. [`Outcome::figures`] has the exact figures; these texts are
//! for comparison with `postmark` itself and for scripts that parse its output.

use std::fmt::Write as _;

use super::config::ReportFormat;
use super::outcome::Outcome;
use crate::units::SimTime;

/// PostMark's message when the transactions end early; there is no report then.
pub(crate) const OUT_OF_FILES: &str = "out of files!\nFor this workload, either increase the number of files or\n\
     decrease the number of transactions.\n";

/// Returns whole seconds as PostMark's `time()` differences give them, never 0.
fn seconds(from: SimTime, to: SimTime) -> u64 {
    const SECOND_NS: u64 = 1_000_000_000;
    (to.as_nanos() / SECOND_NS).saturating_sub(from.as_nanos() / SECOND_NS).max(1)
}

fn scaled(bytes: f32) -> String {
    const MEGABYTE: f32 = 1_048_576.0;
    const KILOBYTE: f32 = 1024.0;
    if bytes > MEGABYTE {
        format!("{:.2} megabytes", bytes / MEGABYTE)
    } else if bytes != 0.0 {
        format!("{:.2} kilobytes", bytes / KILOBYTE)
    } else {
        format!("{bytes:.6} bytes")
    }
}

/// Formats the report of `set report verbose`, from its line `Time:` on; [`OUT_OF_FILES`] if that is how the run ended.
pub fn verbose(outcome: &Outcome) -> String {
    if outcome.out_of_files {
        return OUT_OF_FILES.to_owned();
    }
    let (t, c) = (&outcome.times, &outcome.counts);
    let total = seconds(t.begin, t.end);
    let transacting = seconds(t.created, t.transacted);
    let (creation_alone, deletion_alone) = (c.created - c.created_mixed, c.deleted - c.deleted_mixed);
    let mut text = String::with_capacity(700);
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{args}");
    };
    line(format_args!("Time:"));
    line(format_args!("\t{total} seconds total"));
    line(format_args!(
        "\t{transacting} seconds of transactions ({} per second)",
        outcome.transactions / transacting
    ));
    line(format_args!("\nFiles:"));
    line(format_args!("\t{} created ({} per second)", c.created, c.created / total));
    line(format_args!(
        "\t\tCreation alone: {creation_alone} files ({} per second)",
        creation_alone / seconds(t.begin, t.created)
    ));
    line(format_args!(
        "\t\tMixed with transactions: {} files ({} per second)",
        c.created_mixed,
        c.created_mixed / transacting
    ));
    line(format_args!("\t{} read ({} per second)", c.read, c.read / transacting));
    line(format_args!("\t{} appended ({} per second)", c.appended, c.appended / transacting));
    line(format_args!("\t{} deleted ({} per second)", c.deleted, c.deleted / total));
    line(format_args!(
        "\t\tDeletion alone: {deletion_alone} files ({} per second)",
        deletion_alone / seconds(t.transacted, t.end)
    ));
    line(format_args!(
        "\t\tMixed with transactions: {} files ({} per second)",
        c.deleted_mixed,
        c.deleted_mixed / transacting
    ));
    line(format_args!("\nData:"));
    for (bytes, verb) in [(c.bytes_read_f32, "read"), (c.bytes_written_f32, "written")] {
        line(format_args!("\t{} {verb} ({} per second)", scaled(bytes), scaled(bytes / total as f32)));
    }
    text
}

/// Formats the line of `set report terse`, with its newline; [`OUT_OF_FILES`] if that is how the run ended.
///
/// Thirteen fields: seconds in total and of transactions; then, per second, transactions, files created, created alone,
/// created by transactions, read, appended, deleted, deleted alone, deleted by transactions; bytes read, bytes written.
/// Deletions alone are divided by their own phase, as since PostMark 1.52; up to 1.51 they were divided by the creation
/// phase.
pub fn terse(outcome: &Outcome) -> String {
    if outcome.out_of_files {
        return OUT_OF_FILES.to_owned();
    }
    let (t, c) = (&outcome.times, &outcome.counts);
    let total = seconds(t.begin, t.end);
    let transacting = seconds(t.created, t.transacted);
    // PostMark divides C floats, which shows in the last digits of large rates.
    let rate = |count: u64, seconds: u64| count as f32 / seconds as f32;
    let rates = [
        rate(outcome.transactions, transacting),
        rate(c.created, total),
        rate(c.created - c.created_mixed, seconds(t.begin, t.created)),
        rate(c.created_mixed, transacting),
        rate(c.read, transacting),
        rate(c.appended, transacting),
        rate(c.deleted, total),
        rate(c.deleted - c.deleted_mixed, seconds(t.transacted, t.end)),
        rate(c.deleted_mixed, transacting),
        c.bytes_read_f32 / total as f32,
        c.bytes_written_f32 / total as f32,
    ];
    let mut text = format!("{total} {transacting}");
    for rate in rates {
        // Writing to a String cannot fail.
        let _ = write!(text, " {rate:.2}");
    }
    text.push('\n');
    text
}

pub fn of(outcome: &Outcome, format: ReportFormat) -> String {
    match format {
        ReportFormat::Verbose => verbose(outcome),
        ReportFormat::Terse => terse(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::large_set;
    use super::*;

    #[test]
    fn the_verbose_report_is_postmarks() {
        let expected = "Time:\n\t176 seconds total\n\t100 seconds of transactions (500 per second)\n\nFiles:\n\
             \t74761 created (424 per second)\n\t\tCreation alone: 50000 files (1000 per second)\n\
             \t\tMixed with transactions: 24761 files (247 per second)\n\t24974 read (249 per second)\n\
             \t25025 appended (250 per second)\n\t74761 deleted (424 per second)\n\
             \t\tDeletion alone: 49522 files (1904 per second)\n\
             \t\tMixed with transactions: 25239 files (252 per second)\n\nData:\n\
             \t2625.47 megabytes read (14.92 megabytes per second)\n\
             \t8216.25 megabytes written (46.68 megabytes per second)\n";
        assert_eq!(verbose(&large_set(500, 50_900, 150_100, 176_000)), expected);
    }

    /// 176 seconds do not divide the totals: the last digits are those of a `float`.
    #[test]
    fn the_terse_report_is_postmarks() {
        let expected = "176 100 500.00 424.78 1000.00 247.61 249.74 250.25 424.78 1904.69 252.39 15642058.00 \
             48950936.00\n";
        assert_eq!(terse(&large_set(500, 50_900, 150_100, 176_000)), expected);
    }

    #[test]
    fn timers_round_each_instant_down_and_are_never_zero() {
        let at = |ms: u64| SimTime(ms * 1_000_000);
        assert_eq!(seconds(at(900), at(999)), 1);
        assert_eq!(seconds(at(999), at(1000)), 1);
        assert_eq!(seconds(at(999), at(2000)), 2);
        assert_eq!(seconds(at(1000), at(2999)), 1);
    }

    #[test]
    fn megabytes_begin_above_one_and_nothing_is_in_bytes() {
        assert_eq!(scaled(1_048_576.0), "1024.00 kilobytes");
        assert_eq!(scaled(2_097_152.0), "2.00 megabytes");
        assert_eq!(scaled(18.0), "0.02 kilobytes");
        assert_eq!(scaled(0.0), "0.000000 bytes");
    }
}
