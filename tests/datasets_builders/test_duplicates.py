import itertools
import random

import pytest
from datasets import Dataset, DatasetDict

from datasets_builders import duplicates
from datasets_builders.checks import deduplicate
from datasets_builders.duplicates import prompt_key
from datasets_builders.golds import gold_key
from datasets_builders.schema import features, preference_row, rl_row, sft_row

NOTHING = {"duplicate": 0, "disagreeing": 0, "near_duplicate": 0, "near_kept": 0}


def row(text, gold="$1$", task="math", **extra):
    return rl_row(text, gold, task=task, source="mine", **extra)


def numbered(*texts_and_golds, task="math"):
    """Rows whose id is their place."""
    return [row(text, gold, task, source_id=place) for place, (text, gold) in enumerate(texts_and_golds)]


def kept_places(rows, **settings):
    kept, report = deduplicate(rows, **settings)
    return [int(row["source_id"]) for row in kept], {name: count for name, count in report.items() if count}


# --- which prompts are the same


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("What is $2+2$?", "what is  2 + 2"),
        ("Find x.\n\nThanks", "find X; thanks."),
        ("Tom’s “well-known” book", 'toms "well known" book'),
        ("Ｆｉｎｄ\u00a0ｘ＋１", "find x+1"),
        (r"\(x^2\) and \[y\]", "$x^2$ and $$y$$"),
        ("x² − 1", "x^2 - 1"),
        ("Good luck!", "Good luck"),
        ("求 x 的值。", "求x的值"),
        ("STRASSE", "straße"),
        ("Is it 2.5? Yes.", "is it 2.5 yes"),
        ("😀 😀", "😀😀"),
    ],
)
def test_prompts_are_the_same_but_for_case_spaces_and_punctuation(first, second):
    assert kept_places(numbered((first, "$1$"), (second, "$1$"))) == ([0], {"duplicate": 1})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("What is 2 + 3?", "What is 2 - 3?"),
        ("What is 2 + 3?", "What is 2 * 3?"),
        ("What is 2 - 3?", "What is 23?"),
        ("Use 1, 23 and 4.", "Use 12, 3 and 4."),
        ("Use [1, 23]", "Use [12, 3]"),
        ("Choose 3. 5 remain", "Choose 35 remain"),
        ("Choose 3 .5 remain", "Choose 3.5 remain"),
        ("It costs 2.5", "It costs 25"),
        ("It costs .5", "It costs 5"),
        ("x-y is odd", "xy is odd"),
        ("What is x - y when", "What is xy when"),
        ("Find 5!", "Find 5"),
        ("Find n! now", "Find n now"),
        ("Find f'(2)", "Find f(2)"),
        ("2(x+1)", "2x+1"),
        ("88 / (4 / 2)", "88 / 4 / 2"),
        ("k > 0", "k < 0"),
        ("x ≤ 1", "x ≥ 1"),
        ("a + bc", "ab + c"),
        ("|x| = 1", "x = 1"),
        ("x^2", "x2"),
        ("x₂", "x²"),
        ("5% of it", "5 of it"),
        ("♠A", "♥A"),
        ("कि", "का"),
        ("😀", "🎉"),
        ("求三", "求四"),
    ],
)
def test_prompts_that_ask_something_else_both_stay(first, second):
    rows = numbered((first, "$1$"), (second, "$1$"))
    assert kept_places(rows) == ([0, 1], {})
    assert kept_places(rows, near=True) == ([0, 1], {})


def test_first_of_the_duplicates_stays_in_the_order_of_the_rows():
    rows = numbered(("b", "1"), ("a", "2"), ("B", "1"), ("c", "3"), ("a.", "2"), ("A", "2"))
    assert kept_places(rows) == ([0, 1, 3], {"duplicate": 3})


def test_empty_prompts_are_duplicates_of_each_other_alone():
    rows = numbered(("", "1"), (" ", "1"), ("?", "1"), ("$", "1"), ("x", "1"))
    assert kept_places(rows) == ([0, 2, 3, 4], {"duplicate": 1})


def test_user_turns_alone_are_compared():
    one = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}]
    two = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "why"}]
    kept, report = deduplicate([row(one), row(two)])
    assert (len(kept), report["duplicate"]) == (1, 1)


# --- golds


def test_duplicates_whose_golds_differ_all_go():
    rows = numbered(("a", "$1$"), ("b", "$5$"), ("A", "$2$"), ("a.", "$1$"), ("B", "$5$"))
    assert kept_places(rows) == ([1], {"duplicate": 1, "disagreeing": 3})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("$5$", "5.0"),
        ("$-0$", "0"),
        ("$+3$", "$3.$"),
        (r"$\dfrac{1}{2}$", r"$ \frac{1}{2} $"),
        (r"$\left(1, 2\right)$", "$(1,2)$"),
        (r"$4\,000$", "4000"),
        (r"$\mathbf{2340}$", "2340"),
        (r"\text{yes}", "yes"),
        ("100", "100.00"),
        ("$1/2$", r"$\frac{1}{2}$"),
        (r"$\frac12$", "0.5"),
        (r"$\dfrac{2}{4}$", "$.50$"),
        (r"$-\frac{1}{2}$", r"$\frac{-1}{2}$"),
        (r"$\frac{-3}{-6}$", "1/2"),
        ("$6/3$", "$2$"),
        ("1\\,000/3", "$1\\,000/3$"),
    ],
)
def test_golds_that_differ_in_writing_alone_agree(first, second):
    assert gold_key(first) == gold_key(second)
    assert kept_places(numbered(("a", first), ("A", second))) == ([0], {"duplicate": 1})


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("$5$", "$-5$"),
        ("$5$", "$50$"),
        ("$5$", "$0.5$"),
        ("1e5", "15"),
        ("$(1,2)$", "$(1.2)$"),
        ("$(0,1)$", "$[0,1]$"),
        ("$x-1$", "$x+1$"),
        ("A", "B"),
        (r"$\frac{1}{2}$", r"$\frac{12}{}$"),
        ("$x_1$", "$x^1$"),
        ("\\left", "\\right"),
        (" ", "$"),
        ("0" * 50, "0"),
        ("$1/2$", r"$-\frac{1}{2}$"),
        ("$1/2$", "$2/1$"),
        ("0.333", "1/3"),
        ("1 1/2", "11/2"),
        (r"1\ \text{1/2}", "11/2"),
        (r"1\frac{1}{2}", "1/2"),
        ("3 4", "34"),
        ("5/0", "6/0"),
        (r"$\frac{1}{2}x$", r"$\frac{1}{2}$"),
        (r"\frac123", r"\frac12"),
    ],
)
def test_golds_that_may_be_different_disagree(first, second):
    assert gold_key(first) != gold_key(second)
    assert kept_places(numbered(("a", first), ("A", second))) == ([], {"disagreeing": 2})


@pytest.mark.parametrize("task", ["code", "judge"])
def test_tests_and_references_contradict_nothing(task):
    rows = numbered(("a", '{"asserts": ["x"]}'), ("a", '{"asserts": ["y"]}'), task=task)
    assert kept_places(rows) == ([0], {"duplicate": 1})


def test_rows_without_golds_are_compared_by_their_prompts():
    rows = [{"prompt": [{"role": "user", "content": text}]} for text in ("a", "b", "A")]
    assert deduplicate(rows) == (rows[:2], NOTHING | {"duplicate": 1})


# --- other kinds of rows


def test_supervised_rows_are_compared_with_their_completions():
    rows = [
        sft_row(prompt, completion, source="mine") for prompt, completion in (("a", "one"), ("a", "two"), ("A", "One."))
    ]
    assert deduplicate(rows) == (rows[:2], NOTHING | {"duplicate": 1})


def test_preferences_are_compared_with_both_replies():
    pairs = [("good", "bad"), ("good", "worse"), ("Good!", "bad"), ("worse", "bad"), ("bad", "worse")]
    rows = [preference_row("a", chosen, rejected, source="mine") for chosen, rejected in pairs]
    kept, report = deduplicate(rows)
    assert kept == rows[:2]
    assert report == NOTHING | {"duplicate": 1, "disagreeing": 2}


# --- near duplicates

STORY = (
    "Josie got 50 dollars as a gift from her aunt and wants to buy two tapes at 9 dollars each and a set of headphones "
    "at 25 dollars in the small shop round the corner. How many dollars are left to her"
)


def test_near_duplicates_stay_unless_asked_for():
    rows = numbered((STORY, "7"), (STORY.replace("Josie", "Amanda"), "7"))
    assert kept_places(rows) == ([0, 1], {})
    assert kept_places(rows, near=True) == ([0], {"near_duplicate": 1})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("50", "60"),
        ("9", "9.5"),
        ("two", "three"),
        ("at 25", "at -25"),
        ("to her", "to her + tax"),
        ("50", ""),
    ],
)
def test_near_duplicates_with_other_numbers_or_signs_stay(old, new):
    rows = numbered((STORY, "7"), (STORY.replace(old, new), "7"))
    assert kept_places(rows, near=True) == ([0, 1], {})


def test_near_duplicates_with_numbers_exchanged_stay():
    exchanged = STORY.replace("50", "x").replace("25", "50").replace("x", "25")
    assert kept_places(numbered((STORY, "7"), (exchanged, "7")), near=True) == ([0, 1], {})


def test_near_duplicates_with_other_golds_stay_and_are_counted():
    rows = numbered((STORY, "7"), (STORY.replace("Josie", "Amanda"), "8"), (STORY.replace("Josie", "Tom"), "7.0"))
    assert kept_places(rows, near=True) == ([0, 1], {"near_duplicate": 1, "near_kept": 1})


def test_near_duplicates_of_judged_rows_need_no_equal_reference():
    rows = numbered((STORY, "one text"), (STORY.replace("Josie", "Amanda"), "another"), task="judge")
    assert kept_places(rows, near=True) == ([0], {"near_duplicate": 1})
    rows = numbered((STORY, "one text"), (STORY.replace("Josie", "Amanda"), "another"), task="code")
    assert kept_places(rows, near=True) == ([0, 1], {"near_kept": 1})


@pytest.mark.parametrize(("changed", "is_near"), [(1, True), (2, False)])
def test_jaccard_index_of_four_fifths_is_just_near(changed, is_near):
    # 13 different words hold 9 shingles; another last word leaves 8 of 10, the last two 7 of 11
    words = "aa bb cc dd ee ff gg hh ii jj kk ll mm".split()
    other = [*words[: 13 - changed], *"xx yy".split()[:changed]]
    kept, _ = kept_places(numbered((" ".join(words), "1"), (" ".join(other), "1")), near=True)
    assert kept == ([0] if is_near else [0, 1])


def test_likeness_is_not_passed_on_by_rows_that_were_dropped():
    # each is like its neighbours, the third is not like the first
    words = [f"{letter}{letter}" for letter in "abcdefghijklmnopqrst"]
    texts = [" ".join(words[start : start + 17]) for start in (0, 1, 2)]
    assert kept_places(numbered(*((text, "1") for text in texts[:2])), near=True)[0] == [0]
    assert kept_places(numbered(*((text, "1") for text in texts)), near=True)[0] == [0, 2]


def test_chinese_prompts_are_compared_by_letters():
    text = "小明有一些苹果他把其中的一半给了小红然后又买了新的请问现在他手里的苹果比原来多还是少并说明理由是什么呢"
    rows = numbered((text, "多"), (text.replace("呢", "啊"), "多"), (text[:20], "多"))
    assert kept_places(rows, near=True) == ([0, 2], {"near_duplicate": 1})


def test_prompts_of_few_words_are_compared_as_a_whole_alone():
    rows = numbered(("Name a big river", "x"), ("Name a big lake", "x"), ("", "x"))
    assert kept_places(rows, near=True) == ([0, 1, 2], {})


def test_very_long_prompts_are_compared():
    long = " ".join(f"w{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}" for i in range(25_000))
    rows = numbered((long, "1"), (long + " end", "1"), ("x" * 100_000, "1"))
    assert kept_places(rows, near=True) == ([0, 2], {"near_duplicate": 1})


def _slow_near(texts, golds):
    """Places that stay, and how many near duplicates of another gold do."""
    sets = [
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (text.split() for text in texts)
    ]  # the texts hold plain words alone
    kept, other = [], 0
    for place, (mine, gold) in enumerate(zip(sets, golds, strict=True)):
        like = [k for k in kept if mine and len(mine & sets[k]) * 5 >= len(mine | sets[k]) * 4]
        if any(golds[k] == gold for k in like):
            continue
        other += bool(like)
        kept.append(place)
    return kept, other


@pytest.mark.parametrize("seed", range(8))
def test_near_duplicates_equal_a_plain_loop_over_all_pairs(seed):
    draw = random.Random(seed)
    vocabulary = [a + b for a, b in itertools.product("bcdfgh", "aeiou")]
    texts = []
    while len(texts) < 120:
        if texts and draw.random() < 0.6:
            words = draw.choice(texts).split()
            for _ in range(draw.randrange(4)):
                place = draw.choice([0, len(words) - 1, draw.randrange(len(words))])
                words[place : place + draw.randrange(2)] = draw.choices(vocabulary, k=draw.randrange(2))
                words = words or ["ba"]
        else:
            words = draw.choices(vocabulary, k=draw.randrange(1, 40))
        if " ".join(words) not in texts:
            texts.append(" ".join(words))
    golds = [draw.choice("AB") for _ in texts]
    expected, other = _slow_near(texts, golds)
    kept, report = kept_places(numbered(*zip(texts, golds, strict=True)), near=True)
    assert kept == expected
    assert report == {"near_duplicate": 120 - len(expected), "near_kept": other}
    assert 20 < len(kept) < 115


def test_prompts_of_one_template_are_compared_with_few_of_each_other(monkeypatch):
    compared = []
    is_like = duplicates._NearIndex._is_like
    monkeypatch.setattr(duplicates._NearIndex, "_is_like", lambda *args: compared.append(args) or is_like(*args))
    draw = random.Random(0)
    vocabulary = [a + b + c for a, b, c in itertools.product("bcdfgh", "aeiou", "klmn")]
    template = " ".join(draw.choices(vocabulary, k=80))
    texts = dict.fromkeys(f"{template} {' '.join(draw.choices(vocabulary, k=15))}" for _ in range(400))
    kept, _ = kept_places(numbered(*((text, "1") for text in texts)), near=True)
    assert kept == list(range(400))
    assert 0 < len(compared) <= 2 * 20 * 400


# --- kinds of data


def _many():
    draw = random.Random(1)
    texts = [
        f"{draw.choice(['What is', 'what  is'])} {draw.randrange(900)} + {draw.randrange(2)}?" for _ in range(2600)
    ]
    rows = [row(text, f"${draw.randrange(2)}$" if " 7" in text else "$1$") for text in texts]
    return Dataset.from_list(rows, features=features("rl"))


def test_dataset_over_several_batches_equals_the_list_of_its_rows():
    dataset = _many()
    kept, report = deduplicate(dataset, near=True)
    assert deduplicate(dataset.to_list(), near=True) == (kept.to_list(), report)
    assert len({prompt_key(row["prompt"][0]["content"]) for row in kept}) == len(kept)
    assert report["disagreeing"] > 10
    assert len(kept) + report["duplicate"] + report["disagreeing"] == 2600
    assert kept.features == dataset.features
    assert deduplicate(kept, near=True) == (kept, NOTHING)


def test_order_of_the_rows_decides_which_stays_and_nothing_else():
    dataset = _many()
    shuffled = dataset.shuffle(seed=5)
    (kept, report), (other, other_report) = deduplicate(dataset), deduplicate(shuffled)
    keys = [sorted(prompt_key(row["prompt"][0]["content"]) for row in rows) for rows in (kept, other)]
    assert keys[0] == keys[1]
    assert report == other_report
    assert other.to_list() == deduplicate(shuffled.to_list())[0]


def test_dataset_without_duplicates_is_returned_as_it_is():
    dataset = Dataset.from_list([row("a"), row("b")], features=features("rl"))
    assert deduplicate(dataset, near=True)[0] is dataset


@pytest.mark.parametrize("near", [False, True])
def test_empty_data_give_an_empty_report(near):
    assert deduplicate([], near=near) == ([], NOTHING)
    empty = Dataset.from_list([row("a")], features=features("rl")).select([])
    assert len(deduplicate(empty, near=near)[0]) == 0


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (Dataset.from_list([row("a")]).to_iterable_dataset(), r"deduplicate needs all rows .*stream; take rows first"),
        (DatasetDict({"test": Dataset.from_list([row("a")])}), r"deduplicate: .*test; give one split"),
        (Dataset.from_list([{"question": "a"}]), r"deduplicate needs the column 'prompt', and the data has question"),
        (["a"], r"deduplicate: the data must be a Dataset or a list of rows"),
    ],
)
def test_bad_data_are_refused(dataset, message):
    with pytest.raises(ValueError, match=message):
        deduplicate(dataset)
