"""Splitters and rule-based step rewards: what a step is, what an equation is, and what earns."""

import pickle
import re
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_funcs._equations import equations
from reward_funcs._sentences import maths_spans, sentence_ends
from reward_funcs._tags import has_words
from reward_funcs.steps import (
    ArithmeticStepReward,
    FormatProgressStepReward,
    Steps,
    arithmetic_step_rewards,
    format_progress_step_rewards,
    split_lines,
    split_regex,
    split_sentences,
    think_span,
)

SPLITTERS = [split_lines, split_sentences, split_regex(r"\n\n|;")]
SHAPES = ["\n", ". ", "$", "$$ ", "\\(", "\\[ ", "\\begin{", "!", "...", "(((", "<think>", "</think>", "1. ", "=", "1+"]
SHAPES += ["1+1=2\n", "\\frac{", "<<", "1,000,", "{", "}", "* ", "e.g. ", "\\", "1=", '."', "\r", "≈", "9", "</answer>"]


def _steps(splitter, text):
    return [text[start:end] for start, end in splitter(text)]


# the thinking


@pytest.mark.parametrize(
    ("text", "thinking"),
    [
        ("<think>a</think>b", "a"),
        ("<think>a", "a"),
        ("a</think>b", "a"),
        ("a b", "a b"),
        ("", ""),
        ("<think></think>4", ""),
        ("x<think>a</think>b<think>c</think>d", "a</think>b<think>c"),
        ("</think><think>", ""),
    ],
)
def test_think_span_is_between_the_tags_or_everything(text, thinking):
    start, end = think_span(text)
    assert text[start:end] == thinking


# splitters


def test_split_lines_drops_lines_that_say_nothing():
    text = "<think>\n a = 1 \r\n\n---\n$$\n2 + 2\n$$\n</think>\n4"
    assert _steps(split_lines, text) == ["a = 1", "2 + 2"]


@pytest.mark.parametrize("splitter", SPLITTERS)
@pytest.mark.parametrize("text", ["", " \n ", "<think></think>4", "<think>\n\n</think>", "<think>...</think>a", "!?"])
def test_splitters_without_a_thought_find_no_step(splitter, text):
    assert splitter(text) == []


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("We add 3.14 and 2.0. It is 5.14.", ["We add 3.14 and 2.0.", "It is 5.14."]),
        ("It is 4. 5 is more.", ["It is 4.", "5 is more."]),
        ("See Fig. 3, e.g. the top, vs. Dr. No. Then go.", ["See Fig. 3, e.g. the top, vs. Dr. No.", "Then go."]),
        ("See no. 5 of it. He said no. Then left.", ["See no. 5 of it.", "He said no.", "Then left."]),
        ("Apples, pears, etc. are fruit, etc. So on.", ["Apples, pears, etc. are fruit, etc.", "So on."]),
        ("The U.S. Army at 5 p.m. sharp. Ok", ["The U.S. Army at 5 p.m. sharp.", "Ok"]),
        ("So $x = 2. y$ holds. Then $$a. b! C$$ too.", ["So $x = 2. y$ holds.", "Then $$a. b! C$$ too."]),
        (r"By \(a. b\) and \[c. d\]. Next.", [r"By \(a. b\) and \[c. d\].", "Next."]),
        ("\\begin{align}\na. b\n\\end{align}. Next", ["\\begin{align}\na. b\n\\end{align}.", "Next"]),
        ("It costs $5. Then $6 more. Done.", ["It costs $5.", "Then $6 more.", "Done."]),
        (r"It costs \$5. Then \$6. Done", [r"It costs \$5.", r"Then \$6.", "Done"]),
        ("1. Add two.\n2. Halve it. Good.\n", ["1. Add two.", "2. Halve it.", "Good."]),
        ("**1.** Add.\nStep 2. Halve.\n(a) Go. b. Stay", ["**1.** Add.", "Step 2. Halve.", "(a) Go.", "b. Stay"]),
        ("5! = 120. And n! is big. Wow! Yes?! No", ["5! = 120.", "And n! is big.", "Wow!", "Yes?!", "No"]),
        ("What is ? + 3 = 5? It is 2", ["What is ? + 3 = 5?", "It is 2"]),
        ("Hmm... so be it... Then go", ["Hmm... so be it...", "Then go"]),
        ('He said "4." Then (see above.) Go.', ['He said "4."', "Then (see above.)", "Go."]),
        ("先算。再加！好", ["先算。", "再加！", "好"]),
        ("no stop\nat all", ["no stop", "at all"]),
    ],
)
def test_split_sentences_cuts_at_ends_of_sentences_only(text, sentences):
    assert _steps(split_sentences, text) == sentences
    assert _steps(split_sentences, f"<think>{text}</think> Answer. 4.") == sentences


def test_sentence_ends_point_behind_the_marks():
    assert sentence_ends("a b. c") == [4]


@pytest.mark.parametrize(
    ("text", "formulas"),
    [
        ("$a$ $b$", ["$a$", "$b$"]),
        ("$a", []),
        ("$ a $b$", ["$b$"]),
        ("$a\nb$", []),
        ("$5 and $6, but $x$", ["$x$"]),
        ("$5 and $x$", ["$x$"]),
        (r"\$a$b$", ["$b$"]),
        (r"\(a $b\) c$", [r"\(a $b\)"]),
        (r"\\(a\) \(b\)", [r"\(b\)"]),
        ("$$a$b$$", ["$$a$b$$"]),
    ],
)
def test_maths_spans_are_closed_formulas(text, formulas):
    assert [text[start:end] for start, end in maths_spans(text)] == formulas


def test_split_regex_takes_what_stands_between_matches():
    assert _steps(split_regex(r"\n\n"), "a\nb\n\n\nc\n\n") == ["a\nb", "c"]
    assert _steps(split_regex(re.compile("##")), "a<think>b##c</think>d") == ["b", "c"]


def test_split_regex_refuses_what_is_no_pattern():
    with pytest.raises(ValueError, match=r"pattern='\(' must be a regular expression .*re\.escape"):
        split_regex("(")


@pytest.mark.parametrize("splitter", SPLITTERS)
@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from([*SHAPES, "a", "B ", "x = 2", " ", "é"]), max_size=30).map("".join))
def test_splitters_give_ordered_spans_with_words_and_no_outer_space(splitter, text):
    spans = splitter(text)
    low, high = think_span(text)
    assert all(low <= start < end <= high for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert all(has_words(text[start:end]) and text[start:end].strip() == text[start:end] for start, end in spans)


@pytest.mark.parametrize("shape", SHAPES)
def test_hostile_text_finishes(shape):
    # an algorithm that is quadratic in one of these shapes runs for minutes
    for text in (shape * 30_000, shape * 30_000 + "x", "<think>" + shape * 30_000 + " a. B"):
        for splitter in SPLITTERS:
            splitter(text)
        for reward in (arithmetic_step_rewards, format_progress_step_rewards):
            steps = reward.steps(text)
            assert len(steps.rewards) == len(steps.ends)


# equations


@pytest.mark.parametrize(
    "text",
    [
        "3 + 4 = 7",
        "7 = 3 + 4",
        "-3 + 5 = 2",
        "it is -3 + 5 = 2",
        "100 - 20 - 30 = 50 dollars",
        "5 × 3 = 15 apples",
        "3 x 4 = 12",
        "10 ÷ 4 = 2.5",
        "5 − 3 = 2",
        "(2 + 3) * 4 = 20",
        "2(3) = 6",
        "2^{10} = 1024",
        "0.1 + 0.2 = 0.3",
        "1,200 + 34 = 1,234",
        "1{,}200 + 34 = 1{,}234",
        "50 * 20% = 10",
        r"1,200 \times 20\% = 240",
        r"$\frac{1}{2} + \frac14 = \dfrac{3}{4}$",
        r"\[ \left(3 + 1\right) \cdot 4 = 16 \]",
        r"12 \div 4 = \boxed{3}",
        r"\sqrt{16} + 1 = 5",
        "$5 + $3 = $8",
        r"\$5 + \$3 = \$8.",
        "1) 3 + 4 = 7",
        "- 3 + 4 = 7",
        "**3 + 4 = 7**",
        "(3 + 4 = 7)",
        "3 + 4 = 7 (since it is)",
        "<<16-3-4=9>>",
        "10 / 3 ≈ 3.33",
        r"\sqrt{2} \approx 1.414",
        "x = 3 + 4 = 7",
        "2^3^2=512",
        "2**3**2=512",
        "2^{3^2} = 512",
        "(2^3)^2 = 64",
        "He has a total of 5 + 3 = 8 apples",
        "at a cost of 3 * 4 = 12 dollars",
        "Add 3 + 4 = 7",
        "Then multiply: 3 * 4 = 12",
        "We have 5 and 3 + 4 = 7",
        "For x = 3, 4 + 5 = 9",
        "By then 3 + 4 = 7",
        "the sum is 3 + 4 = 7",
        "So the average is (2+4)/2 = 3",
        "The average = (2+4)/2 = 3",
        "Step 1: 3 + 4 = 7",
        "On day 2: 3 + 4 = 7",
        "1/4 = 25%",
        "50 * 20% = 10",
        "1/3 ≈ 33.3%",
        "which equals to 3 + 4 = 7",
        "comes to 3 + 4 = 7",
        "it is -3 + 5 = 2",
        "3 + 4 = 7. So",
        "3 + 4 = 7 with ease",
        "3 + 4 = 7 apples and 1 pear",
        r"3 + 4 = 7 \implies x",
        r"3 + 4 = 7 \quad \text{so}",
        r"3 + 4 = 7 \]",
        "She has 3 boxes of 12 eggs, so 3 * 12 = 36",
        "for a difference of 2.20-.99 = $1.21",
        "there are two categories of 400/2= 200 books",
        "he needs to average 210 / 5 = 42 points",
        "5 650 000 - 5 000 000 = 650 000 cars",
        "they each won 10/2 = 5 rounds",
        "he saves 240-220=$20 by buying the cheaper lens",
        "She's left with 70-28 = 42 quarters",
        "100-60=40 percentage points",
    ],
)
def test_equations_right_ones_are_right(text):
    assert [equation.is_right for equation in equations(text)] == [True]


@pytest.mark.parametrize(
    "text",
    [
        "3 + 4 = 8",
        "10 / 3 = 3.33",
        "5 / 0 = 0",
        "<<2*3=5>>",
        "1/3 ≈ 0.34",
        "0.1 + 0.2 = 0.30000000000000004",
        "2^3^2=64",
        "1/4 = 30%",
        "3 + 4 = 8, 7 = 7",
        "a total of 5 + 3 = 9 apples",
    ],
)
def test_equations_wrong_ones_are_wrong(text):
    assert [equation.is_right for equation in equations(text)] == [False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no numbers",
        "7 = 7",
        "2 + 3 = 2 + 3",
        "x = 5",
        "x - 3 = 5",
        "x-3 = 5",
        "x - 3 = 5 - y",
        "2x = 6 * 4x",
        "6 = 3y * 2",
        "1 + 1 = 2x",
        "1 + 1 = 2 x",
        "1 + 1 = 2 (x + 1)",
        "apples - 3 = 5 - 9",
        "f(3) + 4 = 7",
        "|x| - 3 = 5 * 9",
        "12:30 + 1 = 13:30",
        "5 * 3 = 2 million",
        "13 / 4 = 3 R 1",
        "7 % 3 = 1",
        "3² + 1 = 5",
        "3 + 4 =",
        "= 7",
        "3 + 4 <= 8",
        "5 cm + 3 cm = 9 cm",
        r"\sqrt{2} = 1.414",
        "(1, 2) + 1 = 3",
        "9" * 2000 + " + 1 = 2",
        "9^{9^{9^{9}}} + 1 = 2",
        "20% of 50 = 0.2*50",
        "1/4 of 20 = 20/4",
        "half of 10 = 10/2",
        "twice 3 = 2*3",
        "square of 3 = 3*3",
        "5 out of 10 = 5/10",
        "10 divided by 2 = 10/2",
        "divide 10 by 2 = 10/2",
        "3 plus 4 * 2 = 11",
        "5 times 10 - 2 = 48",
        "the sum of 3 and 4 = 3+4",
        "average of 2, 4 = (2+4)/2",
        "sin 30 = 1/2",
        "remainder of 7/2 = 1",
        "5x +6 = 2+3",
        "2x -3 = 4+1",
        r"3 + 4 = 7 \pi",
        "3 + 4 = 7 π",
        "2024-01-02 = 5",
        "2024-12-25 = 1986",
        "25/12/2024 = 5",
        "7/2 = 3 with remainder 1",
        "7/2 = 3 (remainder 1)",
        "7/2 = 3, remainder 1",
        "$1/2 = 50 cents",
        "that is \\$1/4 = 25¢",
        "7/2 = 3 rem 1",
        "7/2 = 3 r1",
        "7/2 = 3 and 1/2",
        "7/2 = 3 rounded down",
        "100-90 = 10%",
        "1/3=0.333...",
        "1/7 = 0.142857…",
        "1/7 = 0.142857 ...",
        r"\(1/7 = 0.142857\ldots\)",
        "absolute value of 2-5 = 3",
        "the negative of 3+4 = -7",
        "ratio of 3 to 4 = 3/4",
        "subtract 3 from 10 - 2 = 5",
        "10 decreased by 2 * 3 = 4",
        "10 increased by 2 = 10+2",
        "2 raised to 3 = 2*2*2",
        "5 more than 3 = 3+5",
        "3 over 4 = 6/8",
        "17 mod 5 = 1+1",
        "square root of 16 = 2*2",
        r"half of \(10 = 5*1\)",
        "3 : 4 = 3/4",
        "1/3 + 1/3 = 2 thirds",
        "add 3 and 4 + 1 = 8",
        "Sine of 30 = 1/2",
        "log 100 = 1+1",
        "the product of 3 and 4 = 3*4",
        "the difference between 10 and 4 + 1 = 5",
        "the mean of 2 and 4 = 6/2",
        "20 percent of 50 = 50/5",
        "a third of 9 = 9/3",
        "2/3 of 9 = 2*3",
        "three quarters of 8 = 2*3",
        "the square of 3 + 1 = 16",
        "apples +6 = 2+4",
        "15% of $80 = (15/100)*$80",
        "13 / 6 = 2 full cycles with a remainder of 1 hour",
        "100 / 6 = 16 and (2/3)",
        "Week 1 + Week 2 = 35 + 35",
        "25 / 1/3 = 75",
        "5*2 = 10 by 3",
        "20% off 50 = 50*0.8",
        "3 out of every 4 = 3/4",
        "3 in 4 = 3/4",
        "5 XOR 3 = 6*1",
    ],
)
def test_equations_that_cannot_be_read_are_left_alone(text):
    assert equations(text) == []


def test_equations_of_a_chain_are_its_neighbours():
    assert equations("2+3 = 5 = 10/2 = 4") == [("2+3=5", True), ("5=10/2", True), ("10/2=4", False)]


def test_equations_behind_a_word_are_left_alone_and_the_rest_of_the_chain_is_judged():
    assert equations("20% of 50 = 0.2*50 = 10") == [("0.2*50=10", True)]
    assert equations("First 2 + 2 = 4 and 3 + 4 = 8, then half of 10 = 10/2") == [("2+2=4", True), ("3+4=8", False)]


def test_equations_of_huge_numbers_with_per_cent_are_judged():
    assert equations("10^{400} + 1 = 2%") == [("10^{400}+1=2%", False)]


def test_equations_rounding_accepts_the_rounded_decimal_only():
    assert [e.is_right for e in equations("10/3 = 3.33, 10/3 = 3.34, 2/3 = 0.66", rounding=True)] == [
        True,
        False,
        False,
    ]


def test_equations_of_an_annotation_and_of_its_sentence_are_both_read():
    text = "He has 16 - 3 - 4 = <<16-3-4=9>>9 eggs"
    assert equations(text) == [("16-3-4=9", True)] * 2


# arithmetic


def test_arithmetic_step_reward_is_the_share_of_right_equations():
    text = "1 + 1 = 2, 1 + 2 = 4\nno maths\n<<2*3=6>>6 eggs\n5 - 3 = 3"
    assert arithmetic_step_rewards([text]) == [Steps([0.5, None, 1.0, 0.0], [20, 29, 45, 55], "char")]


def test_arithmetic_step_reward_without_equation_follows_the_setting():
    assert ArithmeticStepReward(no_equation=0.25).steps("so\n1 + 1 = 2").rewards == [0.25, 1.0]


def test_arithmetic_step_reward_counts_a_repeated_equation_once():
    assert arithmetic_step_rewards.steps("1 + 1 = 2\n1+1=2\n1+1 = 2, 2+2 = 5").rewards == [1.0, None, 0.0]


def test_arithmetic_step_reward_reads_the_thinking_only():
    assert arithmetic_step_rewards(["<think>1 + 1 = 2</think>1 + 1 = 3"]) == [Steps([1.0], [16], "char")]


@pytest.mark.parametrize("reward", [arithmetic_step_rewards, format_progress_step_rewards], ids=lambda r: r.__name__)
@pytest.mark.parametrize("completion", [None, "", [], [{"role": "assistant", "content": None}]])
def test_step_rewards_of_nothing_are_empty(reward, completion):
    assert reward([completion]) == [([], [], "char")]


def test_arithmetic_step_reward_unclosed_and_empty_block():
    assert arithmetic_step_rewards(["<think>1+1=2", "<think></think>1+1=2"]) == [
        ([1.0], [12], "char"),
        ([], [], "char"),
    ]


@pytest.mark.parametrize("reward", [arithmetic_step_rewards, format_progress_step_rewards], ids=lambda r: r.__name__)
def test_step_rewards_take_the_trainers_call_messages_and_any_batch_order(reward):
    texts = ["<think>1 + 1 = 2\n2 + 2 = 5</think>5", "3 + 3 = 6", "<think>"]
    rows = reward(texts, prompts=["p"] * 3, completion_ids=[[1]] * 3, solution=["5"] * 3, trainer_state=None)
    assert reward([[{"role": "assistant", "content": text}] for text in texts]) == rows
    assert reward(texts[::-1]) == rows[::-1]
    assert reward([]) == []


@pytest.mark.parametrize(
    "reward",
    [
        arithmetic_step_rewards,
        ArithmeticStepReward(split_regex(";"), no_equation=0.0, name="mine"),
        FormatProgressStepReward(split_sentences, num_steps=2),
    ],
    ids=lambda reward: reward.__name__,
)
def test_step_rewards_pickle_with_name_and_settings(reward):
    copy = pickle.loads(pickle.dumps(reward))
    text = "<think>1 + 1 = 2; so it is. Now 2 + 2 = 5</think>5"
    assert copy.__name__ == reward.__name__ and copy([text]) == reward([text])
    assert repr(copy) == repr(reward)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ArithmeticStepReward("lines"), "splitter='lines' must be a function"),
        (lambda: ArithmeticStepReward(no_equation=float("nan")), "no_equation=nan"),
        (lambda: ArithmeticStepReward(rounding="no"), "rounding='no' must be True or False"),
        (lambda: split_regex(None), "pattern=None must be a regular expression"),
        (lambda: split_regex(3), "pattern=3 must be a regular expression"),
        (lambda: FormatProgressStepReward(tags=None), "tags=None must be a list of different texts"),
        (lambda: FormatProgressStepReward(tags=3), "tags=3 must be a list"),
        (lambda: FormatProgressStepReward(think_prefilled="no"), "think_prefilled='no' must be True or False"),
        (lambda: FormatProgressStepReward(tags=()), r"tags=\(\) must be"),
        (lambda: FormatProgressStepReward(tags="<think>"), "tags='<think>' must be"),
        (lambda: FormatProgressStepReward(tags=["<a>", "<a>"]), "different texts"),
        (lambda: FormatProgressStepReward(tags=["<a>"], think_prefilled=True), "one of them left"),
        (lambda: FormatProgressStepReward(num_steps=0), "num_steps=0"),
        (lambda: FormatProgressStepReward(min_words=0), "min_words=0"),
    ],
)
def test_step_rewards_refuse_bad_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_step_rewards_refuse_one_text_for_a_list():
    with pytest.raises(TypeError, match="a list with one entry a completion"):
        arithmetic_step_rewards("1 + 1 = 2")


# format progress


def _rewards(text, **options):
    return FormatProgressStepReward(**options).steps(text).rewards


def test_format_progress_of_a_full_completion_is_one_in_all():
    text = "<think>one two three\ntwo three four</think><answer>4</answer>"
    steps = FormatProgressStepReward(num_steps=2).steps(text)
    assert steps == ([0.125, 0.25, 0.25, 0.125, 0.125, 0.125], [7, 20, 35, 43, 51, 61], "char")
    assert sum(steps.rewards) == 1.0


@pytest.mark.parametrize(
    ("text", "rewards"),
    [
        ("<think></think><answer>4</answer>", [0.125, 0.0, 0.125, 0.125]),  # nothing thought
        ("<think>hm</think><answer> </answer>", [0.125, 0.0, 0.125, 0.125, 0.0]),  # no answer
        ("<think>hm", [0.125, 0.0]),  # never closed
        ("hm<think>so", [0.0, 0.0]),  # text before the block
        ("</think><think>", [0.0, 0.125]),  # out of order
        ("<think>hm<think>", [0.125, 0.0]),  # repeated
    ],
)
def test_format_progress_of_tags_needs_order_and_content(text, rewards):
    assert _rewards(text) == rewards


def test_format_progress_repeated_short_and_further_steps_earn_nothing():
    text = "a b c\nA, b: c!\nso\nd e f\ng h i"
    assert _rewards(text, num_steps=2) == [0.25, 0.0, 0.0, 0.25, None]


def test_format_progress_many_tiny_steps_earn_no_more_than_a_few():
    tiny = "\n".join(["ok", "so", "yes"] * 300)
    varied = "\n".join(f"step number {index}" for index in range(900))
    assert sum(filter(None, _rewards(tiny))) == 0.0
    assert sum(filter(None, _rewards(varied))) == 0.5


def test_format_progress_tag_at_the_end_of_a_step_is_one_step_with_it():
    steps = FormatProgressStepReward(tags=["<answer>", "</answer>"], num_steps=1).steps("so it is <answer>4</answer>")
    assert steps == ([0.25, 0.75], [17, 27], "char")


def test_format_progress_think_prefilled_expects_the_rest():
    rewards = _rewards("one two three</think><answer>4</answer>", think_prefilled=True, num_steps=1)
    assert rewards == [0.5, *[0.5 / 3] * 3]


@settings(max_examples=150, deadline=None)
@given(text=st.lists(st.sampled_from([*SHAPES, "a b c d\n", "e f g\n", "<answer>", "4"]), max_size=25).map("".join))
def test_format_progress_is_bounded_and_never_falls(text):
    steps = format_progress_step_rewards.steps(text)
    assert all(reward is None or reward >= 0 for reward in steps.rewards)
    assert sum(filter(None, steps.rewards)) <= 1 + 1e-9
    assert steps.ends == sorted(set(steps.ends)) and all(0 < end <= len(text) for end in steps.ends)
