//! The steps that change how one file system of this host is trimmed, as commands for root and as actions.
//!
//! They affect this mount only. Where the host's own tool covers more than that, such as fstrim.timer, the mount gets a
//! timer of its own.

use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use trimwise::compare::means::{Host, Means};
use trimwise::failure::Failure;
use trimwise::policy::{BatchConfig, PolicyId, PolicySpec, Trimmer};
use trimwise_linux::doctor::{NO_TRIM, Periodic, TRIMWISED};
use trimwise_linux::files::replace;
use trimwise_linux::here::Here as Found;
use trimwise_linux::mount::{Mount, mount_of, turns_discard_on};
use trimwise_linux::today::{MountedBy, own_discard};
use trimwise_linux::{remount, systemd};

use crate::command_text::quoted;

/// Folder of an administrator's own units.
const UNITS: &str = "/etc/systemd/system";
const FSTAB: &str = "/etc/fstab";
/// Folder of the drop-ins of trimwise's configuration.
const DAEMON_FOLDER: &str = "/etc/trimwise.toml.d";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steps {
    /// Commands for root's shell that make the change.
    pub commands: Vec<String>,
    pub undo: Vec<String>,
    /// Steps that only a person can take; the commands do the rest.
    pub by_hand: Vec<String>,
    #[serde(skip)]
    actions: Vec<Action>,
    /// The mount as it was when the steps were made.
    #[serde(skip)]
    mount: Option<Mount>,
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
    /// Writes a file. If it exists, it must have the text `before`.
    Write {
        file: PathBuf,
        text: String,
        before: Option<String>,
    },
    Remove {
        file: PathBuf,
    },
    Systemctl(Vec<String>),
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Without a source of options, mount(8) merges those of fstab.
            Self::Remount { mount, option } => {
                let mount = quoted(&mount.to_string_lossy());
                write!(f, "mount --options-source=mtab -o remount,{option} {mount}")
            }
            Self::Fstab { line, from, to } => {
                let (from, to) = (escaped(from, r".*[]^$|+?(){}\"), escaped(to, r"\&|"));
                let edit = format!(r"{line}s|^(\s*(\S+\s+){{3}}){from}(\s.*)?$|\1{to}\3|");
                write!(f, "sed --follow-symlinks -i.bak -E {} {FSTAB}", quoted(&edit))
            }
            Self::Write { file, text, .. } => {
                let lines: Vec<String> = text.lines().map(quoted).collect();
                let folder = file.parent().unwrap_or(Path::new("/")).display();
                let file = quoted(&file.to_string_lossy());
                write!(f, "mkdir -p {folder} && printf '%s\\n' {} > {file}", lines.join(" "))
            }
            Self::Remove { file } => write!(f, "rm {}", quoted(&file.to_string_lossy())),
            Self::Systemctl(words) => {
                write!(f, "systemctl {}", words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
            }
        }
    }
}

fn escaped(text: &str, special: &str) -> String {
    text.chars().fold(String::new(), |mut escaped, c| {
        if special.contains(c) {
            escaped.push('\\');
        }
        escaped.push(c);
        escaped
    })
}

impl Steps {
    /// The steps from the host's current policy to another one.
    ///
    /// There are none where TRIM does not reach the drive: no policy would change that.
    pub fn to(policy: &PolicyId, found: &Found) -> Self {
        let today = found.today.policy(&found.mount.fs_type);
        if found.passes == Some(false) || today.as_ref() == Some(policy) {
            return Self::default();
        }
        let mut plan = Planned { found, actions: Vec::new(), undo: Vec::new(), by_hand: Vec::new() };
        // The new trimming is set up before the current one is switched off.
        match policy.known() {
            Some(Trimmer::Kernel(spec)) if spec == PolicySpec::OFF => {
                plan.set_discard("nodiscard");
                plan.spare();
            }
            Some(Trimmer::Kernel(spec)) if spec.batch().is_some_and(|batch| batch.units_min <= 1) => {
                let is_made = plan.sweep(policy);
                if is_made {
                    plan.set_discard("nodiscard");
                }
            }
            Some(trimmer @ Trimmer::Kernel(_)) if !is_daemon_s(trimmer) => {
                plan.set_discard(if *policy == own_discard("btrfs") { "discard=async" } else { "discard" });
            }
            Some(Trimmer::Kernel(spec) | Trimmer::Daemon(spec)) => {
                let is_made = plan.daemon(spec);
                if is_made && !spec.toggles_discard() {
                    plan.set_discard("nodiscard");
                }
            }
            Some(Trimmer::Block(_)) | None => {}
        }
        let is_kernels = policy.known().is_some_and(|trimmer| !is_daemon_s(trimmer));
        if today.is_some_and(|today| today.is_daemon()) && is_kernels {
            plan.leave_daemon();
        }
        if let Some(limit) = policy.spec().and_then(PolicySpec::limit) {
            plan.by_hand.push(limit.setting());
        }
        if let [other, ..] = &found.today.also_at[..]
            && !plan.actions.is_empty()
        {
            let other = quoted(&other.to_string_lossy());
            plan.by_hand.push(format!(
                "The same file system is also mounted at {other}: the option applies there, too."
            ));
        }
        let undo: Vec<Action> = plan.undo.into_iter().rev().collect();
        Self {
            commands: plan.actions.iter().map(Action::to_string).collect(),
            undo: undo.iter().map(Action::to_string).collect(),
            by_hand: plan.by_hand,
            actions: plan.actions,
            mount: Some(found.mount.clone()),
        }
    }

    /// Returns whether there is nothing to do, and nothing to say.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.by_hand.is_empty()
    }

    /// The files that the steps write, with their texts.
    #[cfg(test)]
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.actions.iter().filter_map(|action| match action {
            Action::Write { file, text, .. } => Some((file.as_path(), text.as_str())),
            _ => None,
        })
    }

    /// Carries the steps out. `tell` is called after each step.
    ///
    /// # Errors
    ///
    /// Before the first step, if something else is mounted there by now, or fstab or a file has changed. Later, names
    /// the step that failed, and how many were done before it.
    pub fn carry_out(&self, tell: &dyn Fn(&str)) -> Result<(), Failure> {
        let not_as_it_was = |why: String| Failure::run(format!("{why}; nothing was changed"));
        if let Some(mount) = &self.mount {
            let now = mount_of(&mount.mount_point).map_err(|e| not_as_it_was(e.to_string()))?;
            let of = |one: &Mount| (one.id, one.numbers, one.device.clone(), one.discard().to_owned());
            if of(&now) != of(mount) {
                let point = mount.mount_point.display();
                return Err(not_as_it_was(format!(
                    "{point}: the mount or its options have changed since it was examined"
                )));
            }
        }
        self.actions.iter().try_for_each(Action::check).map_err(not_as_it_was)?;
        for (done, action) in self.actions.iter().enumerate() {
            action.carry_out().map_err(|why| {
                let of = self.actions.len();
                Failure::run(format!(
                    "{action}: {why}; {done} of {of} steps were done; see above how to undo them"
                ))
            })?;
            tell(&action.to_string());
        }
        Ok(())
    }
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

    /// Sets the discard option, now and for each boot. Settings already in effect are left alone.
    fn set_discard(&mut self, option: &'static str) {
        let today = &self.found.today;
        let before: &'static str = match today.discard.as_str() {
            "nodiscard" => "nodiscard",
            "discard=async" => "discard=async",
            _ => "discard",
        };
        let is_set_otherwise = |one: &String| is_discard(one) && one != option;
        let drifted = matches!(&today.mounted_by, MountedBy::Fstab { options, .. } if options.iter().any(is_set_otherwise));
        if before == option && !drifted {
            return;
        }
        let mount = self.mount().to_owned();
        // XFS reads the option when it is mounted, and ignores it later (xfs(5)).
        let takes_remount = self.found.mount.fs_type != "xfs";
        if takes_remount && before != option {
            let undo = Action::Remount { mount: mount.clone(), option: before };
            self.add(Action::Remount { mount: mount.clone(), option }, Some(undo));
        }
        match today.mounted_by.clone() {
            MountedBy::Fstab { line, options } => {
                self.edit_fstab(line, &options, |options| with_discard(options, option));
            }
            MountedBy::Unit { file } => {
                let until = if takes_remount { "This lasts until the next mount. For" } else { "For" };
                let file = file.display();
                self.by_hand.push(format!("{until} each boot set `{option}` in Options= of {file}."));
            }
            MountedBy::Unknown => {
                let how = match mount == Path::new("/") {
                    true => "rootflags= on the kernel's command line",
                    false => "what mounts it (a script, a program, another line)",
                };
                let no_line = match takes_remount {
                    true => "This lasts until the next mount: no line",
                    false => "No line",
                };
                self.by_hand
                    .push(format!("{no_line} of /etc/fstab is clearly its own. Set `{option}` in {how}."));
            }
        }
        if !takes_remount {
            self.by_hand.push(format!(
                "XFS applies `{option}` at its next mount: reboot, or unmount it and mount it again."
            ));
        }
    }

    /// Changes the options in the mount's line of fstab, in one step.
    fn edit_fstab(&mut self, line: usize, options: &[String], change: impl Fn(&[String]) -> String) {
        let before = options.join(",");
        let is_fstab = |action: &Action| matches!(action, Action::Fstab { .. });
        let so_far = match self.actions.iter().find(|action| is_fstab(action)) {
            Some(Action::Fstab { to, .. }) => to.split(',').map(str::to_owned).collect(),
            _ => options.to_vec(),
        };
        let after = change(&so_far);
        self.actions.retain(|action| !is_fstab(action));
        self.undo.retain(|action| !is_fstab(action));
        if before != after {
            let undo = Action::Fstab { line, from: after.clone(), to: before.clone() };
            self.add(Action::Fstab { line, from: before, to: after }, Some(undo));
        }
    }

    /// Exempts the mount from periodic trims.
    fn spare(&mut self) {
        self.end_own_timers(None);
        self.spare_from_all();
    }

    /// Exempts the mount from timers that trim all file systems.
    fn spare_from_all(&mut self) {
        let today = &self.found.today;
        let is_other = |one: &&Periodic| !is_own_timer(&one.name) && one.name != TRIMWISED;
        let all = today.at_intervals.iter().filter(is_other);
        let (heeding, heedless): (Vec<&Periodic>, Vec<_>) = all.partition(|one| one.heeds_fstab);
        let names = |of: &[&Periodic]| of.iter().map(|one| one.name.clone()).collect::<Vec<_>>().join(", ");
        if !heedless.is_empty() {
            let names = names(&heedless);
            self.by_hand
                .push(format!("{names}: change it by hand, since it ignores {NO_TRIM} in /etc/fstab."));
        }
        if heeding.is_empty() {
            return;
        }
        if let MountedBy::Fstab { line, options } = today.mounted_by.clone() {
            self.edit_fstab(line, &options, |options| format!("{},{NO_TRIM}", options.join(",")));
        } else {
            let names = names(&heeding);
            self.by_hand
                .push(format!("No line of /etc/fstab is clearly its own: {names} would go on trimming it."));
        }
    }

    /// Disables the timers of this mount alone, except `keep`.
    fn end_own_timers(&mut self, keep: Option<&str>) {
        let today = &self.found.today;
        let names = today.at_intervals.iter().map(|one| one.name.as_str());
        for name in names.filter(|name| is_own_timer(name) && Some(*name) != keep) {
            self.systemctl(&["disable", "--now", name], &["enable", "--now", name]);
        }
    }

    /// Has fstrim trim the mount periodically, by a timer of its own unless one does so already. Returns false if that
    /// is left to a person.
    fn sweep(&mut self, policy: &PolicyId) -> bool {
        let today = &self.found.today;
        let hours = |policy: &PolicyId| policy.spec().and_then(PolicySpec::batch).map(BatchConfig::hours);
        let every = hours(policy);
        // Timers of one mount are ended below.
        let trims_more_often = |one: &Periodic| {
            one.name != TRIMWISED
                && !is_own_timer(&one.name)
                && one
                    .policy
                    .as_ref()
                    .and_then(hours)
                    .is_none_or(|other| every.is_none_or(|every| other < every))
        };
        let is_too_often = today.at_intervals.iter().any(trims_more_often);
        let does_so = |one: &&Periodic| {
            one.policy.as_ref() == Some(policy) && (is_own_timer(&one.name) || !is_too_often)
        };
        if let Some(one) = today.at_intervals.iter().find(does_so) {
            self.end_own_timers(Some(&one.name));
            if is_too_often {
                self.spare_from_all();
            }
            return true;
        }
        let mount = quoted(&self.mount().to_string_lossy());
        let word = match every {
            Some(1) => "hourly",
            Some(24) => "daily",
            Some(168) => "weekly",
            _ => {
                self.by_hand.push(format!("Run `fstrim {mount}` every {} h.", every.unwrap_or(0)));
                return false;
            }
        };
        if !self.found.has_systemd {
            self.by_hand.push(format!("Without systemd: run `fstrim {mount}` {word}, for instance by cron."));
            return false;
        }
        let unit = format!("fstrim-{word}@{}.timer", systemd::escaped_path(self.mount()));
        let service = "[Unit]\nDescription=Discard unused blocks of %f\n[Service]\nType=oneshot\nExecStart=/sbin/fstrim %f\n";
        let timer = format!(
            "[Unit]\nDescription=Discard unused blocks of %f {word}\n[Timer]\nOnCalendar={word}\nPersistent=true\n\
             Unit=fstrim@%i.service\n[Install]\nWantedBy=timers.target\n"
        );
        // By the time of an undo, other mounts may use these files, so they stay.
        let files =
            [("fstrim@.service".to_owned(), service.to_owned()), (format!("fstrim-{word}@.timer"), timer)];
        for (name, text) in files {
            if !self.write(Path::new(UNITS).join(name), text, false) {
                return false;
            }
        }
        self.end_own_timers(None);
        self.systemctl(&["daemon-reload"], &[]);
        self.systemctl(&["enable", "--now", &unit], &["disable", "--now", &unit]);
        // fstrim of one mount does not ask fstab.
        if is_too_often {
            self.spare_from_all();
        }
        true
    }

    /// Has trimwised follow a policy there, and nothing elsewhere unless it does so already. Returns false if that is
    /// left to a person.
    fn daemon(&mut self, spec: PolicySpec) -> bool {
        if self.found.today.is_spared() {
            self.by_hand.push(format!("Remove {NO_TRIM} from /etc/fstab: trimwised respects it."));
        }
        if !self.found.has_systemd {
            self.by_hand
                .push("Without systemd: start trimwised the way this host starts its services.".to_owned());
            return false;
        }
        if systemd::text(&self.found.root, "trimwised.service").is_none() {
            self.by_hand.push("trimwised is not installed here: install its package first.".to_owned());
            return false;
        }
        let is_there = self.found.today.is_daemon_there();
        let undone = self.undo.len();
        if !self.drop_in(spec, is_there) {
            return false;
        }
        if is_there {
            self.reload_daemon(undone);
        } else {
            self.systemctl(&["enable", "--now", "trimwised"], &["disable", "--now", "trimwised"]);
        }
        true
    }

    /// Has a running trimwised leave this mount alone; its other mounts do not change.
    fn leave_daemon(&mut self) {
        if !self.found.has_systemd {
            self.by_hand.push(
                "trimwised trims it today: set `policy = \"off\"` for it there, and reload it.".to_owned(),
            );
            return;
        }
        let undone = self.undo.len();
        if self.drop_in(PolicySpec::OFF, true) {
            self.reload_daemon(undone);
        }
    }

    /// Reloads trimwised after its file is written. The undo reloads it after the file is removed.
    fn reload_daemon(&mut self, undone: usize) {
        let reload = Action::Systemctl(vec!["reload".to_owned(), "trimwised".to_owned()]);
        self.undo.insert(undone, reload.clone());
        self.add(reload, None);
    }

    /// Writes trimwised's policy for the mount, in place of an earlier one. Returns false if that is left to a person.
    fn drop_in(&mut self, spec: PolicySpec, is_there: bool) -> bool {
        const LISTED: &str = "manage = \"listed\"\n";
        let name = systemd::escaped_path(self.mount());
        let name = if name == "-" { "root" } else { &name };
        let file = Path::new(DAEMON_FOLDER).join(format!("advice-{name}.toml"));
        let there = self.found.root.whole_text(&file);
        // Without it, trimwised would turn to all other mounts.
        let is_listed = there.as_ref().map_or(!is_there, |there| there.starts_with(LISTED));
        let listed = if is_listed { LISTED } else { "" };
        // JSON's strings are also strings of TOML.
        let table = format!(
            "{listed}[mount.{}]\npolicy = \"",
            serde_json::Value::from(self.mount().to_string_lossy())
        );
        let toggle = if spec.toggles_discard() { "toggle = true\n" } else { "" };
        let text = format!("{table}{spec}\"\n{toggle}");
        let is_own = |there: &String| {
            let rest = there.strip_prefix(&table).and_then(|rest| rest.split_once("\"\n"));
            rest.is_some_and(|(_, toggle)| ["", "toggle = true\n"].contains(&toggle))
        };
        match there.filter(is_own) {
            Some(before) if before != text => {
                let undo =
                    Action::Write { file: file.clone(), text: before.clone(), before: Some(text.clone()) };
                self.add(Action::Write { file, text, before: Some(before) }, Some(undo));
                true
            }
            _ => self.write(file, text, true),
        }
    }

    /// Writes a file, unless it exists with this text. Returns false if it exists with another.
    fn write(&mut self, file: PathBuf, text: String, is_undone: bool) -> bool {
        match self.found.root.text(&file) {
            Some(there) if there == text.trim() => true,
            Some(_) => {
                self.by_hand.push(format!("{} already exists with other contents.", file.display()));
                false
            }
            None => {
                let undo = is_undone.then(|| Action::Remove { file: file.clone() });
                self.add(Action::Write { file, text, before: None }, undo);
                true
            }
        }
    }
}

/// Returns whether trimwised carries the policy out on a stock host.
fn is_daemon_s(trimmer: Trimmer) -> bool {
    match (Means::of_trimmer(trimmer, Host::UNKNOWN), trimmer) {
        (Means::Stock, _) | (_, Trimmer::Block(_)) => false,
        (_, Trimmer::Daemon(_)) => true,
        (_, Trimmer::Kernel(spec)) => spec.suits_live_host(),
    }
}

/// Returns whether this is the timer of a single mount.
fn is_own_timer(name: &str) -> bool {
    name.starts_with("fstrim-") && name.contains('@')
}

fn is_discard(option: &str) -> bool {
    option == "nodiscard" || turns_discard_on(option)
}

/// Replaces the discard options.
fn with_discard(options: &[String], option: &str) -> String {
    let others = options.iter().map(String::as_str).filter(|one| !is_discard(one));
    others.chain([option]).collect::<Vec<_>>().join(",")
}

impl Action {
    /// Checks whether the step can be carried out, as far as that shows beforehand.
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Fstab { line, from, to } => changed_fstab(*line, from, to).map(|_| ()),
            Self::Write { file, text, before } => match std::fs::read_to_string(file) {
                Ok(there) if there == *text || Some(&there) == before.as_ref() => Ok(()),
                Ok(_) => Err(format!("{} exists by now, with other contents", file.display())),
                Err(_) => Ok(()),
            },
            Self::Remount { .. } | Self::Remove { .. } | Self::Systemctl(_) => Ok(()),
        }
    }

    fn carry_out(&self) -> Result<(), String> {
        match self {
            // One option, and no other: mount(8) would merge those of fstab.
            Self::Remount { mount, option } => std::fs::File::open(mount)
                .and_then(|mount| remount::change(mount, option).map(drop))
                .map_err(|e| e.to_string()),
            Self::Systemctl(words) => run(Command::new("systemctl").args(words)),
            Self::Fstab { line, from, to } => {
                let changed = changed_fstab(*line, from, to)?;
                replaced_fstab(&changed).map_err(|e| format!("{FSTAB}: {e}"))
            }
            Self::Write { file, text, .. } => {
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

fn changed_fstab(line: usize, from: &str, to: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(FSTAB).map_err(|e| format!("{FSTAB}: {e}"))?;
    with_options(&text, line, from, to)
        .ok_or_else(|| format!("{FSTAB}:{line}: expected the options {from}; somebody changed it"))
}

/// Replaces fstab, or the file that it links to. Keeps the mode and owner.
fn replaced_fstab(text: &str) -> std::io::Result<()> {
    let file = std::fs::canonicalize(FSTAB)?;
    let before = std::fs::metadata(&file)?;
    replace(&file, text, before.mode() & 0o7777)?;
    std::os::unix::fs::chown(&file, Some(before.uid()), Some(before.gid()))
}

/// Returns fstab with other options in a line; `None` if the line does not have the options `from`.
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
