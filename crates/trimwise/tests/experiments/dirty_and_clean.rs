//! Dirty against clean writes of drives whose profiles were made of public specifications, next to what was published.

use trimwise::drives::dirty::Writes;
use trimwise::drives::measured::{What, all};
use trimwise::profile::Profile;
use trimwise::units::SimDuration;

const PAGE: &str = include_str!("../../../../docs/model.md");

#[test]
fn dirty_over_clean_next_to_what_was_published() {
    let published = all();
    let mut stray = Vec::new();
    for profile in Profile::published().unwrap() {
        let of = |what: What| published.iter().find(|m| m.drive == profile.name && m.what == what).unwrap();
        let (dirty, rested) = (of(What::DirtyOverClean), of(What::AfterRestOverClean).value);
        let full = dirty.full_percent.unwrap();
        let after =
            |seconds| Writes::measured(&profile.config, full, SimDuration::from_secs(seconds), 1).unwrap();
        let [model, later] = [0, 60].map(after);
        let is_near = (model.dirty_over_clean() / dirty.value - 1.0).abs() <= 0.25;
        let row = format!(
            "| {} | {full} % | {:.3} | {:.3} | {:.3} | {} | {rested:.2} | {:.2} |",
            profile.name,
            dirty.value,
            model.dirty_over_clean(),
            later.dirty_over_clean(),
            if is_near { "yes" } else { "no" },
            model.rested_over_clean(),
        );
        println!("{row} clean {:.0} MB/s", model.clean / 1e6);
        if !PAGE.contains(&row) {
            stray.push(row);
        }
    }
    assert!(stray.is_empty(), "docs/model.md lacks these rows of the model:\n{}", stray.join("\n"));
}
