"""Every operator on a pair of tables, with DuckDB's answer.

The two agree on what is easily meant differently: NaN equals NaN and is above all numbers, -0.0
equals 0.0, missing keys match nothing in joins and are one group, integers divided by zero are
missing. Where they do not:

- Sorts here have -0.0 before 0.0, and DuckDB has them equal: it is told to sort by the sign too.
- An integer that does not fit its type is an error here, and DuckDB widens it: `expressions` and
  the sums below say where an error is expected.
- Which of two equal zeros stands for a group, a minimum or a row of a set is not said: their sign
  is not compared there.
- Sums of floating-point numbers depend on the order: they may differ by a share of the sum of the
  magnitudes.

Negative NaNs, which sort below everything here, are left to the property tests.
"""

import duckdb

import expressions
from tables import FLOATS, INTEGERS, SQL_TYPES, as_json, exact, fetched, quoted

JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
JOINS |= {"semi": "SEMI JOIN", "anti": "ANTI JOIN"}
TOLERANCE = 1e-12
OVERFLOW = (duckdb.OutOfRangeException, duckdb.ConversionException)


def names(columns, alias="t"):
    return ", ".join(f"{alias}.{quoted(name)}" for name in columns)


def answer(columns, ordered=True, zeros=True, tolerance=None):
    """What is expected: `zeros` says whether their sign counts."""
    expected = {"columns": as_json(columns), "ordered": ordered, "zeros": zeros}
    expected["tolerance"] = tolerance or {}
    return expected


class Cases:
    """The cases of one pair of tables."""

    def __init__(self, random, database, shape, left, right):
        self.random, self.database, self.shape = random, database, shape
        self.left, self.right = left, right
        self.writer = expressions.Writer(random, left)
        self.made = []

    def add(self, operator, tables, operation, expected):
        """A case of an operator over `tables`, each with the columns that it is given."""
        inputs = [{"table": table.name, "columns": columns} for table, columns in tables]
        number = sum(case["operation"]["operator"] == operator for case in self.made)
        case = {"case": f"{self.shape.name}: {operator} {number}", "inputs": inputs}
        operation = {"operator": operator, **operation}
        self.made.append({**case, "operation": operation, "expected": expected})

    def fetch(self, query, columns, types, order=""):
        return fetched(self.database, query, [(name, types[name]) for name in columns], order)

    def shared(self, most):
        """Up to `most` columns that both tables have, with one type."""
        types = self.right.types()
        both = [name for name, kind in self.left.types().items() if types.get(name) == kind]
        return self.random.sample(both, min(len(both), self.random.randint(1, most)))

    def everything(self):
        few = self.shape.large
        for name in ["u32", "f64", "utf8"] if few else list(self.left.types()):
            self.sort([name], None)
        for _ in range(1 if few else 5):
            self.sort(self.shared(3), None)
            self.sort(self.shared(2), self.random.choice((0, 1, 3, 17, 1000)))
        # Where integers are at their ends, there is more to overflow.
        times = 4 if self.shape.kind == "extremes" else 1
        for _ in range(2 if few else 16 * times):
            self.filter()
        for _ in range(1 if few else 8 * times):
            self.project()
        keys = [[(name, name)] for name in self.shared(4)]
        keys.append([(name, name) for name in self.shared(3)])
        odd = [name for name in self.left.types() if "odd" in name]
        keys.append([(odd[0], "plain name")])
        # Many rows of few values would make too many pairs.
        for on in [[("u32", "u32")]] if few else keys:
            for kind in JOINS:
                self.join(on, kind)
        for most in (0, 1) if few else (0, 1, 1, 2, 3):
            self.group_by(most)
        for _ in range(1 if few else 4):
            self.distinct()
            for operator in ("union", "intersect", "except"):
                for every in (False, True):
                    if operator != "union" or not every:
                        self.set_operation(operator, every)
            self.concat()
            self.limit()
        return self.made

    def sort(self, keys, count):
        """By `keys`, the first `count` rows of it if that is given."""
        columns = list(dict.fromkeys([*keys, *self.random.choice(([], ["row"], ["utf8", "row"]))]))
        order, directions = [], []
        for key in keys:
            descending, first = self.random.random() < 0.5, self.random.random() < 0.5
            directions.append([key, descending, first])
            way = "DESC" if descending else "ASC"
            name = f"t.{quoted(key)}"
            order.append(f"{name} {way} NULLS {'FIRST' if first else 'LAST'}")
            if self.left.types()[key] in FLOATS:
                order.append(f"(CASE WHEN {name} = 0 THEN NOT signbit({name}) END) {way}")
        place = f"row_number() OVER (ORDER BY {', '.join(order)}, t.rowid) AS place"
        query = f"SELECT {names(columns)}, {place} FROM {quoted(self.left.name)} AS t"
        end = "ORDER BY place" + ("" if count is None else f" LIMIT {count}")
        found = self.fetch(query, columns, self.left.types(), end)
        operator = "sort" if count is None else "top_k"
        operation = {"keys": directions} | ({} if count is None else {"count": count})
        self.add(operator, [(self.left, columns)], operation, answer(found))

    def overflow(self, parts):
        """Whether a part of an expression is an integer that does not fit, in any row."""
        conditions = [condition for part in parts for condition in part.overflows]
        if not conditions:
            return False
        either = " OR ".join(f"coalesce(bool_or({condition}), false)" for condition in conditions)
        try:
            query = f"SELECT {either} FROM {quoted(self.left.name)} AS t"
            return self.database.execute(query).fetchall()[0][0]
        except OVERFLOW:
            return True

    def filter(self):
        predicate = self.writer.predicate(self.random.randint(0, 2))
        columns = self.random.choice((list(self.left.types()), self.shared(3)))
        expected = {"error": "overflow"}
        used = list(self.left.types())
        if not self.overflow([predicate]):
            query = f"SELECT {names(used)}, t.rowid AS place FROM {quoted(self.left.name)} AS t"
            query += f" WHERE {predicate.sql}"
            found = self.fetch(query, used, self.left.types(), "ORDER BY place")
            expected = answer([column for column in found if column.name in columns])
            expected["columns"].sort(key=lambda column: columns.index(column["name"]))
        operation = {"predicate": predicate.json, "keep": columns}
        self.add("filter", [(self.left, None)], operation, expected)

    def project(self):
        parts = [self.writer.number(self.random.randint(0, 2)) for _ in range(2)]
        parts.append(self.writer.predicate(1))
        parts.append(self.writer.any_column(self.left.types().values()))
        parts.append(self.writer.any_literal(self.random.choice(sorted(SQL_TYPES))))
        parts = [part for part in parts if self.random.random() < 0.8] or parts
        expected = {"error": "overflow"}
        if not self.overflow(parts):
            types = {f"p{place}": part.type for place, part in enumerate(parts)}
            values = [f"{part.result} AS p{place}" for place, part in enumerate(parts)]
            query = f"SELECT {', '.join(values)}, t.rowid AS place"
            query += f" FROM {quoted(self.left.name)} AS t"
            expected = answer(self.fetch(query, list(types), types, "ORDER BY place"))
        columns = [[f"p{place}", part.json] for place, part in enumerate(parts)]
        self.add("project", [(self.left, None)], {"columns": columns}, expected)

    def join(self, on, kind):
        left = list(dict.fromkeys([*(a for a, _ in on), "row"]))
        right = list(dict.fromkeys([*(b for _, b in on), *self.random.choice(([], ["number"]))]))
        types = {name: self.left.types()[name] for name in left}
        selected = [f"l.{quoted(name)}" for name in left]
        for name in right if kind not in ("semi", "anti") else []:
            called = f"{name}_right" if name in left else name
            types[called] = self.right.types()[name]
            selected.append(f"r.{quoted(name)} AS {quoted(called)}")
        equal = " AND ".join(f"l.{quoted(a)} = r.{quoted(b)}" for a, b in on)
        query = f"SELECT {', '.join(selected)} FROM {quoted(self.left.name)} AS l {JOINS[kind]}"
        query += f" {quoted(self.right.name)} AS r ON {equal}"
        found = self.fetch(query, list(types), types)
        inputs = [(self.left, left), (self.right, right)]
        self.add("join", inputs, {"on": on, "kind": kind}, answer(found, ordered=False))

    def figures(self):
        """Aggregates by chance: name, function, column, SQL, type, and how far off it may be."""
        yield "count_rows", "count_rows", None, "count(*)", "u64", None
        for name, kind in self.left.types().items():
            value, wide = f"t.{quoted(name)}", f"CAST(t.{quoted(name)} AS DOUBLE)"
            yield f"count {name}", "count", name, f"count({value})", "u64", None
            different = f"count(DISTINCT {value})"
            yield f"different {name}", "count_distinct", name, different, "u64", None
            for function in ("min", "max"):
                yield f"{function} {name}", function, name, f"{function}({value})", kind, None
            exact_sum = f"sum(CAST({value} AS HUGEINT))"
            size = f"sum(abs({wide})) * {TOLERANCE}"
            if kind in INTEGERS:
                wider = "u64" if kind in ("u32", "u64") else "i64"
                yield f"sum {name}", "sum", name, exact_sum, wider, None
                mean = f"CAST({exact_sum} AS DOUBLE) / count({value})"
                yield f"mean {name}", "mean", name, mean, "f64", f"{size} / count({value})"
            # The sum of the outermost ones may be infinite in one order and not in another.
            if kind in FLOATS and (kind == "f32" or self.shape.kind != "extremes"):
                yield f"sum {name}", "sum", name, f"sum({wide})", "f64", size
                mean, size = f"sum({wide}) / count({value})", f"{size} / count({value})"
                yield f"mean {name}", "mean", name, mean, "f64", size

    def group_by(self, most):
        keys = self.shared(most) if most else []
        figures = list(self.figures())
        figures = self.random.sample(figures, 4 if self.shape.large else 12)
        types = {key: self.left.types()[key] for key in keys}
        selected, roomy, sums = [f"t.{quoted(key)}" for key in keys], {}, []
        for place, (name, function, _, sql, kind, tolerance) in enumerate(figures):
            sums += [expressions.outside(sql, kind)] if function == "sum" and kind != "f64" else []
            types[name] = kind
            value = sql if kind not in INTEGERS else f"CAST({sql} AS HUGEINT)"
            selected.append(f"{value} AS {quoted(name)}")
            if tolerance:
                roomy[name] = f"tolerance {place}"
                selected.append(f"{tolerance} AS {quoted(roomy[name])}")
        grouped = f"FROM {quoted(self.left.name)} AS t"
        grouped += f" GROUP BY {names(keys)}" if keys else ""
        expected = {"error": "overflow"}
        beyond = [f"SELECT bool_or(o) FROM (SELECT {each} AS o {grouped})" for each in sums]
        if not any(self.database.execute(query).fetchall()[0][0] for query in beyond):
            extra = dict.fromkeys(roomy.values(), "f64")
            query = f"SELECT {', '.join(selected)} {grouped}"
            found = self.fetch(query, [*types, *extra], types | extra)
            by_name = {column.name: column for column in found}
            tolerance = {
                name: [exact("f64", value) for value in by_name[extra_name].values]
                for name, extra_name in roomy.items()
            }
            expected = answer(found[: len(types)], False, False, tolerance)
        aggregates = [[function, column, name] for name, function, column, *_ in figures]
        operation = {"keys": keys, "aggregates": aggregates}
        self.add("group_by", [(self.left, None)], operation, expected)

    def distinct(self):
        columns = self.shared(3)
        query = f"SELECT DISTINCT {names(columns)} FROM {quoted(self.left.name)} AS t"
        found = self.fetch(query, columns, self.left.types())
        inputs = [(self.left, None)]
        self.add("distinct", inputs, {"columns": columns}, answer(found, False, False))

    def set_operation(self, operator, every):
        columns = self.shared(3)
        tables = (self.left, self.right)
        sides = [f"SELECT {names(columns)} FROM {quoted(table.name)} AS t" for table in tables]
        between = f" {operator.upper()} {'ALL ' if every else ''}"
        found = self.fetch(between.join(sides), columns, self.left.types())
        inputs = [(self.left, columns), (self.right, columns)]
        self.add(operator, inputs, {"all": every}, answer(found, False, False))

    def concat(self):
        columns = self.shared(4)
        tables = [self.left, self.right, self.left][: self.random.randint(1, 3)]
        parts = [
            f"SELECT {names(columns)}, {place} AS part, t.rowid AS place FROM {quoted(t.name)} AS t"
            for place, t in enumerate(tables)
        ]
        query = " UNION ALL ".join(parts)
        found = self.fetch(query, columns, self.left.types(), "ORDER BY part, place")
        self.add("concat", [(table, columns) for table in tables], {}, answer(found))

    def limit(self):
        columns = self.shared(4)
        offset = self.random.choice((0, 0, 1, 31, 64, 500))
        count = self.random.choice((0, 1, 32, 45, 10**6))
        query = f"SELECT {names(columns)}, t.rowid AS place FROM {quoted(self.left.name)} AS t"
        end = f"ORDER BY place LIMIT {count} OFFSET {offset}"
        found = self.fetch(query, columns, self.left.types(), end)
        self.add("limit", [(self.left, columns)], {"offset": offset, "count": count}, answer(found))
