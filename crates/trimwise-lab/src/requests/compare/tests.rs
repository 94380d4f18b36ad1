use std::path::PathBuf;
use std::time::SystemTime;

use trimwise::policy::Trimmer;
use trimwise_study::compare::CompareRequest;
use trimwise_uml::cell::KernelTarget;
use trimwise_uml::images::KernelImage;

use super::*;
use crate::guests;
use trimwise::compare::result::Target;

#[test]
fn a_kernel_gives_the_policies_of_its_file_system() {
    let target: KernelTarget = "6.1:btrfs:noatime".parse().unwrap();
    let request = CompareRequest {
        target: Given::of(RunOn::Kernel(target.clone())),
        reps: 2,
        ..CompareRequest::default()
    };
    let plan = on_kernel::plan(&request, &target, (Workload::of(&request).unwrap(), None)).unwrap();
    let policies: Vec<String> = plan.policies.iter().map(ToString::to_string).collect();
    assert_eq!(policies, ["off", "commit", "async"]);
    let settings = plan.settings;
    assert!(settings.linux.is_none() && settings.mount.is_none());
    assert_eq!(settings.host_memory_bytes, Some(1 << 30));
    assert_eq!(
        settings.command,
        "trimwise compare --workload default --target kernel:6.1:btrfs:noatime --device sata-small --policy off \
         --policy commit --policy async --memory 1024 --reps 2 --seed 1"
    );
}

#[test]
fn results_name_the_kernel_and_its_mount_options() {
    let target: KernelTarget = "6.1:btrfs:noatime".parse().unwrap();
    let image = KernelImage {
        name: target.kernel.clone(),
        release: format!("{}.7", target.kernel),
        source: String::new(),
        patches: Vec::new(),
        compiler: String::new(),
        recipe: "f00d".to_owned(),
        directory: PathBuf::new(),
        linux: PathBuf::new(),
        preload: PathBuf::new(),
        size_bytes: 0,
        built: SystemTime::UNIX_EPOCH,
    };
    let kernel = guests::real_kernel(&image, &target).unwrap();
    assert_eq!((&*kernel.name, &*kernel.release, &*kernel.file_system), ("6.1", "6.1.7", "btrfs"));
    assert_eq!(kernel.mount_options, "noatime");
    assert_eq!(kernel.guest_program.len(), 64, "the hash of this program");
}

#[test]
fn a_check_runs_what_the_kernel_has_and_names_the_rest() {
    let target: KernelTarget = "6.1:ext4:noatime".parse().unwrap();
    let given: [Trimmer; 4] = ["off", "commit", "lazy", "batch:30s"].map(|policy| policy.parse().unwrap());
    let mut planned = check::Planned::of(&target, given.iter()).unwrap();
    let policies: Vec<String> = planned.policies.iter().map(ToString::to_string).collect();
    assert_eq!(policies, ["off", "commit", "batch:30s"]);
    planned.image = Err("to build it: trimwise kernel build --version 6.1".to_owned());
    let check = planned.found(Vec::new()).unwrap();
    assert_eq!(check.target, Target::Kernel("6.1:ext4:noatime".to_owned()));
    assert_eq!(check.left_out.len(), 1);
    assert_eq!(check.left_out[0].policy, "lazy".into());
    assert_eq!(check.not_run.as_deref(), Some("to build it: trimwise kernel build --version 6.1"));
    assert!(check.kernel.is_none());
}
