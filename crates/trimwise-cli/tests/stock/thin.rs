//! Thin storage: what real ones hold after some work, next to the model after the same work.
//!
//! The work writes and removes files on an ext4 of 1 GiB on each kind of thin storage. What is held is read from
//! outside: the blocks of the pool, the clusters of the image, the blocks of the file. `THIN=full` takes all cells and
//! not a sample, `THIN=write` also writes the table of docs/model.md, and `THIN=PART` takes those whose name has that
//! part.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use trimwise::block::BlockQueue;
use trimwise::block::thin::ThinConfig;
use trimwise::engine::Sim;
use trimwise::files::{Files, OpenMode};
use trimwise::fs::Volume;
use trimwise::fs::host::HostConfig;
use trimwise::fs::layout::FormatOptions;
use trimwise::policy::PolicySpec;
use trimwise::profile::Profile;
use trimwise::ssd::Drive;
use trimwise::units::{Bytes, Lpn, UnitRange};
use trimwise_testing::loops::{self, sh};
use trimwise_testing::{program, scratch};

use crate::machine::Guest;
use crate::stacks::Stack;
use crate::{guest, measure_guest, repository, stack};

const VOLUME: Bytes = Bytes::gib(1);
const KERNEL: &str = "6.12";
/// How far the model may be from the real one.
const PERCENT_MAX: f64 = 5.0;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trim {
    Never,
    Discard,
    Fstrim,
}

impl Trim {
    const ALL: [Self; 3] = [Self::Never, Self::Discard, Self::Fstrim];

    fn name(self) -> &'static str {
        match self {
            Self::Never => "no TRIM",
            Self::Discard => "discard",
            Self::Fstrim => "fstrim at the end",
        }
    }
}

/// Where a real volume is made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// A thin volume of dm-thin, in the guest.
    Pool,
    /// The guest's disk.
    Disk(&'static str),
    /// A loop device over a file on this file system of the host.
    Loop(&'static str),
}

/// Kinds of thin storage: what the table calls them, what models them, and where they are real.
const KINDS: [(&str, &str, Place); 10] = [
    ("dm-thin", "thin:64KiB", Place::Pool),
    ("dm-thin", "thin:192KiB", Place::Pool),
    ("dm-thin", "thin:256KiB", Place::Pool),
    ("dm-thin", "thin:1MiB", Place::Pool),
    ("dm-thin", "thin:16MiB", Place::Pool),
    ("qcow2", "qcow2:64KiB", Place::Disk("virtio+volume-qcow2-64K")),
    ("qcow2", "qcow2:2MiB", Place::Disk("virtio+volume-qcow2-2M")),
    ("raw file of QEMU", "image:4KiB", Place::Disk("virtio+volume")),
    ("loop on ext4", "image:4KiB", Place::Loop("ext4")),
    ("loop on XFS", "image:4KiB", Place::Loop("xfs")),
];

/// What every run takes: twelve cells.
const SAMPLE: [(&str, &str); 4] = [
    ("dm-thin", "thin:64KiB"),
    ("dm-thin", "thin:1MiB"),
    ("qcow2", "qcow2:64KiB"),
    ("loop on ext4", "image:4KiB"),
];

struct Cell {
    kind: &'static str,
    thin: ThinConfig,
    place: Place,
    trim: Trim,
}

impl Cell {
    fn name(&self) -> String {
        let word = |text: &str| text.to_lowercase().replace([' ', ':'], "-");
        format!("{}-{}-{}", word(self.kind), word(&self.thin.to_string()), word(self.trim.name()))
    }
}

enum Step {
    Write { path: String, bytes: u64 },
    Remove(String),
    Sync,
}

/// Files of 4 KiB to 4 MiB, evenly over the powers of two: 300 MiB of them, of which half are removed, then 150 MiB
/// more, of which two in five are removed.
fn work() -> Vec<Step> {
    let mut state = 54u64;
    let mut draw = move |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let (mut steps, mut present, mut files) = (Vec::new(), Vec::new(), 0u64);
    for (mib, removed_of_ten) in [(300, 5), (150, 4)] {
        let mut left = mib << 20;
        while left > 0 {
            let power = 4096 << draw(10);
            let bytes = (power + draw(power)).min(left);
            let path = format!("work/{files}");
            present.push(path.clone());
            steps.push(Step::Write { path, bytes });
            left -= bytes;
            files += 1;
            if files.is_multiple_of(16) {
                steps.push(Step::Sync);
            }
        }
        steps.push(Step::Sync);
        for _ in 0..present.len() * removed_of_ten / 10 {
            let at = draw(present.len() as u64) as usize;
            steps.push(Step::Remove(present.swap_remove(at)));
        }
        steps.push(Step::Sync);
    }
    steps
}

/// The work as a script for Perl that runs in the directory of the file system: an emulated processor takes long to
/// start a program for each file.
fn script() -> String {
    let mut script = String::from(
        "use strict; my $zeros = \"\\0\" x 1048576;\n\
         sub w { my ($path, $left) = @_; open(my $to, '>', $path) or die \"$path: $!\";\n\
         while ($left > 0) { my $now = $left < 1048576 ? $left : 1048576;\n\
         $left -= syswrite($to, $zeros, $now) // die $! } close $to }\n\
         sub synced { syscall(162) }\n\
         mkdir 'work' or die $!;\n",
    );
    for step in work() {
        match step {
            Step::Write { path, bytes } => writeln!(script, "w('{path}', {bytes});"),
            Step::Remove(path) => writeln!(script, "unlink('{path}') or die $!;"),
            Step::Sync => writeln!(script, "synced();"),
        }
        .unwrap();
    }
    script
}

/// What the model holds after the work.
fn modelled(cell: &Cell) -> u64 {
    let profile = Profile::embedded("sata-small").unwrap();
    let drive = Drive::new(&profile.config.scaled(VOLUME.0).unwrap(), profile.faults, 1).unwrap();
    let host = HostConfig::of(KERNEL.parse().unwrap(), Bytes::gib(1));
    let sim = Sim::new();
    let queue = BlockQueue::new(&sim, drive, host.queue);
    queue.put_thin(cell.thin);
    let policy = if cell.trim == Trim::Discard { PolicySpec::COMMIT } else { PolicySpec::OFF };
    let trims = cell.trim == Trim::Fstrim;
    sim.run(async move {
        let volume = Volume::format(&queue, FormatOptions::TODAY).await.unwrap();
        let fs = volume.mount(host, policy.governor()).await;
        let zeros = vec![0; 1 << 20];
        fs.mkdir("work").await.unwrap();
        for step in work() {
            match step {
                Step::Write { path, bytes } => {
                    let mut file = fs.open(&path, OpenMode::Create).await.unwrap();
                    let mut left = bytes as usize;
                    while left > 0 {
                        let now = left.min(zeros.len());
                        fs.write(&mut file, &zeros[..now]).await.unwrap();
                        left -= now;
                    }
                    fs.close(file).await.unwrap();
                }
                Step::Remove(path) => fs.unlink(&path).await.unwrap(),
                Step::Sync => fs.sync().await.unwrap(),
            }
        }
        fs.drain_discards().await;
        if trims {
            fs.trim_free(UnitRange::new(Lpn(0), u64::MAX), 1).await;
        }
        queue.with_thin(|volume, now| volume.held(now).now.0).unwrap()
    })
    .unwrap()
}

/// Makes the file system on $V, does the work, and leaves it mounted on $M.
fn on_volume(trim: Trim, work: &str) -> String {
    let options = if trim == Trim::Discard { "-o discard" } else { "" };
    let end = if trim == Trim::Fstrim { "fstrim $M\nsync" } else { "" };
    // The worker that discards lags behind the commit.
    format!(
        "mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 $V\nmount {options} $V $M\ncd $M\n\
         perl {work}\nsync\nsleep 8\nsync\n{end}\ncd /\n"
    )
}

fn in_guest(cell: &Cell) -> Stack {
    let (disk, volume, held) = match cell.place {
        Place::Disk(disk) => (disk, "V=$D0\n".to_owned(), ""),
        _ => (
            "virtio+large",
            format!(
                "modprobe dm-thin-pool\n\
                 dd if=/dev/zero of=$D0 bs=4k count=1\n\
                 dmsetup create $S-meta --table \"0 131072 linear $D0 0\"\n\
                 dmsetup create $S-data --table \"0 8388608 linear $D0 131072\"\n\
                 dmsetup create $S-pool --table \
                 \"0 8388608 thin-pool /dev/mapper/$S-meta /dev/mapper/$S-data {} 0 1 skip_block_zeroing\"\n\
                 dmsetup message $S-pool 0 'create_thin 0'\n\
                 V=/dev/mapper/$S-thin\n\
                 dmsetup create $S-thin --table \"0 {} thin /dev/mapper/$S-pool 0\"\n",
                cell.thin.chunk.0 / 512,
                VOLUME.0 / 512
            ),
            "dmsetup status $S-pool | tee $O/status\n",
        ),
    };
    Stack {
        name: cell.name(),
        disks: vec![disk.to_owned()],
        setup: volume + &on_volume(cell.trim, "/share/work") + held + "sync\n",
        script: Some(":".to_owned()),
        kernels: Vec::new(),
        ..stack("nvme")
    }
}

/// What the real volume of a guest holds; `None` if it was not measured.
fn held_of_guest(cell: &Cell, guest: &Guest) -> Option<u64> {
    let image = guest.image(&cell.name(), 0);
    match cell.place {
        Place::Disk(kind) if kind.contains("qcow2") => {
            let image = image.to_str().unwrap();
            let checked: serde_json::Value =
                serde_json::from_str(&sh("qemu-img", &["check", "--output=json", image])).unwrap();
            Some(checked["allocated-clusters"].as_u64()? * cell.thin.chunk.0)
        }
        Place::Disk(_) => Some(fs::metadata(image).unwrap().blocks() * 512),
        _ => {
            // START LENGTH thin-pool TRANSACTION METADATA DATA...
            let status = fs::read_to_string(guest.share().join(cell.name()).join("status")).ok()?;
            let blocks: u64 = status.split_whitespace().nth(5)?.split_once('/')?.0.parse().ok()?;
            Some(blocks * cell.thin.chunk.0)
        }
    }
}

/// Does the work on a loop device over a file on a file system of this host.
fn held_by_loop(cell: &Cell, file_system: &str) -> u64 {
    let outer = if file_system == "xfs" { loops::Loop::xfs(3 << 30) } else { loops::Loop::ext4(3 << 30) };
    let image = outer.point.join("image");
    fs::File::create(&image).unwrap().set_len(VOLUME.0).unwrap();
    let folder = scratch();
    let work = folder.path().join("work");
    fs::write(&work, script()).unwrap();
    let shown = |path: &Path| path.display().to_string();
    let (of_image, point) = (shown(&image), shown(folder.path()) + "/mounted");
    let script = format!(
        "set -e\nM={point}\nmkdir $M\nV=$(losetup -f --show {of_image})\n\
         trap 'cd /; umount $M; losetup -d $V' EXIT\n{}\nsync\nstat -c %b {of_image}",
        on_volume(cell.trim, &shown(&work))
    );
    sh("bash", &["-c", &script]).trim().parse::<u64>().unwrap() * 512
}

struct Row {
    cell: Cell,
    model: u64,
    real: Option<u64>,
}

impl Row {
    fn percent(&self) -> Option<f64> {
        self.real.map(|real| (self.model as f64 / real as f64 - 1.0) * 100.0)
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = String::from(
        "| thin storage | chunk | TRIM | real, MiB | model, MiB | difference |\n|---|---|---|---|---|---|\n",
    );
    let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
    for row in rows {
        let difference = row.percent().map_or("?".to_owned(), |percent| format!("{percent:+.1} %"));
        writeln!(
            table,
            "| {} | {} | {} | {} | {} | {difference} |",
            row.cell.kind,
            row.cell.thin.chunk,
            row.cell.trim.name(),
            row.real.map_or("?".to_owned(), mib),
            mib(row.model)
        )
        .unwrap();
    }
    table
}

const MARKS: [&str; 2] =
    ["<!-- Made by THIN=write scripts/test-tier stock thin; do not edit. -->\n\n", "\n<!-- end -->"];

/// Puts the table into the page, between its marks.
fn write(table: &str) {
    let place = repository().join("docs/model.md");
    let page = fs::read_to_string(&place).unwrap();
    let (before, rest) = page.split_once(MARKS[0]).expect("the mark of the table");
    let (_, after) = rest.split_once(MARKS[1]).expect("the end of the table");
    fs::write(place, format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1])).unwrap();
}

#[test]
fn thin_storage_holds_what_the_model_says() {
    let Some(made) = guest() else { return };
    if program("qemu-img").is_none() || !loops::can_run(&["mkfs.ext4", "mkfs.xfs", "fstrim", "perl"]) {
        return;
    }
    let mode = std::env::var("THIN").unwrap_or_default();
    let mut cells = Vec::new();
    for (kind, thin, place) in KINDS {
        let cell = |trim| Cell { kind, thin: thin.parse().unwrap(), place, trim };
        cells.extend(Trim::ALL.map(cell));
    }
    cells.retain(|cell| match &*mode {
        "" => SAMPLE.iter().any(|(kind, thin)| (*kind, *thin) == (cell.kind, &*cell.thin.to_string())),
        "full" | "write" => true,
        part => cell.name().contains(part),
    });
    assert!(!cells.is_empty(), "no cell has '{mode}' in its name");
    let stacks: Vec<Stack> =
        cells.iter().filter(|cell| !matches!(cell.place, Place::Loop(_))).map(in_guest).collect();
    let folder = scratch();
    let guest = Guest::prepare(&made, KERNEL, folder.path(), &stacks);
    fs::write(guest.share().join("work"), script()).unwrap();
    if !stacks.is_empty() {
        measure_guest(&guest);
    }
    let rows: Vec<Row> = cells
        .into_iter()
        .map(|cell| {
            let real = match cell.place {
                Place::Loop(file_system) => Some(held_by_loop(&cell, file_system)),
                _ => held_of_guest(&cell, &guest),
            };
            Row { model: modelled(&cell), real, cell }
        })
        .collect();
    let table = table(&rows);
    println!("{table}");
    if mode == "write" {
        write(&table);
    }
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row.percent().is_none_or(|percent| percent.abs() > PERCENT_MAX))
        .map(|row| row.cell.name())
        .collect();
    assert!(wrong.is_empty(), "more than {PERCENT_MAX} % apart, or not measured: {wrong:?}");
}
