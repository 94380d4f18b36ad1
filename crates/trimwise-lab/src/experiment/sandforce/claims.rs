//! The figures of the experiment: those that its claims are about, and those that are drawn.

use super::files::{FilesRun, LEVELS_PERCENT};
use super::sharing::Sharing;
use super::{CLASSES, ClassRun, EXPERIMENT, FIRMWARES, Figures, PAGE_MAPPED, PageMappedRun};
use crate::experiment::claims;
use crate::experiment::result::ExperimentResult;
use crate::plot::{Axis, Plot, PlotKind, Point, Series};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// One for each of [`CLASSES`].
    pub classes: Vec<ClassRun>,
    pub page_mapped: PageMappedRun,
    /// Answers the reader's question.
    pub files: FilesRun,
    pub sharing: Sharing,
}

fn atto_read(figures: &Figures) -> f64 {
    figures.atto.iter().map(|size| size.read).sum::<f64>() / figures.atto.len().max(1) as f64
}

impl Measured {
    fn compressible(&self) -> &ClassRun {
        &self.classes[0]
    }

    /// Returns the figures of the claims: `CLASS.STATE.read`, `.write`, `.long` and `.atto`. A state after TRIM is
    /// named after its firmware.
    fn figures(&self) -> claims::Figures {
        let mut figures = claims::Figures::default();
        let mut state = |name: String, of: &Figures| {
            figures.set(format!("{name}.read"), [of.read]);
            figures.set(format!("{name}.write"), [of.write]);
            figures.set(format!("{name}.long"), [of.same_write]);
            figures.set(format!("{name}.atto"), [atto_read(of)]);
        };
        for (class, run) in CLASSES.iter().zip(&self.classes) {
            let trimmed =
                FIRMWARES.iter().zip(&run.trimmed).map(|(firmware, trimmed)| (*firmware, &trimmed.once));
            let states = [("clean", &run.clean), ("tortured", &run.tortured), ("erased", &run.erased)];
            for (name, of) in states.into_iter().chain(trimmed) {
                state(format!("{class}.{name}"), of);
            }
        }
        state("page_mapped.clean".to_owned(), &self.page_mapped.clean);
        state("page_mapped.tortured".to_owned(), &self.page_mapped.tortured);
        state("raw".to_owned(), &self.files.raw_trimmed);
        for (percent, level) in LEVELS_PERCENT.into_iter().zip(&self.files.levels) {
            state(format!("files.{percent}"), &level.in_place);
            state(format!("removed.{percent}"), &level.removed);
        }
        for trimmed in self.classes.iter().flat_map(|run| &run.trimmed) {
            let of = |of: &Figures| [of.read, of.write, of.same_write];
            figures.push("once", of(&trimmed.once));
            figures.push("twice", of(&trimmed.twice));
        }
        let Sharing { compressible_share, copies_bytes, trimmed, kept } = self.sharing;
        let counts = [("copies-bytes", copies_bytes), ("trimmed", trimmed.0), ("trimmed.left", trimmed.1)];
        for (name, count) in counts.into_iter().chain([("shared", kept.0), ("shared.kept", kept.1)]) {
            figures.set(name, [count as f64]);
        }
        figures.set("compressible-share", [compressible_share]);
        figures
    }

    /// Returns the states of the drive, in the order in which they were made.
    fn states(run: &ClassRun) -> Vec<(String, &Figures)> {
        let trimmed = FIRMWARES.iter().zip(&run.trimmed).map(|(f, t)| (format!("TRIM, {f}"), &t.once));
        let mut states = vec![("clean".to_owned(), &run.clean), ("tortured".to_owned(), &run.tortured)];
        states.extend(trimmed);
        states.push(("secure erase".to_owned(), &run.erased));
        states
    }

    /// Draws bars by state, with one series for each class.
    fn bars(&self, title: &str, figure: fn(&Figures) -> f64) -> Plot {
        let series = CLASSES.iter().zip(&self.classes).map(|(class, run)| Series {
            name: class.to_string(),
            points: Self::states(run).into_iter().map(|(name, f)| Point::new(name, figure(f))).collect(),
        });
        plot(title, PlotKind::Bars, Axis::linear("state", "state", ""), series)
    }

    /// Draws ATTO with compressible data, with a line for each state.
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
        let (page_mapped, files) = (&self.page_mapped, &self.files);
        let page_mapped = pair(&[
            ("clean", &page_mapped.clean),
            ("full", &page_mapped.full),
            ("tortured", &page_mapped.tortured),
            ("TRIM", &page_mapped.trimmed),
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
            plot(&format!("{PAGE_MAPPED} for comparison"), PlotKind::Bars, state(), page_mapped),
            plot("Tortured raw and through files, 8 GB, 5.0.2", PlotKind::Bars, state(), files),
        ]
    }
}

fn plot(title: &str, kind: PlotKind, x: Axis, series: impl IntoIterator<Item = Series>) -> Plot {
    let y = Axis::linear("throughput_mb_per_s", "throughput", "MB/s");
    Plot { title: title.to_owned(), kind, x, y, series: series.into_iter().collect() }
}

pub fn evaluate(measured: &Measured, seed: u64) -> ExperimentResult {
    EXPERIMENT.judge(&measured.figures(), &measured.plots(), EXPERIMENT.reps, seed)
}

#[cfg(test)]
mod tests {
    use super::super::{AttoSize, Trimmed, files::Level};
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
            page_mapped: PageMappedRun {
                clean: figures(480.0, 400.0, 400.0, 0.0),
                tortured: figures(475.0, 90.0, 90.0, 0.0),
                ..PageMappedRun::default()
            },
            files: FilesRun {
                raw_trimmed: figures(300.0, 300.0, 200.0, 0.0),
                levels: vec![Level { in_place: figures(350.0, 300.0, 200.0, 0.0), ..Level::default() }; 2],
                ..FilesRun::default()
            },
            sharing: Sharing { compressible_share: 0.125, copies_bytes: 0, trimmed: (64, 0), kept: (64, 64) },
        }
    }

    fn open(measured: &Measured) -> Vec<String> {
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
        assert_eq!(broken(|m| m.page_mapped.tortured.write = 400.0), ["sandforce-write"]);
        assert_eq!(broken(|m| m.page_mapped.tortured.read = 400.0), ["sandforce-write"]);
        assert_eq!(broken(|m| m.classes[1].trimmed[1].twice.read = 320.0), ["sandforce-trim-again"]);
        assert_eq!(
            broken(|m| (0..3).for_each(|i| m.classes[i].trimmed[1] = m.classes[i].trimmed[0].clone())),
            ["sandforce-trim-partial", "sandforce-atto"]
        );
        let all_data = broken(|m| m.classes[2].trimmed[1].once.write = 200.0);
        assert!(all_data.contains(&"sandforce-all-data".to_owned()), "{all_data:?}");
        assert_eq!(broken(|m| m.classes[0].tortured.atto[0].read = 200.0), ["sandforce-atto"]);
        let fixed = broken(|m| m.classes[0].trimmed[0].once.read = 380.0);
        assert!(fixed.contains(&"sandforce-fixed".to_owned()), "{fixed:?}");
        assert_eq!(broken(|m| m.classes[2].erased.same_write = 200.0), ["sandforce-incompressible"]);
        assert_eq!(broken(|m| m.sharing.kept.1 = 63), ["sandforce-dedup"]);
        assert_eq!(broken(|m| m.files.levels[1].in_place.read = 250.0), ["sandforce-filesystem"]);
    }
}
