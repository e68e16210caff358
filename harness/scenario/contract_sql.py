"""Contracts of an application as SQL: the tables [[output]] become statements (contract_statement.py).

SQL of a scenario is checked when the scenario is loaded, on empty tables in SQLite. Fields of inputs are
known from the template of their value. Fields of outputs are not known before the run, so every name that is
no other column is taken for one.

Two engines run the statements, so only functions that both have are permitted, and texts are in single
quotes. All numbers are 64-bit floats, so `/` never rounds.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.clients.input_template import InputTemplate, InputValues
from harness.evidence.checkers.model import UNORDERED, AppContract, OutputContract
from harness.evidence.contract_statement import (
    MOST_REQUIRED,
    PLACES,
    REFERENCES,
    TEXTS,
    ContractTable,
    RequiredQuery,
    Statement,
    identifier,
    is_identifier,
)
from harness.evidence.record_fields import fields_of
from harness.evidence.sql_functions import FUNCTIONS, connect
from harness.evidence.token import token_of
from harness.scenario.app_parts import InputPart, OutputPart
from harness.scenario.model import Scenario

_PERMITTED: Final = (
    sqlite3.SQLITE_SELECT,
    sqlite3.SQLITE_READ,
    sqlite3.SQLITE_FUNCTION,
    sqlite3.SQLITE_RECURSIVE,
)
_AGGREGATE: Final = r"(count|sum|min|max|avg)\s*\(([^()]|\([^()]*\))*\)"
_IN_ORDER: Final = "ORDER BY `kafka_partition`, `kafka_offset` ROWS BETWEEN UNBOUNDED PRECEDING AND"


def app_contract(scenario: Scenario) -> AppContract | None:
    """Return the contract of the scenario's application; raise ContractError if its SQL is wrong."""
    if scenario.app is None:
        return None
    compiler = _Compiler(scenario.input)
    outputs, required, statements, tables = [], [], [], []
    for index, part in enumerate(scenario.output):
        output = _Output(compiler, part, f"output[{index}]")
        statements += output.statements()
        if query := output.required():
            required.append(query)
        outputs.append(output.contract())
        tables.append(output.table())
        if part.reference:
            compiler.add_reference(tables[-1])
    used = [*tables, *compiler.references] if statements or required else []
    return AppContract(
        inputs=[part.topic for part in scenario.input],
        outputs=outputs,
        group=scenario.app.group,
        tables=[*compiler.tables(), *used] if used else [],
        required=required,
        statements=statements,
        guarantee=scenario.app.guarantee,
    )


class ContractError(Exception):
    """Error: SQL of a contract is wrong. It has the key, the problem and a hint."""

    def __init__(self, key: str, problem: str, hint: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key, self.problem, self.hint = key, problem, hint


class _Compiler:
    """Compiler of SQL over the inputs, with the columns of each table."""

    def __init__(self, inputs: list[InputPart]) -> None:
        self._parts = inputs
        self._columns = {_name(part): _input_columns(part) for part in inputs}
        self._used: dict[str, None] = {}
        self.references: list[ContractTable] = []
        """Tables with the inputs and outputs of calm runs."""
        self.columns = list(dict.fromkeys(name for names in self._columns.values() for name in names))
        """Columns of all inputs together."""

    def tables(self) -> list[ContractTable]:
        """Return the tables of the inputs, with the fields that any statement uses."""
        return [
            ContractTable(
                name=_name(part),
                topic=part.topic,
                fields=[name for name in self._columns[_name(part)] if name in self._used],
                columns=part.columns,
            )
            for part in self._parts
        ]

    def add_reference(self, table: ContractTable) -> None:
        """Add the tables of calm runs for an output, and those for the inputs."""
        for ending in REFERENCES:
            for name, fields in [(table.name, table.fields), *((_name(part), []) for part in self._parts)]:
                mine = f"{name}{ending}"
                if mine not in [each.name for each in self.references]:
                    self.references.append(ContractTable(name=mine, topic=mine, fields=fields))

    def inputs(self) -> str:
        """Return SQL for the records of all inputs. A field that an input does not have is null."""
        if len(self._parts) == 1:
            return identifier(_name(self._parts[0]))
        selects = []
        for table, columns in self._columns.items():
            names = [f"{'' if name in columns else 'NULL AS '}{identifier(name)}" for name in self._all()]
            selects.append(f"SELECT {', '.join(names)} FROM {identifier(table)}")
        return f"({' UNION ALL '.join(selects)})"

    def _all(self) -> list[str]:
        return [*PLACES, *TEXTS, *(name for name in self.columns if name in self._used)]

    @property
    def input_names(self) -> list[str]:
        """Names of the tables of the inputs."""
        return [_name(part) for part in self._parts]

    def check_input(self, key: str, text: str) -> str:
        """Check an expression over inputs; return it."""
        self._run(key, f"SELECT {text} FROM `i`", {"i": self.columns})
        return text

    def check_tables(self, key: str, text: str) -> list[str]:
        """Check a query over the tables of inputs, and return the names of its columns."""
        return self._run(key, text, self._columns)

    def check_output(self, key: str, text: str) -> list[str]:
        """Check an expression over outputs, and return the fields of outputs that it uses."""
        fields: list[str] = []
        while True:
            try:
                self._run(key, f"SELECT {text} FROM `o`", {"o": fields})
            except _NoColumnError as error:
                if error.column in fields:
                    raise
                fields.append(error.column)
            else:
                return fields

    def check_pairs(self, key: str, text: str) -> list[str]:
        """Check a condition over an input `i` and its output `o`; return the fields of the output."""
        fields: list[str] = []
        while True:
            tables = {"i": self.columns, "o": fields}
            try:
                self._run(key, f"SELECT 1 FROM `i`, `o` WHERE {text}", tables)
            except _NoColumnError as error:
                if error.table != "o" or error.column in fields:
                    raise
                fields.append(error.column)
            else:
                return fields

    def _run(self, key: str, query: str, tables: dict[str, list[str]]) -> list[str]:
        if '"' in query:
            raise ContractError(key, 'contains "', "write 'text' for a text, and `name` for a name")
        connection = connect()
        try:
            for table, columns in tables.items():
                names = ", ".join(identifier(name) for name in [*PLACES, *TEXTS, *columns])
                connection.execute(f"CREATE TABLE {identifier(table)} ({names})")
            refused: list[str] = []

            def authorize(action: int, first: str | None, second: str | None, *_: str | None) -> int:
                if action == sqlite3.SQLITE_FUNCTION and second not in FUNCTIONS:
                    refused.append(second or "")
                    return sqlite3.SQLITE_DENY
                if action == sqlite3.SQLITE_READ and second in self.columns and first != "o":
                    self._used[second] = None
                return sqlite3.SQLITE_OK if action in _PERMITTED else sqlite3.SQLITE_DENY

            connection.set_authorizer(authorize)
            try:
                cursor = connection.execute(f"SELECT * FROM ({query}\n) LIMIT 0")
                return [column[0] for column in cursor.description]
            except sqlite3.Error as error:
                raise self._explained(key, _located(str(error), query), refused, tables) from None
        finally:
            connection.close()

    def _explained(
        self, key: str, problem: str, refused: list[str], tables: dict[str, list[str]]
    ) -> ContractError:
        if match := re.fullmatch(r"no such column: (?:`?(\w+)`?\.)?`?([\w.-]+)`?", problem):
            known = tables.get(match[1] or "", self.columns)
            return _NoColumnError(key, match[1] or "", match[2], known)
        if refused or (match := re.fullmatch(r"no such function: (.+)", problem)):
            name = refused[0] if refused else problem.rpartition(" ")[2]
            hint = nearest(name, sorted(FUNCTIONS), "functions are")
            return ContractError(key, f"{name} is no function of a contract", hint)
        if match := re.fullmatch(r"no such table: (.+)", problem):
            return ContractError(
                key, f"there is no table {match[1]}", nearest(match[1], list(tables), "tables are")
            )
        return ContractError(key, f"is no SQL: {problem}", "docs/application.md describes the language")


def _located(problem: str, query: str) -> str:
    """Return a syntax error of SQLite, without a word that is not in the text of the scenario."""
    if problem == "incomplete input":
        return 'a ")" is missing at its end'
    if match := re.match(r"unrecognized token: \"(['`\[].*)", problem):
        return f"{match[1]} is not closed"
    ours = 'near "FROM": syntax error' if query.endswith(("FROM `i`", "FROM `o`")) else ""
    if problem == ours or (problem == 'near ")": syntax error' and query.count("(") == query.count(")")):
        return "something is missing at its end"
    return problem


class _NoColumnError(ContractError):
    def __init__(self, key: str, table: str, column: str, known: list[str]) -> None:
        place = f"{table}." if table else ""
        super().__init__(
            key,
            f"there is no field {place}{column}",
            nearest(column, [*known, *PLACES, *TEXTS], "fields are"),
        )
        self.table, self.column = table, column


class _Output:
    """The contract of one output."""

    def __init__(self, compiler: _Compiler, part: OutputPart, place: str) -> None:
        self._sql = compiler
        self._part = part
        self._place = place
        self._table = identifier(_name(part))
        self._fields: dict[str, None] = {}

    def contract(self) -> OutputContract:
        """Return the number and order of the outputs, as the checkers need them."""
        part, each = self._part, self._part.each_rule
        least, most = (each.least, each.most) if not each.sql else (0, MOST_REQUIRED)
        return OutputContract(
            topic=part.name,
            source=part.sources[0],
            least=least,
            most=most,
            order=part.order,
            tokens=part.has_tokens,
            required=bool(each.sql) and part.has_tokens,
        )

    def table(self) -> ContractTable:
        """Return the table of the output, with the fields that its statements use."""
        part = self._part
        known = {*PLACES, *TEXTS}
        fields = [name for name in self._fields if name not in known]
        return ContractTable(name=_name(part), topic=part.name, fields=fields, columns=part.columns)

    def required(self) -> RequiredQuery | None:
        """Return the query for the number of outputs of each input, if `each` is SQL."""
        text = self._part.each_rule.sql
        if not text or not self._part.has_tokens:
            return None
        self._sql.check_input(f"{self._place}.each", text)
        query = f"SELECT `eos_id`, ({text}) AS `required` FROM {self._sql.inputs()}"
        return RequiredQuery(topic=self._part.name, text=text, query=query, numbered=True)

    def statements(self) -> list[Statement]:
        """Return the statements about this output."""
        part = self._part
        found = [self._ids(field, table) for field, table in part.ids.items()]
        found += [self._holds()] if part.holds else []
        if part.aggregates:
            found += [self._last(), *([self._every()] if part.seen == "every" else [])]
        found += [self._conserve()] if part.conserve else []
        found += [self._unique()] if part.unique else []
        found += [self._expect()] if part.expect else []
        found += self._references() if part.reference else []
        return found

    def _statement(self, verb: str, text: str, query: str, count: str, columns: list[str]) -> Statement:
        needs_end = verb in ("is", "conserve", "expect", "ids", "reference")
        return Statement(
            output=self._part.name,
            verb=verb,
            text=text,
            query=query,
            count=count,
            columns=columns,
            needs_end=needs_end,
        )

    def _use(self, key: str, text: str) -> str:
        self._fields |= dict.fromkeys(self._sql.check_output(f"{self._place}.{key}", text))
        return text

    def _holds(self) -> Statement:
        text = self._part.holds
        self._fields |= dict.fromkeys(self._sql.check_pairs(f"{self._place}.holds", text))
        pairs = f"{self._table} AS o JOIN {self._sql.inputs()} AS i ON o.`eos_id` = i.`eos_id`"
        columns = "o.`eos_id`, o.`kafka_partition`, o.`kafka_offset`"
        query = f"SELECT 'differs' AS kind, 1 AS weight, {columns} FROM {pairs} "
        query += f"WHERE NOT coalesce(({text}), false)"
        return self._statement("holds", text, query, f"SELECT count(*) FROM {pairs}", list(PLACES))

    def _ids(self, field: str, table: str) -> Statement:
        """Compare how often each input of a table is in one field of the outputs with `each`."""
        place, each = f"{self._place}.ids", self._part.each_rule
        self._sql.check_tables(place, f"SELECT `eos_id` FROM {identifier(table)}")
        if each.sql:
            raise ContractError(f"{self._place}.each", "must be a number or range with ids", "write each = 1")
        for key in ("holds", "order"):
            if getattr(self._part, key) not in ("", "none"):
                hint = f"remove {key}, or write it as expect"
                raise ContractError(f"{self._place}.{key}", "needs outputs with one token, not ids", hint)
        value = self._use("ids", field)
        both = f"SELECT `eos_id` AS k, 1 AS t, 0 AS s FROM {identifier(table)} UNION ALL "
        both += f"SELECT lower({value}) AS k, 0 AS t, 1 AS s FROM {self._table} WHERE {value} IS NOT NULL"
        joined = f"SELECT k, max(t) AS t, sum(s) AS s FROM ({both}) AS a GROUP BY k"
        weight = f"CASE WHEN t = 0 THEN s WHEN s < {each.least} THEN {each.least} - s "
        weight += f"ELSE s - {each.most or 0} END"
        kind = f"CASE WHEN t = 0 THEN 'extra' WHEN s < {each.least} THEN 'missing' ELSE 'repeated' END"
        query = f"SELECT {kind} AS kind, {weight} AS weight, k, s FROM ({joined}) AS b WHERE t = 0 "
        query += f"OR s < {each.least}" + (f" OR s > {each.most}" if each.most is not None else "")
        text = f"each = {each}, {field} in {table}"
        count = f"SELECT count(*) FROM {identifier(table)}"
        return self._statement("ids", text, query, count, ["input", "outputs"])

    def _references(self) -> list[Statement]:
        """Compare values of outputs with those of a calm run, for the inputs that both runs have."""
        values = [self._use("reference", text) for text in self._part.reference]
        if re.search(r"kafka_(partition|offset|key)", " ".join(values)):
            hint = "compare fields of the value"
            raise ContractError(f"{self._place}.reference", "a calm run has only values", hint)
        first, second = REFERENCES
        return [self._compared("reference", values, first, ""), self._compared("calm", values, first, second)]

    def _compared(self, verb: str, values: list[str], *endings: str) -> Statement:
        """Compare the values of two tables of outputs, for the inputs that belong to both."""
        inputs = [
            " UNION ALL ".join(
                f"SELECT `eos_id` FROM {identifier(f'{name}{ending}')}" for name in self._sql.input_names
            )
            for ending in endings
        ]
        both = " INTERSECT ".join(f"SELECT `eos_id` FROM ({text}) AS i" for text in inputs)
        shown = ", ".join(f"({value}) AS c{i}" for i, value in enumerate(values))
        columns = ", ".join(["k", *(f"c{i}" for i in range(len(values)))])
        rows = " UNION ALL ".join(
            f"SELECT `eos_id` AS k, {shown}, {counts} FROM {identifier(f'{_name(self._part)}{ending}')} "
            f"WHERE `eos_id` IN ({both})"
            for ending, counts in zip(endings, ("1 AS e, 0 AS s", "0 AS e, 1 AS s"), strict=True)
        )
        counted = f"SELECT {columns}, sum(e) AS e, sum(s) AS s FROM ({rows}) AS a GROUP BY {columns}"
        whole = f"SELECT {columns}, e, s, sum(e) OVER (PARTITION BY k) AS te, "
        whole += f"sum(s) OVER (PARTITION BY k) AS ts FROM ({counted}) AS b"
        kind = "CASE WHEN ts < te THEN 'missing' WHEN ts > te THEN 'repeated' ELSE 'differs' END"
        query = f"SELECT {kind} AS kind, abs(e - s) AS weight, {columns}, e, s FROM ({whole}) AS c "
        query += "WHERE e <> s"
        count = f"SELECT count(*) FROM ({rows}) AS d"
        shown_names = ["input", *values, "times demanded", "times written"]
        return self._statement(verb, ", ".join(values), query, count, shown_names)

    def _keys(self) -> tuple[str, str]:
        """Return SQL for the key of an input and of an output, with the window."""
        part = self._part
        per = self._sql.check_input(f"{self._place}.per", part.per or "1")
        key = self._use("key", part.key or part.per or "1")
        if part.window is None:
            return f"({per})", f"({key})"
        window, size = part.window, round(part.window.size * 1000)
        field = self._sql.check_input(f"{self._place}.window", window.field)
        start = self._use("window", window.start)
        inputs = f"concat({per}, ' from ', CAST(({field}) - ({field}) % {size} AS BIGINT))"
        return inputs, f"concat({key}, ' from ', CAST({start} AS BIGINT))"

    def _aggregates(self) -> tuple[list[str], list[str]]:
        """Return SQL for the values of outputs, and for the aggregates that they must equal."""
        key = f"{self._place}.is"
        values = [self._use("is", name) for name in self._part.aggregates]
        for text in self._part.aggregates.values():
            self._sql.check_input(key, text)
        return values, list(self._part.aggregates.values())

    def _last(self) -> Statement:
        """Compare the last output of each key with the aggregates over all inputs of the key."""
        (per, key), (values, wanted) = self._keys(), self._aggregates()
        n = range(len(values))
        truth = ", ".join(f"({wanted[i]}) AS t{i}, NULL AS s{i}" for i in n)
        seen = ", ".join(f"NULL AS t{i}, v{i} AS s{i}" for i in n)
        first = ", ".join(f"({values[i]}) AS v{i}" for i in n)
        is_unordered = self._part.sources[0] in UNORDERED
        rank = f"row_number() OVER (PARTITION BY {key}, `kafka_partition` ORDER BY `kafka_offset` DESC)"
        # Of rows without order, none is the last one: a key must have one row.
        inside = f"SELECT {key} AS k, {first}, {1 if is_unordered else rank} AS r FROM {self._table}"
        both = f"SELECT {per} AS k, 1 AS t, 0 AS s, {truth} FROM {self._sql.inputs()} GROUP BY {per}"
        both += f" UNION ALL SELECT k, 0 AS t, 1 AS s, {seen} FROM ({inside}) AS a WHERE r = 1"
        columns = ", ".join(f"max(t{i}) AS t{i}, max(s{i}) AS s{i}" for i in n)
        joined = f"SELECT k, max(t) AS t, sum(s) AS s, {columns} FROM ({both}) AS b GROUP BY k"
        equal = " AND ".join(_equal(f"t{i}", f"s{i}", wanted[i]) for i in n)
        kind = "CASE WHEN s = 0 THEN 'missing' WHEN t = 0 THEN 'extra' "
        kind += f"WHEN s > 1 THEN '{'repeated' if is_unordered else 'split'}' "
        kind += "ELSE 'differs' END"
        shown = ", ".join(f"t{i}, s{i}" for i in n)
        query = f"SELECT {kind} AS kind, 1 AS weight, k, {shown} FROM ({joined}) AS c "
        query += f"WHERE s <> 1 OR t <> 1 OR NOT ({equal})"
        names = [name for value in values for name in (f"{value} demanded", f"{value} written")]
        return self._statement(
            "is", self._text(), query, f"SELECT count(*) FROM ({joined}) AS c", ["key", *names]
        )

    def _every(self) -> Statement:
        """Compare each output of a key with the aggregates over the first inputs of the key."""
        (per, key), (values, wanted) = self._keys(), self._aggregates()
        for text in wanted:
            if not re.fullmatch(_AGGREGATE, text.strip(), re.IGNORECASE):
                raise ContractError(
                    f"{self._place}.is",
                    f"{text!r} has no running value",
                    'seen = "every" needs single aggregates, such as sum(amount)',
                )
        n = range(len(values))
        frame = f"OVER (PARTITION BY {per} {_IN_ORDER} CURRENT ROW)"
        running = ", ".join(f"{wanted[i]} {frame} AS t{i}" for i in n)
        prefixes = f"SELECT {per} AS k, {running}, row_number() OVER (PARTITION BY {per} "
        prefixes += f"ORDER BY `kafka_partition`, `kafka_offset`) AS p FROM {self._sql.inputs()}"
        names = ", ".join(f"t{i}" for i in n)
        bounds = f"SELECT k, {names}, min(p) AS lo, max(p) AS hi FROM ({prefixes}) AS a GROUP BY k, {names}"
        outputs = ", ".join(f"({values[i]}) AS s{i}" for i in n)
        outputs = f"SELECT {key} AS k, {outputs}, `kafka_partition`, `kafka_offset` FROM {self._table}"
        same = " AND ".join(["o.k = b.k", *(f"o.s{i} = b.t{i}" for i in n)])
        joined = f"SELECT o.*, b.lo, b.hi FROM ({outputs}) AS o LEFT JOIN ({bounds}) AS b ON {same}"
        back = f"max(lo) OVER (PARTITION BY k, `kafka_partition` {_IN_ORDER} 1 PRECEDING)"
        shown = ", ".join(["k", *(f"s{i}" for i in n), "`kafka_partition`", "`kafka_offset`"])
        query = (
            f"SELECT CASE WHEN lo IS NULL THEN 'differs' ELSE 'went_back' END AS kind, 1 AS weight, {shown} "
        )
        query += f"FROM (SELECT *, {back} AS before FROM ({joined}) AS c) AS d "
        query += "WHERE lo IS NULL OR hi < before"
        count = f"SELECT count(*) FROM {self._table}"
        columns = ["key", *(f"{value} written" for value in values), "kafka_partition", "kafka_offset"]
        return self._statement("is every", self._text(), query, count, columns)

    def _text(self) -> str:
        return ", ".join(f"{name} = {text}" for name, text in self._part.aggregates.items())

    def _conserve(self) -> Statement:
        rule = self._part.conserve
        assert rule is not None
        wanted = self._sql.check_input(f"{self._place}.conserve", _one_value(rule.inputs))
        written = self._use("conserve", _one_value(rule.outputs))
        both = f"(SELECT ({wanted}) AS t FROM {self._sql.inputs()}) AS a, "
        both += f"(SELECT ({written}) AS s FROM {self._table}) AS b"
        query = f"SELECT 'differs' AS kind, 1 AS weight, t, s FROM {both} "
        query += f"WHERE NOT {_equal('t', 's', wanted)}"
        count = f"SELECT count(*) FROM {self._table}"
        text = f"{rule.outputs} = {rule.inputs}"
        return self._statement("conserve", text, query, count, ["demanded", "written"])

    def _unique(self) -> Statement:
        """Find outputs with the same values. Two nulls are the same value."""
        part = self._part
        values = [self._use("unique", text) for text in part.unique]
        may_repeat = self._use("repeatable", part.repeatable or "false")
        shown = ", ".join(f"({value}) AS c{i}" for i, value in enumerate(values))
        columns = ", ".join(f"c{i}" for i in range(len(values)))
        rows = f"SELECT {shown}, CASE WHEN coalesce(({may_repeat}), false) THEN 0 ELSE 1 END AS fixed "
        rows += f"FROM {self._table}"
        counted = f"SELECT {columns}, count(*) AS n, sum(fixed) AS f FROM ({rows}) AS a GROUP BY {columns}"
        kind = "CASE WHEN f > 1 THEN 'repeated' ELSE 'permitted' END"
        weight = "CASE WHEN f > 1 THEN f - 1 ELSE n - 1 END"
        query = f"SELECT {kind} AS kind, {weight} AS weight, {columns}, n FROM ({counted}) AS b WHERE n > 1"
        count = f"SELECT count(*) FROM {self._table}"
        text = ", ".join(values) + (f" unless {part.repeatable}" if part.repeatable else "")
        return self._statement("unique", text, query, count, [*values, "outputs"])

    def _expect(self) -> Statement:
        key, part = f"{self._place}.expect", self._part
        names = self._sql.check_tables(key, part.expect)
        for name in names:
            if not is_identifier(name):
                raise ContractError(key, f"column {name!r} has no name", "add AS and the name of the field")
            self._use("expect", identifier(name))
        columns = ", ".join(map(identifier, names))
        rows = f"SELECT {columns} FROM {self._table}"
        if part.last_by:
            by = self._use("last_by", part.last_by)
            rows = f"SELECT {columns} FROM (SELECT *, row_number() OVER (PARTITION BY ({by}) "
            rows += f"ORDER BY `kafka_offset` DESC) AS r FROM {self._table}) AS a WHERE r = 1"
        both = f"SELECT {columns}, 1 AS e, 0 AS s FROM ({part.expect}\n) AS t UNION ALL "
        both += f"SELECT {columns}, 0 AS e, 1 AS s FROM ({rows}) AS u"
        counted = f"SELECT {columns}, sum(e) AS e, sum(s) AS s FROM ({both}) AS b GROUP BY {columns}"
        kind = "CASE WHEN s < e THEN 'missing' WHEN e > 0 THEN 'repeated' ELSE 'extra' END"
        query = f"SELECT {kind} AS kind, abs(e - s) AS weight, {columns}, e, s FROM ({counted}) AS c "
        query += "WHERE e <> s"
        count = f"SELECT sum(e) FROM ({counted}) AS c"
        shown = [*names, "times demanded", "times written"]
        return self._statement("expect", part.expect, query, count, shown)


def _equal(wanted: str, seen: str, text: str) -> str:
    """Return SQL that compares two values. Sums of fractions may differ in the last digits.

    Whole numbers must be equal. A null is equal to a null.
    """
    same = f"{wanted} = {seen}"
    if re.search(r"[*/.]|sum|avg", text, re.IGNORECASE):
        same += f" OR (({wanted} <> floor({wanted}) OR {seen} <> floor({seen})) "
        same += f"AND abs({wanted} - {seen}) <= 0.000000001 * (abs({wanted}) + abs({seen})))"
    return f"coalesce({same}, {wanted} IS NULL AND {seen} IS NULL)"


def _one_value(text: str) -> str:
    """Return an aggregate; a constant such as 0 becomes one."""
    return text if re.search(_AGGREGATE, text, re.IGNORECASE) else f"max({text})"


def _name(part: InputPart | OutputPart) -> str:
    return part.table or part.topic


def _input_columns(part: InputPart) -> list[str]:
    """Return the fields of an input, from the template of its value. An encoded value has none."""
    if part.encoder or part.encoder_command:
        return []
    try:
        value = InputTemplate(part.value).fill(InputValues(0, token_of("a" * 8, 0, 0, 0), 0, 0))
    except UsageError:
        return []  # the check of the inputs reports the template
    return list(fields_of(value, part.columns))
