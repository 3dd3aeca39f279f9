"""Steps of completions in tokens: what a process reward returns, and the token in which each step ends.

A process reward sees texts, the advantages are tokens'. The text of each token is found by decoding every different
token once; tokens that share a character are decoded together. What they add up to is compared with the decoded
completion, so that a decoder which looks further back is noticed and followed prefix by prefix.
"""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

REPLACEMENT = "\ufffd"  # what bytes that are no character are decoded to
UNITS = ("token", "char")
# bytes of one character in UTF-8: no token further on can belong to a character that begins here
MAX_BYTES = 4
MAX_UNIT = 16  # tokens decoded together; a decoder that needs more is followed prefix by prefix


class Steps(NamedTuple):
    """The steps of one completion, as a process reward returns them; `reward_funcs.steps.Steps` is the same tuple.

    Args:
        rewards (`Sequence[float | None]`): reward of each of K steps; `None` leaves the step out.
        ends (`Sequence[int]`): K ends: with `unit="token"` the index of the step's last token in the completion, with
            `unit="char"` the offset just behind its last character in the completion's text, see
            [`completion_text`].
        unit (`str`): `"token"` or `"char"`. A plain pair `(rewards, ends)` means tokens.

    Example:

    ```python
    >>> Steps([1.0, 0.0], [4, 9])
    Steps(rewards=[1.0, 0.0], ends=[4, 9], unit='token')

    ```
    """

    rewards: Sequence[float | None]
    ends: Sequence[int]
    unit: Literal["token", "char"] = "token"


def completion_text(completion: Any) -> str:
    """The text of a completion in any of the shapes that TRL passes, in which character offsets count.

    A list of messages counts as its last assistant message, a list of content blocks as its text blocks, and reasoning
    in a field of its own stands in front in `<think>` tags: the text of `reward_funcs.completion_text`, which this
    package does not import.

    Args:
        completion (`str | list[dict] | dict | None`): a text, a message, or a list of messages.

    Returns:
        `str`: the text, `""` where there is none.

    Raises:
        ValueError: For any other type.

    Example:

    ```python
    >>> completion_text([{"role": "assistant", "reasoning_content": "2 + 2", "content": "4"}])
    '<think>\\n2 + 2\\n</think>\\n4'

    ```
    """
    if completion is None or isinstance(completion, str):
        return completion or ""
    if isinstance(completion, Mapping):
        completion = [completion]
    if not isinstance(completion, Sequence) or not all(isinstance(message, Mapping) for message in completion):
        raise ValueError(
            f"completion is {completion!r:.60}, but must be a text or a list of messages: pass one of them."
        )
    turns = (message for message in reversed(completion) if message.get("role", "assistant") == "assistant")
    message: Mapping[str, Any] = next(turns, {})
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = "".join(block if isinstance(block, str) else block.get("text") or "" for block in content)
    reasoning = message.get("reasoning_content") or message.get("thinking")
    if isinstance(reasoning, str) and reasoning and "</think>" not in content:
        return f"<think>\n{reasoning}\n</think>\n{content}"
    return content


def token_ends(text: str, spans: Sequence[tuple[int, int]], completion_ids: Sequence[int], tokenizer: Any) -> list[int]:
    r"""Index of the token that completes each span: the least t for which tokens 0..t decode to its last character.

    Args:
        text (`str`): the completion's text. It may differ from the decoded tokens by white space, by a prefilled start
            and by what was parsed out around it (special tokens, earlier turns).
        spans (`Sequence[tuple[int, int]]`): start and end of each of K spans, in characters; only the end counts.
        completion_ids (`Sequence[int]`): T token ids of the completion, without padding.
        tokenizer: the tokenizer or processor that decoded them, fast or slow.

    Returns:
        `list[int]`: K indices in [0, T), or -1 for a span that ends before the first token (in a prefilled start).

    Raises:
        ValueError: When a span is outside the text, or the text is not what the tokens say.

    Example:

    ```python
    >>> from trl_ext.testing import tiny_tokenizer
    >>> tokenizer = tiny_tokenizer()
    >>> token_ends("2 + 2\n= 4", [(0, 5), (6, 9)], tokenizer("2 + 2\n= 4<|im_end|>").input_ids, tokenizer)
    [4, 8]

    ```
    """
    return _ends_of_tokens(text, [end for _, end in spans], completion_ids, tokenizer, {})


def steps_in_tokens(
    results: Sequence[Any], completions: Sequence[Any], completion_ids: Sequence[Sequence[int]], tokenizer: Any
) -> tuple[list[list[float | None]], list[list[int]]]:
    """Step rewards and token indices, as `process_advantages` takes them, of what a process reward returned.

    Steps that end before the first token of their completion are dropped.

    Args:
        results (`Sequence`): for each of B completions [`Steps`], or a pair `(rewards, ends)` in tokens.
        completions (`Sequence`): B completions, as the process reward saw them.
        completion_ids (`Sequence[Sequence[int]]`): their token ids, without padding.
        tokenizer: the tokenizer or processor that decoded them.

    Returns:
        Two lists of B lists: rewards of the steps, and the index of each one's last token.

    Raises:
        ValueError: When a result is no such tuple, is ragged, or has an end outside its completion.

    Example:

    ```python
    >>> from trl_ext.testing import tiny_tokenizer
    >>> tokenizer = tiny_tokenizer()
    >>> results = [Steps([1.0], [3], "char"), ([0.5, None], [0, 2])]
    >>> steps_in_tokens(results, ["4+4", "5+5"], tokenizer(["4+4", "5+5"]).input_ids, tokenizer)
    ([[1.0], [0.5, None]], [[2], [0, 2]])

    ```
    """
    if not len(results) == len(completions) == len(completion_ids):
        raise ValueError(
            f"results has {len(results)} entries, but must have one for each of the {len(completions)} completions "
            f"({len(completion_ids)} lists of ids): return steps for every completion, ([], []) where there are none."
        )
    pieces: _Pieces = {}
    all_rewards, all_ends = [], []
    for row, (result, completion, ids) in enumerate(zip(results, completions, completion_ids, strict=True)):
        rewards, ends, unit = _checked(result, row)
        if unit == "char" and ends:
            text = completion_text(completion)
            ends = _ends_of_tokens(text, ends, ids, tokenizer, pieces)
        elif any(not 0 <= end < len(ids) for end in ends):
            raise ValueError(
                f"the ends of completion {row} are {ends}, but must be token indices in [0, {len(ids)}): return "
                "character offsets as Steps(rewards, ends, unit='char')."
            )
        kept = [(reward, end) for reward, end in zip(rewards, ends, strict=True) if end >= 0]
        all_rewards.append([reward for reward, _ in kept])
        all_ends.append([end for _, end in kept])
    return all_rewards, all_ends


def _checked(result: Any, row: int) -> tuple[list[float | None], list[int], str]:
    if not isinstance(result, Sequence) or isinstance(result, str) or len(result) not in (2, 3):
        raise ValueError(
            f"the steps of completion {row} are {result!r:.80}, but must be (rewards, ends) or (rewards, ends, unit): "
            "return trl_ext.grpo.steps.Steps."
        )
    unit = result[2] if len(result) == 3 else "token"
    if unit not in UNITS:
        raise ValueError(f"the unit of completion {row} is {unit!r}, but must be 'token' or 'char'.")
    rewards, ends = _listed(result[0], "rewards", row), _indices(_listed(result[1], "ends", row), row)
    if len(rewards) != len(ends):
        raise ValueError(
            f"completion {row} has {len(rewards)} step rewards, but {len(ends)} ends: return one end for each reward."
        )
    return rewards, ends, unit


def _listed(values: Any, name: str, row: int) -> list[Any]:
    values = values.tolist() if hasattr(values, "tolist") else values  # NumPy arrays and tensors
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise ValueError(
            f"the {name} of completion {row} are {values!r:.60}, but must be a list: return (rewards, ends) with one "
            "entry for each step."
        )
    return list(values)


def _indices(ends: Sequence[Any], row: int) -> list[int]:
    indices = []
    for end in ends:
        try:
            indices.append(operator.index(end))
        except TypeError as error:
            raise ValueError(
                f"the end {end!r:.60} of completion {row} is no whole number: return the index of each step's last "
                "token, or a character offset with unit='char'."
            ) from error
    return indices


# What a decode gave, by the ids decoded; kept over the completions of a call.
_Pieces = dict[tuple[bool, tuple[int, ...], tuple[int, ...]], str]


def _ends_of_tokens(
    text: str, ends: Sequence[int], completion_ids: Sequence[int], tokenizer: Any, pieces: _Pieces
) -> list[int]:
    outside = [end for end in ends if not 0 < end <= len(text)]
    if outside:
        raise ValueError(
            f"spans end at {outside[:5]}, but must end in (0, {len(text)}], the length of the text: count in the text "
            "that completion_text returns."
        )
    if not ends:
        return []
    ids = [int(token) for token in completion_ids]
    # TRL decodes without special tokens; a parsed completion may have kept some of them
    for skip in (True, False):
        decoder = _Decoder(tokenizer, skip, pieces)
        decoded = decoder.decode(ids)
        places = _places(text, ends, decoded)
        if places is not None:
            return decoder.tokens_at(ids, decoded, places)
    raise ValueError(
        f"text is {text[:40]!r}..., but completion_ids decode to {decoded[:40]!r}...: pass the ids of this "
        "completion, or return token indices."
    )


def _places(text: str, ends: Sequence[int], decoded: str) -> list[int] | None:
    """Index in the decoded text of each end's last character, -1 for one before it; `None` where the texts differ."""
    if text == decoded:
        return [end - 1 for end in ends]
    # character by character without white space: decoders and chat templates add and strip it
    bare, bare_decoded = "".join(text.split()), "".join(decoded.split())
    if bare in bare_decoded:
        shift = bare_decoded.rindex(bare)  # completion_text reads the last turn
    elif bare.endswith(bare_decoded):
        shift = len(bare_decoded) - len(bare)  # the start was prefilled
    else:
        return None
    visible = [index for index, character in enumerate(decoded) if not character.isspace()]
    counts = [0, *accumulate(not character.isspace() for character in text)]
    ordinals = [shift + counts[end] - 1 for end in ends]
    return [visible[ordinal] if 0 <= ordinal < len(visible) else -1 for ordinal in ordinals]


class _Decoder:
    """Decodes parts of a completion, each different one once."""

    def __init__(self, tokenizer: Any, skip_special_tokens: bool, pieces: _Pieces) -> None:
        self.tokenizer = getattr(tokenizer, "tokenizer", tokenizer)  # of a processor
        self.skip = skip_special_tokens
        self.pieces = pieces

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=self.skip)
        return text

    def piece(self, ids: tuple[int, ...], anchor: tuple[int, ...]) -> str:
        """What the ids add behind the anchor; alone, some decoders take the space before a word away."""
        key = (self.skip, anchor, ids)
        if key not in self.pieces:
            text, start = self.decode(anchor + ids), self.piece(anchor, ()) if anchor else ""
            # where the anchor's own text changes the result fits nowhere, and `lengths` will say so
            self.pieces[key] = text[len(start) :] if text.startswith(start) else REPLACEMENT + text
        return self.pieces[key]

    def tokens_at(self, ids: list[int], decoded: str, places: list[int]) -> list[int]:
        """Index of the token that completes the character at each place; -1 stays -1."""
        lengths = self.lengths(ids, decoded)
        if lengths is not None:
            return [bisect_left(lengths, place + 1) if place >= 0 else -1 for place in places]
        known: dict[int, int] = {}
        for place in set(places):
            # the decoder looks further back than its neighbours: whole prefixes are decoded, log2(T) for a place
            known[place] = self._first_prefix(ids, decoded[: place + 1])
        return [known[place] if place >= 0 else -1 for place in places]

    def _first_prefix(self, ids: list[int], start: str) -> int:
        """Index of the last token of the shortest prefix whose text begins like this."""
        return bisect_left(range(len(ids)), True, key=lambda t: self.decode(ids[: t + 1]).startswith(start))

    def lengths(self, ids: list[int], decoded: str) -> list[int] | None:
        """Number of characters that are complete after each token; `None` where the pieces do not add up."""
        lengths: list[int] = []
        anchor: tuple[int, ...] = ()
        done = index = 0
        is_settled = False
        while index < len(ids):
            size = self._unit(ids, index, anchor, decoded, done)
            whole = self.piece(tuple(ids[index : index + size]), anchor)
            if not decoded.startswith(whole, done):
                return None
            for count in range(1, size):
                part = self.piece(tuple(ids[index : index + count]), anchor)
                lengths.append(done + _common(part, whole))
            done += len(whole)
            lengths.append(done)
            index += size
            if not is_settled:
                # everything so far, until there is a visible token: one alone does, and its bytes mix with no others
                is_settled = size == 1 and bool(whole.strip()) and REPLACEMENT not in whole
                if is_settled:
                    anchor = (ids[index - 1],)
                elif index <= MAX_UNIT:  # further on it would be no end of a character, or cost too much
                    anchor = tuple(ids[:index])
        return lengths if done == len(decoded) else None

    def _unit(self, ids: list[int], start: int, anchor: tuple[int, ...], decoded: str, done: int) -> int:
        """Number of tokens from `start` on that are decoded together, up to the end of a character."""
        limit = min(len(ids) - start, MAX_UNIT)
        for size in range(1, limit):
            window = tuple(ids[start : start + size])
            text = self.piece(window, anchor)
            if not decoded.startswith(text, done):
                continue  # the first bytes of a character, or a decoder that looks further ahead
            if not text.endswith(REPLACEMENT) or self._stands_alone(window, text, ids, anchor, start + size):
                return size
        return limit

    def _stands_alone(
        self, window: tuple[int, ...], text: str, ids: list[int], anchor: tuple[int, ...], behind: int
    ) -> bool:
        """Whether the window ends in bytes that are no character, rather than in the first bytes of one."""
        parts = [tuple(ids[behind : behind + count]) for count in range(1, MAX_BYTES)]
        return all(self.piece(window + part, anchor) == text + self.piece(part, anchor) for part in parts)


def _common(part: str, whole: str) -> int:
    """Length of the longest common start."""
    for index, (one, other) in enumerate(zip(part, whole, strict=False)):
        if one != other:
            return index
    return min(len(part), len(whole))
