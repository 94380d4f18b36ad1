//! The stacks, what was measured of each, and whether it is as expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Less than this is the file system's own writing, not the file of 16 MiB.
const NOISE_BYTES: u64 = 2 << 20;

/// One stack; `stacks.toml` explains the fields.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    pub name: String,
    pub stack: String,
    pub disks: Vec<String>,
    pub setup: String,
    /// Empty if it exists on all.
    #[serde(default)]
    pub kernels: Vec<String>,
    #[serde(default)]
    pub mount: Option<String>,
    #[serde(default)]
    pub beneath: Option<String>,
    pub reach: Expected<Reach>,
    #[serde(default)]
    pub stops: Option<String>,
    #[serde(default)]
    pub blame: Option<String>,
    #[serde(default)]
    pub remedy: Expected<bool>,
    #[serde(default)]
    pub today: Option<String>,
}

/// Which of the disks a trim reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    All,
    Some,
    None,
}

impl Reach {
    pub fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Some => "some",
            Self::None => "none",
        }
    }
}

/// The same on every kernel, or named for each.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub enum Expected<T> {
    Everywhere(T),
    ByKernel(BTreeMap<String, T>),
}

impl<T: Copy> Expected<T> {
    pub fn on(&self, kernel: &str) -> T {
        match self {
            Self::Everywhere(value) => *value,
            Self::ByKernel(by_kernel) => by_kernel[kernel],
        }
    }
}

impl<T: Default> Default for Expected<T> {
    fn default() -> Self {
        Self::Everywhere(T::default())
    }
}

/// Reads the stacks.
pub fn read(text: &str) -> Result<Vec<Stack>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        stack: Vec<Stack>,
    }
    Ok(toml::from_str::<File>(text)?.stack)
}

impl Stack {
    pub fn is_on(&self, kernel: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|one| one == kernel)
    }

    /// What differs between stacks, as functions for `guest-job`.
    pub fn functions(&self) -> String {
        let mount = self.mount.as_deref().unwrap_or("$M");
        let blame = self.blame.as_deref().unwrap_or("");
        let beneath = self.beneath.as_deref().unwrap_or(":");
        format!(
            "mount_point() {{ echo {mount}; }}\nblame() {{ echo {blame}; }}\nbeneath() {{\n{beneath}\n}}\n"
        )
    }
}

/// What the doctor said of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doctor {
    pub passes: Option<bool>,
    pub wrong: Vec<Finding>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub place: String,
    pub what: String,
    pub mend: String,
    pub commands: Vec<String>,
}

impl Doctor {
    /// Reads its JSON. A doctor that wrote none said nothing.
    pub fn read(path: &Path) -> Self {
        let json: Value = serde_json::from_slice(&fs::read(path).unwrap_or_default()).unwrap_or_default();
        let one = &json["file_systems"][0];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let findings = one["findings"].as_array().into_iter().chain(json["findings"].as_array()).flatten();
        let wrong = findings
            .filter(|finding| finding["wrong"] == true)
            .map(|finding| Finding {
                place: text(&finding["place"]),
                what: text(&finding["what"]),
                mend: text(&finding["mend"]),
                commands: finding["commands"].as_array().into_iter().flatten().map(text).collect(),
            })
            .collect();
        Self { passes: one["passes"].as_bool(), wrong }
    }

    /// The commands of all its remedies.
    pub fn commands(&self) -> Vec<String> {
        self.wrong.iter().flat_map(|finding| finding.commands.clone()).collect()
    }
}

/// What was measured of a stack on one kernel.
#[derive(Clone, Debug)]
pub struct Measured {
    pub name: String,
    pub kernel: &'static str,
    /// Why there is nothing more.
    pub failure: Option<String>,
    pub fstrim: Option<Reach>,
    pub trim: Option<Reach>,
    /// Exit code of `trimwise trim`.
    pub trim_code: String,
    pub doctor: Doctor,
    /// Kernel names of the layers at which it stops.
    pub blamed: Vec<String>,
    /// What the doctor's commands did, if it named any.
    pub remedy: Option<Remedy>,
}

#[derive(Clone, Debug)]
pub struct Remedy {
    pub code: String,
    /// What the commands printed.
    pub said: String,
    pub fstrim: Option<Reach>,
    pub after: Doctor,
}

impl Measured {
    pub fn failed(name: &str, kernel: &'static str, why: String) -> Self {
        Self {
            name: name.to_owned(),
            kernel,
            failure: Some(why),
            fstrim: None,
            trim: None,
            trim_code: String::new(),
            doctor: Doctor::default(),
            blamed: Vec::new(),
            remedy: None,
        }
    }

    /// Reads what a stack left in its folder; `sizes` are those of its disks at each phase.
    pub fn read(
        name: &str,
        kernel: &'static str,
        folder: &Path,
        status: &str,
        sizes: &[(String, Vec<u64>)],
    ) -> Self {
        if status != "0" {
            let log = fs::read(folder.join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(15)..].join("\n    ");
            return Self::failed(name, kernel, format!("its script ended with {status}:\n    {end}"));
        }
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default().trim().to_owned();
        let is_remedied = folder.join("remedy.rc").exists();
        Self {
            name: name.to_owned(),
            kernel,
            failure: None,
            fstrim: reach(sizes, "fstrim"),
            trim: reach(sizes, "trim"),
            trim_code: text("trim.rc"),
            doctor: Doctor::read(&folder.join("doctor.json")),
            blamed: text("blamed").lines().map(str::to_owned).collect(),
            remedy: is_remedied.then(|| Remedy {
                code: text("remedy.rc"),
                said: text("remedy.txt"),
                fstrim: reach(sizes, "remedy"),
                after: Doctor::read(&folder.join("after.json")),
            }),
        }
    }

    /// What is not as expected, each in a sentence.
    fn differences(&self, stack: &Stack) -> Vec<String> {
        if let Some(failure) = &self.failure {
            return vec![failure.clone()];
        }
        let mut found = Vec::new();
        let expected = stack.reach.on(self.kernel);
        let word = |reach: Option<Reach>| reach.map_or("not measured", Reach::word);
        let fstrim = word(self.fstrim);
        if self.fstrim != Some(expected) {
            found.push(format!("fstrim reached {fstrim} disks; expected {}", expected.word()));
        }
        if self.trim != self.fstrim {
            found.push(format!("trim reached {} disks, fstrim {fstrim}", word(self.trim)));
        }
        if (self.trim_code == "0") == (expected == Reach::None) {
            found.push(format!("trim exits with {}, and reached {}", self.trim_code, word(self.trim)));
        }
        found.extend(self.doctor_differences(stack, expected));
        found
    }

    fn doctor_differences(&self, stack: &Stack, expected: Reach) -> Vec<String> {
        let mut found = Vec::new();
        let doctor = &self.doctor;
        let told: Vec<String> =
            doctor.wrong.iter().map(|one| format!("{}: {}; {}", one.place, one.what, one.mend)).collect();
        let told = told.join(" | ");
        match (expected, doctor.passes) {
            (Reach::All, Some(true)) | (Reach::None, Some(false)) | (Reach::Some, Some(_)) => {}
            (_, said) => found.push(format!("doctor says passes={said:?}")),
        }
        if expected == Reach::All {
            if !doctor.wrong.is_empty() {
                found.push(format!("doctor complains: {told}"));
            }
            return found;
        }
        let places: Vec<&String> = doctor.wrong.iter().map(|one| &one.place).collect();
        if places != self.blamed.iter().collect::<Vec<_>>() {
            found.push(format!("doctor blames {places:?}, not {:?}: {told}", self.blamed));
        }
        match (&self.remedy, stack.remedy.on(self.kernel)) {
            (None, true) => found.push(format!("doctor prints no commands: {told}")),
            (Some(_), false) => found.push(format!("no command helps, but doctor: {:?}", doctor.commands())),
            (None, false) => {}
            (Some(remedy), true) => {
                let is_right = remedy.code == "0"
                    && remedy.fstrim == Some(Reach::All)
                    && remedy.after.passes == Some(true)
                    && remedy.after.wrong.is_empty();
                if !is_right {
                    found.push(format!(
                        "after the remedy {:?} (exit {}): {:?}, {:?}; it said: {}",
                        doctor.commands(),
                        remedy.code,
                        remedy.fstrim,
                        remedy.after,
                        remedy.said
                    ));
                }
            }
        }
        found
    }
}

/// Finds what was measured of a stack, on each kernel.
pub fn of<'a>(stack: &Stack, measured: &'a [Measured]) -> Vec<&'a Measured> {
    measured.iter().filter(|one| one.name == stack.name).collect()
}

/// What is not as expected of a stack on these kernels. What is known to be wrong today is not listed, unless it is not
/// wrong any more.
pub fn differences(stack: &Stack, measured: &[&Measured]) -> Vec<String> {
    let mut found = Vec::new();
    for one in measured {
        found.extend(
            one.differences(stack).iter().map(|what| format!("{} on {}: {what}", stack.name, one.kernel)),
        );
    }
    let is_whole = measured.iter().all(|one| one.failure.is_none());
    match (&stack.today, found.is_empty()) {
        (Some(_), true) => vec![format!("{}: nothing is wrong; its `today` must go", stack.name)],
        (Some(_), false) if is_whole => Vec::new(),
        _ => found,
    }
}

/// Which of the disks that hold some of the file gave back at least half of what it took; `None` if it was not measured.
fn reach(sizes: &[(String, Vec<u64>)], what: &str) -> Option<Reach> {
    let place = |phase: &str| sizes.iter().position(|(name, _)| name == phase);
    let written = place(&format!("{what}-written"))?;
    let of = |place: usize, disk: usize| sizes[place].1[disk];
    let (start, trimmed) = (place("start")?, place(&format!("{what}-trimmed"))?);
    let of_disks: Vec<bool> = (0..sizes[start].1.len())
        .filter_map(|disk| {
            let given_back = of(written, disk).saturating_sub(of(trimmed, disk));
            // What was never trimmed is written over, and the disk does not grow again.
            let held = of(written, disk).saturating_sub(of(start, disk)).max(given_back);
            let grown = of(written, disk).saturating_sub(of(written - 1, disk));
            (held >= NOISE_BYTES).then_some(given_back >= NOISE_BYTES.max(grown / 2))
        })
        .collect();
    Some(match (of_disks.contains(&true), of_disks.contains(&false)) {
        (true, false) => Reach::All,
        // Neither happens where everything was allocated before.
        (false, _) => Reach::None,
        (true, true) => Reach::Some,
    })
}
