//! Built-in workloads, as configuration files.

/// Name and text of each.
pub const EMBEDDED: &[(&str, &str)] = &[("default", DEFAULT)];

/// Other forms that `--workload` accepts, for messages.
pub const OTHERS: [&str; 2] = ["append[:APPEND[:FILE]]", "fullwrite[:APPEND[:FILE]][:nofsync]"];

/// Small files that come and go, as in a mail spool: about 800 MB at a time and 9 GB written. That is more than the
/// built-in default device holds, so it has to collect garbage.
const DEFAULT: &str = "\
set number 8000
set transactions 80000
set size 1000 200000
set read 4096
set write 4096
set buffering false
run
";
