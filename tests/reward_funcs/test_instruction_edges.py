"""Responses and golds at the edge: nothing to see, bullets without text, spans outside of their text."""

from __future__ import annotations

import pytest

from reward_funcs.base import Grade
from reward_funcs.instructions import InstructionReward

from .test_instruction_reward import graded, one

# ---- nothing to see, nothing to follow


@pytest.mark.parametrize(
    "text", ["\u200b", "\ufeff", "\u00ad", "\u2060", "\x00", "\u2800", "\u3164", " \u200b\n\ufe0f"]
)
def test_response_without_a_visible_character_follows_nothing(text: str) -> None:
    for mode in ("strict", "loose"):
        for name in ("punctuation:no_comma", "format:no_whitespace", "words:vowel"):
            assert graded(text, one(name), InstructionReward(mode=mode)) == Grade(0.0, "empty", f"{name} no")  # type: ignore[arg-type]
    assert graded("." + text, one("punctuation:no_comma")).reward == 1.0


@pytest.mark.parametrize(
    ("text", "bullets"),
    [("* a\n* b", 2), ("*\n* a", 1), ("* a\n*", 1), ("- a\n-\n**b**", 2), ("*", 0), ("*a\n * b", 2)],
)
def test_asterisk_alone_is_no_bullet(text: str, bullets: int) -> None:
    name = "detectable_format:number_bullet_lists"
    found = [number for number in range(4) if graded(text, one(name, num_bullets=number)).reward]
    assert found == [bullets]


@pytest.mark.parametrize(
    ("name", "start", "end", "fits"),
    [
        ("new:copy_span_idx", 0, 3, True),
        ("new:copy_span_idx", 9, 9, True),
        ("new:copy_span_idx", 10, 20, False),
        ("new:copy_span_idx", 5, 3, False),
        ("repeat:repeat_span", 1, 1, True),
        ("repeat:repeat_span", 2, 5, False),
    ],
)
def test_span_outside_of_the_text_is_a_bad_constraint(name: str, start: int, end: int, fits: bool) -> None:
    gold = one(name, prompt_to_repeat="Name atree", n_start=start, n_end=end)
    assert (graded("x", gold).reason == "bad_constraint") is not fits
