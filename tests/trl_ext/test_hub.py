"""Figures that are merged into model cards, whose text stays as it was."""

import pytest
import yaml
from huggingface_hub import EvalResult, ModelCard

from trl_ext.errors import UserError
from trl_ext.hub import add_eval_results, check_card

CARD = """\
---
license: apache-2.0   # as the base
tags:
- trl
library_name: peft
---

# My model

Text with --- and `model-index:` in it.

---
"""
INDEX = """\
model-index:
- name: other-name
  results:
  - task: {type: text-generation}
    dataset: {name: maths, type: org/maths, split: test}
    metrics:
    - {type: accuracy, value: 0.5, name: own}
    - {type: pass@1, value: 0.1, name: pass@1 (greedy)}
datasets:
- org/data
"""


def _result(value=0.25, dataset="maths", name="pass@1 (greedy)"):
    fields = {"task_type": "text-generation", "dataset_type": f"org/{dataset}", "dataset_name": dataset}
    return EvalResult(**fields, dataset_split="test", metric_type="pass@1", metric_name=name, metric_value=value)


def _metadata(path):
    return yaml.safe_load(path.read_text().split("---\n")[1])


def test_text_and_metadata_stay_and_the_figures_are_read_by_the_hub(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(CARD)
    assert add_eval_results(path, [_result()]) == path
    text = path.read_text()
    head, tail = CARD.split("library_name: peft\n")
    assert text.startswith(f"{head}library_name: peft\nmodel-index:\n") and text.endswith(tail)
    (found,) = ModelCard.load(path).data.eval_results
    assert (found.metric_value, found.dataset_name, found.metric_name) == (0.25, "maths", "pass@1 (greedy)")


def test_same_figure_is_replaced_and_others_stay(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(CARD.replace("library_name: peft\n", f"{INDEX}library_name: peft\n"))
    add_eval_results(tmp_path, [_result(0.3), _result(0.7, "aime"), _result(0.4, name="pass@1 (4 samples)")])
    (model,) = _metadata(path)["model-index"]
    assert model["name"] == "other-name"
    maths, aime = model["results"]
    assert [(metric["name"], metric["value"]) for metric in maths["metrics"]] == [
        ("own", 0.5),
        ("pass@1 (greedy)", 0.3),
        ("pass@1 (4 samples)", 0.4),
    ]
    assert [metric["value"] for metric in aime["metrics"]] == [0.7]
    assert _metadata(path)["datasets"] == ["org/data"] and _metadata(path)["library_name"] == "peft"


def test_second_time_changes_nothing(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(CARD)
    add_eval_results(path, [_result(), _result(0.5, "aime")])
    once = path.read_bytes()
    add_eval_results(path, [_result(), _result(0.5, "aime")])
    assert path.read_bytes() == once
    assert [entry.name for entry in tmp_path.iterdir()] == ["README.md"]


def test_card_without_metadata_gets_some(tmp_path):
    path = tmp_path / "README.md"
    path.write_text("# Plain\n\ntext\n")
    add_eval_results(path, [_result()])
    assert path.read_text().startswith("---\nmodel-index:\n") and path.read_text().endswith("---\n\n# Plain\n\ntext\n")


def test_card_that_is_not_there_is_made(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    path = add_eval_results(folder, [_result()])
    assert path == folder / "README.md" and path.read_text().endswith("# my-model\n")
    assert _metadata(path)["model-index"][0]["name"] == "my-model"


def test_line_ends_of_the_card_are_kept(tmp_path):
    path = tmp_path / "README.md"
    path.write_bytes(CARD.replace("\n", "\r\n").encode())
    add_eval_results(path, [_result()])
    assert path.read_bytes().count(b"\n") == path.read_bytes().count(b"\r\n")
    assert ModelCard.load(path).data.eval_results[0].metric_value == 0.25


def test_no_figures_leave_the_card_alone(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(CARD)
    add_eval_results(path, [])
    assert path.read_text() == CARD


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ("a: [", "is no valid YAML"),
        ("model-index: yes please", "its model-index is no list of models"),
        ("model-index:\n- name: x\n  results: [{}]", "its model-index is no list of models"),
        ("- a\n- b", "its model-index is no list of models"),
    ],
)
def test_broken_metadata_is_refused_and_left_alone(tmp_path, metadata, sentence):
    path = tmp_path / "README.md"
    path.write_text(f"---\n{metadata}\n---\ntext\n")
    with pytest.raises(UserError, match=sentence):
        add_eval_results(path, [_result()])
    assert path.read_text() == f"---\n{metadata}\n---\ntext\n"


FORMS = {
    "flow": "{license: mit, tags: [a]}\n",
    "an anchor that is used later": INDEX.replace("type: org/maths", "type: &maths org/maths") + "base: *maths\n",
    "an end of the document": "license: mit\n...\n",
}


@pytest.mark.parametrize("block", FORMS.values(), ids=FORMS)
def test_metadata_that_cannot_take_figures_is_refused_and_left_alone(tmp_path, block):
    path = tmp_path / "README.md"
    path.write_text(f"---\n{block}---\ntext\n")
    for call in (lambda: add_eval_results(path, [_result()]), lambda: check_card(path)):
        with pytest.raises(UserError, match="cannot be put into its metadata without a change of what else is there"):
            call()
    assert path.read_text() == f"---\n{block}---\ntext\n"


@pytest.mark.parametrize("quote", ["'", '"'])
def test_quoted_model_index_is_the_same_entry(tmp_path, quote):
    path = tmp_path / "README.md"
    path.write_text(f"---\n{INDEX.replace('model-index', f'{quote}model-index{quote}')}---\ntext\n")
    add_eval_results(path, [_result(0.3)])
    assert path.read_text().count("model-index") == 1
    assert [metric["value"] for metric in _metadata(path)["model-index"][0]["results"][0]["metrics"]] == [0.5, 0.3]


def test_comments_behind_model_index_stay(tmp_path):
    path = tmp_path / "README.md"
    comment = "\n# about the data\n# in two lines\n"
    path.write_text(f"---\n{INDEX.replace('datasets:', f'{comment}datasets:')}# the end\n---\ntext\n")
    add_eval_results(path, [_result()])
    assert path.read_text().startswith(f"---\n{comment}datasets:\n- org/data\n# the end\nmodel-index:\n")


def test_card_that_is_no_text_is_refused_and_a_good_or_missing_one_is_left_alone(tmp_path):
    path = tmp_path / "README.md"
    check_card(path)
    assert not path.exists()
    path.write_text(CARD)
    check_card(tmp_path)
    assert path.read_text() == CARD
    path.write_bytes(b"# caf\xe9\n")
    with pytest.raises(UserError, match=r"is no text in UTF-8 .* at byte 5"):
        check_card(path)


def test_metadata_whose_lines_end_in_cr_alone_is_refused(tmp_path):
    path = tmp_path / "README.md"
    path.write_bytes(b"---\rlicense: mit\r---\rtext")
    with pytest.raises(UserError, match="its lines end in CR alone"):
        add_eval_results(path, [_result()])
    assert path.read_bytes() == b"---\rlicense: mit\r---\rtext"
