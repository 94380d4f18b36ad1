//! The identity of a policy: one that trimwise knows, or somebody's own, of which it knows only the name.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{BatchConfig, LiveUse, Policy, PolicyError, PolicySpec};

/// The identity of a policy. No two policies have the same as text: somebody's own policy that is named like a known
/// one is written with `own:` before its name.
///
/// ```
/// use trimwise::policy::{Policy, PolicyId, PolicySpec};
///
/// let own = Policy::new("ideal", || PolicySpec::OFF.governor());
/// assert_ne!(*own.id(), PolicyId::IDEAL);
/// assert_eq!(own.id().to_string(), "own:ideal");
/// assert_eq!(PolicyId::from("own:ideal"), *own.id());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyId {
    /// A policy of the grammar, followed by the file system, the daemon or a target below the file system.
    Known(Trimmer),
    /// A policy known only by its name: the caller's own, or what a real mount does (`discard=async`).
    Named(Arc<str>),
}

/// Prefix of a name that would otherwise be read as a known policy.
const OWN: &str = "own:";

impl PolicyId {
    /// No TRIM at all: the baseline of all savings.
    pub const OFF: Self = Self::Known(Trimmer::Kernel(PolicySpec::OFF));
    /// Linux's `discard`.
    pub const COMMIT: Self = Self::Known(Trimmer::Kernel(PolicySpec::COMMIT));
    /// The bound of all policies.
    pub const IDEAL: Self = Self::Known(Trimmer::Kernel(PolicySpec::IDEAL));

    /// Returns the known trimmer; `None` for a policy known only by its name.
    pub fn known(&self) -> Option<Trimmer> {
        match self {
            Self::Known(trimmer) => Some(*trimmer),
            Self::Named(_) => None,
        }
    }

    /// Returns the known policy that the file system itself follows.
    pub fn spec(&self) -> Option<PolicySpec> {
        match self {
            Self::Known(Trimmer::Kernel(spec)) => Some(*spec),
            _ => None,
        }
    }

    /// Reads a policy that is asked for: one of the grammar, or what only a kernel does.
    ///
    /// # Errors
    ///
    /// Text that is neither.
    pub fn asked(text: &str) -> Result<Self, String> {
        match text {
            "async" | "discard=async" => Ok(Self::Named("async".into())),
            "discard=sync" => Ok(Self::Named(text.into())),
            _ => text.parse().map(Self::Known),
        }
    }

    pub fn is_daemon(&self) -> bool {
        matches!(self, Self::Known(Trimmer::Daemon(_)))
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(trimmer) => trimmer.fmt(f),
            Self::Named(name) if name.starts_with(OWN) || name.parse::<Trimmer>().is_ok() => {
                f.pad(&format!("{OWN}{name}"))
            }
            Self::Named(name) => f.pad(name),
        }
    }
}

impl From<&str> for PolicyId {
    /// Reads what `Display` writes. Text that the grammar does not accept is a name.
    fn from(text: &str) -> Self {
        match (text.strip_prefix(OWN), text.parse()) {
            (Some(name), _) => Self::Named(name.into()),
            (None, Ok(trimmer)) => Self::Known(trimmer),
            (None, Err(_)) => Self::Named(text.into()),
        }
    }
}

impl From<Trimmer> for PolicyId {
    fn from(trimmer: Trimmer) -> Self {
        Self::Known(trimmer)
    }
}

impl From<PolicySpec> for PolicyId {
    fn from(spec: PolicySpec) -> Self {
        Self::Known(Trimmer::Kernel(spec))
    }
}

impl Serialize for PolicyId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PolicyId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|text| text.as_str().into())
    }
}

pub(crate) const DAEMON: &str = "trimwised";

const TARGET: &str = "dm-trim";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trimmer {
    /// The file system. `batch` sweeps as `fstrim.timer` does, at fixed times of the day.
    Kernel(PolicySpec),
    /// trimwised, with its defaults for everything but the policy.
    Daemon(PolicySpec),
    /// The device-mapper target `kernel/dm-trim`, or one like it with another policy, below a file system that discards
    /// as Linux does.
    Block(PolicySpec),
}

impl Trimmer {
    /// The target with its default policy.
    pub const DM_TRIM: Self = Self::Block(PolicySpec::QUIET);

    /// Returns true if a text is meant as the daemon, valid or not.
    pub fn is_daemon(text: &str) -> bool {
        text.split(':').next() == Some(DAEMON)
    }

    /// Returns true if a text is meant as the target below the file system, valid or not.
    pub fn is_target(text: &str) -> bool {
        text.split(':').next() == Some(TARGET)
    }

    /// Returns the policies of the file system and of the target below it, for a run without days: there a policy
    /// sweeps by itself.
    pub fn in_force(self) -> Policy {
        match self {
            Self::Kernel(spec) => spec.into(),
            other => other.policy(),
        }
    }

    /// Returns the policies of the file system and of the target below it, for a run over days.
    pub fn policy(self) -> Policy {
        match self {
            Self::Kernel(spec) if spec.batch().is_none() => spec.into(),
            Self::Block(spec) => Policy::over(PolicySpec::COMMIT, spec),
            // Something outside the file system trims.
            _ => Policy::of(self.into(), || PolicySpec::OFF.governor()),
        }
    }

    pub fn needs_trim(self) -> bool {
        match self {
            Self::Kernel(spec) => spec.needs_trim(),
            Self::Daemon(_) | Self::Block(_) => true,
        }
    }

    /// Returns the policy that the file system, the daemon or the target follows.
    pub fn spec(self) -> PolicySpec {
        match self {
            Self::Kernel(spec) | Self::Daemon(spec) | Self::Block(spec) => spec,
        }
    }

    pub fn is_hosted(self) -> bool {
        matches!(self, Self::Daemon(_))
    }

    pub fn sweeps(self) -> Option<BatchConfig> {
        match self {
            Self::Kernel(spec) => spec.batch(),
            Self::Daemon(_) | Self::Block(_) => None,
        }
    }
}

impl fmt::Display for Trimmer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel(spec) => spec.fmt(f),
            Self::Daemon(spec) if *spec == PolicySpec::JUDICIOUS => f.pad(DAEMON),
            Self::Daemon(spec) => f.pad(&format!("{DAEMON}:{spec}")),
            Self::Block(spec) if *spec == PolicySpec::QUIET => f.pad(TARGET),
            Self::Block(spec) => f.pad(&format!("{TARGET}:{spec}")),
        }
    }
}

impl FromStr for Trimmer {
    type Err = String;

    /// Parses a policy, `trimwised`, `trimwised:POLICY`, `dm-trim` or `dm-trim:POLICY`.
    fn from_str(text: &str) -> Result<Self, String> {
        if Self::is_target(text) {
            let Some(spec) = below(text)? else { return Ok(Self::DM_TRIM) };
            return match spec.is_usable() {
                true => Ok(Self::Block(spec)),
                false => Err(format!("{text}: {spec} is only a bound, with nothing below the file system")),
            };
        }
        if !Self::is_daemon(text) {
            let others = &[TARGET, DAEMON];
            return PolicySpec::parse_or(text, others).map(Self::Kernel).map_err(|e| e.to_string());
        }
        let Some(spec) = below(text)? else { return Ok(Self::Daemon(PolicySpec::JUDICIOUS)) };
        match spec.live() {
            LiveUse::Slices | LiveUse::Bounded => Ok(Self::Daemon(spec)),
            LiveUse::Kernel => Err(format!(
                "{text}: the daemon would follow {spec} by remounting, which the model does not do; expected a policy \
                 that it carries out itself, such as judicious or lazy+reuse"
            )),
            LiveUse::Unsuited => Err(format!("{text}: no stock host can follow {spec}")),
        }
    }
}

/// Returns the policy after the first colon, if there is one.
fn below(text: &str) -> Result<Option<PolicySpec>, String> {
    let Some((host, policy)) = text.split_once(':') else { return Ok(None) };
    let parsed = policy.parse().map_err(|e: PolicyError| e.behind(&format!("{host}:")).to_string());
    parsed.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_about_what_was_typed() {
        for (text, words) in [
            ("dm-trim:quiet+lasy", "policy 'dm-trim:quiet+lasy', column 15: unknown term 'lasy'"),
            ("trimwised:", "policy 'trimwised:', column 11: a term is missing"),
            ("dm-trm", "did you mean `dm-trim`?"),
            ("trimwse", "did you mean `trimwised`?"),
            ("nonsense", "set, dm-trim, trimwised (see `trimwise policies`)"),
        ] {
            let error = text.parse::<Trimmer>().unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn an_identity_is_written_as_it_is_read_and_no_two_are_written_the_same() {
        for text in [
            "off",
            "trimwised",
            "trimwised:lazy+reuse",
            "set:40:90+lazy",
            "discard=async",
            "heap",
            "own:off",
            "dm-trim",
            "dm-trim:quiet:50ms",
            "dm-trim:lazy:1:1+reuse",
        ] {
            assert_eq!(PolicyId::from(text).to_string(), text);
        }
        for name in ["off", "ideal", "trimwised", "own:off", "own:", "batch:7d", "lazy+reuse", "mine"] {
            let own = PolicyId::Named(name.into());
            assert_eq!(PolicyId::from(&*own.to_string()), own);
            assert_eq!(own.known(), None, "{name}");
        }
    }
}
