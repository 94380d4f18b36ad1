//! The columns of a sweep's data set, and how they are written.
//!
//! Every sweep has the same columns, whatever its workloads, so that data sets can be joined. Columns without a value
//! for a workload are null. The first columns are the figures of a run in the JSON of `compare`, named by their paths.
//! Series are left out: the timeline, and latencies at further quantiles. Figures derived from these follow
//! ([`View::Column`]).

use serde::{Serialize, Serializer};
use serde_json::Value;
use trimwise::compare::figure::{Figure, Kind, View};
use trimwise::compare::result::Cell;
use trimwise::failure::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Integers,
    Numbers,
    Flags,
    Text,
}

#[derive(Debug)]
pub struct Column {
    /// Ends in the unit, if there is one.
    pub name: String,
    /// JSON pointer to the figure in a row.
    pub pointer: String,
    pub holds: Holds,
}

const OPERATIONS: &str = "create read append unlink fsync write discard flush";
const LATENCY: &str = "count p50_ns p99_ns p999_ns max_ns";
const BUSY: &str =
    "link controller write_path read_host read_gc read_map program_host program_gc erase trim flush";
const TRIMS: &str = "commands acknowledged_ns";

/// Key of the figures of [`View::Column`] in a row.
const FIGURES: &str = "figures";

pub fn row(mut place: Value, outcome: Result<Cell, String>) -> Result<Value, Failure> {
    match outcome {
        Ok(cell) => {
            place["measure"] = cell.measure().to_string().into();
            place["measured_ns"] = cell.measured_ns().into();
            place[FIGURES] = figures(&cell);
            place["result"] = serde_json::to_value(cell).map_err(Failure::run)?;
        }
        Err(error) => place["error"] = error.into(),
    }
    Ok(place)
}

/// A row of a data set, serialized as a map from the names of all columns to their values. Missing values are null.
#[derive(Clone, Debug)]
pub struct Row(pub(super) Value);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(columns().iter().map(|column| (&column.name, self.0.pointer(&column.pointer))))
    }
}

fn figures(cell: &Cell) -> Value {
    let value = |figure: &Figure| Some(number(figure.kind, figure.of_cell(cell)?));
    let figures = View::Column.figures().map(|(figure, _)| (figure.key.to_owned(), value(figure).into()));
    Value::Object(figures.collect())
}

pub(super) fn number(kind: Kind, value: f64) -> Value {
    // Whole numbers here are far below 2^53, but a sum or a mean can be off by a rounding error.
    if kind.is_whole() { Value::from(value.round() as i64) } else { Value::from(value) }
}

pub fn columns() -> Vec<Column> {
    use Holds::{Flags, Integers, Numbers, Text};
    let mut columns = Vec::new();
    let mut add = |holds, path: &str, names: &str| {
        for name in names.split_whitespace() {
            let pointer = if path.is_empty() { format!("/{name}") } else { format!("/{path}/{name}") };
            // Figures below `result` are named as in a cell of `compare`.
            let name = pointer.trim_start_matches("/result").trim_start_matches("/figures");
            let name = name.trim_start_matches('/').replace('/', "_");
            columns.push(Column { name, pointer, holds });
        }
    };
    add(Integers, "", "cell");
    add(Text, "", "target device policy workload");
    add(Integers, "", "utilization_percent seed rep");
    add(Text, "", "error measure");
    add(Integers, "", "measured_ns");
    add(Integers, "result", "duration_ns");
    let device = "result/device_stats";
    add(Integers, device, "host_units_written nand_units_written");
    add(Numbers, device, "write_amplification");
    add(Integers, device, "trim_commands trim_ranges trimmed_units erases erase_count_min");
    add(Numbers, device, "erase_count_mean");
    add(
        Integers,
        device,
        "erase_count_max gc_units_copied folded_units map_units_written map_lookups_missed",
    );
    add(Integers, device, "stale_units_max");
    add(Numbers, device, "stale_units_mean");
    add(Integers, device, "stale_units_end");
    add(Integers, &format!("{device}/busy_ns"), BUSY);
    let ledger = "result/ledger";
    add(
        Integers,
        ledger,
        "freed_units issued_units reused_units dropped_units pending_units in_flight_units",
    );
    add(Integers, ledger, "trim_busy_ns");
    add(Numbers, ledger, "trim_busy_percent");
    add(Integers, ledger, "gc_units_saved time_saved_ns");
    for operation in OPERATIONS.split(' ') {
        add(Integers, &format!("result/latency/{operation}"), LATENCY);
    }
    let postmark = "result/postmark";
    add(Numbers, postmark, "total_s transactions_s creation_alone_s deletion_alone_s");
    add(
        Integers,
        postmark,
        "created creation_alone created_mixed read appended deleted deletion_alone deleted_mixed",
    );
    add(Integers, postmark, "bytes_read bytes_written");
    add(Flags, postmark, "out_of_files");
    add(Numbers, postmark, "transactions_per_s creation_alone_per_s deletion_alone_per_s");
    add(Integers, "result/append", "append_bytes file_bytes pieces unlink_ns fsync_ns");
    add(Integers, "result/append/trims", TRIMS);
    add(Integers, "result/full_write", "append_bytes file_bytes fsync_ns write_ns");
    add(Integers, "result/full_write/trims", TRIMS);
    add(Integers, "result/program", "operations written_bytes read_bytes fsyncs files_removed punched_bytes");
    let replay = "result/replay";
    add(Text, replay, "pace");
    add(Integers, replay, "requests read_bytes written_bytes latency_mean_ns recorded_latency_mean_ns");
    for kind in ["read", "write", "discard", "flush"] {
        add(Integers, &format!("{replay}/recorded_latency/{kind}"), LATENCY);
    }
    add(Integers, replay, "recorded_drive_bytes");
    add(Text, replay, "knows");
    add(Integers, replay, "recorded_discards written_before_bytes lost_events cut_requests");
    add(Text, replay, "cut_off");
    add(
        Integers,
        "result/days",
        "elapsed_ns operations late_operations late_max_ns sweeps fitrim_max_ns slices maps",
    );
    add(Integers, "result/days", "fitrim_units");
    for (figure, _) in View::Column.figures() {
        add(if figure.kind.is_whole() { Integers } else { Numbers }, FIGURES, figure.key);
    }
    columns
}

#[cfg(test)]
impl Column {
    /// Returns whether a row has a figure here that the column cannot hold.
    pub fn loses(&self, row: &Value) -> bool {
        row.pointer(&self.pointer).is_some_and(|value| match self.holds {
            Holds::Integers => value.as_i64().is_none(),
            Holds::Numbers => value.as_f64().is_none(),
            Holds::Flags => value.as_bool().is_none(),
            Holds::Text => value.as_str().is_none(),
        } && !value.is_null())
    }

    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}
