//! The steps that change how one file system of this host is trimmed: as commands for root, and carried out.
//!
//! Each touches this mount alone. Where the host's own means reach further, such as fstrim.timer, the mount gets means
//! of its own beside them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use trimwise::policy::{PolicyId, PolicySpec, Trimmer};
use trimwise_lab::failure::Failure;
use trimwise_linux::here::Here as Found;
use trimwise_linux::systemd;
use trimwise_linux::today::MountedBy;

use crate::command_text::quoted;
use trimwise_linux::files::replace;

/// Folder of the units that an administrator makes.
const UNITS: &str = "/etc/systemd/system";
const FSTAB: &str = "/etc/fstab";
/// Folder of what trimwised reads besides its main file.
const DAEMON_FOLDER: &str = "/etc/trimwise.toml.d";

/// The steps of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Commands for root's shell that carry it out.
    pub commands: Vec<String>,
    /// Commands that take it back.
    pub undo: Vec<String>,
    /// What only a person can do; the commands do the rest.
    pub by_hand: Vec<String>,
    #[serde(skip)]
    actions: Vec<Action>,
}

/// One step. [`Display`](fmt::Display) writes it as a command.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    /// Sets an option of the mount, and no other.
    Remount {
        mount: PathBuf,
        option: &'static str,
    },
    /// Replaces the options in a line of fstab.
    Fstab {
        line: usize,
        from: String,
        to: String,
    },
    /// Makes a file that is not there.
    Write {
        file: PathBuf,
        text: String,
    },
    Remove {
        file: PathBuf,
    },
    Systemctl(Vec<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remount { mount, option } => {
                write!(f, "mount -o remount,{option} {}", quoted(&mount.display().to_string()))
            }
            Self::Fstab { line, from, to } => {
                let [from, to] = [from, to].map(|text| escaped_for_sed(text));
                write!(f, "sed -i.bak {} {FSTAB}", quoted(&format!("{line}s|{from}|{to}|")))
            }
            Self::Write { file, text } => {
                let lines: Vec<String> = text.lines().map(quoted).collect();
                let folder = file.parent().unwrap_or(Path::new("/")).display();
                write!(
                    f,
                    "mkdir -p {folder} && printf '%s\\n' {} > {}",
                    lines.join(" "),
                    quoted(&file.to_string_lossy())
                )
            }
            Self::Remove { file } => write!(f, "rm {}", quoted(&file.to_string_lossy())),
            Self::Systemctl(words) => {
                write!(f, "systemctl {}", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

fn escaped_for_sed(text: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        if r"\|.*[]^$&".contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    })
}

impl Steps {
    /// The steps from what a host does today to a policy.
    ///
    /// There are none where TRIM does not reach the drive: no policy would change that.
    pub fn to(policy: &PolicyId, found: &Found) -> Self {
        if found.passes == Some(false) || found.today.policy(&found.mount.fs_type).as_ref() == Some(policy) {
            return Self::default();
        }
        let mut plan = Planned { found, actions: Vec::new(), undo: Vec::new(), by_hand: Vec::new() };
        match policy.known() {
            Some(Trimmer::Kernel(spec)) if spec == PolicySpec::COMMIT => {
                plan.set_discard(online(&found.mount.fs_type))
            }
            Some(Trimmer::Kernel(spec)) if spec == PolicySpec::OFF => {
                plan.set_discard("nodiscard");
                plan.spare();
            }
            Some(Trimmer::Kernel(spec)) if spec.batch().is_some_and(|batch| batch.units_min <= 1) => {
                plan.set_discard("nodiscard");
                plan.sweep(policy);
            }
            Some(Trimmer::Kernel(spec) | Trimmer::Daemon(spec)) => plan.daemon(spec),
            None => {}
        }
        let undo: Vec<Action> = plan.undo.into_iter().rev().collect();
        Self {
            commands: plan.actions.iter().map(Action::to_string).collect(),
            undo: undo.iter().map(Action::to_string).collect(),
            by_hand: plan.by_hand,
            actions: plan.actions,
        }
    }

    /// Returns true if there is nothing to do, and nothing to say.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.by_hand.is_empty()
    }

    /// The files that it makes, with their texts.
    #[cfg(test)]
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.actions.iter().filter_map(|action| match action {
            Action::Write { file, text } => Some((file.as_path(), text.as_str())),
            _ => None,
        })
    }

    /// Carries it out; `tell` hears of each step that was done.
    ///
    /// # Errors
    ///
    /// The first step that failed, and what was done before it.
    pub fn carry_out(&self, tell: &dyn Fn(&str)) -> Result<(), Failure> {
        for (done, action) in self.actions.iter().enumerate() {
            action.carry_out().map_err(|why| {
                Failure::run(format!("{action}: {why}; {done} of {} steps were done", self.actions.len()))
            })?;
            tell(&action.to_string());
        }
        Ok(())
    }
}

/// The option that turns a file system's own discard on.
fn online(fs_type: &str) -> &'static str {
    if fs_type == "btrfs" { "discard=async" } else { "discard" }
}

struct Planned<'a> {
    found: &'a Found,
    actions: Vec<Action>,
    undo: Vec<Action>,
    by_hand: Vec<String>,
}

impl Planned<'_> {
    fn mount(&self) -> &Path {
        &self.found.mount.mount_point
    }

    fn add(&mut self, action: Action, undo: Option<Action>) {
        self.actions.push(action);
        self.undo.extend(undo);
    }

    fn systemctl(&mut self, words: &[&str], undo: &[&str]) {
        let of = |words: &[&str]| Action::Systemctl(words.iter().map(|&word| word.to_owned()).collect());
        self.add(of(words), (!undo.is_empty()).then(|| of(undo)));
    }

    /// Sets the discard option, now and for each boot. What is in effect and set already is left.
    fn set_discard(&mut self, option: &'static str) {
        let today = &self.found.today;
        let before: &'static str = match today.discard.as_str() {
            "nodiscard" => "nodiscard",
            "discard=async" => "discard=async",
            _ => "discard",
        };
        if before == option {
            return;
        }
        let mount = self.mount().to_owned();
        // XFS reads the option when it is mounted, and ignores it later (xfs(5)).
        let takes_remount = self.found.mount.fs_type != "xfs";
        if takes_remount {
            let undo = Action::Remount { mount: mount.clone(), option: before };
            self.add(Action::Remount { mount: mount.clone(), option }, Some(undo));
        }
        match today.mounted_by.clone() {
            MountedBy::Fstab { line, options } => {
                self.set_fstab(line, &options.join(","), with_discard(&options, option));
                if !takes_remount {
                    self.by_hand
                        .push(format!("XFS takes `{option}` at its next mount: reboot, or mount it again."));
                }
            }
            MountedBy::Unit { file } => {
                let file = file.display();
                self.by_hand.push(format!(
                    "This lasts until the next mount. For each boot set `{option}` in Options= of {file}."
                ));
            }
            MountedBy::Unknown => {
                let how = if mount == Path::new("/") {
                    "rootflags= on the kernel's command line"
                } else {
                    "what mounts it (a script, a program)"
                };
                self.by_hand.push(format!(
                    "This lasts until the next mount: /etc/fstab does not list it. Set `{option}` in {how}."
                ));
            }
        }
    }

    /// Sets the options in its line of fstab, all at once.
    fn set_fstab(&mut self, line: usize, before: &str, after: String) {
        let is_other = |action: &Action| !matches!(action, Action::Fstab { .. });
        self.actions.retain(is_other);
        self.undo.retain(is_other);
        if before != after {
            let undo = Action::Fstab { line, from: after.clone(), to: before.to_owned() };
            self.add(Action::Fstab { line, from: before.to_owned(), to: after }, Some(undo));
        }
    }

    /// Exempts it from trims at intervals.
    fn spare(&mut self) {
        use trimwise_linux::doctor::NO_TRIM;
        let today = &self.found.today;
        if today.at_intervals.is_empty() {
            return;
        }
        if let MountedBy::Fstab { line, options } = &today.mounted_by {
            let is_its = |action: &&Action| matches!(action, Action::Fstab { .. });
            let before = options.join(",");
            let changed = match self.actions.iter().find(is_its) {
                Some(Action::Fstab { to, .. }) => to.clone(),
                _ => before.clone(),
            };
            self.set_fstab(*line, &before, format!("{changed},{NO_TRIM}"));
        } else {
            let names: Vec<&str> = today.at_intervals.iter().map(|one| one.name.as_str()).collect();
            self.by_hand
                .push(format!("fstab does not list it: {} would go on trimming it.", names.join(", ")));
        }
    }

    /// Has fstrim trim it at intervals, by a timer of its own unless one does so already.
    fn sweep(&mut self, policy: &PolicyId) {
        let today = &self.found.today;
        if today.at_intervals.iter().any(|one| one.policy.as_ref() == Some(policy)) {
            return;
        }
        let every =
            policy.spec().and_then(PolicySpec::batch).map(|batch| batch.every.as_nanos() / 3_600_000_000_000);
        let word = match every {
            Some(1) => "hourly",
            Some(24) => "daily",
            Some(168) => "weekly",
            _ => {
                let hours = every.unwrap_or(0);
                self.by_hand.push(format!("Run `fstrim {}` every {hours} h.", self.mount().display()));
                return;
            }
        };
        if !self.found.has_systemd {
            let mount = self.mount().display();
            self.by_hand.push(format!("Without systemd: run `fstrim {mount}` {word}, as by cron."));
            return;
        }
        let unit = format!("fstrim-{word}@{}.timer", systemd::escaped_path(self.mount()));
        let service = "[Unit]\nDescription=Discard unused blocks of %f\n[Service]\nType=oneshot\nExecStart=/sbin/fstrim %f\n";
        let timer = format!(
            "[Unit]\nDescription=Discard unused blocks of %f {word}\n[Timer]\nOnCalendar={word}\nPersistent=true\n\
             Unit=fstrim@%i.service\n[Install]\nWantedBy=timers.target\n"
        );
        for (name, text) in
            [("fstrim@.service".to_owned(), service.to_owned()), (format!("fstrim-{word}@.timer"), timer)]
        {
            self.write(Path::new(UNITS).join(name), text);
        }
        self.systemctl(&["daemon-reload"], &[]);
        self.systemctl(&["enable", "--now", &unit], &["disable", "--now", &unit]);
    }

    /// Has trimwised follow a policy there, and nothing elsewhere unless it does so already.
    fn daemon(&mut self, spec: PolicySpec) {
        if !spec.toggles_discard() {
            self.set_discard("nodiscard");
        }
        if self.found.today.is_spared() {
            self.by_hand.push("Take X-fstrim.notrim out of /etc/fstab: trimwised respects it.".to_owned());
        }
        let is_there = self.found.today.is_daemon_there();
        // JSON's strings are strings of TOML too.
        let mount = serde_json::Value::from(self.mount().to_string_lossy());
        let mut text = String::new();
        if !is_there {
            text += "manage = \"listed\"\n";
        }
        text += &format!("[mount.{mount}]\npolicy = \"{spec}\"\n");
        if spec.toggles_discard() {
            text += "toggle = true\n";
        }
        let name = systemd::escaped_path(self.mount());
        self.write(
            Path::new(DAEMON_FOLDER)
                .join(format!("advice-{}.toml", if name == "-" { "root" } else { &name })),
            text,
        );
        if !self.found.has_systemd {
            self.by_hand
                .push("Without systemd: start trimwised as this host starts its services.".to_owned());
        } else if is_there {
            // What takes it back reloads after the file is gone.
            let reload = Action::Systemctl(vec!["reload".to_owned(), "trimwised".to_owned()]);
            self.undo.insert(self.undo.len().saturating_sub(1), reload.clone());
            self.add(reload, None);
        } else {
            self.systemctl(&["enable", "--now", "trimwised"], &["disable", "--now", "trimwised"]);
        }
    }

    /// Makes a file, unless it is there with this text.
    fn write(&mut self, file: PathBuf, text: String) {
        match self.found.root.text(&file) {
            Some(there) if there == text.trim() => return,
            Some(_) => {
                self.by_hand.push(format!("{} is there already, with another text.", file.display()));
                return;
            }
            None => {}
        }
        let undo = Action::Remove { file: file.clone() };
        self.add(Action::Write { file, text }, Some(undo));
    }
}

/// Options with this discard option in place of any other.
fn with_discard(options: &[String], option: &str) -> String {
    let is_other = |one: &&str| *one != "discard" && *one != "nodiscard" && !one.starts_with("discard=");
    let others = options.iter().map(String::as_str).filter(is_other);
    others.chain([option]).collect::<Vec<_>>().join(",")
}

impl Action {
    fn carry_out(&self) -> Result<(), String> {
        match self {
            Self::Remount { mount, option } => {
                run(Command::new("mount").arg("-o").arg(format!("remount,{option}")).arg(mount))
            }
            Self::Systemctl(words) => run(Command::new("systemctl").args(words)),
            Self::Fstab { line, from, to } => {
                let text = std::fs::read_to_string(FSTAB).map_err(|e| format!("{FSTAB}: {e}"))?;
                let changed = with_options(&text, *line, from, to).ok_or_else(|| {
                    format!("{FSTAB}:{line}: expected the options {from}; somebody changed it")
                })?;
                replace(Path::new(FSTAB), &changed, 0o644).map_err(|e| format!("{FSTAB}: {e}"))
            }
            Self::Write { file, text } => {
                if std::fs::read_to_string(file).is_ok_and(|there| there == *text) {
                    return Ok(());
                }
                if file.exists() {
                    return Err(format!("{} is there already, with another text", file.display()));
                }
                let folder = file.parent().unwrap_or(Path::new("/"));
                std::fs::create_dir_all(folder)
                    .and_then(|()| std::fs::write(file, text))
                    .map_err(|e| format!("{}: {e}", file.display()))
            }
            Self::Remove { file } => {
                std::fs::remove_file(file).map_err(|e| format!("{}: {e}", file.display()))
            }
        }
    }
}

/// Returns fstab with other options in a line; `None` if the line does not have these.
pub(super) fn with_options(fstab: &str, line: usize, from: &str, to: &str) -> Option<String> {
    let mut lines: Vec<String> = fstab.split('\n').map(str::to_owned).collect();
    let text = lines.get_mut(line.checked_sub(1)?)?;
    let options = text.split_ascii_whitespace().nth(3)?;
    (options == from).then_some(())?;

    let start = options.as_ptr() as usize - text.as_ptr() as usize;
    text.replace_range(start..start + from.len(), to);
    Some(lines.join("\n"))
}

fn run(command: &mut Command) -> Result<(), String> {
    let ran = command.output().map_err(|e| e.to_string())?;
    if ran.status.success() {
        return Ok(());
    }
    Err(format!("{}: {}", ran.status, String::from_utf8_lossy(&ran.stderr).trim()))
}
