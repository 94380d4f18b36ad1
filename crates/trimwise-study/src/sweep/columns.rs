//! The columns of a sweep's data set, and how they are written.
//!
//! Every sweep has the same columns, whatever its workloads, so that data sets can be joined; what a workload does not
//! have is null. They are what the JSON of `compare` has of each run, named by their paths, except series: the timeline,
//! and latencies at further quantiles. Then come the figures that are made of these ([`View::Column`]).

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde::{Serialize, Serializer};
use serde_json::Value;
use trimwise::compare::figure::{Figure, Kind, View};
use trimwise::compare::result::Cell;
use trimwise::failure::Failure;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Integers,
    Numbers,
    Flags,
    Text,
}

/// A column.
#[derive(Debug)]
pub struct Column {
    /// Its name, which has the unit.
    pub name: String,
    /// Where a row's JSON has the figure.
    pointer: String,
    holds: Holds,
}

const OPERATIONS: &str = "create read append unlink fsync write discard flush";
const LATENCY: &str = "count p50_ns p99_ns p999_ns max_ns";
const BUSY: &str =
    "link controller write_path read_host read_gc read_map program_host program_gc erase trim flush";
const TRIMS: &str = "commands acknowledged_ns";

/// Where a row has the figures of [`View::Column`].
const FIGURES: &str = "figures";

/// Adds to the place of a cell what came of it.
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

/// A row of a data set. It is written as a map from the names of all columns to their values; what the run does not have
/// is null.
#[derive(Clone, Debug)]
pub struct Row(pub(super) Value);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(columns().iter().map(|column| (&column.name, self.0.pointer(&column.pointer))))
    }
}

/// Returns the figures of a run that are made of others, as a row has them.
fn figures(cell: &Cell) -> Value {
    let value = |figure: &Figure| Some(number(figure.kind, figure.of_cell(cell)?));
    let figures = View::Column.figures().map(|(figure, _)| (figure.key.to_owned(), value(figure).into()));
    Value::Object(figures.collect())
}

pub(super) fn number(kind: Kind, value: f64) -> Value {
    // Whole numbers here are far below 2^53, but a sum or a mean can be off by a rounding error.
    if kind.is_whole() { Value::from(value.round() as i64) } else { Value::from(value) }
}

/// All columns in order.
pub fn columns() -> Vec<Column> {
    use Holds::{Flags, Integers, Numbers, Text};
    let mut columns = Vec::new();
    let mut add = |holds, path: &str, names: &str| {
        for name in names.split_whitespace() {
            let pointer = if path.is_empty() { format!("/{name}") } else { format!("/{path}/{name}") };
            // What is below `result` has the name that it has in a cell of `compare`.
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

/// Writes rows as a Parquet file with a single row group: the same rows give the same bytes.
pub fn parquet(rows: &[Value]) -> Result<Vec<u8>, ParquetError> {
    let columns = columns();
    let fields = columns.iter().map(Column::field).collect::<Result<_, _>>()?;
    let schema = Arc::new(Type::group_type_builder("cells").with_fields(fields).build()?);
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, schema, Arc::new(properties))?;
    let mut group = file.next_row_group()?;
    for column in &columns {
        let Some(mut writer) = group.next_column()? else { break };
        column.write(rows, &mut writer)?;
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

impl Column {
    fn field(&self) -> Result<Arc<Type>, ParquetError> {
        let (physical, logical) = match self.holds {
            Holds::Integers => (Physical::INT64, None),
            Holds::Numbers => (Physical::DOUBLE, None),
            Holds::Flags => (Physical::BOOLEAN, None),
            Holds::Text => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        };
        let field = Type::primitive_type_builder(&self.name, physical)
            .with_logical_type(logical)
            .with_repetition(Repetition::OPTIONAL)
            .build()?;
        Ok(Arc::new(field))
    }

    fn write(&self, rows: &[Value], writer: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self.holds {
            // Counts and nanoseconds are far below 2^63.
            Holds::Integers => self.write_as::<Int64Type>(rows, writer, |value| {
                value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX))
            }),
            Holds::Numbers => self.write_as::<DoubleType>(rows, writer, Value::as_f64),
            Holds::Flags => self.write_as::<BoolType>(rows, writer, Value::as_bool),
            Holds::Text => {
                self.write_as::<ByteArrayType>(rows, writer, |value| value.as_str().map(ByteArray::from))
            }
        }
    }

    fn write_as<T: DataType>(
        &self,
        rows: &[Value],
        writer: &mut SerializedColumnWriter<'_>,
        read: impl Fn(&Value) -> Option<T::T>,
    ) -> Result<(), ParquetError> {
        let found: Vec<Option<T::T>> =
            rows.iter().map(|row| row.pointer(&self.pointer).and_then(&read)).collect();
        let levels: Vec<i16> = found.iter().map(|value| i16::from(value.is_some())).collect();
        let values: Vec<T::T> = found.into_iter().flatten().collect();
        writer.typed::<T>().write_batch(&values, Some(&levels), None).map(drop)
    }

    /// Whether a row has a figure here that the column cannot hold.
    #[cfg(test)]
    pub fn loses(&self, row: &Value) -> bool {
        row.pointer(&self.pointer).is_some_and(|value| match self.holds {
            Holds::Integers => value.as_i64().is_none(),
            Holds::Numbers => value.as_f64().is_none(),
            Holds::Flags => value.as_bool().is_none(),
            Holds::Text => value.as_str().is_none(),
        } && !value.is_null())
    }

    #[cfg(test)]
    pub fn pointer(&self) -> &str {
        &self.pointer
    }
}
