//! Which of Arrow's types may come in, and as what.
//!
//! The engine knows ten types. Columns of others are widened where no value can change, and refused
//! where one could. A column that is not read may have any type.

use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, PrimitiveArray,
    cast::AsArray,
    new_null_array,
    types::{
        Date32Type, Date64Type, Decimal128Type, Float16Type, Float32Type, Int8Type, Int16Type,
        Int32Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
        TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
    },
};
use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::{
    choice::wanted_places,
    column_type::ColumnType,
    error::{FileError, FileResult},
    spec::InputSpec,
};

const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// The type that a column of a file comes in as.
pub(crate) fn admit(file: &str, field: &Field) -> FileResult<DataType> {
    let given = field.data_type();
    if ColumnType::of_arrow(given).is_some() {
        return Ok(given.clone());
    }
    let refuse = |why: String| {
        let message = format!("{why}; convert the column, or leave it out of what is read");
        Err(FileError::new(file, message).in_column(field.name()))
    };
    match given {
        DataType::Int8 | DataType::Int16 => Ok(DataType::Int32),
        DataType::UInt8 | DataType::UInt16 => Ok(DataType::UInt32),
        DataType::Float16 => Ok(DataType::Float32),
        DataType::Date64 => Ok(DataType::Date32),
        DataType::Null => Ok(DataType::Utf8),
        DataType::Decimal128(precision, 0) if *precision <= 18 => Ok(DataType::Int64),
        DataType::Decimal32(..)
        | DataType::Decimal64(..)
        | DataType::Decimal128(..)
        | DataType::Decimal256(..) => {
            refuse(format!("its type {given} has no like here, and a float would round it"))
        }
        DataType::Timestamp(_, None) => Ok(MICROSECONDS),
        DataType::Timestamp(_, Some(zone)) => match zone.as_ref() {
            "UTC" | "Etc/UTC" | "+00:00" | "Z" | "GMT" => Ok(MICROSECONDS),
            zone => refuse(format!("its timestamps have the time zone {zone}, and not UTC")),
        },
        _ => refuse(format!("its type {given} is not supported")),
    }
}

/// The places of the columns to read from a file with this schema, in its order.
pub(crate) fn admitted_places(
    spec: &InputSpec,
    file: &str,
    schema: &Schema,
) -> FileResult<Vec<usize>> {
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    let mut places = wanted_places(spec, file, &names)?;
    if spec.leave_out_unsupported && spec.columns.is_none() {
        places.retain(|place| admit(file, schema.field(*place)).is_ok());
    }
    Ok(places)
}

/// An array as the type that [`admit`] said. A value that would change is an error that shows it.
pub(crate) fn widen(array: &ArrayRef, wanted: &DataType) -> Result<ArrayRef, String> {
    if array.data_type() == wanted {
        return Ok(Arc::clone(array));
    }
    match array.data_type() {
        DataType::Int8 => Ok(into::<Int8Type, Int32Type>(array)),
        DataType::Int16 => Ok(into::<Int16Type, Int32Type>(array)),
        DataType::UInt8 => Ok(into::<UInt8Type, UInt32Type>(array)),
        DataType::UInt16 => Ok(into::<UInt16Type, UInt32Type>(array)),
        DataType::Float16 => {
            let array: &PrimitiveArray<Float16Type> = array.as_primitive();
            Ok(Arc::new(array.unary::<_, Float32Type>(|value| value.to_f32())))
        }
        DataType::Null => Ok(new_null_array(wanted, array.len())),
        DataType::Date64 => exact::<Date64Type, Date32Type>(array, "days", |value| {
            (value % 86_400_000 == 0).then(|| i32::try_from(value / 86_400_000).ok())?
        }),
        DataType::Decimal128(_, 0) => {
            exact::<Decimal128Type, Int64Type>(array, "i64", |value| i64::try_from(value).ok())
        }
        DataType::Timestamp(unit, _) => {
            let what = "microseconds";
            match unit {
                TimeUnit::Second => {
                    exact::<TimestampSecondType, TimestampMicrosecondType>(array, what, |value| {
                        value.checked_mul(1_000_000)
                    })
                }
                TimeUnit::Millisecond => {
                    exact::<TimestampMillisecondType, TimestampMicrosecondType>(
                        array,
                        what,
                        |value| value.checked_mul(1_000),
                    )
                }
                TimeUnit::Microsecond => {
                    exact::<TimestampMicrosecondType, TimestampMicrosecondType>(array, what, Some)
                }
                TimeUnit::Nanosecond => exact::<TimestampNanosecondType, TimestampMicrosecondType>(
                    array,
                    what,
                    |value| (value % 1_000 == 0).then_some(value / 1_000),
                ),
            }
        }
        other => Err(format!("its type {other} is not {wanted}; files must agree on it")),
    }
}

fn into<F, T>(array: &ArrayRef) -> ArrayRef
where
    F: ArrowPrimitiveType,
    T: ArrowPrimitiveType<Native: From<F::Native>>,
{
    let array: &PrimitiveArray<F> = array.as_primitive();
    Arc::new(array.unary::<_, T>(Into::into))
}

fn exact<F, T>(
    array: &ArrayRef,
    what: &str,
    convert: impl Fn(F::Native) -> Option<T::Native>,
) -> Result<ArrayRef, String>
where
    F: ArrowPrimitiveType<Native: std::fmt::Display>,
    T: ArrowPrimitiveType,
{
    let array: &PrimitiveArray<F> = array.as_primitive();
    let converted = array.try_unary::<_, T, String>(|value| {
        convert(value).ok_or_else(|| {
            let given = array.data_type();
            format!("{value} of type {given} is no whole number of {what} in range; convert it")
        })
    })?;
    Ok(Arc::new(converted))
}

#[cfg(test)]
mod tests {
    use arrow_array::{
        Date64Array, Decimal128Array, Int8Array, Int32Array, TimestampMicrosecondArray,
        TimestampNanosecondArray, TimestampSecondArray, UInt16Array,
    };

    use super::*;

    fn admitted(data_type: DataType) -> Result<DataType, String> {
        admit("f", &Field::new("c", data_type, true)).map_err(|error| error.to_string())
    }

    fn widened(array: impl Array + 'static) -> Result<ArrayRef, String> {
        let wanted = admitted(array.data_type().clone())?;
        let array: ArrayRef = Arc::new(array);
        let array = widen(&array, &wanted)?;
        assert_eq!(array.data_type(), &wanted);
        Ok(array)
    }

    #[test]
    fn small_types_become_larger_ones() {
        let found = widened(Int8Array::from(vec![Some(-3), None])).unwrap();
        assert_eq!(found.as_primitive::<Int32Type>(), &Int32Array::from(vec![Some(-3), None]));
        let found = widened(UInt16Array::from(vec![65_535])).unwrap();
        assert_eq!(found.as_primitive::<UInt32Type>().values(), &[65_535]);
        let found = widened(TimestampSecondArray::from(vec![2]).with_timezone("UTC")).unwrap();
        assert_eq!(
            found.as_primitive::<TimestampMicrosecondType>(),
            &TimestampMicrosecondArray::from(vec![2_000_000])
        );
        let found = Decimal128Array::from(vec![12]).with_precision_and_scale(9, 0).unwrap();
        assert_eq!(widened(found).unwrap().as_primitive::<Int64Type>().values(), &[12]);
        let found = widened(Date64Array::from(vec![-86_400_000])).unwrap();
        assert_eq!(found.as_primitive::<Date32Type>().values(), &[-1]);
    }

    #[test]
    fn a_value_that_would_change_is_refused() {
        let error = widened(TimestampNanosecondArray::from(vec![1_000, 1_001])).unwrap_err();
        assert!(error.starts_with("1001 of type Timestamp"), "{error}");
        assert!(widened(TimestampSecondArray::from(vec![i64::MAX])).is_err());
        assert!(widened(Date64Array::from(vec![5])).is_err());
    }

    #[test]
    fn types_without_a_like_are_refused_by_name() {
        let zone = DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into()));
        for (data_type, words) in [
            (DataType::Binary, "f, column c: its type Binary is not supported; convert"),
            (DataType::Decimal128(10, 2), "a float would round it"),
            (zone, "Europe/Berlin, and not UTC"),
        ] {
            assert!(admitted(data_type).unwrap_err().contains(words));
        }
    }
}
