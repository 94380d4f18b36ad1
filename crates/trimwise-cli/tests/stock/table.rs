//! The page docs/stacks.md.

use std::fmt::Write as _;

use crate::stacks::{self, Measured, Stack};

/// Writes the page.
pub fn page(stacks: &[Stack], measured: &[Measured]) -> String {
    let mut page = String::from(HEAD);
    let mut today = String::new();
    for stack in stacks {
        let on_each = stacks::of(stack, measured);
        let each = |text: &dyn Fn(&Measured) -> String| {
            let mut texts: Vec<String> = on_each.iter().map(|one| text(one)).collect();
            texts.dedup();
            texts.join(" / ")
        };
        let reaches = each(&|one| one.reach.map_or("?", stacks::Reach::word).to_owned());
        let doctor = each(&|one| {
            match (one.doctor.passes, one.doctor.wrong.is_empty()) {
                _ if stack.script.is_some() => "advice",
                (Some(true), true) if stack.unseen => "passes, as far as it can see",
                (Some(true), true) => "passes",
                (Some(true), false) => "passes, but",
                (Some(false), false) => "stops",
                (Some(false), true) if !one.doctor.advice.is_empty() => "stops, advice",
                (Some(false), true) => "stops, a note",
                (None, _) => "not checked",
            }
            .to_owned()
        });
        let verify = each(&|one| {
            match (&*one.verify.verdict, &*one.verify.code) {
                ("", "") => "not asked",
                ("", _) => "cannot look",
                (verdict, _) => verdict,
            }
            .replace('_', " ")
        });
        let remedy = each(&|one| {
            match &one.remedy {
                _ if one.reach == Some(stacks::Reach::All) => "",
                Some(remedy) if remedy.fstrim == Some(stacks::Reach::All) => "carried out: passes",
                Some(_) => "carried out: does not help",
                None if stack.remedy.on(one.kernel) => "not as commands",
                None => "no command helps",
            }
            .to_owned()
        });
        let lent = each(&|one| {
            match (one.doctor.lent.is_empty() || stack.script.is_some(), one.given_back) {
                (true, _) => "",
                (false, Some(stacks::Reach::All)) => "given back",
                // A pool that keeps what it gets back does not show it outside.
                (false, _) => "not seen outside",
            }
            .to_owned()
        });
        let mark = if stack.today.is_some() { " ✗" } else { "" };
        let stops = stack.stops.as_deref().unwrap_or("");
        let only = if on_each.len() == 1 { format!(" ({} only)", on_each[0].kernel) } else { String::new() };
        writeln!(
            page,
            "| {}{only} | {reaches} | {stops} | {doctor}{mark} | {verify} | {remedy} | {lent} |",
            stack.stack
        )
        .unwrap();
        if let Some(wrong) = &stack.today {
            writeln!(today, "- {}: {wrong}", stack.stack).unwrap();
        }
    }
    if !today.is_empty() {
        write!(page, "\n## What is still wrong (✗)\n\n{today}").unwrap();
    }
    page
}

const HEAD: &str = "\
# Does TRIM arrive? Stacks on Debian's kernels

<!-- Made by STACKS=write scripts/test-tier stock; do not edit. -->

Each stack below is built on Debian's stock kernels 6.1 and 6.12, on emulated disks whose images lie on another host.
Files of 16 MiB are written; each is removed, and then trimmed by `trimwise trim` (and `fstrim` where that reached
nothing) or by the daemon. *Reaches* says how many of the disks that held the file gave its space back, as measured from
outside; two words mean 6.1 and 6.12. *Doctor* and *verify* are the verdicts of `trimwise doctor` and `trimwise verify`
on that stack, and *remedy* what happened after doctor's commands were carried out as printed. *Lent* says what the commands
did that doctor prints where space or memory is lent and nothing gives it back (nothing trims in the guest by itself). `trimwise trim` and the
daemon are held to the same measure: they must reach what fstrim reaches, and claim nothing where nothing arrives.
Where it stops at *a fault*, discards fail while they are sent, which both must say, and work again for verify and the
rest: then the daemon sends what had failed, or it stays unverified (f2fs).
Where only a part of the disk fails (`error`, bad blocks), it is free and holds old data, which must be given back, too.

Not here: bcachefs and composefs, whose tools Debian 12 and 13 do not have (the overlay that composefs consists of is
here), and ZFS and dm-dust, which are not in these kernels.

Which of these are safe over [dm-trim](../kernel/dm-trim/README.md#zeros), with which of its options, is said there: Linux
RAID 4, 5 and 6 and LVM's need `zeros=on`, or a drive that reads as zeros and `zeros=device`; with neither they lose data.

| stack | reaches | stops at | doctor | verify | remedy | lent |
|---|---|---|---|---|---|---|
";
