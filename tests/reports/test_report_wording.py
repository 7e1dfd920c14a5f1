"""How figures are written."""

import pytest

from reports.wording import clip, one_line, percent, plural, significant


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (66.04, "66.0"),
        (9.996, "10.0"),
        (99.96, "100"),
        (267.4, "267"),
        (1234.5, "1230"),
        (0.1234, "0.123"),
        (0.00012345, "0.000123"),
        (1.2e-9, "1.20e-09"),
        (-3.14159, "-3.14"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
    ],
)
def test_three_significant_digits(value, text):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (1.0, "100 %"), (0.9999, "> 99.9 %"), (0.0, "0 %"), (0.437, "43.7 %"), (1.013, "101 %")],
)
def test_only_all_is_100_percent(share, text):
    assert percent(share) == text


def test_text_is_bounded_and_one_line():
    assert clip("abc", 3) == "abc"
    assert clip("abcdef", 3) == "abc… (3 characters more)"
    assert one_line(" a\n\tb\r\nc ") == "a b c"
    assert plural(1, "cell") == "1 cell"
    assert plural(2, "cell") == "2 cells"
