import json
import pickle
import random
import re
import unicodedata
from pathlib import Path

import pytest
from datasets import Dataset, DatasetDict

from datasets_builders import contamination
from datasets_builders.checks import decontaminate
from datasets_builders.instructions import instructed
from datasets_builders.ngrams import Vocabulary, ngrams, words
from datasets_builders.schema import features, rl_row

LETTERS = [f"{letter}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]


def rows_of(*texts):
    return [rl_row(text, "$1$", task="math", source="mine") for text in texts]


def texts_of(rows):
    return [row["prompt"][-1]["content"] for row in rows]


def contaminated(train, evaluation, **settings):
    """Whether the one training prompt is dropped for the one evaluation prompt."""
    kept, report = decontaminate(rows_of(train), {"mine": [evaluation]}, **settings)
    assert report["contaminated"] == report["by_set"]["mine"] == 1 - len(kept)
    return not kept


def sentence(*numbers):
    return " ".join(LETTERS[number] for number in numbers)


# --- words and n-grams


@pytest.mark.parametrize(
    ("text", "unit", "expected"),
    [
        ("Find  X,\n\tplease", "word", ["find", "x,", "please"]),
        ("Find X, $x^2$", "token", ["find", "x", ",", "$", "x", "^", "2", "$"]),
        ("Ｆｉｎｄ\u3000Straße", "word", ["find", "strasse"]),
        ("已知 f(x) 是偶函数", "word", ["已", "知", "f(x)", "是", "偶", "函", "数"]),
        ("値はx=3です", "token", ["値", "は", "x", "=", "3", "で", "す"]),
        ("หา x", "word", ["ห", "า", "x"]),
        ("세 수의 합", "word", ["세", "수의", "합"]),
        ("", "word", []),
        (" \n ", "token", []),
    ],
)
def test_words_of_text_are_lower_case_pieces(text, unit, expected):
    assert words(text, unit) == expected


def test_ngrams_stay_within_their_text_and_tell_order_apart():
    numbers, lengths = Vocabulary().numbers([["a", "b", "c"], ["b"], [], ["b", "a"], ["a", "b"]])
    hashes, texts, starts = ngrams(numbers, lengths, 2)
    assert texts.tolist() == [0, 0, 3, 4]
    assert starts.tolist() == [0, 1, 4, 6]
    assert hashes[0] == hashes[3]
    assert len(set(hashes.tolist())) == 3


# --- coverage: 26 different words, so every shared n-gram is meant


@pytest.mark.parametrize(
    ("train", "length", "expected"),
    [
        (range(8), 16, True),  # 8 of 16 words are just half
        (range(8), 17, False),  # 8 of 17 are less
        (range(7), 13, False),  # no 8-gram in common
        ([*range(8), 25, *range(10, 18)], 26, True),  # two 8-grams cover 16 of 26
        ([*range(8), 25, *range(9, 16)], 26, False),  # the second part is no 8-gram
        (range(4, 17), 26, True),  # six overlapping 8-grams cover 13 of 26 words, not 48
        (range(4, 16), 26, False),  # 12 of 26
    ],
)
def test_coverage_counts_words_of_the_evaluation_prompt(train, length, expected):
    assert contaminated(sentence(*train), sentence(*range(length))) is expected


def test_coverage_is_of_the_evaluation_prompt_and_not_of_the_training_prompt():
    short, long = sentence(*range(10)), sentence(*range(26))
    assert contaminated(long, short)
    assert not contaminated(short, long)


def test_coverage_bound_is_the_callers():
    train, evaluation = sentence(*range(10)), sentence(*range(20))
    assert contaminated(train, evaluation, coverage=0.5)
    assert not contaminated(train, evaluation, coverage=0.51)
    assert contaminated(evaluation, evaluation + " zz", coverage=20 / 21)


def test_coverage_of_two_prompts_does_not_add_up():
    first, second = sentence(*range(18)), " ".join(reversed(sentence(*range(18)).split()))
    train = sentence(*range(8)) + " and " + " ".join(second.split()[:8])
    _, report = decontaminate(rows_of(train), {"mine": [first, second]})
    assert report["contaminated"] == 0


def test_repeated_ngram_of_the_training_prompt_covers_no_more():
    assert not contaminated(" - ".join([sentence(*range(8))] * 5), sentence(*range(17)))


def test_repeated_ngram_of_the_evaluation_prompt_is_covered_at_each_place():
    part = sentence(*range(8))
    assert contaminated(part, f"{part} x y z {part}")


def test_any_mode_drops_for_one_shared_ngram():
    train, evaluation = sentence(25, *range(8)), sentence(*range(20))
    assert contaminated(train, evaluation, mode="any")
    assert not contaminated(train, evaluation)
    assert not contaminated(sentence(25, *range(7)), evaluation, mode="any")


def test_any_mode_reads_n():
    train, evaluation = sentence(*range(3)), sentence(*range(20))
    assert contaminated(train, evaluation, mode="any", n=3)
    assert not contaminated(train, evaluation, mode="any", n=4)


@pytest.mark.parametrize("mode", contamination.MODES)
@pytest.mark.parametrize(
    ("train", "evaluation", "expected"),
    [
        ("What is 2+2?", "what is $ 2 + 2 $", True),
        ("ＷＨＡＴ is ½ of x?", "what is 1⁄2 of X", True),
        ("STRASSE", "straße", True),
        ("求 x 的值。", "求x的值", True),
        ("What is 2+2?", "What is 2+3?", False),
        ("😀😀", "😀 😀", True),
        ("😀", "🎉", False),
        ("", "", False),
        ("What?", "", False),
        ("", "What?", False),
    ],
)
def test_equal_letters_and_digits_are_contaminated_in_every_mode(mode, train, evaluation, expected):
    _, report = decontaminate(rows_of(train), {"mine": [evaluation, "another one"]}, mode=mode)
    assert report == {"contaminated": int(expected), "exact": int(expected), "by_set": {"mine": int(expected)}}


def test_exact_mode_looks_at_no_ngrams():
    evaluation = sentence(*range(20))
    assert not contaminated(sentence(*range(19)) + " zz", evaluation, mode="exact")
    assert contaminated(sentence(*range(19)) + " zz", evaluation)


def test_chinese_text_without_spaces_is_compared_by_letters():
    evaluation = "已知正整数的平方和等于一百求它们的最大可能乘积"
    assert contaminated(evaluation[:-4] + "最小差是多少", evaluation)
    assert not contaminated("求它们的最大可能", evaluation)
    assert contaminated("求它们的最大可能", evaluation, mode="any")
    assert not contaminated("求它们的最大可", evaluation, mode="any")


def test_tokens_split_what_words_hold_together():
    train = "Find all integer roots of $x^3-2x+1$."
    evaluation = "Find all integer roots of $x^3-7x+9$."
    assert not contaminated(train, evaluation)
    assert contaminated(train, evaluation, unit="token")


def test_ngrams_of_short_words_are_left_out_on_request():
    evaluation = "a b c d alpha beta gamma delta"
    assert contaminated(f"Now {evaluation} now", evaluation + " z", ignore_short_tokens=True)  # 4 of 8 is no majority
    evaluation = "a b c d e alpha beta gamma"
    train = f"Now {evaluation} now"
    assert contaminated(train, evaluation + " z")
    assert not contaminated(train, evaluation + " z", ignore_short_tokens=True)


def test_turns_of_system_and_user_are_compared():
    evaluation = sentence(*range(12))
    turns = [
        {"role": "user", "content": "First."},
        {"role": "assistant", "content": evaluation},
        {"role": "user", "content": "Second."},
    ]
    _, report = decontaminate([{"prompt": turns}], {"mine": [evaluation, "first. SECOND"]})
    assert report["exact"] == report["contaminated"] == 1
    _, report = decontaminate([{"prompt": turns}], {"mine": [evaluation]})
    assert report["contaminated"] == 0
    for mode in contamination.MODES:
        asked = [{"role": "system", "content": f"Be kind. {evaluation}"}, {"role": "user", "content": "Solve it."}]
        assert decontaminate([{"prompt": asked}], {"mine": [evaluation]}, mode=mode)[0] == []


FRACTION = r"Let $x$ be a number with $f(x) = \frac{1}{2} + 3(x - 1)$. What is $f(5)$?"


@pytest.mark.parametrize(
    "train",
    [
        FRACTION.replace(r"\frac", r"\dfrac").replace("(", r"\left(").replace(")", r"\right)"),
        r"Let \( x \) be a number with \( f(x) = \frac{1}{2} + 3(x - 1) \). What is \( f(5) \)? Explain each step.",
        FRACTION.replace(" ", "  ").replace("=", "  = ").replace("+", "+\n") + " Explain each step.",
        "Problem 12. " + FRACTION,
        "Solve this problem:\n" + FRACTION + " Give reasons.",
        r"Let \[x\] be a number with $f(x)\,=\,\tfrac{1}{2}+3\big(x-1\big)$. What is $f(5)$?",
    ],
)
@pytest.mark.parametrize("mode", contamination.MODES)
def test_problem_in_another_setting_or_with_a_sentence_around_it_is_contaminated(train, mode):
    assert contaminated(train, FRACTION, mode=mode)


def test_changed_formula_in_a_long_problem_is_told_by_its_words():
    # nothing is held whole; five of the nine words in one setting of the formula stand side by side
    train = r"Let \( x \) be a number with \( f(x) = \dfrac{1}{2} + 3(x-1) \). What is \( f(6) \)?"
    assert not contaminated(train, FRACTION, mode="exact")
    assert contaminated(train, FRACTION, n=6)


def test_short_problem_counts_where_it_is_a_sentence_of_its_own():
    evaluation = r"Compute $\sin 60^\circ$."  # 16 letters and digits
    assert contaminated(r"Think. Compute \(\sin 60^{\circ}\). Then stop.", evaluation, mode="exact")
    assert not contaminated(r"Compute $\sin 60^\circ + 1$.", evaluation, mode="exact")
    assert not contaminated(r"First compute $\sin 60^\circ$. Then stop.", evaluation, mode="exact")
    assert not contaminated("Now what is 1 + 1? Tell me.", "What is 1 + 1?", mode="exact")  # 8 of them: as a whole


def test_whole_prompt_is_found_between_words_alone():
    evaluation = "Find the number of divisors of 18"
    assert contaminated(evaluation + " please", evaluation, mode="exact")
    assert not contaminated(evaluation + "0", evaluation, mode="exact")
    assert not contaminated("re" + evaluation, evaluation, mode="exact")


@pytest.mark.parametrize("bad", [None, 5, [{"role": "user", "content": None}], [None], [{"content": "a"}]])
def test_prompt_that_holds_no_text_is_named(bad):
    for call in (
        lambda: decontaminate([{"prompt": bad}], {"mine": ["what is x"]}),
        lambda: decontaminate([{"prompt": "a"}], {"mine": [{"prompt": bad}]}),
    ):
        with pytest.raises(ValueError, match=r"prompt.* must be a (text|turn)"):
            call()


@pytest.mark.parametrize("preset", ["boxed", "think_answer"])
@pytest.mark.parametrize("mode", contamination.MODES)
def test_instructions_of_build_are_taken_out_of_both_sides(preset, mode):
    train, evaluation = rows_of("What is 2 + 2?", "What is 5 - 3?"), rows_of("What is 2+2 ?", "Name a prime.")
    train, evaluation = ([instructed(row, instruction=preset) for row in rows] for rows in (train, evaluation))
    kept, report = decontaminate(train, {"mine": evaluation}, mode=mode)
    assert (kept, report["exact"], report["contaminated"]) == ([train[1]], 1, 1)
    _, report = decontaminate(train, {"mine": evaluation}, mode="any", ignore=())
    assert report["contaminated"] == 2


def test_ignored_texts_are_found_whatever_their_spaces_and_capitals():
    wording = "Answer in one word only and do not explain your answer (please)."
    train = "Name a river. ANSWER  in one\nword only and do not explain your answer (please)."
    assert contaminated(train, f"Name a lake. {wording}")
    assert not contaminated(train, f"Name a lake. {wording}", ignore=[wording])
    assert contaminated(train, "name a river", ignore=[wording])


def test_ignored_text_that_begins_with_another_one_goes_as_a_whole():
    wordings = ["Answer briefly.", "Answer briefly. Give no reasons, no examples and no further remarks, please."]
    train, evaluation = f"Name a river. {wordings[1]}", f"Name a lake. {wordings[1]}"
    assert contaminated(train, evaluation, ignore=wordings[:1])
    assert not contaminated(train, evaluation, ignore=wordings)


def test_row_counts_for_every_set_that_it_meets():
    train = rows_of(sentence(*range(20)), sentence(*range(8)), "What is 2 + 2?", "Nothing else.")
    evaluations = {
        "texts": (sentence(*range(12)), "what is 2+2"),
        "rows": rows_of(sentence(*range(4, 16))),
        "dataset": Dataset.from_list(rows_of("What is 2 + 2 ?", "Other."), features=features("rl")),
        "none": ["Unrelated."],
    }
    kept, report = decontaminate(train, evaluations)
    assert kept == train[3:]
    assert report == {"contaminated": 3, "exact": 2, "by_set": {"texts": 3, "rows": 1, "dataset": 1, "none": 0}}


def test_very_long_and_empty_prompts_are_read():
    long = "word " * 20_000
    kept, report = decontaminate(rows_of("", long, "x" * 100_000, "求" * 100_000), {"mine": [sentence(*range(9)), ""]})
    assert len(kept) == 4
    assert contaminated(long + sentence(*range(9)), sentence(*range(9)))
    assert contaminated(sentence(*range(9)), sentence(*range(9)) + " ")
    assert report["contaminated"] == 0


# --- against a plain loop


def _slow_words(text, unit):
    out, word = [], ""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().replace(",", ", ").split())
    for char in plain.replace(" _", "_").replace("_ ", "_"):
        alone = "\u4e00" <= char <= "\u9fff"
        if unit == "token" and not (char.isalnum() or char == "_"):
            alone = not char.isspace()
        if alone or char.isspace():
            out += [word] if word else []
            out += [char] if alone else []
            word = ""
        else:
            word += char
        if unit == "token" and alone and not ("\u4e00" <= char <= "\u9fff"):
            word = ""
    return out + ([word] if word else [])


def _slow_holds(train, evaluation):
    """Whether some words of one prompt are all of the other; short ones stand on a line of their own."""
    lines = [unicodedata.normalize("NFKC", text).casefold() for text in (train, evaluation)]
    found = [[run for run in re.finditer(r"[^\W_]+", line)] for line in lines]
    wanted = "".join(run[0] for run in found[1])
    size = len(wanted.encode())
    for first, start in enumerate(found[0]):
        for last in range(first, len(found[0])):
            if "".join(run[0] for run in found[0][first : last + 1]) != wanted or size < 12:
                continue
            before = None if not first else lines[0][found[0][first - 1].end() : start.start()]
            gap = lines[0][found[0][last].end() :]
            behind = None if last + 1 == len(found[0]) else gap[: found[0][last + 1].start() - found[0][last].end()]
            if size >= 20 or all(each is None or "\n" in each for each in (before, behind)):
                return True
    return False


def _slow_is_contaminated(train, evaluation, mode, n, coverage, unit, short):
    plain = [
        "".join(c for c in unicodedata.normalize("NFKC", t).casefold() if c.isalnum()) for t in (train, evaluation)
    ]
    if plain[0] == plain[1] != "" or _slow_holds(train, evaluation):
        return True
    ours, theirs = _slow_words(train, unit), _slow_words(evaluation, unit)
    mine = {tuple(ours[i : i + n]) for i in range(len(ours) - n + 1)}
    covered = set()
    for i in range(len(theirs) - n + 1):
        gram = tuple(theirs[i : i + n])
        if gram in mine and not (short and sum(len(word) == 1 for word in gram) > n / 2):
            covered |= set(range(i, i + n))
    if mode == "any":
        return bool(covered)
    return mode == "coverage" and bool(covered) and len(covered) >= coverage * len(theirs)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", contamination.MODES)
def test_decontaminate_equals_a_plain_loop_over_all_pairs(seed, mode, monkeypatch):
    monkeypatch.setattr(contamination, "_MOST_PLACES", 40)  # so that batches are cut
    draw = random.Random(seed)
    pieces = ["a", "b", "Cat", "dog,", "求", "值x", "１", "(y)", "_z"]

    def text():
        return "".join(draw.choice(pieces) + draw.choice([" ", " ", "  \n", ""]) for _ in range(draw.randrange(14)))

    train = [text() for _ in range(60)]
    evaluations = {"one": [text() for _ in range(12)] + ["x y z"], "two": [text() for _ in range(8)] + ["x y z"]}
    n, unit, short = draw.choice([1, 2, 3, 4]), ("word", "token")[seed % 2], seed % 3 == 0
    coverage = draw.choice([0.3, 0.5, 1.0])
    hits = {
        name: [any(_slow_is_contaminated(t, e, mode, n, coverage, unit, short) for e in texts) for t in train]
        for name, texts in evaluations.items()
    }
    kept, report = decontaminate(
        rows_of(*train), evaluations, mode=mode, n=n, coverage=coverage, unit=unit, ignore_short_tokens=short
    )
    assert report["by_set"] == {name: sum(found) for name, found in hits.items()}
    assert texts_of(kept) == [t for i, t in enumerate(train) if not any(found[i] for found in hits.values())]
    assert mode == "exact" or 0 < len(kept) < len(train)


# --- kinds of data


def _many(count=2500):
    """Rows over three batches, of which those with a number that 7 divides are contaminated."""
    texts = [sentence(*range(12)) + f" {i}" if i % 7 == 0 else f"Row number {i} is its own." for i in range(count)]
    return Dataset.from_list(rows_of(*texts), features=features("rl")), [i for i in range(count) if i % 7]


def test_dataset_list_and_stream_give_the_same_rows_and_report():
    dataset, expected = _many()
    evaluations = {"mine": [sentence(*range(12))]}
    kept, report = decontaminate(dataset, evaluations)
    assert kept["source_id"] == [dataset[i]["source_id"] for i in expected]
    assert kept.features == dataset.features
    assert report["contaminated"] == 358
    from_list, list_report = decontaminate(dataset.to_list(), evaluations)
    assert (from_list, list_report) == (kept.to_list(), report)
    stream, stream_report = decontaminate(dataset.to_iterable_dataset(num_shards=3), evaluations)
    assert stream_report["contaminated"] == 0
    assert list(stream) == kept.to_list()
    assert stream_report == report
    assert len(list(stream)) == 2142
    assert stream_report == report  # the second pass counts anew


def test_stream_that_was_pickled_filters_the_same():
    dataset, expected = _many(50)
    stream, _ = decontaminate(dataset.to_iterable_dataset(), {"mine": [sentence(*range(12))]})
    assert len(list(pickle.loads(pickle.dumps(stream)))) == len(expected) == 42


@pytest.mark.parametrize("kind", ["numpy", "arrow"])
def test_shuffled_and_formatted_dataset_keeps_its_order_and_format(kind):
    dataset, _ = _many(300)
    kept, report = decontaminate(dataset.shuffle(seed=3).with_format(kind), {"mine": [sentence(*range(12))]})
    rows = dataset.shuffle(seed=3).to_list()
    assert kept.format["type"] == kind
    assert kept.with_format(None).to_list() == [row for row in rows if "Row number" in row["prompt"][0]["content"]]
    assert report["contaminated"] == 43


def test_order_of_rows_changes_no_verdict():
    dataset, expected = _many(200)
    backwards, _ = decontaminate(dataset.to_list()[::-1], {"mine": [sentence(*range(12))]})
    assert backwards == dataset.select(expected).to_list()[::-1]


def test_dataset_without_contamination_is_returned_as_it_is():
    dataset, _ = _many(5)
    assert decontaminate(dataset, {"mine": ["Unrelated."]})[0] is dataset


def test_empty_training_data_give_an_empty_report():
    empty = Dataset.from_list(rows_of("x"), features=features("rl")).select([])
    kept, report = decontaminate(empty, {"mine": ["x"]})
    assert len(kept) == report["contaminated"] == 0
    assert decontaminate([], {"mine": ["x"]})[0] == []


# --- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "covrage"}, r"mode='covrage' is unknown; did you mean 'coverage'\?"),
        ({"unit": "character"}, r"unit='character' is unknown; choose one of word, token"),
        ({"n": 0}, r"n=0: .* at least 1; leave it out for 8"),
        ({"n": 2.5}, r"n=2\.5: .*whole number"),
        ({"n": True}, r"n=True: "),
        ({"coverage": 0}, r"coverage=0: .*above 0 and of at most 1.*mode='any'"),
        ({"coverage": 50}, r"coverage=50: "),
        ({"ignore": "Answer."}, r"ignore='Answer\.' must be a list of texts"),
    ],
)
def test_bad_setting_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        decontaminate(rows_of("x"), {"mine": ["y"]}, **settings)


@pytest.mark.parametrize(
    ("evaluations", "message"),
    [
        ({}, r"evaluations must name at least one .* not dict without any"),
        (["x"], r"evaluations must name at least one .* not list$"),
        ({"mine": []}, r"evaluations\['mine'\] holds no prompts"),
        ({"mine": ["", " "]}, r"evaluations\['mine'\] holds no prompts"),
        ({"mine": "What?"}, r"evaluations\['mine'\]: the data must be .* not str"),
        ({"mine": [{"question": "x"}]}, r"evaluations\['mine'\] needs the column 'prompt', and the data has question"),
        ({"mine": DatasetDict()}, r"evaluations\['mine'\]: .*give one split"),
    ],
)
def test_bad_evaluation_set_is_refused(evaluations, message):
    with pytest.raises(ValueError, match=message):
        decontaminate(rows_of("x"), evaluations)


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (DatasetDict({"train": Dataset.from_list(rows_of("x"))}), "decontaminate: .*train; give one split"),
        (Dataset.from_list([{"question": "x"}]), "decontaminate needs the column 'prompt', .*question; build it"),
        (Dataset.from_list([{"question": "x"}]).to_iterable_dataset(), "decontaminate needs the column 'prompt'"),
        ("gsm8k", "decontaminate: the data must be a Dataset or a list of rows, not str"),
        (iter([]), "decontaminate: the data must be"),
    ],
)
def test_bad_training_data_are_refused(dataset, message):
    with pytest.raises(ValueError, match=message):
        decontaminate(dataset, {"mine": ["y"]})


# --- real data, where they are there

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"


def _real(file, field):
    path = REAL / file
    if not path.exists():
        pytest.skip(f"{file} is not there")
    return [json.loads(line)[field] for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(
    ("file", "field", "expected"),
    [
        ("gsm8k_train.jsonl", "question", (0, 70, 4, 3, 4, 4)),
        ("math_train.jsonl", "problem", (1, 678, 77, 154, 445, 301)),
    ],
)
def test_real_training_sets_overlap_as_counted_by_a_plain_loop(file, field, expected):
    evaluations = {
        "gsm8k": _real("gsm8k_test.jsonl", "question"),
        "math_500": _real("math500.jsonl", "problem"),
        "olympiadbench": _real("olympiadbench.jsonl", "question"),
    }
    rules = [
        {"mode": "exact"},
        {"mode": "any"},
        {"mode": "any", "n": 13},
        {},
        {"unit": "token"},
        {"unit": "token", "ignore_short_tokens": True},
    ]
    rows = [{"prompt": text} for text in _real(file, field)]
    assert tuple(decontaminate(rows, evaluations, **rule)[1]["contaminated"] for rule in rules) == expected
