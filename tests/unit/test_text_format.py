"""Tables and values as plain text: columns are aligned, and no text is cut or interpreted as markup."""

from __future__ import annotations

from harness.report.text_format import format_table, format_value


def test_columns_are_aligned_and_lines_have_no_trailing_blanks() -> None:
    rows = [("kill", "3"), ("pause", "12")]
    assert format_table(rows, ("fault", "times"), right=(1,)) == [
        "fault  times",
        "kill       3",
        "pause     12",
    ]
    assert format_table(rows) == ["kill   3", "pause  12"]
    assert format_table([]) == []


def test_a_row_wider_than_any_terminal_is_one_line() -> None:
    rows = [("a" * 400, "word " * 100 + "end"), ("b", "c")]
    lines = format_table(rows, ("first", "second"))
    assert [len(line) for line in lines] == [408, 905, 403]
    assert lines[1] == "a" * 400 + "  " + "word " * 100 + "end"


def test_text_is_never_markup_or_an_emoji_code() -> None:
    assert format_table([("[red]x[/red]", ":smile:", "\\[b]")]) == ["[red]x[/red]  :smile:  \\[b]"]


def test_a_markdown_table_has_a_separator_below_its_head() -> None:
    assert format_table([("a", "1")], ("name", ""), markdown=True) == [
        "| name |   |",
        "|------|---|",
        "| a    | 1 |",
    ]


def test_values_are_formatted_in_one_line() -> None:
    assert (
        format_value({"leaders": {"a-0": 1}, "ids": [1, 2], "hits": [{"n": 1}]}) == "leaders a-0=1, ids 1 2"
    )
