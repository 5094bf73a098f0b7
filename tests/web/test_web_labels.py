"""Labels from files: what cannot be seen is written out, and everything else stays as it is."""

import pytest

from cf2.web.labels import visible, visible_context


@pytest.mark.parametrize("text", ["", "busy", "Größe → 3 µm", "标签", "נייטרלי", "👩‍🔬", "<b>&amp;</b>", "a\u00a0b"])
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


@pytest.mark.parametrize("code", [0x00, 0x1B, 0x7F, 0x85, 0x200F, 0x2028, 0x202E, 0x2066, 0xD800, 0xDFFF, 0xFFFF])
def test_what_cannot_be_seen_is_written_as_its_number(code: int) -> None:
    assert visible(f"a{chr(code)}b") == f"a\\u{code:04x}b"


def test_every_label_of_a_context_is_made_visible_and_nothing_else_is_touched() -> None:
    odd, seen = "\x00", "\\u0000"
    graphs = {"0": {"labels": [odd, "C"], "bonds": [[0, 1, 2]]}, "1": None}
    context = {
        "dataset": odd,
        "model": odd,
        "class_names": [odd, 3],
        "atoms": (odd,),
        "graphs": graphs,
        "truth": {"0": []},
    }
    assert visible_context(context) == {
        "dataset": seen,
        "model": seen,
        "class_names": [seen, "3"],
        "atoms": [seen],
        "graphs": {"0": {"labels": [seen, "C"], "bonds": [[0, 1, 2]]}, "1": None},
        "truth": {"0": []},
    }
    assert context["graphs"] is graphs
    assert visible_context({}) == {}
