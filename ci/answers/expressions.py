"""Expressions: as our side reads them, as DuckDB does, and with the type our rules give them.

Integers are worked out as `HUGEINT`, which holds whatever two of 64 bits make, and conditions say
where a result is none of its type: there our side must refuse, and DuckDB would widen.
"""

import struct
from dataclasses import dataclass, field

from tables import EPOCH, EXTREMES, FEW, FLOATS, INTEGERS, SQL_TYPES, exact, narrowed, quoted

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
OPERATORS = ("+", "-", "*", "/", "%")


@dataclass
class Expression:
    """An expression: its JSON, its type, its SQL, and where it is an error."""

    json: list
    type: str
    sql: str
    overflows: list = field(default_factory=list)
    # The value of a literal number.
    number: object = None

    def cast(self, sql_type):
        # By way of its own type: DuckDB rounds twice from 128 bits to `DOUBLE`.
        inner = self.result if sql_type == "DOUBLE" else self.sql
        return f"CAST({inner} AS {sql_type})"

    @property
    def result(self):
        """Its SQL in its own type."""
        return f"CAST({self.sql} AS {SQL_TYPES[self.type]})"


def column(name, kind):
    return Expression(["column", name], kind, f"t.{quoted(name)}")


def literal(value, kind):
    match kind:
        case "date":
            sql = f"({EPOCH} + {value})"
        case "timestamp":
            sql = f"make_timestamp({value})"
        case "utf8":
            sql = "'" + value.replace("'", "''") + "'"
        case _:
            sql = f"CAST('{value!r}' AS {SQL_TYPES[kind]})"
    number = value if kind in INTEGERS or kind in FLOATS else None
    return Expression(["literal", kind, exact(kind, value)], kind, sql, number=number)


def missing(kind):
    return Expression(["null", kind], kind, f"CAST(NULL AS {SQL_TYPES[kind]})")


def compare(operator, a, b):
    """Integers by what they stand for, and beside floating-point numbers as `f64`."""
    left, right = a.sql, b.sql
    if a.type in INTEGERS and b.type in INTEGERS:
        left, right = a.cast("HUGEINT"), b.cast("HUGEINT")
    elif a.type != b.type:
        left, right = a.cast("DOUBLE"), b.cast("DOUBLE")
    json = [operator, a.json, b.json]
    return Expression(json, "bool", f"({left} {operator} {right})", a.overflows + b.overflows)


def logic(operator, a, b):
    json = [operator, a.json, b.json]
    return Expression(json, "bool", f"({a.sql} {operator} {b.sql})", a.overflows + b.overflows)


def negation(a):
    return Expression(["not", a.json], "bool", f"(NOT {a.sql})", a.overflows)


def null_test(a, there):
    json = ["is_not_null" if there else "is_null", a.json]
    sql = f"({a.sql} IS {'NOT ' if there else ''}NULL)"
    return Expression(json, "bool", sql, a.overflows)


def in_list(a, values):
    """Whether it is one of `values`: literals, and `None` for a missing one."""
    wide = {**dict.fromkeys(INTEGERS, "HUGEINT"), **dict.fromkeys(FLOATS, "DOUBLE")}.get(a.type)
    cast = (lambda e: e.cast(wide)) if wide else (lambda e: e.sql)
    candidates = [cast(value) if value else "NULL" for value in values]
    json = ["in", a.json, [value.json[1:] if value else None for value in values]]
    return Expression(json, "bool", f"({cast(a)} IN ({', '.join(candidates)}))", a.overflows)


def fits(number, kind):
    """Whether a literal stands for the same in a type. NaN is NaN in both of them."""
    if number != number:
        return kind in FLOATS
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        return low <= number <= high and number == int(number)
    try:
        return (narrowed(number) if kind == "f32" else float(number)) == number
    except (OverflowError, struct.error):
        return False


def adapted(a, b):
    """The types of two numbers, a literal in that of the other side if it stands for the same."""
    if (a.number is None) == (b.number is None):
        return a.type, b.type
    one, other = (a, b) if a.number is not None else (b, a)
    # `2.0` beside an integer stays what it is.
    kept = one.type in FLOATS and other.type not in FLOATS
    kind = other.type if not kept and fits(one.number, other.type) else one.type
    return (kind, other.type) if one is a else (other.type, kind)


def outside(sql, kind):
    low, high = INTEGERS[kind]
    return f"({sql} < {low} OR {sql} > {high})"


def arithmetic(operator, a, b):
    """Integers widen to 64 bits; `/` of integers rounds towards zero, and by zero is missing."""
    types = adapted(a, b)
    json, overflows = [operator, a.json, b.json], a.overflows + b.overflows
    if any(kind in FLOATS for kind in types):
        shared = "f32" if types == ("f32", "f32") else "f64"
        left, right = a.cast(SQL_TYPES[shared]), b.cast(SQL_TYPES[shared])
        return Expression(json, shared, f"({left} {operator} {right})", overflows)
    shared = "u64" if all(kind in ("u32", "u64") for kind in types) else "i64"
    left, right = a.cast("HUGEINT"), b.cast("HUGEINT")
    for side in (left, right):
        overflows = overflows + [outside(side, shared)]
    kind = "i64" if operator == "-" else shared
    sql = f"({left} {'//' if operator == '/' else operator} {right})"
    return Expression(json, kind, sql, overflows + [outside(sql, kind)])


def negated(a):
    if a.type in FLOATS:
        return Expression(["negate", a.json], a.type, f"(-{a.sql})", a.overflows)
    sql = f"(-{a.cast('HUGEINT')})"
    return Expression(["negate", a.json], "i64", sql, a.overflows + [outside(sql, "i64")])


class Writer:
    """Writes expressions over the columns of a table by chance."""

    def __init__(self, random, table):
        self.random = random
        self.types = table.types()

    def any_column(self, kinds):
        names = [name for name, kind in self.types.items() if kind in kinds]
        name = self.random.choice(names)
        return column(name, self.types[name])

    def any_literal(self, kind):
        pool = FEW[kind] if self.random.random() < 0.8 else EXTREMES[kind]
        # A literal is written into the query, which ends at a zero byte.
        return literal(self.random.choice([v for v in pool if v != "\x00" and v != "a\x00"]), kind)

    def number(self, depth):
        if depth == 0 or self.random.random() < 0.2:
            found = self.any_column([*INTEGERS, *FLOATS])
            return self.any_literal(found.type) if self.random.random() < 0.25 else found
        if self.random.random() < 0.15:
            return negated(self.number(depth - 1))
        operator = self.random.choice(OPERATORS)
        return arithmetic(operator, self.number(depth - 1), self.number(depth - 1))

    def comparison(self, depth):
        operator = self.random.choice(COMPARISONS)
        if self.random.random() < 0.4:
            return compare(operator, self.number(depth), self.number(0))
        kind = self.random.choice(sorted(set(self.types.values())))
        left = self.any_column([kind])
        choice = self.random.random()
        if choice < 0.1:
            return compare(operator, left, missing(kind))
        if choice < 0.3:
            return compare(operator, left, self.any_column([kind]))
        return compare(operator, left, self.any_literal(kind))

    def predicate(self, depth):
        if depth > 0 and self.random.random() < 0.7:
            if self.random.random() < 0.15:
                return negation(self.predicate(depth - 1))
            operator = self.random.choice(("and", "or"))
            return logic(operator, self.predicate(depth - 1), self.predicate(depth - 1))
        choice = self.random.random()
        if choice < 0.1:
            return null_test(self.any_column(self.types.values()), self.random.random() < 0.5)
        if choice < 0.25:
            found = self.any_column(self.types.values())
            values = [self.any_literal(found.type) for _ in range(self.random.randint(1, 4))]
            return in_list(found, values + ([None] if self.random.random() < 0.3 else []))
        if choice < 0.35 and "bool" in self.types.values():
            return self.any_column(["bool"])
        return self.comparison(self.random.randint(0, 1))
