//! From a checked expression to a program.

use std::sync::Arc;

use super::{
    Checked, Comparison, Expr, Node, Program,
    program::{Kind, Load, MOST_DEPTH, MOST_SLOTS, Opcode, Slot, comparison_argument, instruction},
    range::RangeTest,
};
use crate::{
    column::{Column, Dictionary, DictionaryBuilder},
    error::{RelationalError, RelationalResult},
    scalar::Scalar,
    table::Table,
    types::DataType,
};

impl Expr {
    /// The program that evaluates the expression over `table`.
    pub fn compile(&self, table: &Table) -> RelationalResult<Program> {
        self.compile_checked(&self.check(&table.schema())?, table)
    }

    pub(crate) fn compile_checked(
        &self,
        checked: &Checked,
        table: &Table,
    ) -> RelationalResult<Program> {
        let columns = table.columns().map(|(_, column)| column).collect();
        let compiler = Compiler {
            columns,
            words: Vec::new(),
            slots: Vec::new(),
            depth: 0,
            deepest: 0,
            can_overflow: false,
        };
        compiler.compile(checked).map_err(|refusal| match refusal {
            Refusal::Reason(reason) => {
                let expression = self.to_string();
                RelationalError::UnsupportedExpression { expression, reason }
            }
            Refusal::Error(error) => error,
        })
    }
}

/// Why an expression has no program.
enum Refusal {
    Reason(String),
    Error(RelationalError),
}

impl From<RelationalError> for Refusal {
    fn from(error: RelationalError) -> Self {
        Self::Error(error)
    }
}

/// A program on its way.
struct Compiler<'t> {
    columns: Vec<&'t Column>,
    words: Vec<u64>,
    slots: Vec<Slot>,
    depth: usize,
    deepest: usize,
    can_overflow: bool,
}

impl Compiler<'_> {
    fn compile(mut self, checked: &Checked) -> Result<Program, Refusal> {
        let dictionary = match (&checked.node, checked.data_type) {
            (Node::Column(index), DataType::Utf8) => self.columns[*index].dictionary().cloned(),
            (Node::Literal(Scalar::Utf8(text)), _) => {
                let mut builder = DictionaryBuilder::new();
                builder.code_of(text)?;
                Some(Arc::new(builder.finish()))
            }
            (_, DataType::Utf8) => Some(Arc::new(DictionaryBuilder::new().finish())),
            _ => None,
        };
        let ranges = RangeTest::all_of(checked, &self.columns).unwrap_or_default();
        self.node(checked)?;
        let refuse = |reason: String| Err(Refusal::Reason(reason));
        if self.slots.len() > MOST_SLOTS {
            return refuse(format!(
                "it uses {} columns and tables of text; at most {MOST_SLOTS} fit one step, so \
                 project parts of it first",
                self.slots.len()
            ));
        }
        if self.deepest > MOST_DEPTH {
            return refuse(format!(
                "it nests {} deep; at most {MOST_DEPTH} fit one step, so project parts of it first",
                self.deepest
            ));
        }
        Ok(Program {
            words: self.words,
            slots: self.slots,
            data_type: checked.data_type,
            nullable: checked.nullable,
            dictionary,
            can_overflow: self.can_overflow,
            ranges,
        })
    }

    /// Appends an instruction that takes `pops` entries and leaves one.
    fn emit(&mut self, opcode: Opcode, kind: u8, argument: u32, pops: usize) {
        self.words.push(instruction(opcode, kind, argument));
        self.depth = self.depth + 1 - pops;
        self.deepest = self.deepest.max(self.depth);
    }

    fn constant(&mut self, bits: u64) {
        self.emit(Opcode::Constant, 0, 0, 0);
        self.words.push(bits);
    }

    /// The number of a slot, a new one if nothing has it yet.
    fn slot(&mut self, wanted: Slot) -> u32 {
        let found = self.slots.iter().position(|slot| slot.is_same(&wanted));
        found.unwrap_or_else(|| {
            self.slots.push(wanted);
            self.slots.len() - 1
        }) as u32
    }

    fn node(&mut self, checked: &Checked) -> Result<(), Refusal> {
        match &checked.node {
            Node::Column(index) => {
                let slot = self.slot(Slot::of(*index, self.columns[*index]));
                self.emit(Opcode::Load, Load::of(checked.data_type) as u8, slot, 0);
            }
            Node::Literal(value) => self.constant(bits_of(value)),
            Node::Null => self.emit(Opcode::Null, 0, 0, 0),
            Node::Convert(inner) => {
                self.node(inner)?;
                self.convert(inner.data_type, checked.data_type);
            }
            Node::Compare(comparison, left, right) => self.compare(*comparison, left, right)?,
            Node::And(left, right) => self.pair(Opcode::And, 0, left, right)?,
            Node::Or(left, right) => self.pair(Opcode::Or, 0, left, right)?,
            Node::Not(inner) => self.over(Opcode::Not, 0, inner)?,
            Node::IsNull(inner) => self.over(Opcode::IsNull, 0, inner)?,
            Node::InList(inner, values, with_null) => self.in_list(inner, values, *with_null)?,
            Node::Arithmetic(operator, left, right) => {
                let kind = Kind::of(left.data_type);
                self.pair(Opcode::from(*operator), kind as u8, left, right)?;
                self.finish_number(kind, left.data_type);
            }
            Node::Negate(inner) => {
                let kind = Kind::of(inner.data_type);
                self.over(Opcode::Negate, kind as u8, inner)?;
                self.can_overflow |= kind != Kind::F64;
            }
        }
        Ok(())
    }

    /// A result of `f32` is rounded to it: twice rounded is once rounded, for these operations and
    /// these widths. One of integers may have overflowed.
    fn finish_number(&mut self, kind: Kind, data_type: DataType) {
        self.can_overflow |= kind != Kind::F64;
        if data_type == DataType::F32 {
            self.emit(Opcode::RoundToF32, 0, 0, 1);
        }
    }

    fn over(&mut self, opcode: Opcode, kind: u8, inner: &Checked) -> Result<(), Refusal> {
        self.node(inner)?;
        self.emit(opcode, kind, 0, 1);
        Ok(())
    }

    fn pair(
        &mut self,
        opcode: Opcode,
        kind: u8,
        left: &Checked,
        right: &Checked,
    ) -> Result<(), Refusal> {
        self.node(left)?;
        self.node(right)?;
        self.emit(opcode, kind, 0, 2);
        Ok(())
    }

    fn convert(&mut self, from: DataType, to: DataType) {
        match (Kind::of(from), Kind::of(to)) {
            (Kind::U64, Kind::I64) if from == DataType::U64 => {
                self.can_overflow = true;
                self.emit(Opcode::ToSigned, 0, 0, 1);
            }
            (kind @ (Kind::U64 | Kind::I64), Kind::F64) => {
                self.emit(Opcode::ToFloat, kind as u8, 0, 1);
            }
            // The same bits: a `u32` is an `i64` as it is, an `f32` has been widened by its load.
            _ => {}
        }
    }

    fn compare(
        &mut self,
        comparison: Comparison,
        left: &Checked,
        right: &Checked,
    ) -> Result<(), Refusal> {
        if left.data_type == DataType::Utf8 {
            return self.compare_texts(comparison, left, right);
        }
        let kinds = (Kind::of(left.data_type), Kind::of(right.data_type));
        // Signed on the left is the one order the interpreter knows.
        let (kind, comparison, left, right) = match kinds {
            (Kind::U64, Kind::I64) => (Kind::Mixed, comparison.flipped(), right, left),
            (Kind::I64, Kind::U64) => (Kind::Mixed, comparison, left, right),
            (kind, _) => (kind, comparison, left, right),
        };
        self.node(left)?;
        self.node(right)?;
        self.emit(Opcode::Compare, kind as u8, comparison_argument(comparison), 2);
        Ok(())
    }

    fn compare_words(&mut self, comparison: Comparison) {
        self.emit(Opcode::Compare, Kind::U64 as u8, comparison_argument(comparison), 2);
    }

    /// Texts are compared by their codes, or by their ranks in a dictionary that has both.
    fn compare_texts(
        &mut self,
        comparison: Comparison,
        left: &Checked,
        right: &Checked,
    ) -> Result<(), Refusal> {
        let by_code = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
        match (&left.node, &right.node) {
            (Node::Column(_), Node::Literal(Scalar::Utf8(text))) => {
                let dictionary = self.dictionary(left)?;
                if by_code {
                    self.node(left)?;
                    // No code is as large: a string that is not there equals none that is.
                    self.constant(dictionary.code_of(text).map_or(u64::MAX, u64::from));
                    self.compare_words(comparison);
                } else {
                    self.rank(left, dictionary.ranks().to_vec())?;
                    let (smaller, found) = dictionary.position_of(text);
                    let not_larger = u64::from(smaller) + u64::from(found);
                    let (comparison, bound) = match comparison {
                        Comparison::Less => (Comparison::Less, u64::from(smaller)),
                        Comparison::LessOrEqual => (Comparison::Less, not_larger),
                        Comparison::Greater => (Comparison::GreaterOrEqual, not_larger),
                        _ => (Comparison::GreaterOrEqual, u64::from(smaller)),
                    };
                    self.constant(bound);
                    self.compare_words(comparison);
                }
            }
            (Node::Literal(_), Node::Column(_)) => {
                self.compare_texts(comparison.flipped(), right, left)?;
            }
            (Node::Column(_), Node::Column(_)) => {
                let (a, b) = (self.dictionary(left)?, self.dictionary(right)?);
                let unified = Dictionary::unify(&a, &b)?;
                if by_code && unified.right_codes.is_none() {
                    self.node(left)?;
                    self.node(right)?;
                } else {
                    let ranks = unified.dictionary.ranks();
                    let right_ranks = match &unified.right_codes {
                        Some(codes) => codes.iter().map(|code| ranks[*code as usize]).collect(),
                        None => ranks.to_vec(),
                    };
                    self.rank(left, ranks.to_vec())?;
                    self.rank(right, right_ranks)?;
                }
                self.compare_words(comparison);
            }
            (Node::Literal(a), Node::Literal(b)) => {
                let order = a.compare(b).unwrap_or(std::cmp::Ordering::Equal);
                self.constant(u64::from(comparison.holds(order)));
            }
            // One side is missing always, and so is the result.
            _ => self.emit(Opcode::Null, 0, 0, 0),
        }
        Ok(())
    }

    fn dictionary(&self, text: &Checked) -> Result<Arc<Dictionary>, Refusal> {
        let column = match &text.node {
            Node::Column(index) => self.columns.get(*index),
            _ => None,
        };
        let found = column.and_then(|column| column.dictionary());
        found.cloned().ok_or_else(|| Refusal::Reason("it makes text out of text".to_owned()))
    }

    /// The rank of a column of text in place of its code.
    fn rank(&mut self, text: &Checked, mut ranks: Vec<u32>) -> Result<(), Refusal> {
        self.node(text)?;
        // Where there is no string, the code of a missing one is 0 all the same.
        ranks.resize(ranks.len().max(1), 0);
        let len = ranks.len() as u64;
        let slot = self.slot(Slot::Table(ranks));
        self.emit(Opcode::Lookup, 0, slot, 1);
        self.words.push(len);
        Ok(())
    }

    fn in_list(
        &mut self,
        inner: &Checked,
        values: &[Scalar],
        with_null: bool,
    ) -> Result<(), Refusal> {
        let mut bits: Vec<u64> = Vec::with_capacity(values.len());
        for value in values {
            match (value, &inner.node) {
                (Scalar::Utf8(text), Node::Column(_)) => {
                    bits.extend(self.dictionary(inner)?.code_of(text).map(u64::from));
                }
                (Scalar::Utf8(text), Node::Literal(Scalar::Utf8(own))) => {
                    // The literal's own dictionary has it alone, with code 0.
                    bits.extend((text == own).then_some(0));
                }
                _ => bits.push(normal_float(value)),
            }
        }
        bits.sort_unstable();
        bits.dedup();
        let Ok(count) = u32::try_from(bits.len()) else {
            return Err(Refusal::Reason("its list is too long; join with a table instead".into()));
        };
        self.node(inner)?;
        let float = if inner.data_type.is_float() { 2 } else { 0 };
        self.emit(Opcode::In, u8::from(with_null) | float, count, 1);
        self.words.extend(bits);
        Ok(())
    }
}

/// A value as it stands on the stack.
fn bits_of(value: &Scalar) -> u64 {
    match value {
        Scalar::U32(value) => u64::from(*value),
        Scalar::U64(value) => *value,
        Scalar::I32(value) | Scalar::Date32(value) => i64::from(*value) as u64,
        Scalar::I64(value) | Scalar::Timestamp(value) => *value as u64,
        Scalar::F32(value) => f64::from(*value).to_bits(),
        Scalar::F64(value) => value.to_bits(),
        Scalar::Bool(value) => u64::from(*value),
        // Text that stands alone is a dictionary of its own.
        Scalar::Utf8(_) => 0,
    }
}

/// The same, with one zero and one NaN.
fn normal_float(value: &Scalar) -> u64 {
    let real = match value {
        Scalar::F32(value) => f64::from(*value),
        Scalar::F64(value) => *value,
        other => return bits_of(other),
    };
    super::machine::normal_bits(real)
}
