//! What rows are ordered by.

/// One column to sort by.
///
/// Rows that are equal in every key keep their order. Floating-point numbers are in total order
/// (see [`Scalar`](crate::Scalar)); text is ordered by its bytes; false is below true.
///
/// ```
/// use xlog_relational::SortKey;
///
/// let keys = [SortKey::new("price").descending(), SortKey::new("name").nulls_first()];
/// assert!(keys[0].descending && !keys[0].nulls_first);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SortKey {
    /// The column's name.
    pub column: String,
    /// Whether the largest value comes first.
    pub descending: bool,
    /// Whether missing values come before all others, whichever way those go.
    pub nulls_first: bool,
}

impl SortKey {
    /// Ascending, missing values last.
    #[must_use]
    pub fn new(column: impl Into<String>) -> Self {
        Self { column: column.into(), descending: false, nulls_first: false }
    }

    /// The same, largest value first.
    #[must_use]
    pub fn descending(mut self) -> Self {
        self.descending = true;
        self
    }

    /// The same, missing values first.
    #[must_use]
    pub fn nulls_first(mut self) -> Self {
        self.nulls_first = true;
        self
    }
}
