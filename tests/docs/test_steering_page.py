from __future__ import annotations

import pytest
from documented_tests import names_of_tests


@pytest.mark.parametrize("columns", [3, 4])
def test_every_row_is_complete_and_names_a_test(page, columns):
    (table,) = [rows for rows in page.tables() if len(rows[0]) == columns]
    assert [row for row in table[2:] if len(row) != columns or not all(row) or not names_of_tests(row[-1])] == []
