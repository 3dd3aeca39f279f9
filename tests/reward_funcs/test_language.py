"""Language consistency: what counts as a word of which language, what cannot hide one, and the order of mixtures."""

import builtins
import itertools
import pickle
import runpy
import warnings
from pathlib import Path

import pytest

from reward_funcs import Gate, Min, Product, Sum, exact_match_reward, language
from reward_funcs._prose import prose, prose_and_hidden, reasoning, split_camel
from reward_funcs._scripts import known_language, language_code, num_words, script_of
from reward_funcs.base import Batch
from reward_funcs.language import Count, LanguageConsistencyReward, language_consistency_reward, word_count

ROOT = Path(__file__).resolve().parents[2]
BENCH = runpy.run_path(str(ROOT / "benchmarks" / "bench_language.py"))
SENTENCES = {code: text.splitlines() for code, text in BENCH["SENTENCES"].items()}

EN = "First we read the question carefully. Then we add both numbers to get the total."  # 15 words
DE = "Zuerst lesen wir die Frage sorgfältig. Dann addieren wir die beiden Zahlen zusammen."
RU = "Сначала мы внимательно читаем вопрос, а потом складываем оба числа."
ZH = "首先我们仔细阅读题目，然后把两个数字加起来。"  # 20 characters of Han
JA = "まず問題を注意深く読み、二つの数を足して合計を求めます。"


def grade(text, code="en", **settings):
    return LanguageConsistencyReward(code, **settings).grade(Batch([text], {}))[0]


@pytest.fixture
def without_py3langid(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name.startswith("py3langid"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    language._model.cache_clear()
    language._identifier.cache_clear()
    yield
    language._model.cache_clear()
    language._identifier.cache_clear()


# --- hand numbers


@pytest.mark.parametrize(
    ("text", "code", "own", "foreign"),
    [
        ("Let me think. 我们有三个苹果", "en", 3, 7 / 1.5),
        ("Let me think. 我们有三个苹果", "zh", 7 / 1.5, 3),
        ("Значит, x равен четырём. Hence x equals four.", "ru", 3, 3),
        ("Значит, x равен четырём. Hence x equals four.", "en", 3, 3),
        ("ดังนั้น", "th", 7 / 4.2, 0),
        ("りんごが三個", "ja", 4 / 2.6 + 2 / 1.5, 0),
        ("먼저 문제를 읽습니다. First we read.", "ko", 3, 3),
        ("שטח המשולש", "he", 2, 0),
        ("त्रिभुज का क्षेत्रफल", "hi", 3, 0),
        ("مساحة المثلث", "ar", 2, 0),
        ("ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ", "en", 0, 2),
        ("12 + 3.5 = 15,5 %", "en", 0, 0),
        ("", "en", 0, 0),
    ],
)
def test_word_count_hand_numbers(text, code, own, foreign):
    assert word_count(text, code, candidates=()) == pytest.approx(Count(own, foreign))


def test_word_count_of_accents_as_own_characters_equals_that_of_composed_ones():
    assert word_count("une re\u0301ponse a\u0300 trouver", "fr", candidates=()) == Count(4, 0)
    assert word_count("une réponse à trouver", "fr", candidates=()) == Count(4, 0)


def test_word_count_script_alone_calls_english_german():
    assert word_count(EN, "de", candidates=()) == Count(15, 0)


def test_word_count_own_of_one_is_never_foreign_of_itself():
    for code, lines in SENTENCES.items():
        count = word_count("\n".join(lines), code)
        assert count.foreign == 0 and count.own > 70, code


@pytest.mark.parametrize(
    "text",
    [
        "设x为AB的中点，sin x = 0.5，长5 cm，角ABC是直角。",
        "所以Janet每天卖9个鸡蛋，一共卖了很多天，然后她把钱存进银行。",
        "已知 f(x) = ax + b，求 α 与 β 的值。",
    ],
)
def test_word_count_variables_units_and_a_name_in_chinese_are_neutral(text):
    assert word_count(text, "zh").foreign == 0


def test_word_count_names_beyond_a_fifth_are_foreign():
    assert word_count("我们有三个 Alice, Bob, Carol, Dave", "zh") == pytest.approx(Count(5 / 1.5, 4 - 1 / 1.5))


def test_word_count_sentence_in_title_case_in_chinese_is_foreign():
    assert word_count("The Quick Brown Fox Jumps. 我们", "zh").foreign == 5


def test_word_count_japanese_is_not_chinese_nor_the_reverse():
    assert word_count(JA, "zh").own == 0 and word_count(JA, "ja").foreign == 0
    assert word_count(ZH, "ja").own == 0 and word_count(ZH, "zh") == pytest.approx(Count(20 / 1.5, 0))


def test_word_count_chinese_with_a_few_kana_stays_chinese():
    sentence = "首先我们仔细阅读题目の内容，然后把两个数字加起来得到总数。"
    assert word_count(sentence, "ja").own == pytest.approx(1 / 2.6)


def test_word_count_accents_alone_are_no_words_and_mix_no_letters():
    assert word_count("\u0301 \u0301\u0302 \u0301", "ru") == Count(0, 0)
    assert word_count("за\u0301мок и дворец or house", "ru", candidates=()) == Count(3, 2)


def test_word_count_short_heading_of_han_in_japanese_is_let_pass():
    assert word_count("解答。" + JA, "ja").foreign == 0
    assert word_count("解答。判別式。計算。" * 5, "ja").own == 0


# --- languages of one script


def test_reward_english_and_german_are_told_apart():
    assert LanguageConsistencyReward("de")([DE, EN]) == [1.0, 0.0]
    assert LanguageConsistencyReward("en")([DE, EN]) == [0.0, 1.0]


@pytest.mark.parametrize(("code", "other"), [("ru", "uk"), ("uk", "ru"), ("fa", "ar"), ("es", "fr"), ("vi", "id")])
def test_reward_siblings_of_one_script_score_below_a_tenth(code, other):
    score = LanguageConsistencyReward(code)(["\n".join(SENTENCES[other])])[0]
    assert score < 0.1


def test_reward_short_line_of_names_and_units_is_given_the_benefit_of_the_doubt():
    assert LanguageConsistencyReward("en")(["Red crayons: 4(3)=12\nTotal crayons: 12+3=15 crayons"]) == [1.0]
    assert LanguageConsistencyReward("en")(["Rote Stifte: 4(3)=12\nStifte insgesamt: 12+3=15 Stifte"]) == [0.0]


def test_reward_candidates_decide_what_is_told_apart():
    assert LanguageConsistencyReward("de", candidates=["fr"])(["\n".join(SENTENCES["nl"])])[0] > 0.8
    assert LanguageConsistencyReward("de", candidates=["fr", "Dutch"])(["\n".join(SENTENCES["nl"])])[0] < 0.1
    # another script needs no candidate
    assert LanguageConsistencyReward("de", candidates=["zh"])([ZH]) == [0.0]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("sw", "Kwanza tunasoma swali kwa makini na kuandika kile tulichopewa."),
        ("no", "Først leser vi spørsmålet nøye og skriver ned det som er gitt."),
        ("sr", "Прво пажљиво читамо питање и записујемо шта је дато."),
        ("mr", "प्रथम आपण प्रश्न काळजीपूर्वक वाचतो आणि जे दिले आहे ते लिहितो."),
        ("ur", "پہلے ہم سوال کو غور سے پڑھتے ہیں اور جو دیا گیا ہے اسے لکھتے ہیں۔"),
    ],
)
def test_reward_language_outside_the_usual_candidates_scores_one(code, text):
    assert LanguageConsistencyReward(code)([text]) == [1.0]


def test_reward_long_text_without_full_stop_is_identified_in_pieces():
    mixed = " ".join([DE.replace(".", "")] * 8 + [EN.replace(".", "")] * 8)
    assert 0.4 < LanguageConsistencyReward("en")([mixed])[0] < 0.65


LONG_ENGLISH = (
    "first we read the question carefully and then we add both numbers to get the total number of apples in the"
)
LONG_GERMAN = (
    "zuerst lesen wir die Frage sorgfältig und dann addieren wir die beiden Zahlen und schreiben das Ergebnis hin"
)


@pytest.mark.parametrize("between", [" ", "</think><think>", " <b></b> ", "<step>"])
def test_reward_halves_without_a_full_stop_between_them_count_each(between):
    words = len(LONG_ENGLISH.split()), len(LONG_GERMAN.split())
    text = f"<think>{LONG_ENGLISH}{between}{LONG_GERMAN}</think>4"
    # a window of a dozen words may hold some of both
    assert LanguageConsistencyReward("en")([text])[0] == pytest.approx(words[0] / sum(words), abs=0.12)


def test_reward_words_without_spaces_join_no_sentence():
    together = "".join(word.capitalize() for word in LONG_GERMAN.split())
    assert LanguageConsistencyReward("en")([f"{LONG_ENGLISH} {together}"])[0] == pytest.approx(0.55, abs=0.1)
    assert LanguageConsistencyReward("en")([f"{LONG_ENGLISH} {together.lower()}"])[0] == pytest.approx(0.55, abs=0.1)


def test_reward_long_text_without_a_full_stop_is_cut_into_windows():
    units = list(language._units("the answer is x " * 1000, language.WORDS["latin"]))
    assert sum(map(len, units)) == 3000 and {len(unit) for unit in units} == {12}
    assert [len(unit) for unit in language._units("word " * 40, language.WORDS["latin"])] == [10] * 4
    assert [len(unit) for unit in language._units("word " * 16, language.WORDS["latin"])] == [16]


def test_reward_every_known_language_of_a_shared_script_is_in_the_model():
    labels = set(language._model().labels)
    shared = {code for code, script in language.SCRIPT_OF.items() if script in language._USUAL}
    assert shared <= labels


def test_reward_without_py3langid_counts_scripts_and_warns_once(without_py3langid):
    with pytest.warns(UserWarning, match=r'pip install "trl-ext\[lang\]"'):
        assert LanguageConsistencyReward("de")([DE, EN]) == [1.0, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LanguageConsistencyReward("fr")([DE]) == [1.0]
        assert LanguageConsistencyReward("de")([ZH]) == [0.0]


def test_reward_without_py3langid_warns_at_the_line_of_the_caller(without_py3langid):
    with pytest.warns(UserWarning) as caught:
        LanguageConsistencyReward("de")([DE])
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("code", "text"), [("zh", ZH), ("ja", JA), ("ko", SENTENCES["ko"][0]), ("th", SENTENCES["th"][0])]
)
def test_reward_language_with_its_own_script_needs_no_py3langid(without_py3langid, code, text):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LanguageConsistencyReward(code)([text]) == [1.0]
        assert LanguageConsistencyReward("de", candidates=())([DE]) == [1.0]


# --- mixtures and texts in one language


@pytest.mark.parametrize(
    "pair", ["en/zh", "zh/ja", "ru/en", "ar/en", "ja/en", "ko/en", "th/en", "en/de", "fr/es", "ru/uk"]
)
def test_reward_mixtures_are_ordered_by_their_share(pair):
    figures = BENCH["mixture_figures"](pair, 3)
    assert figures["spearman_min"] == pytest.approx(1.0) and figures["inversions"] == 0
    assert figures["max_error"] < 0.12


@pytest.mark.parametrize("code", sorted(SENTENCES))
def test_reward_text_in_one_language_scores_one(code):
    figures = BENCH["single_figures"](code, 50)
    assert figures["at_least_0.95"] >= 0.98


MATHS = [
    r"""We have that $r = \sqrt{0^2 + 3^2} = 3.$ Also, the line connecting the origin and $(0,3)$ makes an angle of
$\frac{\pi}{2}$ with the positive $x$-axis. Therefore, the answer is $\boxed{\left( 3, \frac{\pi}{2} \right)}.$""",
    r"""Expanding, we get \[(a+b)^2 = a^2 + 2ab + b^2 \quad \text{and} \quad ab = 6.\] Hence
\begin{align*} (a+b)^2 &= 13 + 12 \\ &= 25, \end{align*} so $a+b = 5$ because both numbers are positive.""",
    "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nShe earned 24 * $2 = $<<24*2=48>>48 and kept $40.\n#### 48",
    "So he pays $5 for the book and then $6 for the pen.\nThat makes $11, which leaves him with $9.",
    '[asy]\nunitsize(0.8 cm);\ndraw((-0.5,0)--(3.5,0));\nlabel("$A$", (0,3), W);\n[/asy]\n\nThe triangle has area 6.',
]


def test_reward_english_mathematics_scores_one():
    assert LanguageConsistencyReward("en")(MATHS) == [1.0] * len(MATHS)


# --- what is left out, and what cannot hide


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a $x$ b", "a b"),
        ("a $$x + y$$ b", "a b"),
        (r"a \(x\) b \[y\] c", "a b c"),
        (r"a \begin{align*} x &= 1 \\ y &= 2 \end{align*} b", "a b"),
        (r"a \[\begin{pmatrix} x \\ y \end{pmatrix}\] b", "a b"),
        ("a `x = foo(1)` b", "a b"),
        ("a\n```python\nprint(x)\n```\nb", "a b"),
        ("a https://example.org/a_b?c=d b www.example.org", "a b"),
        ("a <b>c</b> <br/>", "a c"),
        (r"a \textbf{b} \cdot c", "a b c"),
        ("s\u200bp\u200ba\u200bced", "spaced"),
        (r"it costs \$5 and \$6", "it costs 5 and 6"),
        ("it costs $5 and then $6 more", "it costs 5 and then 6 more"),
        (r"$x$ if $\text{it is even}$", "if it is even"),
        ("open $ stays here", "open stays here"),
        ("open ``` stays here", "open stays here"),
        ("open ` stays here", "open ` stays here"),
        (r"open \[ stays here", "open stays here"),
        ("x < y and y > z", "x < y and y > z"),
    ],
)
def test_prose_hand_examples(text, left):
    assert prose(text).split() == left.split()


@pytest.mark.parametrize("hidden", [ZH, DE, RU, JA])
@pytest.mark.parametrize(
    "form",
    [
        "${}$", "$${}$$", r"\({}\)", r"\[{}\]", r"\begin{{align}}{}\end{{align}}", r"$x = \text{{{}}}$", r"\text{{{}}}",
        "```\n{}\n```", "```text\n{}", "`{}`", "$ {}", "``` {}", "<!-- {} -->", "<p title='{}'>", "[asy]{}[/asy]",
        r"\[ {}",
    ],
)  # fmt: skip
def test_reward_text_hidden_in_markup_counts(hidden, form):
    open_score = LanguageConsistencyReward("en")([f"{EN}\n{hidden}"])[0]
    score = LanguageConsistencyReward("en")([f"{EN}\n{form.format(hidden)}"])[0]
    assert score == pytest.approx(open_score, abs=0.1)


def test_reward_comment_in_code_counts_but_not_the_code():
    code = "```python\ndef add(first, second):\n    {}\n    return first + second\n```\n"
    assert LanguageConsistencyReward("zh")([code.format("# 相加") + ZH]) == [1.0]
    assert LanguageConsistencyReward("en")([code.format("# 我们把两个数加起来") + EN])[0] < 0.8


ENGLISH = "We need to add these apples and then compare both totals".split()
HIDING = {
    "commands": " ".join("\\" + word for word in ENGLISH),
    "backticks": " ".join(f"`{word}`" for word in ENGLISH),
    **{f"formula {mark}": f"${mark.join(ENGLISH)}$" for mark in "=;+._"},
    "link": "https://" + "/".join(ENGLISH),
    "address": "www." + "-".join(ENGLISH),
    "tags": " ".join(f"<{word}>" for word in ENGLISH),
    "environment": f"\\begin{{{' '.join(ENGLISH[:7])}}}",
    "fence": "```\n" + " ".join(f"({word});" for word in ENGLISH) + "\n```",
    "letters": " ".join("-".join(word) for word in ENGLISH),
    "dotted letters": " ".join(".".join(word) for word in ENGLISH),
    "spaced letters": "  ".join(" ".join(word) for word in ENGLISH),
    "capitals": "".join(word.capitalize() for word in ENGLISH),
}


@pytest.mark.parametrize("hiding", HIDING)
@pytest.mark.parametrize(("code", "own"), [("zh", ZH), ("de", DE)])
def test_reward_words_hidden_one_by_one_count(code, own, hiding):
    score = LanguageConsistencyReward(code)([f"{own} {HIDING[hiding]}"])[0]
    assert 0.5 < score < 0.85
    assert LanguageConsistencyReward("en")([f"{EN} {HIDING[hiding]}"]) == [1.0]


def test_word_count_hidden_words_beyond_the_tolerated_are_foreign_by_hand():
    names = "apples bananas cherries lemons oranges melons".split()
    hidden = " ".join(f"`{word}`" for word in names * 9)
    # each once, less a fifth of 20 / 1.5 words, which is less than three
    assert word_count(ZH + hidden, "zh") == pytest.approx(Count(20 / 1.5, 3))
    # a fifth of five times that
    assert word_count(ZH * 5 + hidden, "zh") == Count(pytest.approx(100 / 1.5), 0)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (r"$area = \sin x + \mathbf{length}$, $ABC$, $xy$", ["area", "length"]),
        (r"$\frac{a}{b} \quad \operatorname{lcm}(2, 3)$ \begin{align*} x \end{align*} \lemma", []),
        (r"\we \apples \begin{oranges} x \end{oranges}", ["apples", "oranges"]),
        ("`total += countOf(x)`", ["total", "count"]),
        ("https://example.org/two_apples www.pears.com", ["example", "two", "apples", "pears"]),
        ("<b>x</b> <answer>4</answer> <pears/> <br>", ["pears"]),
        ("```python\ntotal = count(x)\n```", []),
        ("a-d-d a_d d, U.S.A., A B C D E F", ["add"]),
        ("a p p l e s", ["apple"]),
        ("n-e-e-d-ed, x y z", ["need"]),
    ],
)
def test_prose_and_hidden_hand_examples(text, hidden):
    assert prose_and_hidden(text).hidden == hidden


@pytest.mark.parametrize("language", ["zh", "de"])
def test_reward_program_in_a_fence_is_no_prose(language):
    code = """```python
def total_price(apples, price_of_one, discount=0.1):
    # apply the discount to all that cost more than ten
    total = sum(price_of_one for apple in apples if apple.ripe)
    return total * (1 - discount) if total > 10 else total
```
"""
    own = {"zh": ZH, "de": DE}[language]
    assert LanguageConsistencyReward(language)([own + "\n" + code]) == [1.0]


def test_split_camel_hand_examples():
    assert split_camel(["WirMüssenZuerst", "LaTeX", "ABC", "x"]) == ["Wir", "Müssen", "Zuerst", "La", "TeX", "ABC", "x"]


@pytest.mark.parametrize("text", ["пoнятно, cлово xорошо вceгда", "рroblеm аnd sоlutiоn оf thе tаsk"])
def test_reward_words_of_look_alike_letters_count_for_no_language(text):
    scores = [LanguageConsistencyReward(code)([text])[0] for code in ("en", "ru")]
    assert max(scores) <= 0.2


def test_reward_zero_width_characters_change_nothing():
    for code, text in (("en", EN), ("ru", RU), ("zh", ZH), ("fa", SENTENCES["fa"][0])):
        split = "\u200b".join(text.replace("\u200c", ""))
        assert LanguageConsistencyReward(code)([split]) == [1.0], code
    assert LanguageConsistencyReward("en")(["\u200b".join(DE)]) == [0.0]


def test_reward_full_width_and_mathematical_letters_are_read_as_latin():
    wide = {ord("a") + i: 0xFF41 + i for i in range(26)}
    bold = {ord("a") + i: 0x1D41A + i for i in range(26)}
    for letters in (wide, bold):
        assert LanguageConsistencyReward("en")([EN.lower().translate(letters)]) == [1.0]
        assert LanguageConsistencyReward("en")([DE.lower().translate(letters)]) == [0.0]
        assert LanguageConsistencyReward("zh")([EN.lower().translate(letters)]) == [0.0]


def test_num_words_huge_word_counts_by_its_letters():
    assert num_words(["a" * 32, "b"]) == 2
    assert num_words(["a" * 600, "b"]) == 101
    assert word_count(EN + " " + "ы" * 6000, "en", candidates=()) == Count(15, 1000)


# units of hostile text, between bars
HOSTILE = (
    r"$|`|```|\|\(|\[|$x$ |$ |\begin{a}|\begin{|\text{|<|<a|a |中|中a|Ab-|A b |。|かa中|$aaa |www.|http://|аa|аa |[asy]"
)
HOSTILE += r"|a-|a-b ab|a b|the answer is x |`ab`|<ab>|\begin{ab}|aB|abcB|https://ab/"
HOSTILE += "|\u0301|a\u0301|\u200b|\x00|\ud800|😀|\u202e|<think>|</think>|a|ab, |\\a|{"


@pytest.mark.parametrize("unit", HOSTILE.split("|"))
def test_reward_hostile_text_of_100k_characters_finishes(unit):
    text = unit * (100_000 // len(unit))
    for code in ("en", "zh", "ja", "ru"):
        scores = LanguageConsistencyReward(code)([text, "$" + text + "$", text + EN])
        assert all(score is None or 0 <= score <= 1 for score in scores)


def test_reward_backslash_spaces_and_nuls_do_not_hide():
    assert grade("\x00\ud800 " + EN).reward == 1.0
    assert grade("\\ " * 50 + ZH).reward == 0.0


# --- parts, too few words, thresholds


def test_reasoning_hand_examples():
    assert reasoning("<think>a</think>b") == "a"
    assert reasoning("a</think>b") == "a"
    assert reasoning("<think>a") == "a"
    assert reasoning("a") == "a"
    assert reasoning("z<think>a</think>b<think>c</think>d") == "z\na</think>b\nc"
    assert reasoning("<think>a</think>b<think>c") == "a\nc"  # a block that is never closed is no place to hide


def test_reward_part_picks_what_is_judged():
    text = f"<think>{EN}</think>{ZH}"
    assert grade(text).reward == 1.0
    assert grade(text, part="answer").reward == 0.0
    assert grade(text, part="all").reward == pytest.approx(15 / (15 + 20 / 1.5))


def test_reward_before_and_without_think_tags_is_reasoning():
    assert grade(f"{ZH}<think>{EN}</think>4").reward == pytest.approx(15 / (15 + 20 / 1.5))
    assert grade(f"{EN}</think>4").reward == 1.0
    assert grade(f"<think>{ZH}").reward == 0.0
    assert grade(ZH).reward == 0.0


def test_reward_empty_think_block_has_the_whole_text_judged():
    assert grade(f"<think></think>{ZH}").reward == 0.0
    assert grade(f"<think>\n$x$\n</think>{EN}").reward == 1.0


@pytest.mark.parametrize("text", ["", "  \n", "\u200b\ufeff", "<think></think>", "<think>\n</think>\n"])
def test_reward_empty_completion_scores_zero(text):
    assert grade(text)[:2] == (0.0, "empty")


@pytest.mark.parametrize("text", ["$x = 4$", "42", r"\boxed{4}", "So 4.", "```\nx = 1\n```", "😀"])
def test_reward_too_few_words_gives_none(text):
    assert grade(text)[:2] == (None, "too_few_words")


def test_reward_too_few_words_is_a_neutral_reason():
    assert LanguageConsistencyReward.neutral_reasons == frozenset({"too_few_words"})
    wordless = ([r"\boxed{5}", r"\boxed{4}"], ["4", "4"])
    for composition in (
        Sum([exact_match_reward, LanguageConsistencyReward("en")]),
        Product([exact_match_reward, LanguageConsistencyReward("en")]),
        Min([exact_match_reward, LanguageConsistencyReward("en")]),
        Gate(LanguageConsistencyReward("en", threshold=0.8), exact_match_reward),
    ):
        assert composition(wordless[0], solution=wordless[1]) == [0.0, 1.0]
    assert LanguageConsistencyReward("en")(wordless[0]) == [None, None]


def test_reward_min_words_moves_the_limit():
    assert grade("One two three", min_words=3).reward == 1.0
    assert grade("One two three", min_words=4).reward is None


def test_reward_threshold_makes_it_zero_or_one():
    text = f"{EN} {ZH}"  # 0.53
    assert grade(text, threshold=0.5)[:2] == (1.0, "")
    assert grade(text, threshold=0.6)[:2] == (0.0, "below_threshold")
    assert grade(text).reason == "mixed" and grade(ZH).reason == "wrong_language" and grade(EN).reason == ""


# --- languages by name, and by column


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("zh-CN", "zh"),
        ("pt_BR", "pt"),
        ("Chinese", "zh"),
        ("german", "de"),
        (" EN ", "en"),
        ("zh_Hant_TW", "zh"),
        ("nb", "no"),
    ],
)
def test_known_language_hand_examples(name, code):
    assert known_language(name) == code and LanguageConsistencyReward(name).language == code


def test_language_code_unknown_says_what_was_meant():
    with pytest.raises(ValueError, match=r"language must be .*not 'germn'; did you mean 'german'\?"):
        LanguageConsistencyReward("germn")
    with pytest.raises(ValueError, match=r"candidates must be .*'xx'"):
        LanguageConsistencyReward("en", candidates=["xx"])
    with pytest.raises(ValueError, match="not 5"):
        language_code(5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"part": "think"}, "part must be one of 'reasoning', 'answer', 'all', not 'think'"),
        ({"threshold": 0}, r"threshold must be a share in \(0, 1\], not 0"),
        ({"threshold": 1.5}, "threshold must be"),
        ({"threshold": "a"}, "threshold must be a share .* not 'a'"),
        ({"threshold": True}, "threshold must be a share .* not True"),
        ({"threshold": float("nan")}, "threshold must be a share .* not nan"),
        *(({"min_words": value}, f"min_words={value!r}: it must be") for value in (0, 1.5, True, "a", float("nan"))),
        ({"candidates": "de"}, "candidates must be a list"),
        ({"candidates": 5}, "candidates must be a list of languages, not 5"),
        ({"candidates": [5]}, "candidates must be .* not 5"),
        *(({"column": value}, f"column={value!r}: it must be a name") for value in (None, 5, "", " ")),
    ],
)
def test_reward_bad_setting_raises(settings, message):
    with pytest.raises(ValueError, match=message):
        LanguageConsistencyReward(**settings)


def test_reward_language_comes_from_the_column():
    completions, codes = [ZH, ZH, DE, RU, EN, EN, EN], ["zh", "English", "de", "ru-RU", None, "klingon", float("nan")]
    grades = language_consistency_reward.grade(Batch(completions, {"language": codes}))
    assert [grade.reward for grade in grades] == [1.0, 0.0, 1.0, 1.0, None, None, None]
    assert [grade.reason for grade in grades[4:]] == ["no_language", "unknown_language", "unknown_language"]


def test_reward_without_column_expects_english():
    assert language_consistency_reward([EN, ZH]) == [1.0, 0.0]
    assert language_consistency_reward.ideal("4") is None  # a gold has no language


def test_reward_named_language_beats_the_column():
    assert LanguageConsistencyReward("en")([EN], language=["zh"]) == [1.0]


def test_reward_other_column_must_be_there():
    reward = LanguageConsistencyReward(column="lang")
    assert reward([ZH], lang=["zh"]) == [1.0]
    with pytest.raises(ValueError, match=r"needs the column 'lang'; the columns here are language"):
        reward([ZH], language=["zh"])


# --- the contract of every reward


def test_reward_message_lists_blocks_and_tool_turns_equal_the_text():
    turns = [
        {"role": "assistant", "content": ZH, "tool_calls": []},
        {"role": "tool", "content": ZH},
        {"role": "assistant", "content": [{"type": "text", "text": EN}]},
    ]
    reasoned = [{"role": "assistant", "content": ZH, "reasoning_content": EN}]
    empty = [{"role": "assistant", "content": None}]
    assert language_consistency_reward([EN, turns, reasoned, empty]) == [1.0, 1.0, 1.0, 0.0]


def test_reward_pickle_round_trip_grades_alike():
    reward = LanguageConsistencyReward("de", threshold=0.5, candidates=["en"], name="german")
    reward([DE])
    copy = pickle.loads(pickle.dumps(reward))
    assert copy([DE, EN]) == [1.0, 0.0] and copy.__name__ == "german" and vars(copy) == vars(reward)


def test_reward_order_of_the_batch_does_not_matter():
    texts = [EN, DE, ZH, f"{EN} {ZH}", "", "$x$"]
    alone = [language_consistency_reward([text])[0] for text in texts]
    for order in itertools.islice(itertools.permutations(range(len(texts))), 0, 720, 60):
        assert language_consistency_reward([texts[i] for i in order]) == [alone[i] for i in order]


def test_reward_reports_reasons_and_counts_none():
    columns, metrics = {}, {}
    language_consistency_reward(["$x$", EN, ""], log_extra=columns.__setitem__, log_metric=metrics.__setitem__)
    assert columns["language_consistency_reward/reason"] == ["too_few_words", "", "empty"]
    assert metrics == {"language_consistency_reward/none/too_few_words": 1.0}


def test_script_of_hand_examples():
    letters = {
        "a": "latin",
        "é": "latin",
        "я": "cyrillic",
        "中": "han",
        "々": "han",
        "ー": "kana",
        "한": "hangul",
        "ก": "thai",
    }
    assert {letter: script_of(letter) for letter in letters} == letters
    assert [script_of(char) for char in "1,。٣ℝ∑µªᵃ\ud800"] == [None] * 10
    assert script_of("Ꭰ") == "other"
