//! Writes the rows of a sweep as a file of its data set.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use serde_json::Value;

use super::columns::{Column, Holds, columns};

/// Writes rows as a Parquet file with a single row group. Equal rows give equal bytes.
pub fn written(rows: &[Value]) -> Result<Vec<u8>, ParquetError> {
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
}
