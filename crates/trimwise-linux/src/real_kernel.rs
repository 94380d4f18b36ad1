//! Which kernel ran, as results name it.

use serde::{Deserialize, Serialize};

/// A patch set, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedSet {
    /// Its name.
    pub name: String,
    /// Hash of its patches and their order.
    pub hash: String,
}

/// A real kernel, in virtual time, as results name it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealKernel {
    /// Its name, as in the target: `6.12+ext4-trim`.
    pub name: String,
    /// What `uname -r` says in it.
    pub release: String,
    /// The package of its source, or where else that came from.
    pub source: String,
    /// The patch sets applied to it, with their hashes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patches: Vec<AppliedSet>,
    /// Hash of patches, configuration and build recipe.
    pub recipe: String,
    /// The file system; `none` if there is none.
    pub file_system: String,
    /// Its mount options, apart from those of the policy.
    pub mount_options: String,
    /// The SHA-256 of the program that is the guest's init and runs workloads; a different program makes a different
    /// guest.
    pub guest_program: String,
}

impl RealKernel {
    /// Returns how tables name it: the release and, where that does not say everything, the hash of what it is made from.
    pub fn title(&self) -> String {
        title(&self.release, &self.recipe)
    }
}

/// Returns the name of a kernel in tables: its release and, if anything was added to it, the hash of its ingredients.
pub fn title(release: &str, recipe: &str) -> String {
    if release.contains('+') { format!("{release} ({recipe})") } else { release.to_owned() }
}
