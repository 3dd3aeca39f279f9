"""A generator without a model, for tests of what is around it, and in the processes that tests start."""

import os
import re
import signal

from trl_ext.evaluation.requests import Completion

SUM = re.compile(r"What is (-?\d+) (plus|minus|times) (\d+)")


class FakeGenerator:
    """Answers arithmetic, right or wrong or not at all by the seed of the request alone.

    Args:
        stop_at: number of the call, from 0, at which it stops.
        stop: what happens then.
    """

    def __init__(self, stop_at=None, stop=None):
        self.num_calls = 0
        self.stop_at, self.stop = stop_at, stop

    def generate(self, requests, params):
        if self.num_calls == self.stop_at:
            self.stop()
        self.num_calls += 1
        return [self._completion(request, params) for request in requests]

    def _completion(self, request, params):
        prompt = request.prompt if isinstance(request.prompt, str) else request.prompt[-1]["content"]
        a, name, b = SUM.search(prompt).groups()
        a, b = int(a), int(b)
        result = {"plus": a + b, "minus": a - b, "times": a * b}[name]
        kind = request.seed % 7
        text = [f"\\boxed{{{result}}}", f"\\boxed{{{2 * result}/2}}", f"It is \\boxed{{{result}}}.", "I do not know."][
            min(kind, 3)
        ]
        text = f"\\boxed{{{result + kind}}}" if kind > 3 else text
        return Completion(text, len(text) % params.max_new_tokens, request.seed % 5 == 0)

    def describe(self):
        return {"backend": "fake", "model": "fake/model", "adapter": None, "versions": {"fake": "1"}}


def interrupt():
    raise KeyboardInterrupt


def kill():
    os.kill(os.getpid(), signal.SIGKILL)
