use super::*;
use trimwise::block::{BlockQueue, ModelDevice, QueueConfig};
use trimwise::engine::Sim;
use trimwise::profile::SettingValue;
use trimwise::ssd::Ssd;
use trimwise::units::SimDuration;

fn measured(truth: &str, plan_of: impl Fn(UnitRange) -> Plan) -> (Measured, Plan) {
    let profile = Profile::embedded(truth).unwrap();
    let sim = Sim::new();
    let ssd = Ssd::new(&sized(&profile.config).unwrap(), 7).unwrap();
    let device = ModelDevice::new(BlockQueue::new(&sim, ssd, QueueConfig::default()), truth);
    let plan = plan_of(check(device.facts()).unwrap());
    let measured = sim.run(async move { measure(&device, plan, &|_, _| {}).await });
    (measured.unwrap().unwrap(), plan)
}

fn writing(region: UnitRange) -> Plan {
    Plan { region, read_only: false, time: SimDuration::from_secs(60), seed: 1 }
}

fn proof(truth: &str, base: &str) -> String {
    let (measured, plan) = measured(truth, writing);
    let (truth, base) = (Profile::embedded(truth).unwrap(), Profile::embedded(base).unwrap());
    let fitted = fit(&measured, &base, "fitted", plan, &Arc::default()).unwrap();
    let mut text = format!("{} from {}\n", truth.name, base.name);
    for fit in &fitted.fits {
        let mut real = truth.settings.iter().find(|s| s.name == fit.setting).map(|s| s.value.clone());
        if let ("trim.cost_per_command_ns", Some(SettingValue::Whole(real))) = (fit.setting, &mut real) {
            // Only its sum with the cost of a range shows.
            *real = (*real + truth.config.trim.cost_per_range_ns)
                .saturating_sub(fitted.profile.config.trim.cost_per_range_ns);
        }
        if fit.setting == "geometry.planes_per_die" {
            // Only what a die programs at once shows.
            let page = |config: &trimwise::ssd::SsdConfig| u64::from(config.geometry.page_bytes);
            let planes = u64::from(truth.config.geometry.planes_per_die);
            real = Some(SettingValue::Whole(planes * page(&truth.config) / page(&fitted.profile.config)));
        }
        let mark = match (&real, fit.interval) {
            (Some(SettingValue::Whole(real)), Some((low, high))) if !(low..=high).contains(&real) => "MISSED",
            (Some(SettingValue::Whole(_)), Some(_)) => "in",
            (None, _) => "new",
            (Some(real), None) if *real != fit.value => "differs",
            _ => "=",
        };
        text += &format!("  {} {:?} {:?} truth {real:?} {mark}\n", fit.setting, fit.value, fit.interval);
    }
    for p in &fitted.predictions {
        text += &format!(
            "  {}: {:.0} {:.0} {:+.1} % (base {:+.0} %)\n",
            p.test, p.measured_per_s, p.predicted_per_s, p.error_percent, p.base_error_percent
        );
    }
    text + &format!("  notes {:?} beside {:?}\n", fitted.notes, fitted.read_beside_trims)
}

#[test]
#[ignore]
fn look() {
    for (truth, base) in [
        ("sata-generic", "sata-small"),
        ("vendor1", "sata-60gb-2011"),
        ("nvme-generic", "bench-64gib"),
        ("ufs21-64gb", "ufs4-256gb"),
        ("sata-60gb-2011", "sata-generic"),
        ("nvme-960gb-enterprise", "nvme-generic"),
        ("vendor6", "vendor1"),
        ("page-60gb-2009", "sata-generic"),
        ("bench-64gib", "nvme-generic"),
        ("sata-240gb-2012", "sata-generic"),
        ("sata-small", "sata-generic"),
        ("sata-500gb-slc", "sata-generic"),
        ("nvme-500gb-dramless", "nvme-512gb-qlc"),
        ("nvme-512gb-qlc", "nvme-500gb-dramless"),
        ("ufs4-256gb", "ufs21-64gb"),
        ("vendor2", "vendor4"),
        ("vendor3", "sata-generic"),
        ("vendor4", "sata-generic"),
        ("vendor5", "sata-generic"),
    ] {
        let begun = std::time::Instant::now();
        eprintln!("{}  {:.1} s", proof(truth, base), begun.elapsed().as_secs_f64());
    }
}
