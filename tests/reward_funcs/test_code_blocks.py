"""Which block of a completion is the program."""

import pytest

from reward_funcs._code_blocks import MAX_LOOKS, _Reader
from reward_funcs.code import last_code_block
from reward_funcs.format import CodeBlockFormatReward

FENCE = "```"


def text(*lines):
    return "\n".join(lines)


@pytest.mark.parametrize(
    "info",
    [
        "python:main.py",
        "python, linenums",
        "python,linenos",
        "python{1,3}",
        "python {1,3}",
        "{.python}",
        "{python}",
        "{.python .numberLines}",
        'python title="a.py"',
        "py",
        "Python3",
        "python3.11",
        "(python)",
    ],
)
def test_a_language_with_a_file_or_lines_behind_it_is_the_language(info):
    block = text(f"{FENCE}{info}", "x = 1", FENCE)
    assert last_code_block(block) == "x = 1"
    assert CodeBlockFormatReward()([block]) == [1.0]


@pytest.mark.parametrize("info", ["cpython", "pythonic", "text:python", "pycon", "diff", "c++", "java"])
def test_another_language_is_not_python(info):
    assert last_code_block(text(f"{FENCE}{info}", "x = 1", FENCE)) is None


@pytest.mark.parametrize(
    "lines",
    [
        ["<answer>", "```python", "x = 1", "```</answer>"],
        ["<answer>```python", "x = 1", "```", "</answer>"],
        ["<answer>```python", "x = 1", "```</answer><|im_end|>"],
        ["<answer>```python", "x = 1"],
        ["```python", "x = 1", "```</answer>", "", "Output:", "```", "1", "```"],
        ["```python", "x = 1", "```<|endoftext|>"],
        ["```python", "x = 1", "``` This works."],
        ["```python", "x = 1", "``` This works.", "It prints:", "```", "1", "```"],
        ["```python", "y = 2", "``` A draft.", "```python", "x = 1", "```"],
        ["Code: ```python", "x = 1", "```"],
        ["Code: ```py", "x = 1", "``` It works."],
        ["Code: ```python:main.py", "x = 1", "```", "It prints:", "```", "1", "```"],
        ["1. Code: ```python", "   x = 1", "   ```"],
        ["**```python", "x = 1", "```**"],
        ["It prints: ```text", "1", "```", "Code:", "```python", "x = 1", "```"],
        ["```python", "x = 1", "``"],
    ],
)
def test_a_fence_with_other_text_in_its_line_counts(lines):
    assert last_code_block(text(*lines)).strip() == "x = 1"


@pytest.mark.parametrize(
    "lines",
    [
        ["Open it with ```python", "```python", "x = 1", "```"],
        ["Open it with ```python", "```", "x = 1", "```"],
        ["Write ```python``` and then", "```python", "x = 1", "```"],
        ["```python", "x = 1", "```", "That was ```python"],
        ["```python", "x = 1", "```", "", "``` is a fence."],
    ],
)
def test_a_text_about_fences_hides_no_program(lines):
    assert last_code_block(text(*lines)) == "x = 1"


@pytest.mark.parametrize(
    "code",
    [
        'def f():\n    """\n    ``` a note\n    ```\n    """\n    return 1',
        'def f():\n    """\n    ```</b>\n    """\n    return 1',
        't = """\n``` python\n"""',
        't = """\n```python x\n"""',
    ],
)
def test_a_line_of_the_program_that_begins_like_a_fence_stays(code):
    assert last_code_block(text("```python", code, "```")) == code


def test_text_behind_marks_stays_where_a_closing_fence_is_left_over():
    code = 't = """\n``` a note\n"""'
    assert last_code_block(text("```python", code, "```", "```python", "x = 1", "```")) == "x = 1"
    assert last_code_block(text("```python", code, "```")) == code


@pytest.mark.parametrize("thought", ["", "<think>a</think>\n", "<think>\n```python\ny = 2\n</think>\n"])
@pytest.mark.parametrize(
    "code",
    [
        "# up to </think> all is dropped\nx = 1",
        "x = 1  # not <think>",
        'x = """\n<think>\n"""',
        "x = '''\n</think>\n'''\ny = '''</think>'''",
        "x = s.split('</think>')",
    ],
)
def test_a_tag_in_the_program_ends_no_thought(thought, code):
    assert last_code_block(text(thought + "It is:", "```python", code, "```", "Done.")) == code


@pytest.mark.parametrize(
    ("lines", "program"),
    [
        (["<think>", "```python", "# a draft </think>", "", "```python", "x = 1", "```"], "x = 1"),
        (["<think>", "```python", "y = 2", "</think>", "```python", "x = 1", "```"], "x = 1"),
        (["<think>", "```python", 'y = """', "</think>", "```", "x = 1", "```"], "x = 1"),
        (["```python", "y = 2", "```", "</think>", "It is 4."], None),
        (["```python", "x = 1", "```", "<think>", "```python", "y = 2", "```"], "x = 1"),
        (["<think>", "```python", "y = 2", "```"], None),
        (["<think>", "```python", "y = 2", "```", "</think>", "```python", "x = 1", "```", "<think>"], "x = 1"),
        (["```python", "# never closed </think>", "x = 1"], None),
    ],
)
def test_a_tag_outside_of_a_program_ends_the_thought(lines, program):
    assert last_code_block(text(*lines)) == program


@pytest.mark.parametrize(
    "line", ["``` a b", "x ```python", "# </think>", "```python\n# </think>", "<think>", "```", "```\n``` a b\nx ```py"]
)
def test_a_long_text_is_not_read_again_for_each_of_its_lines(line):
    reader = _Reader(text("```python", *[line] * 20_000))
    reader.blocks()
    num_lines = len(reader.lines)
    assert MAX_LOOKS * num_lines - reader.left <= (MAX_LOOKS + 2) * num_lines


@pytest.mark.parametrize(
    ("start", "inside"), [("> ", "> "), (">  ", ">  "), ("- ", "  "), ("-  ", "   "), ("1. ", "   "), ("\t", "\t")]
)
def test_many_marks_in_front_of_no_fence_are_read_once(start, inside):
    # read in every way that they can be divided, forty of them would outlast the test run
    assert last_code_block(start * 2000 + "x") is None
    block = text(start * 40 + FENCE + "py", inside * 40 + "x = 1", inside * 40 + FENCE)
    assert last_code_block(block) == "x = 1"


@pytest.mark.parametrize("line", ["'" + "</think>" * 100_000, "'<think>' " * 50_000, "a```py\n" * 100_000])
def test_many_tags_and_fences_hide_no_program(line):
    assert last_code_block(text(line, f"{FENCE}python", "x = 1", FENCE)) == "x = 1"
