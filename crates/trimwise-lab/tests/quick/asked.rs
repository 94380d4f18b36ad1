//! What `trimwise` asks this program gives the same as this program itself.

use std::io::Write as _;
use std::process::{Command, Stdio};

use trimwise_study::caller::Silent;
use trimwise_study::compare::CompareRequest;
use trimwise_study::laboratory::{Answer, Ask, Line, Said};
use trimwise_study::{Versioned, compare};

use crate::common::{LABORATORY, command_in, refused, text};

fn request() -> CompareRequest {
    CompareRequest {
        workload: "append:4KiB:1MiB".to_owned(),
        policies: vec!["off".into(), "commit".into()],
        utilization: Some("1".into()),
        reps: 2,
        // No such kernel is ever built.
        check: Some("kernel:2.6.99:ext4".into()),
        ..CompareRequest::default()
    }
}

/// Answers a request as this program does, and returns all that it says.
fn answered(lines: &[u8]) -> Vec<Said> {
    let mut child =
        Command::new(LABORATORY).arg("answer").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(lines).unwrap();
    input.flush().unwrap();
    // It is open until the answer is there: its end would end the run.
    let output = child.wait_with_output().unwrap();
    drop(input);
    text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn line(line: &Line) -> Vec<u8> {
    let mut text = serde_json::to_vec(line).unwrap();
    text.push(b'\n');
    text
}

#[test]
fn a_comparison_over_the_channel_is_the_one_of_this_process() {
    let said = answered(&line(&Line::Ask(Box::new(Ask::Compare(request())))));
    assert!(
        said.iter().any(|said| matches!(said, Said::Note(text) if text.contains("is skipped"))),
        "{said:?}"
    );
    let Some(Said::Answer(Ok(answer))) = said.into_iter().last() else { panic!("no answer") };
    let Answer::Compare(whole) = *answer else { panic!("another answer") };
    let asked = whole.into_comparison().unwrap();
    let own = compare::run(&request(), &Silent::default(), &trimwise_lab::requests::Here).unwrap();
    assert_eq!(Versioned::of(&asked).text().unwrap(), Versioned::of(&own).text().unwrap());
    // The debug form has what the document leaves out.
    assert_eq!(format!("{asked:?}"), format!("{own:?}"));
    assert!(own.check.is_some_and(|check| check.not_run.is_some()));
}

#[test]
fn trimwise_prints_what_it_was_answered() {
    let folder = tempfile::tempdir().unwrap();
    let line = "compare --workload append:4KiB:1MiB --policy off commit --utilization 1 --reps 2 --check \
                kernel:2.6.99:ext4 --json -";
    let output = command_in(folder.path(), line).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let own = compare::run(&request(), &Silent::default(), &trimwise_lab::requests::Here).unwrap();
    assert_eq!(text(&output.stdout).trim_end(), Versioned::of(&own).text().unwrap());
}

#[test]
fn a_stop_or_an_asker_that_is_gone_ends_a_run() {
    let long = CompareRequest { workload: "default".to_owned(), utilization: None, reps: 50, ..request() };
    let ask = line(&Line::Ask(Box::new(Ask::Compare(long))));
    let said = answered(&[ask.clone(), line(&Line::Stop)].concat());
    let last = said.last().unwrap();
    assert!(matches!(last, Said::Answer(Err(trimwise::failure::Failure::Interrupted))), "{last:?}");
    let mut child =
        Command::new(LABORATORY).arg("answer").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&ask).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn nonsense_is_answered_by_a_failure() {
    let said = answered(b"nonsense\n");
    let [Said::Answer(Err(failure))] = &said[..] else { panic!("{said:?}") };
    assert!(failure.to_string().contains("expected a request from trimwise"), "{failure}");
    refused(
        2,
        &command_in(std::env::temp_dir().as_path(), "kernel nonsense").output().unwrap(),
        &["nonsense"],
    );
}
