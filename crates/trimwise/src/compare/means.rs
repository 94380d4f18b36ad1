//! Where a host can have a policy.

use serde::{Deserialize, Serialize};

use crate::compare::result::Target;
use crate::policy::{PolicyId, PolicySpec, Trimmer};
use crate::ssd::LinkKind;

/// What a host needs in order to have a policy. The order is that of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Means {
    /// A stock kernel: a mount option, or fstrim.
    #[serde(alias = "kernel")]
    Stock,
    /// trimwised, on a stock kernel.
    #[serde(alias = "daemon")]
    Trimwised,
    /// The caller's own.
    Own,
    /// A kernel with the patches of `kernel/ext4-trim`, which no distribution has.
    #[serde(alias = "changed")]
    Ext4Trim,
    /// The module `kernel/dm-trim` below the file system, which no distribution has.
    #[serde(alias = "target")]
    DmTrim,
    /// Another file system, or an older Linux.
    Elsewhere,
    /// Nothing: it only shows what could be gained at most.
    Bound,
}

impl Means {
    /// Returns where a host with a drive on this link can have a policy. `link` is `None` if it is unknown.
    ///
    /// What ran on a real kernel or directory can be had there, but for patches and modules.
    pub fn of(policy: &PolicyId, target: &Target, link: Option<LinkKind>) -> Self {
        match (target, policy.known()) {
            (Target::Directory(_), _) | (Target::Kernel(_), None) => Self::Stock,
            (Target::Model, None) => Self::Own,
            (Target::Kernel(_), Some(trimmer)) => Self::of_trimmer(trimmer, Some(LinkKind::Nvme)),
            (Target::Model, Some(trimmer)) => Self::of_trimmer(trimmer, link),
        }
    }

    /// Returns where a modelled host can have a built-in policy.
    pub fn of_trimmer(trimmer: Trimmer, link: Option<LinkKind>) -> Self {
        match trimmer {
            // It sends FITRIM, and the kernel decides how many ranges a command has.
            Trimmer::Daemon(_) => Self::Trimwised,
            Trimmer::Block(_) => Self::DmTrim,
            Trimmer::Kernel(spec) => Self::of_spec(spec, link),
        }
    }

    fn of_spec(spec: PolicySpec, link: Option<LinkKind>) -> Self {
        // Linux puts several ranges into a command on NVMe only (`blk_discard_mergable`); its ATA and UFS drivers send
        // one range each.
        let is_beyond_link = spec.fills_commands() && link != Some(LinkKind::Nvme);
        let is_stock = [PolicySpec::OFF, PolicySpec::COMMIT].contains(&spec)
            || spec.batch().is_some_and(|batch| batch.units_min <= 1);
        match () {
            () if !spec.is_usable() || is_beyond_link => Self::Bound,
            () if is_stock => Self::Stock,
            () if spec.native_to().is_some() => Self::Elsewhere,
            // trimwised follows a gate by remounting with and without `discard`.
            () if spec.gate().is_some() && spec.without_gate() == PolicySpec::COMMIT => Self::Trimwised,
            () if spec.lazy().is_some() => Self::Ext4Trim,
            () => Self::Bound,
        }
    }

    /// Returns true if a host can have it without a kernel of its own.
    pub fn is_attainable(self) -> bool {
        matches!(self, Self::Stock | Self::Trimwised | Self::Own)
    }

    /// Says in words what it needs, for tables.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Stock => "a stock kernel",
            Self::Trimwised => "trimwised",
            Self::Own => "your own",
            Self::Ext4Trim => "a patched kernel (ext4-trim)",
            Self::DmTrim => "the module dm-trim",
            Self::Elsewhere => "another system",
            Self::Bound => "a bound",
        }
    }
}
