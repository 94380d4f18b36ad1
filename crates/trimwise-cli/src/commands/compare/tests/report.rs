use super::cells::{cell, cells};
use super::table::comparison;
use crate::commands::compare::report::html;
use trimwise::compare::result::Target;

#[test]
fn the_skeleton_of_the_page() {
    let page = html(&comparison(cells(&["vendor1"], 3, false))).unwrap();
    if let Some(path) = std::env::var_os("TRIMWISE_TEST_REPORT_COMPARE") {
        std::fs::write(path, &page).unwrap(); // to look at it in a browser
    }
    // Coordinates and style may change with any edit; a change in the page's words should be noticed.
    let without = |page: &str, from: &str, to: &str| {
        let mut rest = page;
        let mut out = String::new();
        while let Some((before, after)) = rest.split_once(from) {
            out += before;
            out += from;
            rest = after.split_once(to).map_or("", |(_, tail)| tail);
            out += to;
        }
        out + rest
    };
    let words = without(&without(&page, "<script>", "</script>"), "<style>", "</style>");
    insta::assert_snapshot!(without(&words, "application/json\">", "</script>"));
}

#[test]
fn nothing_is_loaded_from_elsewhere_and_everything_is_escaped() {
    let mut cells = cells(&["<img src=x>"], 2, true);
    for c in &mut cells {
        c.policy = c.policy.to_string().replace("commit", "a\"><b>&").as_str().into();
    }
    let page = html(&comparison(cells)).unwrap();
    let escaped = page.replace("&lt;img src=x", "").replace("\\u003cimg src=x", "");
    for banned in ["<img", "<b>&", "<link", "@import", "url(", "src=", "fetch(", "import("] {
        // The script draws patterns of its own page.
        assert!(!escaped.replace("return `url(#${id})`", "").contains(banned), "{banned}");
    }
    let charts = page.matches("<script type=\"application/json\">").count();
    assert_eq!(page.matches("<script").count(), charts + 1, "the page has its own script and no other");
    assert_eq!(page.matches("</script>").count(), charts + 1);
    assert_eq!(page.matches("http").count(), 1, "the name of SVG, which is not loaded");
    assert!(page.contains("\"http://www.w3.org/2000/svg\"") && page.contains("&lt;img src=x&gt;"));
}

#[test]
fn the_ledger_and_the_distance_to_the_bound_are_in_the_report() {
    let page = html(&comparison(cells(&["vendor1"], 3, false))).unwrap();
    for part in ["vs ideal", "<h3>Ledger</h3>", ">+76.8 %</td>", "GC saved", ">\u{2212}29.70 s</td>"] {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_real_directory_has_no_device_charts() {
    let mut cells = vec![cell("/mnt/x", "discard", 0, 10.0)];
    cells[0].target = Target::Directory("/mnt/x".into());
    cells[0].device_stats = None;
    cells[0].ledger = None;
    let page = html(&comparison(cells)).unwrap();
    assert!(page.contains("Time of each phase") && page.contains("\"title\":\"read\""));
    assert!(!page.contains("Stale space over time") && !page.contains("Device time by cause"));
    assert!(!page.contains("\"title\":\"fsync\""), "PostMark makes none");
}
