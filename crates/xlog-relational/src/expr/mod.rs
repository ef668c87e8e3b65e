//! Expressions over the columns of a table.
//!
//! An [`Expr`] is what a user writes. [`Expr::check`] holds it against a schema and answers with a
//! [`Checked`] one, in which every name is a column and every conversion is explicit; the rules are
//! there. A checked expression is compiled to a [`Program`], and one kernel, an interpreter with
//! one body for each device, runs it row by row. No intermediate column is made.
//!
//! Logic is SQL's, with three values: what depends on a missing value is missing. `false and
//! missing` is false and `true or missing` is true, because those do not depend on it. A filter
//! keeps the rows for which its predicate is true.

mod bits;
mod check;
mod compile;
mod display;
mod evaluate;
mod kernel;
mod machine;
mod program;
mod range;
mod range_kernel;

pub use check::Checked;
pub(crate) use check::{Node, whole_number};
pub use evaluate::{Evaluated, Mask};
pub use program::Program;

#[cfg(test)]
mod tests;

use std::ops;

use crate::{scalar::Scalar, types::DataType};

/// What is worked out for each row.
///
/// ```
/// use xlog_relational::{Expr, col, lit};
///
/// let dear = col("amount").gt(100).and(col("country").eq("NZ").or(col("vip").is_null()));
/// assert_eq!(dear.to_string(), "amount > 100 and (country = 'NZ' or vip is null)");
/// let gross: Expr = (col("price") + lit(1)) * col("count");
/// assert_eq!(gross.to_string(), "(price + 1) * count");
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Expr {
    /// The value of a column.
    Column(String),
    /// The same value for every row.
    Literal(Scalar),
    /// A missing value of a type.
    Null(DataType),
    /// Two values compared.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// Both are true.
    And(Box<Expr>, Box<Expr>),
    /// At least one is true.
    Or(Box<Expr>, Box<Expr>),
    /// It is false.
    Not(Box<Expr>),
    /// It is missing; never missing itself.
    IsNull(Box<Expr>),
    /// It is there; never missing itself.
    IsNotNull(Box<Expr>),
    /// It equals one of these. Missing if it equals none, and one of them is missing.
    InList(Box<Expr>, Vec<Option<Scalar>>),
    /// Two numbers made one.
    Arithmetic(Operator, Box<Expr>, Box<Expr>),
    /// A number with the other sign.
    Negate(Box<Expr>),
}

/// How two values are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Every comparison, in declaration order.
    pub const ALL: [Self; 6] = [
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::LessOrEqual,
        Self::Greater,
        Self::GreaterOrEqual,
    ];

    /// The comparison that says the same with its sides swapped.
    #[must_use]
    pub const fn flipped(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::NotEqual => Self::NotEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }

    /// What it says of an order.
    #[must_use]
    pub const fn holds(self, order: std::cmp::Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }

    /// How it is written.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }
}

/// How two numbers are made one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`, which rounds towards zero for integers.
    Divide,
    /// `%`, with the sign of its left side.
    Remainder,
}

impl Operator {
    /// Every operator, in declaration order.
    pub const ALL: [Self; 5] =
        [Self::Add, Self::Subtract, Self::Multiply, Self::Divide, Self::Remainder];

    /// How it is written.
    #[must_use]
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

/// The value of the column called `name`.
#[must_use]
pub fn col(name: impl Into<String>) -> Expr {
    Expr::Column(name.into())
}

/// The same value for every row: a number, a truth value, a text, or any [`Scalar`].
#[must_use]
pub fn lit(value: impl Into<Scalar>) -> Expr {
    Expr::Literal(value.into())
}

/// A missing value of a type.
#[must_use]
pub fn null(data_type: DataType) -> Expr {
    Expr::Null(data_type)
}

impl Expr {
    fn compare(self, comparison: Comparison, other: impl Into<Self>) -> Self {
        Self::Compare(comparison, Box::new(self), Box::new(other.into()))
    }

    /// `self = other`
    #[must_use]
    pub fn eq(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::Equal, other)
    }

    /// `self <> other`
    #[must_use]
    pub fn not_eq(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::NotEqual, other)
    }

    /// `self < other`
    #[must_use]
    pub fn lt(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::Less, other)
    }

    /// `self <= other`
    #[must_use]
    pub fn lt_eq(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::LessOrEqual, other)
    }

    /// `self > other`
    #[must_use]
    pub fn gt(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::Greater, other)
    }

    /// `self >= other`
    #[must_use]
    pub fn gt_eq(self, other: impl Into<Self>) -> Self {
        self.compare(Comparison::GreaterOrEqual, other)
    }

    /// `low <= self and self <= high`
    #[must_use]
    pub fn between(self, low: impl Into<Self>, high: impl Into<Self>) -> Self {
        self.clone().gt_eq(low).and(self.lt_eq(high))
    }

    /// `self and other`
    #[must_use]
    pub fn and(self, other: impl Into<Self>) -> Self {
        Self::And(Box::new(self), Box::new(other.into()))
    }

    /// `self or other`
    #[must_use]
    pub fn or(self, other: impl Into<Self>) -> Self {
        Self::Or(Box::new(self), Box::new(other.into()))
    }

    /// `self is null`
    #[must_use]
    pub fn is_null(self) -> Self {
        Self::IsNull(Box::new(self))
    }

    /// `self is not null`
    #[must_use]
    pub fn is_not_null(self) -> Self {
        Self::IsNotNull(Box::new(self))
    }

    /// `self in (values)`
    #[must_use]
    pub fn in_list<T: Into<Scalar>>(self, values: impl IntoIterator<Item = T>) -> Self {
        let values = values.into_iter().map(|value| Some(value.into())).collect();
        Self::InList(Box::new(self), values)
    }
}

impl<T: Into<Scalar>> From<T> for Expr {
    fn from(value: T) -> Self {
        Self::Literal(value.into())
    }
}

macro_rules! operators {
    ($($operation:ident $method:ident $operator:ident),*) => {
        $(impl<T: Into<Expr>> ops::$operation<T> for Expr {
            type Output = Expr;
            fn $method(self, other: T) -> Expr {
                Expr::Arithmetic(Operator::$operator, Box::new(self), Box::new(other.into()))
            }
        })*
    };
}

operators! { Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide, Rem rem Remainder }

impl ops::Neg for Expr {
    type Output = Self;
    fn neg(self) -> Self {
        Self::Negate(Box::new(self))
    }
}

impl ops::Not for Expr {
    type Output = Self;
    fn not(self) -> Self {
        Self::Not(Box::new(self))
    }
}
