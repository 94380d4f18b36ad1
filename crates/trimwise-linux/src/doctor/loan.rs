//! Who lends a file system its space, for a daemon that watches how full that is.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;
use serde::{Deserialize, Serialize};
use trimwise::live::Level;
use trimwise::units::Bytes;

use super::ending::{Asks, Stack};
use super::graph::{Graph, Kind};
use super::purpose::{self, NEARLY_FULL_PERCENT};
use crate::block_device::SysBlock;
use crate::held::{self, Fill};
use crate::host_root::HostRoot;
use crate::layers;
use crate::mount::{Mount, nearest};

/// Where to read how full a lender is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Gauge {
    /// The pool's mapping.
    ThinPool(String),
    /// The mapping of an LVM VDO pool.
    Vdo(String),
    /// The file system that holds an image.
    Mount(PathBuf),
}

/// Where to read how much a lender holds for a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Share {
    /// The volume's mapping.
    ThinVolume(String),
    Image(PathBuf),
}

/// Who lends a file system its space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loan {
    /// In words: `thin pool vg-pool`.
    pub name: String,
    /// True if it is a pool of this host, which gets space back by discards of the file system.
    pub is_of_pool: bool,
    /// `None` if how full it is cannot be seen from this host.
    pub gauge: Option<Gauge>,
    pub share: Option<Share>,
}

/// Answers nothing, so that nothing is asked that could hang.
struct Silent;

impl Asks for Silent {
    fn table(&self, _: &str) -> Option<String> {
        None
    }

    fn status(&self, _: &str) -> Option<String> {
        None
    }

    fn usage(&self, _: &Path) -> Option<[Bytes; 3]> {
        None
    }
}

/// Finds the first lender below a file system. Reads sysfs only.
pub fn loan(root: &HostRoot, mounts: &[Mount], mount: &Mount, devices: &[SysBlock]) -> Option<Loan> {
    let graph = Graph::of(root, mounts, devices);
    let stack = Stack { root, mount, mounts, graph: &graph, host: &Silent };
    let first = purpose::purposes(&stack).into_iter().find(|one| one.lender.is_some())?;
    let index = graph.nodes.iter().position(|node| node.name == first.layer)?;
    let (gauge, share) = match &graph.nodes[index].kind {
        Kind::ThinPool(name) => {
            let volume = purpose::thin_volume(&stack, index);
            (Some(Gauge::ThinPool(name.clone())), volume.map(Share::ThinVolume))
        }
        Kind::Vdo(name) => (Some(Gauge::Vdo(name.clone())), None),
        Kind::Loop(file) => {
            let holder = nearest(mounts, Path::new(file)).map(|at| mounts[at].mount_point.clone());
            (holder.map(Gauge::Mount), Some(Share::Image(root.path(file))))
        }
        _ => (None, None),
    };
    Some(Loan {
        is_of_pool: first.lender == Some(purpose::Lender::Pool) && first.is_reached == Some(true),
        name: match &gauge {
            Some(Gauge::Mount(point)) => format!("the file system on {}", point.display()),
            _ => ["in ", "on "]
                .iter()
                .find_map(|start| first.whose.strip_prefix(start))
                .map_or_else(|| format!("memory {}", first.whose), str::to_owned),
        },
        gauge,
        share,
    })
}

impl Gauge {
    /// Reads how full it is. This may take long, or hang.
    pub fn read(&self, root: &HostRoot) -> Result<Level, String> {
        const NOT_HERE: &str = "it is the pool of another host, or of the host around a container";
        let asked = |asked: Result<String, layers::TableError>| {
            asked.map_err(|error| match error {
                layers::TableError::NoTable(why) => why,
                other => other.to_string(),
            })
        };
        if !root.is_own() {
            return Err(NOT_HERE.to_owned());
        }
        match self {
            Self::ThinPool(name) => {
                let (status, table) = (asked(held::status(name))?, asked(layers::table(name))?);
                let fill = Fill::of_thin_pool(&status, &table).ok_or_else(|| unusual(&status))?;
                Ok(level(&fill, held::low_water_bytes(&table)))
            }
            Self::Vdo(name) => {
                let status = asked(held::status(name))?;
                Ok(level(&Fill::of_vdo(&status).ok_or_else(|| unusual(&status))?, None))
            }
            Self::Mount(point) => {
                let space = statvfs(point).map_err(|error| format!("{}: {error}", point.display()))?;
                let bytes = |blocks: u64| blocks.saturating_mul(space.f_frsize);
                let used_bytes = bytes(space.f_blocks.saturating_sub(space.f_bfree));
                let (size_bytes, metadata_percent) = (bytes(space.f_blocks), None);
                let fill =
                    Fill { used_bytes, size_bytes, metadata_percent, chunk_bytes: None, is_stopped: false };
                Ok(level(&fill, None))
            }
        }
    }
}

impl Share {
    /// Reads how much the lender holds; `None` if that is unknown. This may take long, or hang.
    pub fn read(&self, root: &HostRoot) -> Option<Bytes> {
        let bytes = match self {
            Self::ThinVolume(name) => held::of_thin_volume(&root.status(name)?),
            Self::Image(path) => held::of_file(path),
        };
        bytes.map(Bytes)
    }
}

fn unusual(status: &str) -> String {
    format!("its status is '{}'", status.trim().chars().take(100).collect::<String>())
}

fn level(fill: &Fill, low_water: Option<u64>) -> Level {
    let is_low = fill.percent().max(fill.metadata_percent.unwrap_or(0)) >= NEARLY_FULL_PERCENT
        || low_water.is_some_and(|low| fill.size_bytes.saturating_sub(fill.used_bytes) <= low);
    Level {
        used_bytes: Bytes(fill.used_bytes),
        size_bytes: Bytes(fill.size_bytes),
        metadata_percent: fill.metadata_percent,
        is_low,
        is_stopped: fill.is_stopped,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_low_from_80_percent_or_its_own_mark() {
        let is_low = |used: u64, metadata_percent, low_water| {
            let fill = Fill {
                used_bytes: used << 20,
                size_bytes: 100 << 20,
                metadata_percent,
                chunk_bytes: None,
                is_stopped: false,
            };
            level(&fill, low_water).is_low
        };
        for (used, metadata, low_water, expected) in [
            (79, Some(79), Some(0), false),
            (80, Some(0), Some(0), true),
            (0, Some(80), None, true),
            (80, None, None, true),
            (49, None, Some(50 << 20), false),
            (50, None, Some(50 << 20), true),
        ] {
            assert_eq!(is_low(used, metadata, low_water), expected, "{used} {metadata:?} {low_water:?}");
        }
    }

    #[test]
    fn a_pool_elsewhere_is_unknown_and_so_is_one_without_an_answer() {
        let elsewhere = Gauge::ThinPool("vg-pool".into()).read(&HostRoot::new("/host"));
        assert!(elsewhere.unwrap_err().contains("another host"));
        let gone = Gauge::Mount("/no/such/folder".into()).read(&HostRoot::default());
        assert!(gone.unwrap_err().starts_with("/no/such/folder: "));
        assert_eq!(Share::Image("/no/such/file".into()).read(&HostRoot::default()), None);
        assert_eq!(unusual("0 204800 thin-pool Fail\n"), "its status is '0 204800 thin-pool Fail'");
    }
}
