"""The plain reader's tables for the statements of a contract: records in SQLite, read with read_committed."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from harness.base.partition_id import PartitionId
from harness.evidence.checkers.model import AppContract
from harness.evidence.contract_statement import (
    NUMBER_PATTERN,
    PLACES,
    TEXTS,
    ContractTable,
    StatementResult,
    identifier,
)
from harness.evidence.observation import Meta, Observation
from harness.evidence.record_fields import fields_of
from harness.evidence.row_output import RowSource, rows_of
from harness.evidence.sql_functions import connect
from harness.evidence.statement_rows import RequiredError, describe_required, run_statement
from harness.evidence.token import TokenFinder, token_of

_BATCH: Final = 10_000

Row = tuple[object, ...]


class ContractTables:
    """The tables of a contract in a SQLite database."""

    def __init__(self, contract: AppContract, run: str, path: Path | None = None) -> None:
        self._contract = contract
        self._tables = {table.topic: table for table in contract.tables}
        self._finder = TokenFinder(run)
        self._run = run
        self._rows: dict[str, list[Row]] = {topic: [] for topic in self._tables}
        self._sql = connect(path)
        self._sql.execute("PRAGMA journal_mode = OFF")
        self._sql.execute("PRAGMA synchronous = OFF")
        self._sql.create_function("is_number", 1, _is_number, deterministic=True)
        for table in self._tables.values():
            self._sql.execute(f"CREATE TABLE {identifier(table.name)} ({', '.join(_columns(table))})")

    def close(self) -> None:
        self._sql.close()

    def add(
        self,
        place: PartitionId,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[object] = (),
    ) -> None:
        """Add one record."""
        table = self._tables[place[0]]
        parts = [key, value, *(part for part in headers if isinstance(part, bytes))]
        found = self._finder.find(parts)
        token = token_of(self._run, *found[0][1:4]) if found else None
        fields = fields_of(value, table.columns)
        texts = [None if part is None else part.decode(errors="replace") for part in (key, value)]
        row = (token, place[1], offset, *texts, *(fields.get(name) for name in table.fields))
        rows = self._rows[place[0]]
        rows.append(row)
        if len(rows) >= _BATCH:
            self._flush(table)

    def add_rows(self, row: RowSource) -> int:
        """Add the rows of an output that is no topic; return their number."""
        number = 0
        for number, text in enumerate(rows_of(Path(row.file)), start=1):
            self.add((row.name, 0), number - 1 if row.is_ordered else 0, None, text)
        return number

    def _flush(self, table: ContractTable) -> None:
        rows = self._rows[table.topic]
        if rows:
            marks = ", ".join("?" * len(rows[0]))
            self._sql.execute("BEGIN")
            self._sql.executemany(f"INSERT INTO {identifier(table.name)} VALUES ({marks})", rows)
            self._sql.execute("COMMIT")
            rows.clear()

    def _settle(self) -> dict[str, str]:
        """Give each column one type. Return the fields of outputs that no record has, by topic, as text."""
        absent: dict[str, str] = {}
        for table in self._tables.values():
            self._flush(table)
            name = identifier(table.name)
            texts = [*TEXTS, *(table.fields if table.columns else [])]
            for column in map(identifier, texts):
                ((other,),) = self._query(f"SELECT count(*) FROM {name} WHERE NOT is_number({column})")
                if not other:
                    self._sql.execute(f"UPDATE {name} SET {column} = CAST({column} AS REAL)")
            for column in map(identifier, [] if table.columns else table.fields):
                texts_only = f"SELECT count(*) FROM {name} WHERE typeof({column}) = 'text'"
                ((text,),) = self._query(texts_only)
                if text:
                    self._sql.execute(f"UPDATE {name} SET {column} = CAST({column} AS TEXT)")
            ((size,),) = self._query(f"SELECT count(*) FROM {name}")
            names = [field for field in table.fields if size and self._is_absent(name, field)]
            if names:
                absent[table.topic] = absent_fields(table, names)
        return absent

    def _is_absent(self, table: str, field: str) -> bool:
        ((present,),) = self._query(f"SELECT count({identifier(field)}) FROM {table}")
        return not present

    def _query(self, text: str) -> list[Any]:
        return self._sql.execute(text).fetchall()

    def results(self, meta: Meta, problems: Mapping[str, str] | None = None) -> list[Observation]:
        """Run all queries. Return the results, and how many outputs inputs must have in each topic.

        `problems` has the outputs whose records are not known.
        """
        absent = {**self._settle(), **(problems or {})}
        done: list[StatementResult] = []
        for statement in self._contract.statements:
            problem = absent.get(statement.output, "")
            done.append(run_statement(statement, self._query, problem))
        found = [Observation(replace_meta(meta, purpose="statements", statements=done))]
        for required in self._contract.required:
            mine = replace_meta(meta, witness=f"{meta.witness}-required-{required.topic}", purpose="required")
            view = Observation(mine)
            try:
                describe_required(view, self._query(required.query))
            except (RequiredError, sqlite3.Error) as error:
                mine.complete, mine.detail = False, f"each = {required.text!r}: {error}"
            found.append(view)
        return found


def replace_meta(meta: Meta, **changes: Any) -> Meta:
    """Return a copy of the metadata that shares nothing with the original."""
    return msgspec.structs.replace(msgspec.convert(msgspec.to_builtins(meta), Meta), **changes)


def absent_fields(table: ContractTable, names: Iterable[str]) -> str:
    """Return a sentence about fields that no record of a topic has."""
    return f"no record of {table.name} has a field {' or '.join(names)}"


def _columns(table: ContractTable) -> list[str]:
    return [identifier(name) for name in [*PLACES, *TEXTS, *table.fields]]


def _is_number(text: object) -> bool:
    return text is None or (isinstance(text, str) and re.fullmatch(NUMBER_PATTERN, text) is not None)
