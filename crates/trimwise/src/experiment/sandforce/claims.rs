//! What of the source holds.

use super::files::{FilesRun, LEVELS_PERCENT, Level};
use super::sharing::Sharing;
use super::{BESIDE, BesideRun, CLASSES, ClassRun, FIRMWARES, Figures, NAME, QUESTION};
use crate::experiment::plot::{Axis, Plot, PlotKind, Point, Series};
use crate::experiment::result::{Claim, ExperimentResult, ExperimentRows, Figure, open_claims};

/// All runs of the experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// One for each of [`CLASSES`].
    pub classes: Vec<ClassRun>,
    /// The page-mapped drive.
    pub beside: BesideRun,
    /// The reader's question.
    pub files: FilesRun,
    /// What units share.
    pub sharing: Sharing,
}

/// HD Tach's reads on the secure-erased and on the tortured drive, MB/s.
const PUBLISHED_READ: [f64; 2] = [402.0, 182.0];
/// The tolerance of a value; what differs by no more is about the same.
const TOLERANCE: f64 = 0.10;
/// What differs by no more is the same.
const SAME: f64 = 0.01;
/// Below this share of its clean speed a drive is not fully restored: further away than measurements of one state.
const RESTORED: f64 = 0.98;

/// Index of the firmware with the fault, and of those without.
const FAULTY: usize = 1;
const SOUND: [usize; 2] = [0, 2];

fn near(value: f64, of: f64, tolerance: f64) -> bool {
    (value / of - 1.0).abs() <= tolerance
}

fn claim(id: &'static str, text: impl Into<String>, met: bool, measured: String) -> Claim {
    let published = Figure::Text("drawn".to_owned());
    Claim { id, text: text.into(), met, published, measured: Figure::Text(measured) }
}

/// The mean of ATTO's reads over its sizes.
fn atto_read(figures: &Figures) -> f64 {
    figures.atto.iter().map(|size| size.read).sum::<f64>() / figures.atto.len().max(1) as f64
}

impl Measured {
    fn compressible(&self) -> &ClassRun {
        &self.classes[0]
    }

    fn read(&self) -> Claim {
        let run = self.compressible();
        let read = [run.clean.read, run.tortured.read];
        Claim {
            id: "sandforce-read",
            text:
                "HD Tach's sequential read, clean and after torture with compressible data, MB/s, within 10 %"
                    .to_owned(),
            met: read.iter().zip(PUBLISHED_READ).all(|(&read, published)| near(read, published, TOLERANCE)),
            published: Figure::Numbers(PUBLISHED_READ.to_vec()),
            measured: Figure::Numbers(read.to_vec()),
        }
    }

    fn write(&self) -> Claim {
        let (run, beside) = (self.compressible(), &self.beside);
        let ours = run.tortured.write / run.clean.write;
        let theirs = beside.tortured.write / beside.clean.write;
        let reads = beside.tortured.read / beside.clean.read;
        claim(
            "sandforce-write",
            format!(
                "torture with compressible data leaves HD Tach's writes as they were (within 10 %); on {BESIDE} writes \
                 degrade by more than that and reads do not"
            ),
            ours >= 1.0 - TOLERANCE && theirs < 1.0 - TOLERANCE && reads >= 1.0 - TOLERANCE,
            format!(
                "writes {:.0} to {:.0} MB/s; {BESIDE}: writes {:.0} to {:.0}, reads {:.0} to {:.0}",
                run.clean.write,
                run.tortured.write,
                beside.clean.write,
                beside.tortured.write,
                beside.clean.read,
                beside.tortured.read
            ),
        )
    }

    fn partial(&self) -> Claim {
        let run = self.compressible();
        let after = run.trimmed[FAULTY].once.read;
        claim(
            "sandforce-trim-partial",
            "under 5.0.2 the read speed after TRIM is well above the tortured and below the clean one (by more than 10 % \
             each)",
            after > run.tortured.read * (1.0 + TOLERANCE) && after < run.clean.read * (1.0 - TOLERANCE),
            format!("{:.0}, {after:.0}, {:.0} MB/s", run.tortured.read, run.clean.read),
        )
    }

    fn again(&self) -> Claim {
        let change = |a: f64, b: f64| (a / b - 1.0).abs();
        let most = self
            .classes
            .iter()
            .flat_map(|run| &run.trimmed)
            .flat_map(|t| {
                [
                    change(t.twice.read, t.once.read),
                    change(t.twice.write, t.once.write),
                    change(t.twice.same_write, t.once.same_write),
                ]
            })
            .fold(0.0, f64::max);
        claim(
            "sandforce-trim-again",
            "a second TRIM changes nothing (by more than 1 %), whatever the firmware and the data",
            most <= SAME,
            format!("at most {:.2} % of reads or writes", 100.0 * most),
        )
    }

    fn all_data(&self) -> Claim {
        let after = |figure: fn(&Figures) -> f64| -> Vec<f64> {
            self.classes.iter().map(|run| figure(&run.trimmed[FAULTY].once)).collect()
        };
        let (reads, writes) = (after(|f| f.read), after(|f| f.write));
        let alike = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.iter().all(|&value| near(value, mean, TOLERANCE))
        };
        let list =
            |values: &[f64]| values.iter().map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(", ");
        claim(
            "sandforce-all-data",
            "under 5.0.2 HD Tach shows the same after TRIM (within 10 % of their mean) with compressible, \
             pseudo-random and incompressible data",
            alike(&reads) && alike(&writes),
            format!("reads {} MB/s, writes {} MB/s", list(&reads), list(&writes)),
        )
    }

    fn atto(&self) -> Claim {
        let run = self.compressible();
        let [clean, tortured, partly, fully] =
            [&run.clean, &run.tortured, &run.trimmed[FAULTY].once, &run.trimmed[SOUND[1]].once]
                .map(atto_read);
        let drop = 1.0 - tortured / clean;
        let hd_tach = 1.0 - run.tortured.read / run.clean.read;
        claim(
            "sandforce-atto",
            "ATTO's reads (mean over its sizes) tell the same story, lowest tortured and higher after TRIM under 5.0.2, but \
             not restored, and drop less than half as much as HD Tach's",
            drop > 0.0 && tortured < partly && partly < clean && drop < hd_tach / 2.0,
            format!(
                "clean {clean:.1}, tortured {tortured:.1}, 5.0.2 after TRIM {partly:.1}, 5.0.3 {fully:.1} MB/s; a drop of \
                 {:.1} %, HD Tach's is {:.1} %",
                100.0 * drop,
                100.0 * hd_tach
            ),
        )
    }

    fn fixed(&self) -> Claim {
        let run = self.compressible();
        let reads = SOUND.map(|i| run.trimmed[i].once.read);
        claim(
            "sandforce-fixed",
            "under 3.x and 5.0.3 TRIM restores the clean read speed with compressible data (to 98 % at least)",
            reads.iter().all(|read| *read >= RESTORED * run.clean.read),
            format!("{:.0} and {:.0} of {:.0} MB/s", reads[0], reads[1], run.clean.read),
        )
    }

    fn incompressible(&self) -> Claim {
        let run = &self.classes[2];
        let share = |figures: &Figures| figures.same_write / run.clean.same_write;
        let after: Vec<f64> = run.trimmed.iter().map(|t| share(&t.once)).collect();
        let listed: Vec<String> = FIRMWARES
            .iter()
            .zip(&after)
            .map(|(firmware, share)| format!("{firmware} {:.1} %", 100.0 * share))
            .collect();
        claim(
            "sandforce-incompressible",
            "with incompressible data TRIM restores the write speed (of the same data) to less than 98 % under every \
             firmware, and a secure erase restores it",
            after.iter().all(|share| *share < RESTORED) && share(&run.erased) >= 1.0 - SAME,
            format!(
                "of {:.0} MB/s: tortured {:.1} %; after TRIM {}; after a secure erase {:.1} %",
                run.clean.same_write,
                100.0 * share(&run.tortured),
                listed.join(", "),
                100.0 * share(&run.erased)
            ),
        )
    }

    fn dedup(&self) -> Claim {
        let Sharing { compressible_share, copies_bytes, trimmed, kept } = self.sharing;
        claim(
            "sandforce-dedup",
            "compressible data take less flash than they are long, data that are there already take none, and a unit \
             whose data a trimmed one shared reads the same when all flash has been used again",
            compressible_share < 1.0 && copies_bytes == 0 && trimmed.1 == 0 && kept.0 == kept.1,
            format!(
                "{compressible_share:.3} of their length; {copies_bytes} bytes for {} copies; {} of {} trimmed ones still \
                 read as data, {} of the {} others read the same",
                kept.0, trimmed.1, trimmed.0, kept.1, kept.0
            ),
        )
    }

    fn filesystem(&self) -> Claim {
        let (raw, levels) = (&self.files.raw_trimmed, &self.files.levels);
        let better =
            |files: &Figures| files.read > raw.read && files.same_write >= raw.same_write * (1.0 - SAME);
        let list = |figure: fn(&Figures) -> f64| {
            let of = |(percent, level): (u64, &Level)| {
                let (in_place, removed) = (figure(&level.in_place), figure(&level.removed));
                format!("{in_place:.0} ({removed:.0}) at {percent} %")
            };
            LEVELS_PERCENT.into_iter().zip(levels).map(of).collect::<Vec<_>>().join(", ")
        };
        claim(
            "sandforce-filesystem",
            "under 5.0.2 a drive tortured through a file system with TRIM always on, over as much of its LBA space as \
             files can fill, ends in a better state than one that was tortured raw and then trimmed once: it reads \
             faster, and writes no slower (within 1 %)",
            levels.last().is_some_and(|level| better(&level.in_place)),
            format!(
                "MB/s, in parentheses with the files removed; reads: raw {:.0}, through files {}; writes: raw {:.0}, \
                 through files {}",
                raw.read,
                list(|f| f.read),
                raw.same_write,
                list(|f| f.same_write)
            ),
        )
    }

    /// The states of the drive, in the order in which they were made.
    fn states(run: &ClassRun) -> Vec<(String, &Figures)> {
        let trimmed = FIRMWARES.iter().zip(&run.trimmed).map(|(f, t)| (format!("TRIM, {f}"), &t.once));
        let mut states = vec![("clean".to_owned(), &run.clean), ("tortured".to_owned(), &run.tortured)];
        states.extend(trimmed);
        states.push(("secure erase".to_owned(), &run.erased));
        states
    }

    /// Bars by state, with one series for each class.
    fn bars(&self, title: &str, figure: fn(&Figures) -> f64) -> Plot {
        let series = CLASSES.iter().zip(&self.classes).map(|(class, run)| Series {
            name: class.to_string(),
            points: Self::states(run).into_iter().map(|(name, f)| Point::new(name, figure(f))).collect(),
        });
        plot(title, PlotKind::Bars, Axis::linear("state", "state", ""), series)
    }

    /// ATTO with compressible data: a line for each state.
    fn atto_lines(&self, title: &str, figure: fn(&super::AttoSize) -> f64) -> Plot {
        let line = |(name, figures): (String, &Figures)| Series {
            name,
            points: figures.atto.iter().map(|size| Point::new(size.kib, figure(size))).collect(),
        };
        let series = Self::states(self.compressible()).into_iter().map(line);
        plot(title, PlotKind::Lines, Axis::log("transfer_kib", "transfer size", "KiB"), series)
    }

    fn plots(&self) -> Vec<Plot> {
        let zones = |(name, figures): (String, &Figures)| Series {
            name,
            points: figures.read_zones.iter().map(|&(x, y)| Point::new(x, y)).collect(),
        };
        let pair = |states: &[(&str, &Figures)]| {
            let bars = |name: &str, figure: fn(&Figures) -> f64| Series {
                name: name.to_owned(),
                points: states.iter().map(|(state, f)| Point::new((*state).to_owned(), figure(f))).collect(),
            };
            [
                bars("HD Tach read", |f| f.read),
                bars("HD Tach write", |f| f.write),
                bars("long write", |f| f.same_write),
            ]
        };
        let (beside, files) = (&self.beside, &self.files);
        let beside = pair(&[
            ("clean", &beside.clean),
            ("full", &beside.full),
            ("tortured", &beside.tortured),
            ("TRIM", &beside.trimmed),
        ]);
        let names =
            LEVELS_PERCENT.map(|percent| [format!("files, {percent} %"), format!("{percent} %, removed")]);
        let mut states = vec![
            ("clean", &files.clean),
            ("raw, tortured", &files.raw_tortured),
            ("raw, TRIM", &files.raw_trimmed),
        ];
        for ([in_place, removed], level) in names.iter().zip(&files.levels) {
            states.extend([(in_place.as_str(), &level.in_place), (removed.as_str(), &level.removed)]);
        }
        let files = pair(&states);
        let state = || Axis::linear("state", "state", "");
        vec![
            plot(
                "HD Tach reads by place, compressible data",
                PlotKind::Lines,
                Axis::linear("position_gb", "place on the drive", "GB"),
                Self::states(self.compressible()).into_iter().map(zones),
            ),
            self.bars("HD Tach reads, by what the drive was tortured with", |f| f.read),
            self.bars("HD Tach writes, by what the drive was tortured with", |f| f.write),
            self.bars("A long sequential write of the same data", |f| f.same_write),
            self.atto_lines("ATTO reads, compressible data", |size| size.read),
            self.atto_lines("ATTO writes, compressible data", |size| size.write),
            plot(&format!("{BESIDE} beside it"), PlotKind::Bars, state(), beside),
            plot("Tortured raw and through files, 8 GB, 5.0.2", PlotKind::Bars, state(), files),
        ]
    }
}

fn plot(title: &str, kind: PlotKind, x: Axis, series: impl IntoIterator<Item = Series>) -> Plot {
    let y = Axis::linear("throughput_mb_per_s", "throughput", "MB/s");
    Plot { title: title.to_owned(), kind, x, y, series: series.into_iter().collect() }
}

/// Figures and claims.
pub fn evaluate(measured: &Measured, seed: u64) -> ExperimentResult {
    let claims = vec![
        measured.read(),
        measured.write(),
        measured.partial(),
        measured.again(),
        measured.all_data(),
        measured.atto(),
        measured.fixed(),
        measured.incompressible(),
        measured.dedup(),
        measured.filesystem(),
    ];
    let run = measured.compressible();
    let [tortured, partly, fully] = [&run.tortured, &run.trimmed[FAULTY].once, &run.trimmed[SOUND[1]].once]
        .map(|figures| 100.0 * figures.read / run.clean.read);
    let finding = format!(
        "Torture with compressible data leaves {tortured:.0} % of the read speed and all of the write speed; TRIM brings \
         reads back to {partly:.0} % under 5.0.2 and to {fully:.0} % under 5.0.3."
    );
    ExperimentResult {
        experiment: NAME.to_owned(),
        question: QUESTION.to_owned(),
        finding: format!("{finding} {}", open_claims(&claims)),
        trimwise: crate::VERSION.to_owned(),
        seed,
        reps: super::REPS,
        rows: ExperimentRows::Plots(measured.plots()),
        claims,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AttoSize, Trimmed};
    use super::*;

    fn figures(read: f64, write: f64, same_write: f64, atto: f64) -> Figures {
        let atto = vec![AttoSize { kib: 64.0, write: 500.0, read: atto }];
        Figures { read, write, same_write, atto, read_zones: Vec::new() }
    }

    fn trimmed(once: Figures) -> Trimmed {
        Trimmed { twice: Figures { atto: Vec::new(), ..once.clone() }, once }
    }

    /// A drive as the source describes it.
    fn as_published() -> Measured {
        let clean = || figures(402.0, 300.0, 280.0, 500.0);
        let partly = || trimmed(figures(300.0, 300.0, 200.0, 490.0));
        let class = |same_write: f64| ClassRun {
            clean: clean(),
            tortured: figures(182.0, 300.0, 80.0, 470.0),
            trimmed: vec![
                trimmed(figures(402.0, 300.0, same_write, 500.0)),
                partly(),
                trimmed(figures(402.0, 300.0, same_write, 500.0)),
            ],
            erased: clean(),
            ..ClassRun::default()
        };
        Measured {
            classes: vec![class(280.0), class(280.0), class(250.0)],
            beside: BesideRun {
                clean: figures(480.0, 400.0, 400.0, 0.0),
                tortured: figures(475.0, 90.0, 90.0, 0.0),
                ..BesideRun::default()
            },
            files: FilesRun {
                raw_trimmed: figures(300.0, 300.0, 200.0, 0.0),
                levels: vec![Level { in_place: figures(350.0, 300.0, 200.0, 0.0), ..Level::default() }; 2],
                ..FilesRun::default()
            },
            sharing: Sharing { compressible_share: 0.125, copies_bytes: 0, trimmed: (64, 0), kept: (64, 64) },
        }
    }

    fn open(measured: &Measured) -> Vec<&'static str> {
        evaluate(measured, 1).claims.into_iter().filter(|claim| !claim.met).map(|claim| claim.id).collect()
    }

    #[test]
    fn the_source_meets_its_own_claims() {
        assert_eq!(open(&as_published()), [""; 0]);
    }

    #[test]
    fn each_claim_can_fail() {
        let broken = |change: fn(&mut Measured)| {
            let mut measured = as_published();
            change(&mut measured);
            open(&measured)
        };
        assert_eq!(broken(|m| m.classes[0].clean.read = 450.0), ["sandforce-read", "sandforce-fixed"]);
        assert_eq!(broken(|m| m.beside.tortured.write = 400.0), ["sandforce-write"]);
        assert_eq!(broken(|m| m.beside.tortured.read = 400.0), ["sandforce-write"]);
        assert_eq!(broken(|m| m.classes[1].trimmed[1].twice.read = 320.0), ["sandforce-trim-again"]);
        assert_eq!(
            broken(|m| (0..3).for_each(|i| m.classes[i].trimmed[1] = m.classes[i].trimmed[0].clone())),
            ["sandforce-trim-partial", "sandforce-atto"]
        );
        let all_data = broken(|m| m.classes[2].trimmed[1].once.write = 200.0);
        assert!(all_data.contains(&"sandforce-all-data"), "{all_data:?}");
        assert_eq!(broken(|m| m.classes[0].tortured.atto[0].read = 200.0), ["sandforce-atto"]);
        let fixed = broken(|m| m.classes[0].trimmed[0].once.read = 380.0);
        assert!(fixed.contains(&"sandforce-fixed"), "{fixed:?}");
        assert_eq!(broken(|m| m.classes[2].erased.same_write = 200.0), ["sandforce-incompressible"]);
        assert_eq!(broken(|m| m.sharing.kept.1 = 63), ["sandforce-dedup"]);
        assert_eq!(broken(|m| m.files.levels[1].in_place.read = 250.0), ["sandforce-filesystem"]);
    }
}
