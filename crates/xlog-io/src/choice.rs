//! Which columns are read, and as what.

use arrow_schema::Field;

use crate::{
    column_type::ColumnType,
    error::{FileError, FileResult},
    spec::InputSpec,
};

/// The places of the columns to read, in the order of the file. A name that no column has, chosen
/// or given a type, is an error.
pub(crate) fn wanted_places(
    spec: &InputSpec,
    file: &str,
    names: &[String],
) -> FileResult<Vec<usize>> {
    let chosen = spec.columns.iter().flatten();
    let typed = spec.types.iter().map(|(name, _)| name);
    if let Some(unknown) = chosen.chain(typed).find(|name| !names.contains(name)) {
        let message = format!("there is no such column; the columns are {}", names.join(", "));
        return Err(FileError::new(file, message).in_column(unknown));
    }
    let wanted = |name: &String| spec.columns.as_ref().is_none_or(|chosen| chosen.contains(name));
    Ok((0..names.len()).filter(|place| wanted(&names[*place])).collect())
}

/// The type the user gave a column, the last one if there are several.
pub(crate) fn given_type(spec: &InputSpec, name: &str) -> Option<ColumnType> {
    let given = spec.types.iter().rev().find(|(given, _)| given == name);
    given.map(|(_, column_type)| *column_type)
}

/// Refuses a file whose columns are not those of the first one. Layouts of text may differ.
pub(crate) fn agree(
    first_file: &str,
    first: &[Field],
    file: &str,
    fields: &[Field],
) -> FileResult<()> {
    let names = |fields: &[Field]| -> Vec<String> {
        fields.iter().map(|field| field.name().clone()).collect()
    };
    if names(first) != names(fields) {
        let message = format!(
            "its columns are {}, those of {first_file} are {}; read files with the same columns \
             together",
            names(fields).join(", "),
            names(first).join(", "),
        );
        return Err(FileError::new(file, message));
    }
    for (expected, found) in first.iter().zip(fields) {
        let [expected_type, found_type] =
            [expected, found].map(|field| ColumnType::of_arrow(field.data_type()));
        if expected_type != found_type {
            let name = |known: Option<ColumnType>| known.map_or("another type", ColumnType::name);
            let message = format!(
                "it is {} here and {} in {first_file}; read files with the same types together",
                name(found_type),
                name(expected_type),
            );
            return Err(FileError::new(file, message).in_column(found.name()));
        }
    }
    Ok(())
}

/// Refuses types that the user gave, where the file has types of its own and they are others.
pub(crate) fn check_types(spec: &InputSpec, file: &str, fields: &[Field]) -> FileResult<()> {
    for field in fields {
        let own = ColumnType::of_arrow(field.data_type());
        if let Some(given) = given_type(spec, field.name()).filter(|given| Some(*given) != own) {
            let own = own.map_or("another type", ColumnType::name);
            let message = format!(
                "it is {own} in the file and cannot be read as {given}; types are given for CSV \
                 and JSON lines only"
            );
            return Err(FileError::new(file, message).in_column(field.name()));
        }
    }
    Ok(())
}
