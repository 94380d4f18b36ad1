//! The report: one self-contained HTML file without network access or scripts.
//!
//! Templates escape whatever is put into them. Only the style sheet and the charts are marked as safe; the charts do
//! their own escaping.

pub mod charts;
pub mod plots;

use minijinja::value::Serde;
use minijinja::{Environment, HtmlEscape, UndefinedBehavior, Value};
use serde::Serialize;

use trimwise_lab::failure::Failure;

const STYLE: &str = include_str!("report/style.css");

/// One name of a legend.
#[derive(Serialize)]
pub struct Entry {
    pub name: String,
    /// As CSS writes it.
    pub colour: String,
}

/// A figure as the templates read it.
#[derive(Serialize)]
pub struct Figure {
    title: String,
    legend: Vec<Entry>,
    svg: Value,
    caption: String,
}

impl Figure {
    pub fn new(
        title: impl Into<String>,
        legend: Vec<Entry>,
        svg: String,
        caption: impl Into<String>,
    ) -> Self {
        Self { title: title.into(), legend, svg: safe(svg), caption: caption.into() }
    }
}

/// Marks text as finished markup.
fn safe(markup: impl Into<String>) -> Value {
    Value::from_safe_string(markup.into())
}

/// Turns prose with names between backticks into markup; the names become code, and everything is escaped.
pub fn with_code(text: &str) -> Value {
    let mut markup = String::new();
    for (i, piece) in text.split('`').enumerate() {
        let escaped = HtmlEscape(piece);
        markup += &if i % 2 == 1 { format!("<code>{escaped}</code>") } else { escaped.to_string() };
    }
    safe(markup)
}

/// Fills a template that extends `base.html`. Names end in `.html`, which turns escaping on.
pub fn rendered(template: &'static str, page: &impl Serialize) -> Result<String, Failure> {
    let fail = |e: minijinja::Error| Failure::run(format!("cannot make the report: {e:#}"));
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_global("style", safe(STYLE));
    let shared =
        [("base.html", include_str!("report/base.html")), ("parts.html", include_str!("report/parts.html"))];
    for (name, template) in shared.into_iter().chain([("page.html", template)]) {
        environment.add_template(name, template).map_err(fail)?;
    }
    environment.get_template("page.html").and_then(|t| t.render(Serde(page))).map_err(fail)
}
