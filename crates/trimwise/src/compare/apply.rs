//! How to apply a policy on a Linux host: with the kernel's own means, or with trimwised.

use serde::{Deserialize, Serialize};

use crate::policy::{BatchConfig, PolicyId, PolicySpec, Trimmer};
use crate::ssd::LinkKind;
use crate::units::SimDuration;

/// Where trimwised reads further configuration files.
pub const CONFIG_FOLDER: &str = "/etc/trimwise.toml.d";

/// A step: what it does, and the commands for root. `MOUNT` stands for the mount point.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Apply {
    /// What it does; without commands, why nothing can be done.
    pub what: String,
    /// Commands for a shell.
    pub commands: Vec<String>,
}

impl Apply {
    fn new<const N: usize>(what: impl Into<String>, commands: [&str; N]) -> Self {
        Self { what: what.into(), commands: commands.map(str::to_owned).to_vec() }
    }
}

/// The steps for a policy on a drive with this link, if that is known. Empty if it is not a policy of ours.
pub fn apply(policy: &PolicyId, link: Option<LinkKind>) -> Vec<Apply> {
    let spec = match policy {
        PolicyId::Known(Trimmer::Kernel(spec)) => *spec,
        PolicyId::Known(Trimmer::Daemon(spec)) => {
            return mounted_with("nodiscard").into_iter().chain([daemon(*spec, false)]).collect();
        }
        PolicyId::Named(_) => return Vec::new(),
    };
    if !spec.is_usable() {
        return vec![Apply::new(format!("`{policy}` is a bound: no host can do it"), [])];
    }
    if spec == PolicySpec::COMMIT {
        return mounted_with("discard").to_vec();
    }
    if spec == PolicySpec::OFF {
        let no_timer = Apply::new(
            "Do not trim at intervals either, on any file system",
            ["systemctl disable --now fstrim.timer"],
        );
        return mounted_with("nodiscard").into_iter().chain([no_timer]).collect();
    }
    if let Some(config) = spec.batch().filter(|config| config.units_min <= 1) {
        return mounted_with("nodiscard").into_iter().chain([timer(config)]).collect();
    }
    if !spec.suits_live_host() {
        return vec![Apply::new(
            format!(
                "`{policy}` imitates another kernel or file system: no setting of a stock host selects it"
            ),
            [],
        )];
    }
    let mut steps = Vec::new();
    if spec.fills_commands() && link.is_some_and(|link| link != LinkKind::Nvme) {
        steps.push(Apply::new(
            format!(
                "No stock Linux fills TRIM commands as `{policy}` does in the model: on SATA and UFS it sends one range \
                 in each. trimwised does the rest"
            ),
            [],
        ));
    }
    if spec.workers_max().is_some_and(|workers| workers > 1) {
        steps.push(Apply::new(
            format!(
                "No stock host has the workers that `{policy}` has in the model: trimwised sends one slice at a time. It \
                 does the rest"
            ),
            [],
        ));
    }
    let toggles = spec.toggles_discard();
    if !toggles {
        steps.extend(mounted_with("nodiscard"));
    }
    steps.push(daemon(spec, toggles));
    steps
}

/// Mounts with an option, now and at each boot.
fn mounted_with(option: &str) -> [Apply; 2] {
    let fstab = match option {
        "discard" => "For each boot: add `discard` to the options of MOUNT in /etc/fstab",
        _ => "For each boot: `nodiscard` instead of `discard` among the options of MOUNT in /etc/fstab",
    };
    [
        Apply::new("Now", [&*format!("mount -o remount,{option} MOUNT")]),
        Apply::new(fstab, ["${EDITOR:-vi} /etc/fstab"]),
    ]
}

/// Runs fstrim at intervals; its timer trims weekly unless told otherwise.
fn timer(config: BatchConfig) -> Apply {
    const HOUR: SimDuration = SimDuration::from_secs(3600);
    const ENABLE: &str = "systemctl enable --now fstrim.timer";
    let hours = config.every.as_nanos() / HOUR.as_nanos();
    let all = "all file systems that fstrim.timer covers";
    if config.every == HOUR * (24 * 7) {
        return Apply::new(format!("Trim {all}, once a week"), [ENABLE]);
    }
    let when = if config.every == HOUR * 24 {
        "OnCalendar=\\nOnCalendar=daily\\n".to_owned()
    } else {
        let seconds = config.every.as_nanos().div_ceil(1_000_000_000);
        let exact = if hours < 24 { "AccuracySec=1s\\nRandomizedDelaySec=0\\n" } else { "" };
        format!("OnCalendar=\\nOnActiveSec={seconds}s\\nOnUnitActiveSec={seconds}s\\n{exact}")
    };
    let folder = "/etc/systemd/system/fstrim.timer.d";
    Apply::new(
        format!("Trim {all}, at that interval"),
        [
            &format!("mkdir -p {folder}"),
            &format!("printf '[Timer]\\n{when}' > {folder}/trimwise.conf"),
            "systemctl daemon-reload",
            "systemctl enable fstrim.timer",
            "systemctl restart fstrim.timer",
        ],
    )
}

/// Has trimwised follow a policy on this file system. The daemon's unit replaces fstrim.timer for all file systems, so it
/// goes on managing the others. It may switch `discard` if that is how it does so.
fn daemon(spec: PolicySpec, toggles: bool) -> Apply {
    let toggle = if toggles { " 'toggle = true'" } else { "" };
    let folder = CONFIG_FOLDER;
    Apply::new(
        format!("Let trimwised follow `{spec}` here, and its defaults elsewhere, in place of fstrim.timer"),
        [
            &format!("mkdir -p {folder}"),
            &format!("printf '%s\\n' '[mount.\"MOUNT\"]' > {folder}/verdict.toml"),
            &format!("printf '%s\\n' 'policy = \"{spec}\"'{toggle} >> {folder}/verdict.toml"),
            "trimwise config check",
            "systemctl disable --now fstrim.timer",
            "systemctl enable trimwised",
            "systemctl restart trimwised",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(policy: &str) -> String {
        apply(&policy.into(), Some(LinkKind::Sata))
            .into_iter()
            .flat_map(|step| step.commands)
            .collect::<Vec<_>>()
            .join("; ")
    }

    #[test]
    fn a_stock_host_does_it_by_itself_where_it_can() {
        const EDIT: &str = "${EDITOR:-vi} /etc/fstab";
        assert_eq!(commands("commit"), format!("mount -o remount,discard MOUNT; {EDIT}"));
        let without = format!("mount -o remount,nodiscard MOUNT; {EDIT}");
        assert_eq!(commands("off"), format!("{without}; systemctl disable --now fstrim.timer"));
        assert_eq!(commands("batch:7d"), format!("{without}; systemctl enable --now fstrim.timer"));
        assert!(commands("batch:1d").contains("'[Timer]\\nOnCalendar=\\nOnCalendar=daily\\n' >"));
        assert!(
            commands("batch:10m")
                .contains("OnUnitActiveSec=600s\\nAccuracySec=1s\\nRandomizedDelaySec=0\\n' >")
        );
    }

    #[test]
    fn trimwised_follows_what_a_stock_host_cannot() {
        assert!(commands("set:40:90").starts_with("mkdir"), "the daemon switches discard itself");
        assert!(commands("set:40:90").contains("'policy = \"set:40:90\"' 'toggle = true' >"));
        assert!(commands("lazy+reuse").starts_with("mount -o remount,nodiscard MOUNT"));
        assert!(commands("trimwised").contains("'policy = \"judicious\"' >"));
        assert!(commands("batch:1w:64KiB").contains("'policy = \"batch:1w:64KiB\"' >"));
    }

    #[test]
    fn what_no_host_can_do_is_said() {
        let what = |policy: &str, link| apply(&policy.into(), Some(link))[0].what.clone();
        assert_eq!(what("ideal", LinkKind::Nvme), "`ideal` is a bound: no host can do it");
        assert_eq!(commands("ideal") + &commands("zfs"), "");
        assert!(what("lazy+fill", LinkKind::Sata).starts_with("No stock Linux fills TRIM commands"));
        assert!(what("lazy+fill", LinkKind::Nvme).starts_with("No stock host has the workers"));
        assert!(
            what("set:40:90+lazy:2:2+reuse", LinkKind::Nvme).contains("trimwised sends one slice at a time")
        );
        assert_eq!(what("lazy:1:1+fill", LinkKind::Nvme), "Now");
        assert_eq!(what("trimwised:lazy", LinkKind::Nvme), "Now", "what ran was the daemon");
        assert_eq!(apply(&"discard,noatime".into(), None), [], "a real mount's own options");
    }
}
