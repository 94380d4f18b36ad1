//! Where a host can have a policy.

use serde::{Deserialize, Serialize};

use crate::compare::result::Target;
use crate::policy::{DiscardGeneration, Native, PolicyId, PolicySpec, Trimmer};
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
    /// Another file system.
    Elsewhere,
    /// The mount option `discard` of another version of Linux.
    OtherLinux,
    /// Nothing: it only shows what could be gained at most.
    Bound,
}

/// What is known of a modelled host, and decides about what it can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// The link of its drive.
    pub link: Option<LinkKind>,
    /// How its Linux carries out `discard`.
    pub discard: Option<DiscardGeneration>,
}

impl Host {
    pub const UNKNOWN: Self = Self { link: None, discard: None };
}

impl Means {
    /// Returns where a host can have a policy.
    ///
    /// What ran on a real kernel or directory can be had there, but for patches and modules.
    pub fn of(policy: &PolicyId, target: &Target, host: Host) -> Self {
        match (target, policy.known()) {
            (Target::Directory(_), _) | (Target::Kernel(_), None) => Self::Stock,
            (Target::Model, None) => Self::Own,
            (Target::Kernel(_), Some(trimmer)) => {
                Self::of_trimmer(trimmer, Host { link: Some(LinkKind::Nvme), ..host })
            }
            (Target::Model, Some(trimmer)) => Self::of_trimmer(trimmer, host),
        }
    }

    /// Returns where a modelled host can have a built-in policy.
    pub fn of_trimmer(trimmer: Trimmer, host: Host) -> Self {
        match trimmer {
            // It sends FITRIM, and the kernel decides how many ranges a command has.
            Trimmer::Daemon(_) => Self::Trimwised,
            Trimmer::Block(_) => Self::DmTrim,
            Trimmer::Kernel(spec) => Self::of_spec(spec, host),
        }
    }

    fn of_spec(spec: PolicySpec, host: Host) -> Self {
        // Linux puts several ranges into a command on NVMe only (`blk_discard_mergable`); its ATA and UFS drivers send
        // one range each.
        let is_beyond_link = spec.fills_commands() && host.link != Some(LinkKind::Nvme);
        let is_discard = match spec.native_to() {
            Some(Native::Linux(discard)) => host.discard == Some(discard),
            _ => spec.without_gate().without_limit() == PolicySpec::COMMIT,
        };
        let is_stock = spec == PolicySpec::OFF || spec.batch().is_some_and(|batch| batch.units_min <= 1);
        match spec.native_to() {
            _ if !spec.is_usable() || is_beyond_link => Self::Bound,
            _ if is_stock || (is_discard && spec.gate().is_none()) => Self::Stock,
            // trimwised follows a gate by remounting with and without `discard`.
            _ if is_discard && spec.limit().is_none() => Self::Trimwised,
            Some(Native::FileSystem(_)) => Self::Elsewhere,
            Some(Native::Linux(_)) => Self::OtherLinux,
            None if spec.lazy().is_some() => Self::Ext4Trim,
            None => Self::Bound,
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
            Self::Elsewhere => "another file system",
            Self::OtherLinux => "another Linux",
            Self::Bound => "a bound",
        }
    }
}
