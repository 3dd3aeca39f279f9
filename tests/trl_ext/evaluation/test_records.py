"""Records on disk: torn, doubled, incomplete and foreign ones, two writers, and folders of another request."""

import json

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation.records import (
    FolderLock,
    Record,
    RecordWriter,
    cut_torn_line,
    differences,
    prepare_folder,
    read_json,
    read_json_lines,
    read_records,
    write_atomically,
)

REQUEST = {"sampling": {"temperature": 0.6, "seed": 0}, "batch_size": 2, "versions": {"torch": "2"}}


def _batch(number, benchmark="maths", text="answer"):
    return [
        Record(benchmark, number, f"p{2 * number + i}", 0, f"{text} {number}.{i}", 3 + i, bool(i)) for i in range(2)
    ]


BATCHES = [_batch(number) for number in range(3)]
PLAN = {("maths", number): frozenset({(r.key, r.sample) for r in batch}) for number, batch in enumerate(BATCHES)}
ALL = {record.name: record for batch in BATCHES for record in batch}


def _write(folder, *batches, rank=0):
    with RecordWriter(folder, rank) as writer:
        for batch in batches:
            writer.append(batch)
    return writer.path


def test_records_come_back_as_they_were_written(tmp_path):
    _write(tmp_path, *BATCHES)
    assert read_records(tmp_path, PLAN) == ALL


@pytest.mark.parametrize("text", ["", "a\nb\r\n\x00", "\u2028 é 汉", "\ud83d", '"}\n{"'])
def test_any_text_comes_back_as_it_was(tmp_path, text):
    record = Record("maths", 0, "key", 0, text, 1, False)
    _write(tmp_path, [record])
    assert read_records(tmp_path, {("maths", 0): frozenset({("key", 0)})})[record.name].text == text


def test_file_cut_at_any_byte_gives_whole_batches_and_is_completed_to_the_same_records(tmp_path):
    path = _write(tmp_path, *BATCHES)
    whole = path.read_bytes()
    ends = [0]
    for batch in BATCHES:
        folder = tmp_path / f"alone{len(ends)}"
        folder.mkdir()
        ends.append(ends[-1] + len(_write(folder, batch).read_bytes()))
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        there = read_records(tmp_path, PLAN)
        num_whole = sum(end <= length for end in ends[1:])
        assert there == {record.name: record for batch in BATCHES[:num_whole] for record in batch}
        _write(tmp_path, *BATCHES[num_whole:])
        assert read_records(tmp_path, PLAN) == ALL


def test_incomplete_batch_is_not_there_and_a_later_whole_one_is(tmp_path):
    later = _batch(1, text="later")
    _write(tmp_path, BATCHES[0], BATCHES[1][:1])
    assert set(read_records(tmp_path, PLAN)) == {record.name for record in BATCHES[0]}
    _write(tmp_path, later)
    assert [read_records(tmp_path, PLAN)[record.name] for record in later] == later


def test_batch_of_two_files_counts_once_and_whole(tmp_path):
    other = _batch(0, text="other process")
    _write(tmp_path, BATCHES[0][:1])
    _write(tmp_path, other, BATCHES[2], rank=1)
    assert read_records(tmp_path, PLAN) == {record.name: record for record in [*other, *BATCHES[2]]}


def test_batch_that_two_files_hold_whole_is_taken_from_the_first(tmp_path):
    _write(tmp_path, _batch(0, text="second"))
    first = _batch(0, text="first")
    _write(tmp_path, first, rank=1)  # generations.1.jsonl comes before generations.jsonl
    assert read_records(tmp_path, PLAN) == {record.name: record for record in first}


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"{broken\n", "line 3 of .*generations.jsonl is no record of an evaluation; remove that line"),
        (b"[1]\n", "is no record"),
        (b'{"benchmark": "maths"}\n', "is no record"),
        (b"\xff\xfe\n", "is no record"),
    ],
)
def test_line_that_is_no_record_is_refused_with_its_place(tmp_path, line, sentence):
    path = _write(tmp_path, BATCHES[0])
    path.write_bytes(path.read_bytes() + line)
    _write(tmp_path, BATCHES[1])
    with pytest.raises(UserError, match=sentence):
        read_records(tmp_path, PLAN)


@pytest.mark.parametrize(
    ("was", "became", "said"),
    [
        ('"num_tokens": 3', '"num_tokens": "3"', "num_tokens='3'"),
        ('"num_tokens": 3', '"num_tokens": -3', "num_tokens=-3"),
        ('"num_tokens": 3', '"num_tokens": true', "num_tokens=True"),
        ('"is_truncated": true', '"is_truncated": "no"', "is_truncated='no'"),
    ],
)
def test_record_with_a_wrong_value_is_refused(tmp_path, was, became, said):
    path = _write(tmp_path, BATCHES[0])
    path.write_text(path.read_text().replace(was, became))
    with pytest.raises(UserError, match=f"holds {said}, which no record can"):
        read_records(tmp_path, PLAN)


def test_record_of_another_plan_is_refused(tmp_path):
    _write(tmp_path, BATCHES[0], _batch(9))
    with pytest.raises(UserError, match=r"line 3 .* is of another evaluation .sample 0 of 'p18'"):
        read_records(tmp_path, PLAN)


def test_second_writer_of_a_file_is_refused_and_the_file_is_free_after_the_first(tmp_path):
    with RecordWriter(tmp_path), pytest.raises(UserError, match=r"another process writes generations.jsonl; wait"):
        RecordWriter(tmp_path)
    _write(tmp_path, BATCHES[0])
    with RecordWriter(tmp_path, 1), RecordWriter(tmp_path, 2):
        pass


@pytest.mark.parametrize(("content", "kept"), [(b"", b""), (b"a\nb", b"a\n"), (b"no end", b""), (b"a\n", b"a\n")])
def test_cut_torn_line_keeps_whole_lines(tmp_path, content, kept):
    path = tmp_path / "file"
    path.write_bytes(content)
    cut_torn_line(path)
    assert path.read_bytes() == kept


def test_cut_torn_line_longer_than_a_block(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"a\n" + b"x" * 200_000)
    cut_torn_line(path)
    assert path.read_bytes() == b"a\n"


def test_prepare_folder_takes_the_same_request_again_and_tells_other_versions(tmp_path):
    folder = tmp_path / "deep" / "run"
    assert prepare_folder(folder, REQUEST) == []
    assert prepare_folder(folder, REQUEST) == []
    assert prepare_folder(folder, {**REQUEST, "versions": {"torch": "3"}}) == [
        'versions.torch is "2" there and "3" here'
    ]


def test_prepare_folder_names_the_field_that_differs(tmp_path):
    prepare_folder(tmp_path, REQUEST)
    other = {**REQUEST, "sampling": {"temperature": 1.0, "seed": 0}}
    with pytest.raises(UserError, match=r"sampling.temperature is 0.6 there and 1.0 here; give another output_dir"):
        prepare_folder(tmp_path, other)


def test_prepare_folder_with_overwrite_removes_the_evaluation_and_nothing_else(tmp_path):
    prepare_folder(tmp_path, REQUEST)
    _write(tmp_path, *BATCHES)
    _write(tmp_path, *BATCHES, rank=1)
    for name in ("results.json", "results.md", "problems.jsonl", "model-index.yaml", "README.md", "metrics.jsonl"):
        (tmp_path / name).write_text("x")
    prepare_folder(tmp_path, {**REQUEST, "batch_size": 3}, overwrite=True)
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left == {"request.json", "README.md", "metrics.jsonl"}
    assert json.loads((tmp_path / "request.json").read_text())["batch_size"] == 3


def test_prepare_folder_refuses_completions_without_a_request_and_a_broken_request(tmp_path):
    _write(tmp_path, BATCHES[0])
    for overwrite in (False, True):
        with pytest.raises(UserError, match=r"holds generations.jsonl, but no request.json of an evaluation"):
            prepare_folder(tmp_path, REQUEST, overwrite=overwrite)
    (tmp_path / "request.json").write_text("{")
    with pytest.raises(UserError, match=r"request.json is no valid JSON"):
        prepare_folder(tmp_path, REQUEST)


@pytest.mark.parametrize("request_text", [None, '{"method": "POST"}'])
def test_overwrite_leaves_files_of_somebody_else_alone(tmp_path, request_text):
    files = {"results.md": "my results", "generations_notes.jsonl": "{}\n"}
    files |= {"request.json": request_text} if request_text else {}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match="move it away, or give another output_dir"):
        prepare_folder(tmp_path, REQUEST, overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == files


def test_file_with_a_name_like_ours_is_no_file_of_records_and_is_not_removed(tmp_path):
    prepare_folder(tmp_path, REQUEST)
    _write(tmp_path, *BATCHES)
    for name in ("generations_notes.jsonl", "generations.old.jsonl", "generations.01.jsonl"):
        (tmp_path / name).write_text("a note\n")
    assert read_records(tmp_path, PLAN) == ALL
    prepare_folder(tmp_path, REQUEST, overwrite=True)
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".")}
    assert left == {"generations_notes.jsonl", "generations.old.jsonl", "generations.01.jsonl", "request.json"}


def test_lock_of_a_folder_is_refused_while_an_evaluation_or_one_of_its_processes_runs(tmp_path):
    with FolderLock(tmp_path / "run"), pytest.raises(UserError, match="another evaluation runs in this folder; wait"):
        FolderLock(tmp_path / "run")
    with RecordWriter(tmp_path / "run", 3):
        with pytest.raises(UserError, match=r"another process still writes generations.3.jsonl"):
            FolderLock(tmp_path / "run")
    with FolderLock(tmp_path / "run"):  # what was refused holds nothing
        pass


def test_folder_that_was_made_for_nothing_goes_and_one_that_was_there_stays(tmp_path):
    (tmp_path / "old").mkdir()
    with FolderLock(tmp_path / "new"), FolderLock(tmp_path / "old"), FolderLock(tmp_path / "used"):
        (tmp_path / "used" / "file").write_text("")
    assert {path.name for path in tmp_path.iterdir()} == {"old", "used"}


def test_prepare_folder_refuses_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="is a file; name a folder"):
        prepare_folder(tmp_path / "file", REQUEST)
    with pytest.raises(UserError, match="cannot be written"):
        prepare_folder(tmp_path / "file" / "below", REQUEST)


def test_differences_tells_missing_and_long_values():
    found = list(differences({"a": None, "b": "x" * 200}, {"a": 1, "b": "y"}))
    assert found[0] == "a is not given there and 1 here"
    assert len(found[1]) < 150 and found[1].startswith('b is "xxx')


def test_write_atomically_replaces_the_file_and_leaves_nothing_beside_it(tmp_path):
    write_atomically(tmp_path / "a", "1")
    write_atomically(tmp_path / "a", "2")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "2")]


def test_read_json_refuses_what_is_no_object(tmp_path):
    (tmp_path / "a").write_text("[]")
    with pytest.raises(UserError, match="holds no JSON object; mend it"):
        read_json(tmp_path / "a", "mend it")
    (tmp_path / "b").write_text('{"a": 1}\n{"a"')
    with pytest.raises(UserError, match=r"line 2 of .* is no valid JSON; mend it"):
        read_json_lines(tmp_path / "b", "mend it")
