"""Tables made from a seed, as rows for our side and as tables of DuckDB."""

import math
import struct
from dataclasses import dataclass

EPOCH = "DATE '1970-01-01'"
SQL_TYPES = {
    "u32": "UINTEGER",
    "u64": "UBIGINT",
    "i32": "INTEGER",
    "i64": "BIGINT",
    "f32": "FLOAT",
    "f64": "DOUBLE",
    "bool": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "utf8": "VARCHAR",
}
INTEGERS = {
    "u32": (0, 2**32 - 1),
    "u64": (0, 2**64 - 1),
    "i32": (-(2**31), 2**31 - 1),
    "i64": (-(2**63), 2**63 - 1),
}
FLOATS = ("f32", "f64")

# Few values, so that keys are equal now and then.
FEW = {
    "u32": [0, 1, 2, 7, 40],
    "u64": [0, 1, 3, 9, 2**33],
    "i32": [-40, -1, 0, 1, 6],
    "i64": [-(2**33), -2, 0, 1, 5],
    "f32": [-1.5, -0.0, 0.0, 0.25, 3.0, math.nan],
    "f64": [-2.5, -0.0, 0.0, 0.1, 7.0, math.nan],
    "bool": [False, True],
    "date": [-400, 0, 1, 20_000],
    "timestamp": [-1, 0, 1, 1_700_000_000_000_000],
    "utf8": ["", "a", "ab", "b", " a", "A"],
}
# The ends of each type. DuckDB keeps the outermost dates and timestamps for infinities.
EXTREMES = {
    "u32": [0, 2**31 - 1, 2**31, 2**32 - 1],
    "u64": [0, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1],
    "i32": [-(2**31), -1, 0, 2**31 - 1],
    "i64": [-(2**63), -(2**53) - 1, -1, 0, 2**63 - 1],
    "f32": [-math.inf, -(2.0**127), -(2.0**-149), -0.0, 0.0, 2.0**-126, 2.0**127],
    "f64": [-math.inf, -(2.0**1023), -5e-324, -0.0, 0.0, 2.0**-1022, 2.0**1023],
    "bool": [False, True],
    "date": [-(2**31) + 5, -1, 0, 2**31 - 5],
    "timestamp": [-9_223_372_022_400_000_000, -1, 0, 2**63 - 5],
    "utf8": ["", "\x00", "a\x00", "a", "\x7f", "\u00e4", "\uffff", "\U0001f9ee", "'\"\\,\n"],
}
EXTREMES["f32"] += [math.inf, math.nan]
EXTREMES["f64"] += [math.inf, math.nan]
EXTREMES["utf8"] += ["z" * 300]


@dataclass
class Column:
    """A column: `None` where a value is missing."""

    name: str
    type: str
    values: list


@dataclass
class Table:
    """Named columns of one length."""

    name: str
    columns: list

    def types(self):
        return {column.name: column.type for column in self.columns}


@dataclass
class Shape:
    """What the values of a pair of tables are like."""

    name: str
    rows: tuple
    kind: str = "few"
    missing: float = 0.25
    large: bool = False


SHAPES = [
    Shape("empty", (0, 0)),
    Shape("left empty", (0, 20)),
    Shape("right empty", (20, 0)),
    Shape("one row", (1, 1), missing=0.0),
    Shape("all equal", (30, 20), kind="equal", missing=0.0),
    Shape("all missing", (20, 10), missing=1.0),
    Shape("few values", (120, 50)),
    Shape("none missing", (120, 50), missing=0.0),
    Shape("extremes", (120, 40), kind="extremes"),
    Shape("spread", (200, 150), kind="spread", missing=0.05),
    Shape("skew", (200, 40), kind="skew"),
]


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def narrowed(value):
    """The nearest number of 32 bits."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def spread_value(random, kind):
    """One of many values, small enough that sums and products of a few fit."""
    if kind in INTEGERS:
        low = max(INTEGERS[kind][0], -1_000_000)
        return random.randint(low, 1_000_000)
    match kind:
        case "f32":
            return narrowed(random.uniform(-1000, 1000))
        case "f64":
            return random.uniform(-1000, 1000)
        case "bool":
            return random.random() < 0.5
        case "date":
            return random.randint(-100_000, 100_000)
        case "timestamp":
            return random.randint(-(10**15), 10**15)
    letters = "abcäé\u4e2d \t"
    return "".join(random.choice(letters) for _ in range(random.randint(0, 12)))


def values(random, kind, shape, rows):
    """The values of one column."""
    often = random.choice(FEW[kind])

    def value():
        if random.random() < shape.missing:
            return None
        match shape.kind:
            case "equal":
                return often
            case "few":
                return random.choice(FEW[kind])
            case "extremes":
                return random.choice(EXTREMES[kind])
            case "skew" if random.random() < 0.9:
                return often
        return spread_value(random, kind)

    return [value() for _ in range(rows)]


def pair(random, shape):
    """A left and a right table: a column of every type in both, numbers of rows, and more."""
    types = list(SQL_TYPES) if not shape.large else ["u32", "i64", "f64", "utf8"]
    tables = []
    for side, rows in zip(("left", "right"), shape.rows):
        columns = [Column(kind, kind, values(random, kind, shape, rows)) for kind in types]
        number = "row" if side == "left" else "number"
        columns.append(Column(number, "u32", list(range(rows))))
        odd = 'odd "name", \u00e4' if side == "left" else "plain name"
        columns.append(Column(odd, "i32", values(random, "i32", shape, rows)))
        tables.append(Table(f"{shape.name}, {side}", columns))
    return tables


def load(database, table):
    """Makes the table in DuckDB, its rows numbered from 0 by `rowid`."""
    parts, parameters = [], {}
    for place, column in enumerate(table.columns):
        stored = {"date": "INTEGER", "timestamp": "BIGINT"}.get(column.type)
        value = f"unnest($p{place}::{stored or SQL_TYPES[column.type]}[])"
        if column.type == "date":
            value = f"{EPOCH} + {value}"
        if column.type == "timestamp":
            value = f"make_timestamp({value})"
        parts.append(f"{value} AS {quoted(column.name)}")
        parameters[f"p{place}"] = column.values
    database.execute(f"CREATE TABLE {quoted(table.name)} AS SELECT {', '.join(parts)}", parameters)


def exact(kind, value):
    """A value as JSON keeps it exactly: floating-point numbers as their bits."""
    if value is None or kind not in FLOATS:
        return value
    if math.isnan(value):
        return 0x7FC00000 if kind == "f32" else 0x7FF8000000000000
    form = ("<f", "<I") if kind == "f32" else ("<d", "<Q")
    return struct.unpack(form[1], struct.pack(form[0], value))[0]


def as_json(columns):
    return [
        {"name": c.name, "type": c.type, "values": [exact(c.type, value) for value in c.values]}
        for c in columns
    ]


def fetched(database, query, columns, order=""):
    """What DuckDB answers to `query`, whose columns have these names and types."""
    outer = []
    for name, kind in columns:
        name = quoted(name)
        match kind:
            case "date":
                outer.append(f"{name} - {EPOCH}")
            case "timestamp":
                outer.append(f"epoch_us({name})")
            case _:
                outer.append(f"CAST({name} AS {SQL_TYPES[kind]})")
    rows = database.execute(f"SELECT {', '.join(outer)} FROM ({query}) {order}").fetchall()
    by_column = list(zip(*rows)) if rows else [()] * len(columns)
    return [Column(name, kind, list(v)) for (name, kind), v in zip(columns, by_column)]
