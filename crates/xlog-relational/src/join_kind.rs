//! Which rows a join keeps.

use std::fmt;

/// Which rows a join keeps.
///
/// Two rows match if every key is there on both sides and equal: a missing key matches nothing,
/// not even another missing one. The result has all columns of the left table, then all of the
/// right one; a right column whose name is taken gets `_right` appended. Semi and anti joins have
/// the left columns only. In which order the rows come is not said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum JoinKind {
    /// Every pair that matches.
    Inner,
    /// The same, and every left row without a match, beside missing values.
    Left,
    /// The same for right rows.
    Right,
    /// Both.
    Full,
    /// Every left row that has a match, once.
    Semi,
    /// Every left row that has none.
    Anti,
}

impl JoinKind {
    /// Every kind, in declaration order.
    pub const ALL: [Self; 6] =
        [Self::Inner, Self::Left, Self::Right, Self::Full, Self::Semi, Self::Anti];

    /// Whether left rows without a match are kept.
    #[must_use]
    pub const fn keeps_left(self) -> bool {
        matches!(self, Self::Left | Self::Full | Self::Anti)
    }

    /// Whether right rows without a match are kept.
    #[must_use]
    pub const fn keeps_right(self) -> bool {
        matches!(self, Self::Right | Self::Full)
    }

    /// Whether the result has columns of the left table alone.
    #[must_use]
    pub const fn is_left_only(self) -> bool {
        matches!(self, Self::Semi | Self::Anti)
    }
}

impl fmt::Display for JoinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inner => "inner",
            Self::Left => "left",
            Self::Right => "right",
            Self::Full => "full",
            Self::Semi => "semi",
            Self::Anti => "anti",
        })
    }
}
