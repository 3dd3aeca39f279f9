"""Prompts in the chat template, and the sentence where a template cannot take one."""

import pytest

from trl_ext.errors import UserError
from trl_ext.evaluation._prompt_ids import prompt_ids, rendered
from trl_ext.evaluation.requests import Request
from trl_ext.testing import tiny_tokenizer

REFUSES_SYSTEM = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)
ASSUMES = "{% for m in messages %}{{ m.nothing.there }}{% endfor %}"
ADDS = "{% for m in messages %}{{ m.role + m.content + m.thinking }}{% endfor %}"


def a_tokenizer(template=None):
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = template or tokenizer.chat_template
    return tokenizer


@pytest.mark.parametrize(
    ("template", "said"), [(REFUSES_SYSTEM, "System role not supported"), (ASSUMES, "undefined|no attribute")]
)
def test_template_that_refuses_a_conversation_is_said_with_its_words(template, said):
    prompt = [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(UserError, match=rf"^row 7: the chat template refuses .* of system, user \(.*({said})"):
        rendered(a_tokenizer(template), prompt, {}, name="row 7")


def test_template_that_adds_what_cannot_be_added_is_no_raw_error():
    with pytest.raises(UserError, match=r"^prompt .*the chat template refuses"):
        rendered(a_tokenizer(ADDS), [{"role": "user", "content": "b", "thinking": 1}], {})


def test_content_blocks_are_refused_by_request():
    prompt = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    with pytest.raises(UserError, match=r"^request p:0: message 0 has the content \[.*which is no text"):
        prompt_ids(a_tokenizer(), Request("p:0", prompt, 0), {})


def test_text_and_conversations_are_rendered():
    assert rendered(a_tokenizer(), "plain", {}) == "plain"
    user = [{"role": "user", "content": "b"}]
    assert (
        rendered(a_tokenizer("{% for m in messages %}{{ m.role }}:{{ m.content }}{% endfor %}"), user, {}) == "user:b"
    )
