use serde::Serialize;
use serde_json::json;
use trimwise_cli::commands::report::documents::Document;
use trimwise_cli::commands::report::html;
use trimwise_study::Versioned;

use super::*;
use crate::commands::bench::tests::report_of;
use crate::commands::reproduce::tests::{experiment, plotted};

fn read(text: &str) -> Result<Document, Failure> {
    Document::parse(text, "a.json", &super::read)
}

fn parsed(document: &impl Serialize) -> Document {
    read(&Versioned::of(document).text().unwrap()).unwrap()
}

fn refused(text: &str) -> String {
    match read(text) {
        Err(Failure::Usage(what)) => what.to_string(),
        Err(other) => panic!("another kind of failure: {other}"),
        Ok(document) => panic!("taken for one of {}", document.command()),
    }
}

fn html_of(documents: Vec<Document>) -> Result<String, Failure> {
    let names = ["runs/a.json", "runs/b.json"].map(str::to_owned);
    html(&names.into_iter().zip(documents).collect::<Vec<_>>())
}

#[test]
fn documents_of_different_commands_have_no_common_report() {
    let failure =
        html_of(vec![parsed(&report_of("drive fill")), parsed(&experiment())]).unwrap_err().to_string();
    assert!(failure.contains("runs/a.json is from `bench`, runs/b.json from `reproduce`"), "{failure}");
}

#[test]
fn saved_experiments_have_the_report_that_the_run_would_have_written() {
    for result in [experiment(), plotted()] {
        let command = reproduce::repeat(std::slice::from_ref(&result));
        assert_eq!(
            html_of(vec![parsed(&result)]).unwrap(),
            reproduce::report::html(&[result], &command).unwrap()
        );
    }
    let list = json!([{"schema": 1, "trimwise": "0", "experiment": "x", "claims": []}]).to_string();
    assert!(refused(&list).starts_with("a.json: missing field"), "{}", refused(&list));
}

#[test]
fn rows_of_other_layouts_keep_their_figures_and_the_report_says_that_tables_are_missing() {
    let mut document = serde_json::to_value(plotted()).unwrap();
    document["schema"] = json!(1);
    document["rows"] = json!({"runs": [1, 2], "plots": document["rows"]});
    let page = html_of(vec![read(&document.to_string()).unwrap()]).unwrap();
    assert_eq!(page.matches("<figure class=\"chart\">").count(), 3);
    assert!(page.contains("An earlier version of trimwise wrote this document"), "{page}");
}

#[test]
fn tables_that_only_the_experiment_lays_out_come_from_the_document() {
    let mut document = serde_json::to_value(plotted()).unwrap();
    document["rows"] = json!({"measured": {}, "plots": document["rows"].take()});
    document["tables"] =
        json!([{"title": "What was discarded", "header": ["mount"], "rows": [["ext4 discard"]]}]);
    let page = html_of(vec![parsed(&document)]).unwrap();
    assert!(page.contains("What was discarded") && page.contains(">ext4 discard</td>"), "{page}");
    assert!(!page.contains("An earlier version of trimwise"), "{page}");
}

#[test]
fn a_byte_order_mark_is_skipped_and_no_control_character_reaches_the_page() {
    let mut result = plotted();
    result.question = "red \u{1b}[31m, back \u{202e}, `named`".to_owned();
    let text = format!("\u{feff}{}", Versioned::of(&result).text().unwrap());
    let page = html_of(vec![read(&text).unwrap()]).unwrap();
    assert!(page.contains("red \u{fffd}[31m, back \u{fffd}, <code>named</code>"), "{page}");
}

#[test]
fn two_experiments_say_which_claims_changed() {
    let (a, mut b) = (plotted(), plotted());
    b.claims = experiment().claims;
    let mut c = experiment();
    c.claims[0].met = !c.claims[0].met;
    let page = html_of(vec![parsed(&experiment()), parsed(&c)]).unwrap();
    assert!(page.contains("changed: <code>postmark-vendors</code>"), "{page}");
    let page = html_of(vec![parsed(&a), parsed(&b)]).unwrap();
    assert_eq!(page.matches("<figure class=\"chart\">").count(), 3);
    let failure = html_of(vec![parsed(&a), parsed(&c)]).unwrap_err();
    assert!(failure.to_string().contains("have no experiment in common"), "{failure}");
}
