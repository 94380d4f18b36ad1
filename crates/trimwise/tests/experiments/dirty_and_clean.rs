//! Dirty against clean writes of drives whose profiles were made of public specifications, next to what was published.

use trimwise::drives::dirty::Writes;
use trimwise::drives::measured::{What, all};
use trimwise::profile::Profile;
use trimwise::units::SimDuration;

#[test]
fn dirty_over_clean_next_to_what_was_published() {
    let published = all();
    for profile in Profile::published().unwrap() {
        let of = |what: What| published.iter().find(|m| m.drive == profile.name && m.what == what).unwrap();
        let (dirty, rested) = (of(What::DirtyOverClean), of(What::AfterRestOverClean));
        let full = dirty.full_percent.unwrap_or(100);
        let after =
            |seconds| Writes::measured(&profile.config, full, SimDuration::from_secs(seconds), 1).unwrap();
        let [model, tens, sixties] = [0, 10, 60].map(after);
        println!(
            "{}: dirty {:.3} {:.3} {:.3} ({:.3} published), rested {:.3} ({:.3} published); clean {:.0} MB/s",
            profile.name,
            model.dirty_over_clean(),
            tens.dirty_over_clean(),
            sixties.dirty_over_clean(),
            dirty.value,
            model.rested_over_clean(),
            rested.value,
            model.clean / 1e6,
        );
    }
}
