"""The table of proposals (KIPs) and the command `eos kip` without a cluster."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from harness.base.errors import UsageError
from harness.cli.main import cli
from harness.walkthroughs.kips import KIPS, Seen, find_kip
from tools.kips_page import FILE, page


def test_the_list_shows_what_each_proposal_changed_and_since_when() -> None:
    done = CliRunner().invoke(cli, ["kip"])
    assert done.exit_code == 0
    for kip in KIPS.values():
        assert f"KIP-{kip.number}: {kip.title}" in done.stdout
        assert kip.changed in done.stdout
        assert kip.since in done.stdout


def test_the_list_in_json_has_the_same_proposals() -> None:
    listed = json.loads(CliRunner().invoke(cli, ["kip", "--json"]).stdout)
    assert [entry["number"] for entry in listed] == list(KIPS)


def test_an_unknown_number_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as refused:
        find_kip(4711)
    assert "98, 185, 360" in refused.value.hint


def test_the_page_has_a_row_and_a_section_for_each_observation() -> None:
    text = page({890: [Seen("EndTxn 5", "NONE", "NONE")]}, "4.3.1", "process")
    assert "[98](#kip-98)" in text
    assert "## KIP-890" in text
    assert "| EndTxn 5 | NONE     | NONE     |" in text


def test_the_committed_page_has_a_section_for_every_proposal() -> None:
    text = FILE.read_text()
    for kip in KIPS.values():
        section = text.split(f"## KIP-{kip.number}\n")[1].split("\n## ")[0]
        assert kip.changed in section
        assert "| what" in section
