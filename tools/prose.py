"""Check for hard-to-read phrases in every tracked text file: `python -m tools.prose [PATH...]`.

The command prints `file:line: "phrase": what to write instead` and exits with 1 if it finds any. A line with
the mark `prose: keep` is skipped. The mark is for quotations and for words of a third party.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

# Files that are not checked: texts of third parties, measured output, and the two files that have to contain
# the phrases.
EXCLUDED: Final = re.compile(
    r"\.(lock|jsonl|png|svg)$|^harness/evidence/schemas/record-vectors\.json$|^tools/prose\.py$|^tests/unit/test_prose\.py$"
)
KEEP: Final = "prose: keep"

# Each item is a pair: a phrase as a regular expression, and what to write instead. A space in the phrase
# matches any white space, including a line break in a paragraph or a comment. A phrase is found inside names
# too: `told` is found in `not_told`.
_PHRASES: Final = (
    (r"told|tell|tells|telling", "report, return, print, show, or distinguish (tell apart)"),
    (r"say|says|said|saying", "report, return, print, contain; or name the sender and the message"),
    (r"hear|hears|heard", "receive"),
    (r"owe|owes|owed|owing", "expect, require, must"),
    (r"knows", "has, records, contains, depends on; software does not know"),
    (r"stands|stood", "is, exists; represents (stands for)"),
    (r"anew", "again, re- (restarted, recreated)"),
    (r"some(body|one)", "name the actor: the broker, the client, the user"),
    (r"no ?body|no one", "no client, no broker, no process"),
    (r"whoever|whomever|of whom", "name the actor"),
    (r"who (has|had|gets|asks|sits|waits)", "name the actor"),
    (r"(what|all that) there (is|are)|that there (is|are) not", "name the thing"),
    (r"(?<!as\s)so (many|long)(?!\sas)", "N, a number, a duration"),
    (r"moods?", "noise"),
    (r"beg(in|ins|an|un) (again|anew)|new beginnings?", "restart"),
    (r"at your place", "on your cluster"),
    (r"(?<!back)(?<!out)doors?", "listener"),
    (r"live clusters?|clusters? that (is|are) not ours", "external cluster"),
    (r"(?:goes|go|went|going) on(?! the| path)", "continue"),
    (r"made anew|for ever", "created again; forever"),
    (r"by the same token|as it were|in turns", "plain words; interleaved, alternately"),
)
_FRONTED: Final = re.compile(
    r'(?:^|[.:;] |"{3}|# )(Of (?:a|an|the|each|every|all|one|what|this|these|two)) ', re.MULTILINE
)


class Finding(NamedTuple):
    """One phrase in one file."""

    path: str
    line: int
    phrase: str
    instead: str


def _compiled(words: str) -> re.Pattern[str]:
    gap = r"(?:[ \t]+|[ \t]*\n[ \t]*(?:#|//|\*|>|-)?[ \t]*)"
    # A match must not be next to a letter. It may be next to an underscore, which separates words in names.
    return re.compile(rf"(?<![A-Za-z])((?:{words.replace(' ', gap)}))(?![A-Za-z])", re.IGNORECASE)


_RULES: Final = (
    *((_compiled(words), instead) for words, instead in _PHRASES),
    (_FRONTED, "start with the subject, not with `of`"),
)


def check_text(path: str, text: str) -> Iterator[Finding]:
    """Yield a finding for each phrase in a text, in the order of the lines."""
    matches = [
        (match.start(1), match.group(1), instead) for rule, instead in _RULES for match in rule.finditer(text)
    ]
    lines = text.splitlines()
    for start, phrase, instead in sorted(matches):
        line = text.count("\n", 0, start) + 1
        if KEEP not in lines[line - 1]:
            yield Finding(path, line, re.sub(r"[\s#]+", " ", phrase).strip(), instead)


def tracked_files(paths: Sequence[str]) -> list[str]:
    """List the text files that git tracks: those under `paths` or, without paths, all of them."""
    command = ["git", "ls-files", "-z", "--", *paths]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return [name for name in listed.stdout.split("\0") if name and not EXCLUDED.search(name)]


def main(arguments: Sequence[str]) -> int:
    """Check the files and print every finding."""
    findings = [
        finding
        for name in tracked_files(arguments)
        if Path(name).is_file()
        for finding in check_text(name, Path(name).read_text(errors="replace"))
    ]
    for finding in findings:
        print(f'{finding.path}:{finding.line}: "{finding.phrase}": {finding.instead}')
    if findings:
        print(f"error: {len(findings)} phrases are hard to read")
        print("hint: rewrite the sentence: subject, verb, object")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
