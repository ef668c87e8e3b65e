//! Columns worked out from others.

use xlog_cuda::device_runtime::StreamId;

use crate::{
    error::RelationalResult,
    expr::{Expr, Mask, Program},
    table::Table,
};

/// One column for each expression, under the name beside it, in that order.
///
/// An expression that is a column shares its memory. Waits for the device once if an expression can
/// overflow, and not otherwise: one that does in any row is an error.
///
/// ```
/// use std::sync::Arc;
/// use xlog_cuda::{CudaDevice, device_runtime::StreamId};
/// use xlog_relational::{Column, Engine, Table, col, ops};
///
/// let (engine, stream) = (Engine::new(Arc::new(CudaDevice::host()))?, StreamId::DEFAULT);
/// let price = Column::from_slice(&engine, &[2.5f64, 4.0], stream)?;
/// let table = Table::new(&engine, [("price", price)])?;
/// let columns = [("net", col("price")), ("gross", col("price") * 1.25)];
/// let projected = ops::project(&table, &columns, stream)?;
/// assert_eq!(projected.schema().to_string(), "net: f64, gross: f64");
/// # Ok::<(), xlog_relational::RelationalError>(())
/// ```
pub fn project(
    table: &Table,
    columns: &[(&str, Expr)],
    stream: StreamId,
) -> RelationalResult<Table> {
    let mut programs: Vec<Program> = Vec::with_capacity(columns.len());
    for (_, expr) in columns {
        programs.push(expr.compile(table)?);
    }
    let rows = table.rows();
    let run = || {
        let mut names = columns.iter().map(|(name, _)| *name);
        let (mut results, mut overflows) = (Vec::with_capacity(columns.len()), Vec::new());
        for (program, name) in programs.iter().zip(&mut names) {
            let (column, overflow) = program.evaluate(table, stream)?.into_parts();
            // All on their way before the first is waited for.
            if let Some(flags) = overflow {
                overflows.push(flags.start_download(stream)?);
            }
            results.push((name, column));
        }
        for flags in overflows {
            Mask::refuse(flags.wait()?.first().copied().unwrap_or(0))?;
        }
        Table::new(table.engine(), results)
    };
    run().map_err(|error| {
        let bytes: u64 = programs.iter().map(|p| p.data_type().size() as u64 + 1).sum();
        let operation = format!("{} columns of {rows} rows", columns.len());
        error.needing(&operation, Some(rows.saturating_mul(bytes)))
    })
}
