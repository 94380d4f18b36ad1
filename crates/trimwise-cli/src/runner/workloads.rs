//! Workloads that are built in, as configuration files.

/// Name and text of each.
pub const EMBEDDED: &[(&str, &str)] = &[("default", DEFAULT)];

/// Small files that come and go, as in a mail spool: about 250 MiB at a time and 2 GiB written.
const DEFAULT: &str = "\
set number 2500
set transactions 15000
set size 1000 200000
set read 4096
set write 4096
set buffering false
run
";
