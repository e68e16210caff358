"""Checks of the tables [app], [[input]] and [[output]]; each mistake is reported with key and remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from harness.app.app_spec import AppSpec, ReadyCheck
from harness.app.container_launch import split_compose
from harness.app.launch_template import (
    JAR_SETS,
    LOCK_SUFFIX,
    app_locks,
    arguments,
    check_text,
    placeholders,
    uses,
    uses_any,
)
from harness.base.errors import UsageError
from harness.base.strict_toml import nearest
from harness.clients.input_encoder import split_function
from harness.clients.input_template import InputTemplate
from harness.evidence.contract_statement import is_identifier
from harness.evidence.token import MAX_SLOT
from harness.provision.jars import read_app_lock
from harness.scenario.app_parts import InputPart
from harness.scenario.contract_sql import ContractError, app_contract
from harness.scenario.model import Scenario
from harness.scenario.row_checks import Mistake, row_mistakes

Fail = Callable[[str, str, str], UsageError]


def check_app(scenario: Scenario, fail: Fail) -> None:
    """Raise UsageError for the first mistake in the tables about an application."""
    for key, problem, hint in _mistakes(scenario):
        raise fail(key, problem, hint)


def _mistakes(scenario: Scenario) -> Iterator[Mistake]:
    app = scenario.app
    if app is None:
        for table in ("input", "output"):
            if getattr(scenario, table):
                yield table, "belongs to an application", "add [app] with its command"
        for index, entry in enumerate(scenario.fault):
            if entry.target.app is not None:
                yield f"fault[{index}].target", "there is no application", "add [app] with its command"
        return
    for table, given in (("workload", scenario.workload), ("walkthrough", scenario.walkthrough)):
        if given:
            yield table, "does not go together with [app]", f"remove [app] or the {table}"
    if not scenario.input:
        yield "input", "is missing", "add [[input]] with topic and value: the application needs inputs"
    if not scenario.output:
        yield "output", "is missing", "add [[output]] with topic and each: without one nothing is compared"
    yield from _running_mistakes(scenario, app) if app.running else _process_mistakes(app)
    yield from _ready_mistakes(app)
    yield from _internal_mistakes(app)
    for index, part in enumerate(scenario.input):
        yield from _input_mistakes(part, f"input[{index}]")
    yield from _output_mistakes(scenario, app)
    yield from _contract_mistakes(scenario)
    sinks = [part.table for part in scenario.output if part.http]
    if not app.running:
        yield from _text_mistakes(app, list(scenario.app_topics), sinks)
        yield from _target_mistakes(scenario, app)


def _internal_mistakes(app: AppSpec) -> Iterator[Mistake]:
    """Yield patterns of the application's own topics that match the topics of other runs too."""
    for index, text in enumerate(app.internal):
        key = f"app.internal[{index}]"
        found = {place.name for place in placeholders(text)}
        if unknown := sorted(found - {"run", "group"}):
            yield key, f"{{{unknown[0]}}} is not allowed", "allowed: {run} and {group}"
        elif not found and not app.running:
            hint = 'each run has its own topics: write a name such as "connect-{run}-*"'
            yield key, f"{text!r} contains neither {{run}} nor {{group}}", hint


def check_locks(app: AppSpec, fail: Fail) -> None:
    """Raise UsageError if a lock file of the application is missing or has a wrong line."""
    texts, folder = app.all_texts, Path(app.directory)
    needed = [folder / name for name in arguments(texts, "pip")]
    needed += [folder / name / file for name in arguments(texts, "go") for file in ("go.mod", "go.sum")]
    for path in needed:
        if not path.is_file():
            raise fail("app", f"there is no file {path}", "write it, or correct its name in the placeholder")
    for lock in app_locks(texts, folder):
        try:
            read_app_lock(lock)
        except UsageError as error:
            raise fail("app", error.message, error.hint) from error


def _target_mistakes(scenario: Scenario, app: AppSpec) -> Iterator[Mistake]:
    for index, entry in enumerate(scenario.fault):
        pattern = entry.target.app
        if pattern is not None and not any(fnmatchcase(name, pattern) for name in app.names):
            names = ", ".join(app.names)
            yield f"fault[{index}].target", f"no instance matches {pattern!r}", f"the instances are {names}"


def _contract_mistakes(scenario: Scenario) -> Iterator[Mistake]:
    try:
        app_contract(scenario)
    except ContractError as error:
        yield error.key, error.problem, error.hint


def _running_mistakes(scenario: Scenario, app: AppSpec) -> Iterator[Mistake]:
    """Yield what cannot be done with an application that the harness does not start."""
    plain = AppSpec(
        running=True,
        name=app.name,
        group=app.group,
        directory=app.directory,
        guarantee=app.guarantee,
        limits=msgspec.structs.replace(AppSpec().limits, start=app.limits.start),
        ready=ReadyCheck(group=app.ready.group),
    )
    for key in AppSpec.__struct_fields__:
        if getattr(app, key) != getattr(plain, key):
            hint = f"remove {key}; only group, guarantee and limits.start apply to it"
            yield f"app.{key}", "is only for an application that the harness starts", hint
    if not app.group:
        hint = 'add group = "NAME": it shows when the application is ready and when it has finished'
        yield "app.group", "is missing for an application that already runs", hint
    for index, entry in enumerate(scenario.fault):
        if entry.target.app is not None:
            hint = "remove the fault; faults on nodes and links affect the application too"
            yield f"fault[{index}]", "the harness does not know the application's processes", hint
    for index, part in enumerate(scenario.output):
        if part.http:
            hint = "use another output: the sink gets another address in each run"
            yield f"output[{index}].http", "cannot be given to an application that already runs", hint


def _process_mistakes(app: AppSpec) -> Iterator[Mistake]:
    starters = [name for name in ("image", "compose") if getattr(app, name)]
    if not app.command and not starters:
        hint = 'write a program and its arguments, such as ["python", "app.py"]; or name an image'
        yield "app.command", "is empty", hint
    if len(starters) > 1:
        yield "app", "has image and compose", "choose one of them"
    own = [name for name in ("pip", "go") if uses_any(app.all_texts, name)]
    if starters and own:
        yield "app", f"{{{own[0]}:...}} is not in the container", "put the packages or the program into it"
    if app.compose and not all(split_compose(app.compose)):
        yield "app.compose", f"{app.compose!r} names no service", 'write "docker-compose.yml#service"'
    if app.limits.cores < 0:
        yield "app.limits", f"cores = {app.limits.cores} is not allowed", "allowed: 0 (all) or more"
    if not re.fullmatch(r"[A-Za-z][\w-]*", app.name):
        yield "app.name", f"{app.name!r} is not a name", "use letters, digits, - and _"
    if app.instances < 1:
        yield "app.instances", f"{app.instances} is not allowed", "allowed: one or more"
    for name in app.files:
        if not re.fullmatch(r"[\w][\w.-]*", name):
            yield "app.files", f"{name!r} is not the name of a file", "use a name without folders"


def _ready_mistakes(app: AppSpec) -> Iterator[Mistake]:
    ready = app.ready
    if len(ready.used) > 1:
        yield "app.ready", f"has {' and '.join(ready.used)}", "choose one of them"
    try:
        re.compile(ready.log)
    except re.error as error:
        yield "app.ready", f"log = {ready.log!r} is not a regular expression: {error}", "correct it"
    if ready.http and not re.match(r"https?://", ready.http):
        yield "app.ready", f"http = {ready.http!r} is not an address", 'write "http://127.0.0.1:{port:NAME}/"'
    if ready.group and not app.group:
        yield "app.ready", "waits for a group, but the application names none", 'add group = "NAME"'
    texts = app.all_texts
    if ready.port and not uses(texts, "port", ready.port):
        yield (
            "app.ready",
            f"no placeholder {{port:{ready.port}}} gives the port to the application",
            f"write {{port:{ready.port}}} in command, env or files",
        )


def _text_mistakes(app: AppSpec, topics: list[str], sinks: list[str]) -> Iterator[Mistake]:
    for key, text in app.texts.items():
        try:
            check_text(text)
        except UsageError as error:
            yield f"app.{key.partition('[')[0].partition('.')[0]}", error.message, error.hint
    texts = app.all_texts
    for text in texts:
        for found in placeholders(text):
            if found.name == "topic" and found.argument and found.argument not in topics:
                hint = nearest(found.argument, topics, "topics of [[input]] and [[output]] are")
                yield "app", f"{found} names an unknown topic", hint
            if found.name == "jars" and not (
                found.argument in JAR_SETS or found.argument.endswith(LOCK_SUFFIX)
            ):
                hint = "write {jars:kafka}, {jars:tools}, {jars:spark} or {jars:FILE.lock}"
                yield "app", f"{found} names unknown jars", hint
            if found.name == "file" and found.argument and found.argument not in app.files:
                yield (
                    "app",
                    f"{found} names an unknown file",
                    nearest(found.argument, list(app.files), "files are"),
                )
            if found.name == "http" and found.argument not in sinks:
                hint = nearest(found.argument, sinks, "outputs with http = true are")
                yield "app", f"{found} names an unknown output", hint
    yield from _missing_texts(app, topics, texts)


def _missing_texts(app: AppSpec, topics: list[str], texts: list[str]) -> Iterator[Mistake]:
    """Yield the placeholders that the application needs and does not have."""
    where = "in command, env or files"
    if not uses(texts, "bootstrap"):
        yield (
            "app",
            "nothing contains {bootstrap}",
            f"write {{bootstrap}}, the addresses of the brokers, {where}",
        )
    for topic in topics:
        if not uses(texts, "topic", topic):
            yield (
                "app",
                f"nothing contains {{topic:{topic}}}",
                f"each run has its own topics: write {{topic:{topic}}} {where}",
            )
    if app.group and not uses(texts, "group"):
        yield "app.group", "nothing contains {group}", f"each run has its own group: write {{group}} {where}"
    if not app.group and uses(texts, "group"):
        yield "app", "{group} is used, but there is no group", 'add group = "NAME"'


def _input_mistakes(part: InputPart, place: str) -> Iterator[Mistake]:
    least, most = part.transaction
    for key, wrong, allowed in (
        ("keys", part.keys < 0, "0 (none) or more"),
        ("partitions", part.partitions < 1, "one or more"),
        ("rate", part.rate < 1, "one or more inputs per second"),
        ("aborted", not 0 <= part.aborted < 1, "from 0 to below 1"),
        ("transaction", not 1 <= least <= most, "[fewest, most] inputs, from 1 up"),
    ):
        if wrong:
            yield f"{place}.{key}", f"{getattr(part, key)!r} is not allowed", f"allowed: {allowed}"
    yield from _encoder_mistakes(part, place)
    templates = {"value": part.value, "key": part.key}
    for key, text in (templates | {f"headers.{name}": text for name, text in part.headers.items()}).items():
        try:
            names = InputTemplate(text).names
        except UsageError as error:
            yield f"{place}.{key}", error.message, error.hint
            continue
        if key == "value" and "id" not in names:
            hint = "write {id} where an order number or name is, which the application copies to its outputs"
            yield f"{place}.value", "contains no {id}, so no output can be assigned to an input", hint
        if "key" in names and not part.keys:
            yield f"{place}.{key}", "contains {key}, but the inputs have no keys", "add keys = 100"


def _encoder_mistakes(part: InputPart, place: str) -> Iterator[Mistake]:
    if part.encoder and part.encoder_command:
        yield f"{place}.encoder", "is given twice", "remove encoder or encoder_command"
    if part.encoder and not all(split_function(part.encoder)):
        hint = 'write "codec.py:encode": a file, relative to the folder of [app], and a function'
        yield f"{place}.encoder", f"{part.encoder!r} names no function", hint
    if part.columns and (part.encoder or part.encoder_command):
        yield f"{place}.columns", "cannot be read from encoded values", "remove columns"


def _output_mistakes(scenario: Scenario, app: AppSpec) -> Iterator[Mistake]:
    topics = [*(part.topic for part in scenario.input), *(part.name for part in scenario.output)]
    if len(scenario.output) > MAX_SLOT:
        yield "output", f"there are {len(scenario.output)} outputs", f"at most {MAX_SLOT} can be checked"
    keyed = {part.keys > 0 for part in scenario.input}
    has_topic = any(part.is_topic for part in scenario.output)
    for index, part in enumerate(scenario.output):
        place = f"output[{index}]"
        yield from row_mistakes(app, part, place, has_topic=has_topic)
        if topics.count(part.name) > 1:
            yield (
                f"{place}.{'topic' if part.is_topic else 'table'}",
                f"{part.name!r} is used twice",
                "give every input and output its own topic or table",
            )
        names = [f"output[{index}].table", part.table or part.topic]
        if not is_identifier(names[1]):
            yield names[0], f"{names[1]!r} is not a name of a table", "use letters, digits, -, _ and ."
        for key, needed, given in (
            ("window", "is", part.aggregates),
            ("per", "is", part.aggregates),
            ("key", "per", part.per),
            ("last_by", "expect", part.expect),
            ("repeatable", "unique", part.unique),
        ):
            if getattr(part, key) and not given:
                yield f"{place}.{key}", f"needs {needed}", f"add {needed}, or remove {key}"
        if part.partitions < 1:
            yield f"{place}.partitions", f"{part.partitions} is not allowed", "allowed: one or more"
        if part.order == "key" and False in keyed:
            yield f"{place}.order", "needs keys", "add keys = 100 to every [[input]], or remove order"
        if part.order == "partition" and True in keyed:
            hint = 'write order = "key", or remove keys from every [[input]]'
            yield f"{place}.order", "cannot be checked for inputs with keys", hint


def in_folder(app: AppSpec, folder: str) -> AppSpec:
    """Return the application with the folder in which its command runs."""
    return msgspec.structs.replace(app, directory=folder)
