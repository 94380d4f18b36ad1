use serde::Serialize;
use serde_json::{Value, json};
use trimwise_study::Versioned;

use super::*;
use crate::commands::advise::tests::{advice, gated};
use crate::commands::compare::tests::{cells::cells, table::comparison};

fn read(text: &str) -> Result<Document, Failure> {
    Document::parse(text, "a.json", &|kind, _, file| {
        Err(Mistake::that(format!("{file}: handed over as one of {}", kind.command())).fail())
    })
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
fn documents_of_the_laboratory_are_handed_over_by_their_command() {
    for (document, command) in [
        (json!({"experiment": "x", "claims": []}), "reproduce"),
        (json!({"tests": [], "device": {}}), "bench"),
        (json!({"map": {}, "device": {}}), "bench --map"),
        (json!({"standings": [], "cases": []}), "tournament"),
    ] {
        let mut document = document;
        (document["schema"], document["trimwise"]) = (json!(1), json!("0"));
        assert_eq!(refused(&document.to_string()), format!("a.json: handed over as one of {command}"));
    }
}

#[test]
fn a_saved_comparison_has_the_report_that_the_run_would_have_written() {
    for reps in [1, 6] {
        let run = comparison(cells(&["vendor1", "vendor2"], reps, true));
        assert_eq!(html_of(vec![parsed(&run)]).unwrap(), compare::report::html(&run).unwrap());
    }
}

#[test]
fn saved_runs_are_judged_as_the_run_was() {
    let mut cells = cells(&["vendor1"], 6, true);
    cells.iter_mut().try_for_each(|cell| cell.judge_by("p99:read".parse().unwrap())).unwrap();
    let run = comparison(cells);
    let page = html_of(vec![parsed(&run)]).unwrap();
    assert_eq!(page, compare::report::html(&run).unwrap());
    assert!(page.contains("Latency p99:read"), "{page}");
}

#[test]
fn a_saved_advice_has_the_report_that_the_run_would_have_written() {
    let mut run = advice(gated);
    assert_eq!(html_of(vec![parsed(&run)]).unwrap(), advise::report::html(&run).unwrap());
    let failure = html_of(vec![parsed(&run), parsed(&run)]).unwrap_err().to_string();
    assert!(failure.contains("are both from `advise`; expected one of them"), "{failure}");
    run = advice(|_| 100.0);
    assert_eq!(html_of(vec![parsed(&run)]).unwrap(), advise::report::html(&run).unwrap());
}

#[test]
fn two_comparisons_stand_side_by_side_with_what_changed() {
    let a = comparison(cells(&["vendor1"], 6, true));
    let mut slower = cells(&["vendor1"], 6, true);
    for cell in slower.iter_mut().filter(|cell| cell.policy == "off".into()) {
        cell.duration_ns *= 2;
    }
    let mut b = comparison(slower);
    b.seed = 8;
    let page = html_of(vec![parsed(&a), parsed(&b)]).unwrap();
    let verdict = page.split_once("<div class=\"verdict\"><p>").unwrap().1.split_once("</p>").unwrap().0;
    assert!(verdict.contains("under <code>off</code> 100.0\u{a0}% longer"), "{verdict}");
    assert!(page.contains("a.json and b.json") && !page.contains("runs/"), "{page}");
    let differing = page.split_once("Settings that differ").unwrap().1.split_once("</table>").unwrap().0;
    assert!(differing.contains("seed") && !differing.contains("workload"), "{differing}");
    let charts = page.matches("<figure class=\"chart\">").count();
    assert!(charts >= 7, "{charts}");
    assert!(page.contains("\"off (A)\"") && page.contains("\"off (B)\""));
}

#[test]
fn documents_that_cannot_be_compared_say_why() {
    let of = |device: &str| parsed(&comparison(cells(&[device], 2, true)));
    let two = |a, b| match html_of(vec![a, b]) {
        Err(Failure::Usage(what)) => what.to_string(),
        other => panic!("{other:?}"),
    };
    let said = two(of("vendor1"), parsed(&advice(gated)));
    assert!(said.contains("runs/a.json is from `compare`, runs/b.json from `advise`"), "{said}");
    let mut judged = cells(&["vendor1"], 2, true);
    judged.iter_mut().try_for_each(|cell| cell.judge_by("p99:read".parse().unwrap())).unwrap();
    let said = two(of("vendor1"), parsed(&comparison(judged)));
    assert!(said.contains("the first is judged by total, the second by p99:read"), "{said}");
    let mut others = cells(&["vendor1"], 2, true);
    others
        .iter_mut()
        .for_each(|cell| cell.policy = format!("batch:{}s", cell.policy.to_string().len()).as_str().into());
    let said = two(of("vendor1"), parsed(&comparison(others)));
    assert!(said.contains("have no device and policy in common; expected"), "{said}");
    assert!(html_of(vec![of("vendor1"), of("vendor2")]).is_ok(), "one device each");
}

#[test]
fn what_is_no_document_of_these_commands_is_refused_in_words() {
    let ours = |more: Value| {
        let mut document = json!({"schema": 1, "trimwise": "0.1.0"});
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        document.to_string()
    };
    for (text, expected) in [
        ("", "a.json: is not JSON: EOF"),
        ("{\n\"a\": 1,\n}", "is not JSON: trailing comma at line 3 column 1"),
        ("[1, 2]", "is a list, but not of experiments"),
        ("3", "was not written by trimwise: it has no key `trimwise`"),
        ("{\"name\": \"fio\", \"jobs\": []}", "was not written by trimwise: it has no key `trimwise`"),
        ("{\"trimwise\": \"0.1.0\"}", "has no key `schema`"),
        ("{\"trimwise\": \"9.0.0\", \"schema\": 2}", "schema: 2, which trimwise"),
        (&ours(json!({"file_systems": []})), "was written by another trimwise command"),
        (&ours(json!({"cells": [], "verdict": {}})), "missing field `speedup`"),
        (
            &ours(json!({"grid": "g.toml", "product": "", "cells": -1})),
            "invalid value: integer `-1`, expected u64",
        ),
    ] {
        let said = refused(text);
        assert!(
            said.starts_with("a.json: ") && said.contains(expected) && said.contains("expected "),
            "{said}"
        );
    }
    let mut empty = comparison(cells(&["vendor1"], 1, false));
    empty.cells.clear();
    assert!(refused(&Versioned::of(&empty).text().unwrap()).contains("cells: is empty"));
    let mut strange = serde_json::to_value(comparison(cells(&["vendor1"], 1, false))).unwrap();
    strange["schema"] = json!(1);
    strange["cells"][0]["duration_ns"] = json!("long");
    let said = refused(&serde_json::to_string_pretty(&strange).unwrap());
    assert!(said.contains("invalid type: string \"long\"") && said.contains(" line "), "{said}");
}

#[test]
fn an_existing_report_is_replaced_only_with_force_and_never_before_the_documents_are_read() {
    let dir = tempfile::tempdir().unwrap();
    let (document, out) = (dir.path().join("a.json"), dir.path().join("a.html"));
    std::fs::write(&document, Versioned::of(&comparison(cells(&["vendor1"], 1, false))).text().unwrap())
        .unwrap();
    std::fs::write(&out, "precious").unwrap();
    let of = |documents: &[&PathBuf], force| ReportArguments {
        documents: documents.iter().map(|path| (*path).clone()).collect(),
        out: out.clone(),
        force,
    };
    let failure = run(&of(&[&document], false)).unwrap_err().to_string();
    assert!(failure.contains("a.html: already exists; pass --force"), "{failure}");
    let failure = run(&of(&[&dir.path().join("none.json")], true)).unwrap_err().to_string();
    assert!(failure.contains("none.json: No such file"), "{failure}");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "precious");
    let onto_itself = ReportArguments { out: dir.path().join("./a.json"), ..of(&[&document], true) };
    let failure = run(&onto_itself).unwrap_err().to_string();
    assert!(failure.contains("a.json is one of the documents to read"), "{failure}");
    run(&of(&[&document], true)).unwrap();
    assert!(std::fs::read_to_string(&out).unwrap().starts_with("<!DOCTYPE html>"));
    std::fs::write(&document, [0xff, 0xfe, 0]).unwrap();
    let failure = run(&of(&[&document], true)).unwrap_err().to_string();
    assert!(failure.contains("is not UTF-8 text"), "{failure}");
}
