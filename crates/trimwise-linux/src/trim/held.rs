//! Space that the layers below a file system hold for it: in a thin pool, in the file of a loop device, in memory (zram). It
//! is read before and after a trim, since what a device took says nothing about what came back.

use trimwise::units::Bytes;

use super::Target;
use crate::block_device::SysBlock;
use crate::doctor::{Graph, Kind};
use crate::held::{self, Fill};
use crate::host_root::HostRoot;
use crate::layers::dmsetup;

/// What a layer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The layer, in words: `the thin pool vg-pool-tpool`.
    pub layer: String,
    pub bytes: Bytes,
}

/// Reads what the layers below hold; those that do not say it are left out.
pub fn held_below(target: &Target) -> Vec<Held> {
    let devices: Vec<SysBlock> = target.devices.iter().map(|device| device.sysfs.clone()).collect();
    held(&HostRoot::default(), &devices, &|verb, name| dmsetup(verb, name).ok())
}

fn held(root: &HostRoot, devices: &[SysBlock], dm: &dyn Fn(&str, &str) -> Option<String>) -> Vec<Held> {
    let graph = Graph::of(root, &[], devices);
    let nodes = graph.holding_data().into_iter().map(|index| &graph.nodes[index]);
    let held = nodes.filter_map(|node| {
        let (layer, bytes) = match &node.kind {
            Kind::Loop(file) if node.below.is_empty() => {
                (format!("{file}, the file of {},", node.name), held::of_file(&root.path(file))?)
            }
            Kind::ThinPool(name) => {
                let fill = Fill::of_thin_pool(&dm("status", name)?, &dm("table", name)?)?;
                (format!("the thin pool {name}"), fill.used_bytes)
            }
            Kind::Disk(_) if node.name.starts_with("zram") => {
                let stat = node.device.text("mm_stat")?;
                (format!("the memory of {}", node.name), stat.split_whitespace().nth(2)?.parse().ok()?)
            }
            _ => return None,
        };
        Some(Held { layer, bytes: Bytes(bytes) })
    });
    held.collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use trimwise_testing::fake_host::{GIB, Host, SDA};

    use super::*;

    #[test]
    fn a_pool_an_image_and_zram_say_what_they_hold() {
        let host = Host::new("");
        host.device(SDA, "8:0", GIB);
        for (name, numbers, below) in [("dm-1", "254:1", SDA), ("dm-2", "254:2", "virtual/block/dm-1")] {
            host.device(&format!("virtual/block/{name}"), numbers, GIB)
                .slave(&format!("virtual/block/{name}"), below);
        }
        for (name, dm, uuid) in [("dm-1", "vg-pool-tpool", "LVM-1-tpool"), ("dm-2", "vg-a", "LVM-2")] {
            host.file(&format!("sys/devices/virtual/block/{name}/dm/name"), dm);
            host.file(&format!("sys/devices/virtual/block/{name}/dm/uuid"), uuid);
        }
        host.device("virtual/block/loop0", "7:0", GIB).device("virtual/block/zram0", "252:0", GIB);
        host.file("sys/devices/virtual/block/loop0/loop/backing_file", "/srv/a.img\n");
        host.file("srv/a.img", &"x".repeat(100_000));
        host.file("sys/devices/virtual/block/zram0/mm_stat", "8192 100 12288 0 0 0 0 0 0\n");
        let root = HostRoot::new(host.0.path());
        let blocks = host.0.path().join("srv/a.img").metadata().unwrap().blocks() * 512;
        let dm = |verb: &str, name: &str| {
            assert_eq!(name, "vg-pool-tpool");
            let text = match verb {
                "table" => "0 204800 thin-pool 254:8 254:9 128 0 0",
                _ => "0 204800 thin-pool 1 10/256 5/1600 - rw discard_passdown queue_if_no_space - 1024",
            };
            Some(text.to_owned())
        };
        for (name, expected) in [
            ("dm-2", vec![("the thin pool vg-pool-tpool", 5 * 65536)]),
            ("loop0", vec![("/srv/a.img, the file of loop0,", blocks)]),
            ("zram0", vec![("the memory of zram0", 12_288)]),
            ("sda", vec![]),
        ] {
            let found = held(&root, &[SysBlock::named(&root, name).unwrap()], &dm);
            let found: Vec<_> = found.iter().map(|one| (one.layer.as_str(), one.bytes.0)).collect();
            assert_eq!(found, expected, "{name}");
        }
        let pool = SysBlock::named(&root, "dm-2").unwrap();
        assert_eq!(held(&root, &[pool], &|_, _| None), [], "without dmsetup");
    }
}
