//! The stacks, what was measured of each, and whether it is as expected.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// Less than this is the file system's own writing, not the file of 16 MiB.
const NOISE_BYTES: u64 = 2 << 20;

/// What timeout(1) returns when it ends a script, or has to kill it.
const HUNG: [&str; 2] = ["124", "137"];

/// One stack; `stacks.toml` explains the fields.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    pub name: String,
    pub stack: String,
    #[serde(default)]
    pub file_systems: Vec<String>,
    pub disks: Vec<String>,
    pub setup: String,
    /// Empty if it exists on all.
    #[serde(default)]
    pub kernels: Vec<String>,
    #[serde(default)]
    pub mount: Option<String>,
    #[serde(default)]
    pub files: Option<String>,
    #[serde(default)]
    pub managed: Option<String>,
    #[serde(default)]
    pub memory: Option<String>,
    #[serde(default)]
    pub beneath: Option<String>,
    #[serde(default)]
    pub script: Option<String>,
    #[serde(default)]
    pub fault: Option<String>,
    pub reach: Expected<Reach>,
    #[serde(default)]
    pub stops: Option<String>,
    #[serde(default)]
    pub blame: Option<String>,
    #[serde(default)]
    pub remedy: Expected<bool>,
    #[serde(default)]
    pub lent: bool,
    #[serde(default)]
    pub unseen: bool,
    #[serde(default)]
    pub verify: Option<String>,
    #[serde(default)]
    pub unchecked: bool,
    #[serde(default)]
    pub says: Vec<String>,
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
    Ok(toml::from_str::<File>(text)?.stack.into_iter().flat_map(Stack::on_each).collect())
}

impl Stack {
    /// Makes one stack for each of its file systems.
    fn on_each(self) -> Vec<Self> {
        if self.file_systems.is_empty() {
            return vec![self];
        }
        let on = |fs: &String| {
            let (name, word) = (format!("{}-{fs}", self.name), if fs == "xfs" { "XFS" } else { fs });
            let stack = format!("{}, {word}", self.stack);
            Self { name, stack, file_systems: vec![fs.clone()], ..self.clone() }
        };
        self.file_systems.iter().map(on).collect()
    }

    pub fn is_on(&self, kernel: &str) -> bool {
        self.kernels.is_empty() || self.kernels.iter().any(|one| one == kernel)
    }

    /// What differs between stacks, as functions for `guest-job`.
    pub fn functions(&self) -> String {
        let mount = self.mount.as_deref().unwrap_or("$M");
        let blame = self.blame.as_deref().unwrap_or("");
        let files = self.files.as_deref().unwrap_or(mount);
        let managed = self.managed.as_deref().unwrap_or(mount);
        let beneath = self.beneath.as_deref().unwrap_or(":");
        let memory = self.memory.as_deref().unwrap_or(":");
        format!(
            "FS={}\nmount_point() {{ echo {mount}; }}\nfiles() {{ echo {files}; }}\n\
             managed() {{ echo {managed}; }}\nblame() {{ echo {blame}; }}\n\
             memory() {{\n{memory}\n}}\nbeneath() {{\n{beneath}\n}}\n",
            self.file_systems.join(" ")
        )
    }
}

/// What the doctor said of a file system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doctor {
    pub passes: Option<bool>,
    pub wrong: Vec<Finding>,
    /// What it advises without calling it wrong, with commands that carry it out.
    pub advice: Vec<Finding>,
    /// Space or memory that is lent and that nothing gives back, wrong or not.
    pub lent: Vec<Finding>,
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
        let of = |finding: &Value| -> Vec<String> {
            finding["commands"].as_array().into_iter().flatten().map(text).collect()
        };
        let findings = one["findings"].as_array().into_iter().chain(json["findings"].as_array()).flatten();
        let (lent, findings): (Vec<&Value>, Vec<&Value>) =
            findings.partition(|finding| finding["code"] == "space.trim.nothing-comes-back");
        let (wrong, notes): (Vec<&Value>, Vec<&Value>) =
            findings.into_iter().partition(|finding| finding["wrong"] == true);
        let read = |finding: &Value| Finding {
            place: text(&finding["place"]),
            what: text(&finding["what"]),
            mend: text(&finding["mend"]),
            commands: of(finding),
        };
        let advice = notes.into_iter().map(read).filter(|note| !note.commands.is_empty()).collect();
        let all = |found: Vec<&Value>| found.into_iter().map(read).collect();
        Self { passes: one["passes"].as_bool(), wrong: all(wrong), advice, lent: all(lent) }
    }

    /// What it finds at fault; if nothing is, what it advises.
    fn blames(&self) -> &[Finding] {
        if self.wrong.is_empty() { &self.advice } else { &self.wrong }
    }

    /// The commands that give back what is lent.
    pub fn commands_of_loans(&self) -> Vec<String> {
        self.lent.iter().flat_map(|finding| finding.commands.clone()).collect()
    }

    /// The commands of all its remedies.
    pub fn commands(&self) -> Vec<String> {
        self.blames().iter().flat_map(|finding| finding.commands.clone()).collect()
    }
}

/// What a program claims of what it trimmed.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Its exit code; empty if it was not asked.
    pub code: String,
    /// Its verdict in one word; the daemon has none.
    pub verdict: String,
    /// Bytes that it says were trimmed.
    pub bytes: u64,
    /// Bytes that the daemon says were sent, unverified, and those that still wait; `None` if it does not know.
    pub unverified: u64,
    pub waiting: Option<u64>,
}

impl Claim {
    fn read(folder: &Path, name: &str) -> Self {
        let text = |end: &str| fs::read(folder.join(format!("{name}.{end}"))).unwrap_or_default();
        let json: Value = serde_json::from_slice(&text("json")).unwrap_or_default();
        let verdict = json["verdict"].as_str().or(json["trim"]["verdict"].as_str());
        let bytes = json["trimmed_bytes"].as_u64().or(json["trim"]["taken_bytes"].as_u64());
        Self {
            code: String::from_utf8_lossy(&text("rc")).trim().to_owned(),
            verdict: verdict.unwrap_or_default().to_owned(),
            bytes: bytes.unwrap_or(0),
            unverified: json["unverified_bytes"].as_u64().unwrap_or(0),
            waiting: json["waiting_bytes"].as_u64(),
        }
    }
}

/// What was measured of a stack on one kernel.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    pub name: String,
    pub kernel: &'static str,
    /// Why there is nothing more.
    pub failure: Option<String>,
    /// True if its script was ended after its time.
    pub has_hung: bool,
    /// What TRIM reached at best, by `trimwise trim` or by fstrim.
    pub reach: Option<Reach>,
    pub trim_reach: Option<Reach>,
    pub daemon_reach: Option<Reach>,
    pub trim: Claim,
    pub verify: Claim,
    pub daemon: Claim,
    /// What the daemon claims, and reached, once discards work again.
    pub healed: Claim,
    pub healed_reach: Option<Reach>,
    pub doctor: Doctor,
    /// All that they said.
    pub said: String,
    /// Kernel names of the layers at which it stops.
    pub blamed: Vec<String>,
    /// What the doctor's commands did, if it named any.
    pub remedy: Option<Remedy>,
    /// What the commands gave back that are to return what is lent, if it named any.
    pub given_back: Option<Reach>,
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
        Self { name: name.to_owned(), kernel, failure: Some(why), ..Self::default() }
    }

    /// Reads what a stack left in its folder.
    pub fn read(name: &str, kernel: &'static str, folder: &Path, status: &str, sizes: &Sizes) -> Self {
        if status != "0" {
            let has_hung = HUNG.contains(&status);
            let log = fs::read(folder.join("log")).unwrap_or_default();
            let log = String::from_utf8_lossy(&log);
            let lines: Vec<&str> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(15)..].join("\n    ");
            let failed = Self::failed(name, kernel, format!("its script ended with {status}:\n    {end}"));
            return Self { has_hung, ..failed };
        }
        let text = |name: &str| {
            String::from_utf8_lossy(&fs::read(folder.join(name)).unwrap_or_default()).trim().to_owned()
        };
        let is_remedied = folder.join("remedy.rc").exists();
        let trim_reach = sizes.reach("trimmed");
        Self {
            name: name.to_owned(),
            kernel,
            failure: None,
            has_hung: false,
            reach: sizes.reach("fstrimmed").or(trim_reach),
            trim_reach,
            daemon_reach: sizes.reach("daemon-trimmed"),
            trim: Claim::read(folder, "trim"),
            verify: Claim::read(folder, "verify"),
            daemon: Claim::read(folder, "daemon"),
            healed: Claim::read(folder, "healed"),
            healed_reach: sizes.reach("healed-trimmed"),
            doctor: Doctor::read(&folder.join("doctor.json")),
            said: ["doctor.txt", "trim.txt", "verify.txt", "daemon.txt", "healed.txt"].map(text).join("\n"),
            blamed: text("blamed").lines().map(str::to_owned).collect(),
            remedy: is_remedied.then(|| Remedy {
                code: text("remedy.rc"),
                said: text("remedy.txt"),
                fstrim: sizes.reach("remedy-trimmed"),
                after: Doctor::read(&folder.join("after.json")),
            }),
            given_back: sizes.reach("given-back"),
        }
    }

    /// What is not as expected, each in a sentence.
    fn differences(&self, stack: &Stack) -> Vec<String> {
        if let Some(failure) = &self.failure {
            return vec![failure.clone()];
        }
        let mut found = Vec::new();
        let expected = stack.reach.on(self.kernel);
        if self.reach != Some(expected) {
            found.push(format!("fstrim reached {} disks; expected {}", word(self.reach), expected.word()));
        }
        if stack.script.is_none() {
            if self.trim_reach != self.reach {
                found.push(format!(
                    "trim reached {} disks, fstrim {}",
                    word(self.trim_reach),
                    word(self.reach)
                ));
            }
            found.extend(match stack.fault {
                None => self.claim_differences(stack, expected),
                Some(_) => self.fault_differences(stack, expected),
            });
            found.extend(self.verdict_differences(stack, expected));
        }
        // Lines are folded.
        let said = self.said.split_whitespace().collect::<Vec<_>>().join(" ");
        found.extend(
            stack
                .says
                .iter()
                .filter(|words| !said.contains(*words))
                .map(|words| format!("nobody says '{words}'")),
        );
        found.extend(self.remedy_differences(stack, expected));
        found.extend(self.loan_differences(stack, expected));
        found
    }

    /// What is lent must come back by the doctor's own command, and nothing may be called lent that never comes back.
    fn loan_differences(&self, stack: &Stack, expected: Reach) -> Option<String> {
        let is_lent = !self.doctor.lent.is_empty();
        let commands = self.doctor.commands_of_loans();
        match (expected, self.given_back) {
            // The doctor was asked about the whole guest.
            _ if stack.script.is_some() => None,
            _ if stack.lent && !is_lent => {
                Some("doctor does not say that nothing gives back what is lent".to_owned())
            }
            (Reach::All, back) if is_lent && back != Some(Reach::All) => {
                Some(format!("{commands:?} gave back what {} disks held", word(back)))
            }
            // A pool gets its space back whatever it passes on, and its disks do not show it.
            (Reach::None, _) if is_lent && !stack.unseen && !stack.lent => {
                Some(format!("doctor promises what never comes back, by {commands:?}"))
            }
            _ => None,
        }
    }

    /// Nobody may claim what did not arrive, nor deny what did.
    fn claim_differences(&self, stack: &Stack, expected: Reach) -> Vec<String> {
        let mut found = Vec::new();
        let Self { trim, verify, daemon, .. } = self;
        let is_claimed = trim.bytes > 0 && ["taken", "accepted"].contains(&&*trim.verdict);
        let is_unlike = stack.verify.as_ref().map(|verdict| *verdict != verify.verdict);
        let is_proven = is_unlike.unwrap_or_else(|| ["arrives", "consistent"].contains(&&*verify.verdict));
        if expected == Reach::All {
            // It fails where it cannot look at the disk.
            let denies = || ["stops", "in_part", "ignored", "not_sent"].contains(&&*verify.verdict);
            let denies = is_unlike.unwrap_or_else(denies);
            let is_left = if stack.unchecked { daemon.code != "2" } else { daemon.code != "0" };
            for (is_wrong, claim) in [(trim.code != "0", trim), (denies, verify), (is_left, daemon)] {
                if is_wrong {
                    found.push(format!("all disks were reached, but: {claim:?}"));
                }
            }
            if self.daemon_reach != Some(Reach::All) && !stack.unchecked {
                found.push(format!("the daemon reached {} disks", word(self.daemon_reach)));
            }
            return found;
        }
        // Where no layer stops it, what holds it is no fault (a cache), or cannot be seen.
        let is_known = !self.blamed.is_empty() && !stack.unseen;
        let is_false = [
            (is_known && is_claimed || trim.verdict == "taken" && expected == Reach::None, trim),
            (is_proven && (is_known || expected == Reach::None), verify),
            (is_known && daemon.bytes > 0, daemon),
            (
                expected == Reach::None && trim.code == "0" && !(stack.unseen && trim.verdict == "accepted"),
                trim,
            ),
        ];
        let is_false = is_false.into_iter().filter(|(is_false, _)| *is_false);
        found.extend(is_false.map(|(_, claim)| format!("not all disks were reached, but: {claim:?}")));
        found
    }

    /// While discards fail, nobody may count them as done; and once they work again, what failed must be sent.
    fn fault_differences(&self, stack: &Stack, expected: Reach) -> Vec<String> {
        let Self { trim, daemon, healed, .. } = self;
        let is_false = |claim: &Claim| expected == Reach::None && claim.bytes >= NOISE_BYTES;
        let is_mended = healed.code == "0" && healed.bytes + healed.unverified >= NOISE_BYTES;
        let is_failed = daemon.code == "1" && daemon.waiting.is_none_or(|bytes| bytes >= NOISE_BYTES);
        // f2fs does not send again what failed, neither for the daemon nor later; it stays not known to be trimmed.
        let forgets = stack.file_systems == ["f2fs"];
        let is_forgotten = forgets && daemon.code == "0" && daemon.unverified >= NOISE_BYTES;
        // A part that fails holds old data, which must be gone in the end. Where all fails, the daemon may have given back
        // everything before it met the fault, and then nothing more comes back.
        let is_reached = self.healed_reach == Some(Reach::All)
            || expected != Reach::All && self.daemon_reach == Some(Reach::All)
            || forgets && healed.unverified >= NOISE_BYTES;
        let wrong = [
            (trim.code != "1" || !["", "failed"].contains(&&*trim.verdict) || is_false(trim), trim),
            (!(is_failed || is_forgotten) || is_false(daemon), daemon),
            (!is_mended || !is_reached, healed),
        ];
        let wrong = wrong.into_iter().filter(|(is_wrong, _)| *is_wrong);
        wrong.map(|(_, claim)| format!("discards failed, but: {claim:?} ({:?})", self.healed_reach)).collect()
    }

    fn told(&self) -> String {
        let told =
            self.doctor.blames().iter().map(|one| format!("{}: {}; {}", one.place, one.what, one.mend));
        told.collect::<Vec<_>>().join(" | ")
    }

    /// What the doctor gets wrong of whether TRIM arrives, and where it stops.
    fn verdict_differences(&self, stack: &Stack, expected: Reach) -> Vec<String> {
        let mut found = Vec::new();
        let doctor = &self.doctor;
        match (expected, doctor.passes) {
            (_, Some(true)) if stack.unseen => {}
            (_, None) if stack.unchecked => {}
            (Reach::All, Some(true)) | (Reach::None, Some(false)) | (Reach::Some, Some(_))
                if !stack.unseen && !stack.unchecked => {}
            (_, said) => found.push(format!("doctor says passes={said:?}")),
        }
        // Neither has an order: a layer may have two disks.
        let mut places: Vec<&String> = doctor.blames().iter().map(|one| &one.place).collect();
        let mut blamed: Vec<&String> = self.blamed.iter().collect();
        places.sort();
        blamed.sort();
        if places != blamed {
            found.push(format!("doctor blames {places:?}, not {:?}: {}", self.blamed, self.told()));
        }
        found
    }

    fn remedy_differences(&self, stack: &Stack, expected: Reach) -> Option<String> {
        let (doctor, is_expected) = (&self.doctor, stack.remedy.on(self.kernel) && expected != Reach::All);
        let Some(remedy) = &self.remedy else {
            return is_expected.then(|| format!("doctor prints no commands: {}", self.told()));
        };
        if !is_expected {
            return Some(format!("no command helps, but doctor: {:?}", doctor.commands()));
        }
        let passes = remedy.after.passes == Some(true) || stack.script.is_some();
        let is_right = remedy.code == "0"
            && remedy.fstrim == Some(Reach::All)
            && passes
            && remedy.after.wrong.is_empty();
        (!is_right).then(|| {
            format!(
                "after the remedy {:?} (exit {}): {:?}, {:?}; it said: {}",
                doctor.commands(),
                remedy.code,
                remedy.fstrim,
                remedy.after,
                remedy.said
            )
        })
    }
}

fn word(reach: Option<Reach>) -> &'static str {
    reach.map_or("not measured", Reach::word)
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
    if measured.is_empty() {
        return vec![format!("{}: measured on no kernel", stack.name)];
    }
    let is_whole = measured.iter().all(|one| one.failure.is_none());
    match (&stack.today, found.is_empty()) {
        (Some(_), true) => vec![format!("{}: nothing is wrong; its `today` must go", stack.name)],
        (Some(_), false) if is_whole => Vec::new(),
        _ => found,
    }
}

/// What the disks of a stack take up, at each phase of `guest-job`.
#[derive(Default)]
pub struct Sizes(Vec<(String, Vec<u64>)>);

impl Sizes {
    pub fn add(&mut self, phase: &str, of_disks: Vec<u64>) {
        self.0.push((phase.to_owned(), of_disks));
    }

    /// Which of the disks that hold some of a file gave back at least half of what it took, at a phase in which one was
    /// trimmed; `None` if it was not measured.
    pub fn reach(&self, phase: &str) -> Option<Reach> {
        let place = |phase: &str| self.0.iter().position(|(name, _)| name == phase);
        let of = |place: usize, disk: usize| self.0[place].1[disk];
        let (start, written, trimmed) = (place("start")?, place("written")?, place(phase)?);
        let before = match phase {
            // `trimwise trim` sent nothing, or in vain.
            "fstrimmed" => written,
            _ => trimmed - 1,
        };
        let of_disks: Vec<bool> = (0..self.0[start].1.len())
            .filter_map(|disk| {
                let given_back = of(before, disk).saturating_sub(of(trimmed, disk));
                // Two files were written.
                let share = of(written, disk).saturating_sub(of(start, disk)) / 2;
                let holds = share.max(given_back) >= NOISE_BYTES;
                holds.then_some(given_back >= NOISE_BYTES.max(share / 2))
            })
            .collect();
        Some(match (of_disks.contains(&true), of_disks.contains(&false)) {
            (true, false) => Reach::All,
            // Neither happens where everything was allocated before.
            (false, _) => Reach::None,
            (true, true) => Reach::Some,
        })
    }
}
