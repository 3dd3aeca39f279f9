"""Sentences, tokens and emoji as the checkers of constraints see them."""

from __future__ import annotations

import pytest

from reward_funcs.instructions.response import (
    Response,
    begins_with_emoji,
    end_mark,
    ends_with_emoji,
    plain_words,
    sentences,
    tokens,
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        (" \n ", []),
        ("no mark", ["no mark"]),
        ("xx,x. xx,x! xx/x. x{x}x? x.", ["xx,x.", "xx,x!", "xx/x.", "x{x}x?", "x."]),
        ("A line\nbreak ends none. Two", ["A line\nbreak ends none.", "Two"]),
        ("Dr. Li met Mr. J. R. Lo. They ate.", ["Dr. Li met Mr. J. R. Lo.", "They ate."]),
        ("Plan B. Then we go.", ["Plan B.", "Then we go."]),
        ("In the U.S. Army. In the U.S. The end.", ["In the U.S. Army.", "In the U.S.", "The end."]),
        ("At 5 p.m. we ate, e.g. tea, etc. and so on.", ["At 5 p.m. we ate, e.g. tea, etc. and so on."]),
        ("Bring tea etc. Then go.", ["Bring tea etc.", "Then go."]),
        ("See fig. 3 and no. 4. I say no. Go.", ["See fig. 3 and no. 4.", "I say no.", "Go."]),
        ("It is 3.14. Go to a.b.com now.", ["It is 3.14.", "Go to a.b.com now."]),
        ("1. One.\n2. Two.\n  **3.** Three.", ["1. One.", "2. Two.", "**3.** Three."]),
        ("Is it 5? 42. No.", ["Is it 5?", "42.", "No."]),
        ("Wait... what?! Wait... What… yes.", ["Wait... what?!", "Wait...", "What… yes."]),
        ('He said "Go." (So he did.) **Well.** End', ['He said "Go."', "(So he did.)", "**Well.**", "End"]),
        ("Hi! 🙂 Bye! 🙂", ["Hi!", "🙂 Bye! 🙂"]),
        ("... Hi. ***", ["... Hi. ***"]),
        ("你好。再见！नमस्ते। हाँ।", ["你好。", "再见！", "नमस्ते।", "हाँ।"]),
        ("Really?No!Yes", ["Really?No!Yes"]),
        ("Go to x.org. Bob did.", ["Go to x.org.", "Bob did."]),
    ],
)  # fmt: skip
def test_sentences_of_text(text: str, found: list[str]) -> None:
    assert sentences(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("It's Ann's, don't!", ["It", "'s", "Ann", "'s", ",", "do", "n't", "!"]),
        ("It’s “fine”…", ["It", "’s", "“", "fine", "”", "…"]),
        ("I cannot; 'so' be it.", ["I", "can", "not", ";", "'", "so", "'", "be", "it", "."]),
        ("well-known -- a/b, 1,000: x:y", ["well-known", "--", "a/b", ",", "1,000", ":", "x", ":", "y"]),
        ("The U.S. is big (so.)", ["The", "U.S.", "is", "big", "(", "so", ".", ")"]),
        ("Wait... $5%", ["Wait", "...", "$", "5", "%"]),
        ("the dogs' tails", ["the", "dogs", "'", "tails"]),
        ("'", ["'"]),
        ("Cannot .", ["Can", "not", "."]),
        ("n't 's", ["n't", "'", "s"]),
    ],
)
def test_tokens_of_text(text: str, found: list[str]) -> None:
    assert tokens(text) == found


def test_response_words_are_tokens_with_a_letter_or_digit() -> None:
    response = Response("No - 1 (one), it's…")
    assert response.words == ["No", "1", "one", "it", "'s"]
    assert response.num_words == 5


def test_plain_words_have_no_punctuation() -> None:
    assert plain_words("Well-known, (isn't) it - ?") == ["wellknown", "isnt", "it"]


@pytest.mark.parametrize("emoji", ["🙂", "❤️", "👍🏽", "🇫🇷", "✅", "👩‍💻", "©", "7️⃣", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"])
def test_emoji_at_the_end_is_seen_behind_and_before_punctuation(emoji: str) -> None:
    if emoji != "7️⃣":  # a keycap is a digit with a frame, to NLTK's users too
        assert ends_with_emoji(f"Tea. {emoji}")
        assert ends_with_emoji(f"Tea {emoji}!)")
        assert begins_with_emoji(f"- {emoji} Tea")
    assert not ends_with_emoji(f"{emoji} Tea.")


@pytest.mark.parametrize("text", ["", "...", "Tea", "5", "é", "→", "“"])
def test_other_characters_are_no_emoji(text: str) -> None:
    assert not ends_with_emoji(text)
    assert not begins_with_emoji(text)


@pytest.mark.parametrize(
    ("sentence", "mark"), [("One.", "."), ('"Why?" 🙂', "?"), ("Go!)**", "!"), ("What?!", "!"), ("none", ""), ("", "")]
)
def test_end_mark_of_sentence(sentence: str, mark: str) -> None:
    assert end_mark(sentence) == mark
