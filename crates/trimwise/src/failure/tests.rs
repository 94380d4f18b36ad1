use super::*;
use crate::words;

fn utilization() -> Mistake {
    Mistake::of("utilization", 101).expected("a value from 0 to 100")
}

#[test]
fn each_door_spells_a_field_in_its_own_way() {
    let said = |failure: &Failure| {
        [Door::Command, Door::Grid, Door::Json, Door::Python].map(|door| failure.at(door))
    };
    assert_eq!(
        said(&utilization().fail()),
        [
            "--utilization 101: expected a value from 0 to 100",
            "utilizations_percent: 101: expected a value from 0 to 100",
            "utilization: 101: expected a value from 0 to 100",
            "utilization_percent=101: expected a value from 0 to 100",
        ]
    );
    assert_eq!(
        said(&Mistake::of("max_wall_s", 0).because(words!["needs ", key("policies")]).fail()),
        [
            "--max-wall 0: needs --policy",
            "--max-wall 0: needs policies",
            "max_wall_s: 0: needs policies",
            "max_wall_s=0: needs policies",
        ]
    );
    assert_eq!(
        said(&Mistake::of("target", "").expected("a target").fail()),
        [
            "--target '': expected a target",
            "--target '': expected a target",
            "target: '': expected a target",
            "target='': expected a target",
        ]
    );
    let days = words![set("days", "N"), " with it, such as ", set("days", 7)];
    assert_eq!(
        said(&Mistake::of("day", "office").expected(days).fail()),
        [
            "--day office: expected --days N with it, such as --days 7",
            "day: office: expected days = N with it, such as days = 7",
            "day: office: expected days: N with it, such as days: 7",
            "day=office: expected days=N with it, such as days=7",
        ]
    );
    assert_eq!(Door::Command.key(&key("host_root")), "--host-root");
    let argument = Mistake::of(argument("target"), "nvme").because("no such file").fail();
    assert_eq!(argument.at(Door::Command), "nvme: no such file");
    assert_eq!(argument.at(Door::Json), "target: nvme: no such file");
}

#[test]
fn a_sentence_goes_on_after_its_field_and_contradicting_fields_are_named_together() {
    let apart = Mistake::on("check").that_is(words!["cannot be used with ", key("days")]);
    assert_eq!(
        apart.expected("one of them").to_string(),
        "--check cannot be used with --days; expected one of them"
    );
    let both = Mistake::on("cut").and(Mistake::on("cuts")).expected("only one of them");
    assert_eq!(both.to_string(), "--cut and --cuts: expected only one of them");
}

#[test]
fn all_mistakes_are_told_each_once_and_other_failures_end_the_checks() {
    let reps = || Err(Mistake::of("reps", 0).expected("a value from 1 to 1000").fail());
    let all = Mistakes::of([reps(), Ok(()), Err(utilization().fail()), reps()]).unwrap_err();
    assert_eq!(
        all.to_string(),
        "--reps 0: expected a value from 1 to 1000\n--utilization 101: expected a value from 0 to 100"
    );
    assert_eq!(Mistakes::of([reps(), Err(Failure::Interrupted), reps()]), Err(Failure::Interrupted));
    assert_eq!(Mistakes::of([Ok(())]), Ok(()));
}

#[test]
fn a_failed_run_is_named_and_two_failures_are_told_together() {
    let no_room = Failure::Run(words!["no room; see ", key("memory")]);
    assert_eq!(no_room.clone().in_run("off").at(Door::Json), "off: no room; see memory");
    assert_eq!(Failure::Interrupted.in_run("off"), Failure::Interrupted);
    assert_eq!(
        no_room.and("\n", utilization().fail()).to_string(),
        "no room; see --memory\n--utilization 101: expected a value from 0 to 100"
    );
}

#[test]
fn a_mistake_in_a_file_that_a_grid_names_in_a_request_keeps_all_three() {
    let in_job = Mistake::that("'rw=up' is not accepted").expected("one of read, write").at("a.fio", Some(3));
    let in_grid = Mistake::on("workload").with(Mistakes(vec![in_job])).at("grid.toml", Some(7));
    let failure = Mistake::on("rules").with(Mistakes(vec![in_grid])).fail();
    let said = "grid.toml:7: workloads: a.fio:3: 'rw=up' is not accepted; expected one of read, write";
    assert_eq!(failure.to_string(), format!("--rules: {said}"));
    assert_eq!(failure.at(Door::Python), format!("rules: {said}"));
    let text = serde_json::to_string(&failure).unwrap();
    assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure, "{text}");
    let Failure::Usage(Mistakes(mistakes)) = &failure else { panic!("{failure:?}") };
    let innermost = &mistakes[0].inside[0].inside[0];
    assert_eq!(innermost.at.as_deref(), Some(&Place { file: "a.fio".to_owned(), line: Some(3) }));
}

#[test]
fn a_failure_crosses_a_channel_as_json() {
    let failure = utilization().fail();
    let text = serde_json::to_string(&failure).unwrap();
    assert_eq!(
        text,
        r#"{"usage":[{"asked":[{"key":{"name":"utilization"},"value":"101"}],"why":[],"continues":false,"#
            .to_owned()
            + r#""accepted":{"all":[{"text":"a value from 0 to 100"}]}}]}"#
    );
    for failure in
        [failure, Failure::run("no room"), Failure::Unchecked("no".to_owned()), Failure::Interrupted]
    {
        let text = serde_json::to_string(&failure).unwrap();
        assert_eq!(serde_json::from_str::<Failure>(&text).unwrap(), failure, "{text}");
    }
}

#[test]
fn regression_what_a_message_quotes_is_cut_whatever_quotes_it() {
    let (long, short) = ("\u{e4}".repeat(200_000), "x".repeat(1000));
    let cut = format!("{} [...] {}", &long[..2 * 666], &long[..2 * 333]);
    assert_eq!(super::cut(&long), cut);
    assert_eq!(super::cut(&short), short);
    for failure in [
        Mistake::that(long.clone()).fail(),
        Mistake::of("utilization", &long).because("is not a number").fail(),
        Failure::run(&long),
        Failure::Unchecked(long.clone()),
    ] {
        for said in [failure.to_string(), failure.at(Door::Python)] {
            let length = said.chars().count();
            assert!((1000..1010).contains(&length) && said.contains(" [...] "), "{length}");
        }
    }
    // Each line by itself: many mistakes stay many.
    let two = Failure::run(format!("{short}\n{long}\n")).to_string();
    assert_eq!(two, format!("{short}\n{cut}\n"));
}
