"""Holding the rows of a benchmark against bars.

A bar is a key (which rows it is about) and a test of such a row. On a machine that others use too,
whoever is busy next door makes a figure worse and never better; so a group of rows that misses is
measured again, in a process of its own, as often as is asked for, and a time counts when it is met
in any attempt. What it says of the attempts it took is part of the answer. A count (events, waits,
bytes) and a ratio of two things that were measured in turn have no such excuse, since the neighbour
may have met either: they hold in every attempt.
"""

import json
import subprocess
import sys


class Bar:
    """A limit on the rows that have all of `key`."""

    def __init__(self, key, words, holds, timed=True):
        self.key, self.words, self.holds, self.timed = key, words, holds, timed

    def name(self):
        return " ".join(str(value) for value in self.key.values())

    def rows(self, rows):
        return [row for row in rows if all(row.get(k) == v for k, v in self.key.items())]


def at_most(key, limit, timed=True):
    return f"{key} ≤ {limit:.4g}", lambda row: row[key] <= limit + 1e-9, timed


def at_least(key, limit, timed=True):
    return f"{key} ≥ {limit:.4g}", lambda row: row[key] >= limit, timed


def run(command, save=None):
    """The rows a benchmark prints, one JSON object a line."""
    answer = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if save:
        with open(save, "a") as file:
            file.write(answer.stdout)
    if answer.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with status {answer.returncode}")
    return [json.loads(line) for line in answer.stdout.splitlines() if line.startswith("{")]


def met(bar, attempts):
    """The attempt in which a bar is met, counted from 1, or None."""
    found = [bar.rows(rows) for rows in attempts]
    good = [bool(rows) and all(bar.holds(row) for row in rows) for rows in found]
    if not bar.timed:
        tried = [answer for answer, rows in zip(good, found) if rows]
        return 1 if tried and all(tried) else None
    return good.index(True) + 1 if True in good else None


def judge(bars, first, again, group, figures, most):
    """Prints every bar with its figures and answers how many are missed.

    `first` has the rows of the first attempt; `again(name)` measures the group called `name` once
    more; `group(bar)` names a bar's group, or is None for one that is not measured again.
    """
    attempts, missed_first = [first], sum(met(bar, [first]) is None for bar in bars)
    while len(attempts) < most:
        again_for = [bar for bar in bars if bar.timed and met(bar, attempts) is None]
        missed = {group(bar) for bar in again_for} - {None}
        if not missed:
            break
        attempts.append([row for name in sorted(missed) for row in again(name)])
    misses = 0
    for bar in bars:
        attempt = met(bar, attempts)
        misses += attempt is None
        shown = [bar.rows(rows) for rows in attempts]
        rows = (shown[attempt - 1] if attempt else None) or shown[0]
        note = f" (attempt {attempt})" if attempt and attempt > 1 else ""
        for row in rows or [None]:
            what = figures(row) if row else "no such row"
            words = bar.words.format(**row) if row else bar.words
            print(f"{'ok  ' if attempt else 'MISS'} {bar.name():<45} {words:<34} {what}{note}")
    print(f"{len(bars)} bars, {misses} missed", end="")
    if len(attempts) > 1:
        print(f"; {missed_first} in the first of {len(attempts)} attempts", end="")
    print()
    return misses


def add_options(parser):
    parser.add_argument("--xlog", default="target/release/xlog", help="the xlog command")
    parser.add_argument("--device", default="host", help="host, cuda:N or auto")
    parser.add_argument("--save", help="append the measured rows to this file")
    parser.add_argument(
        "--attempts", type=int, default=5, help="how often a missed group is measured, at most"
    )
