# tests/python/values/test_table.py: rows of text in aligned columns.
from mxkern.values.table import format_table


def test_columns_are_as_wide_as_their_widest_cell():
    lines = format_table(["a", "bb"], [["cc", "d"], ["", "e"]]).splitlines()
    assert lines == [" a  bb", "--  --", "cc   d", "     e"]


def test_columns_to_the_left():
    lines = format_table(["a", "b"], [["cc", "dd"]], left=("a",)).splitlines()
    assert lines == ["a    b", "--  --", "cc  dd"]


def test_no_rows():
    assert format_table(["a", "bb"], []) == "a  bb\n-  --"
