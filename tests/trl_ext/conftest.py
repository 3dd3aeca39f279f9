"""Fixtures that the tests of the trainers and of their commands share."""

import gc
import os
import socket
import subprocess
import sys

import pytest
import torch
import transformers


@pytest.fixture
def one_thread():
    """One thread: the same sums in the same order, and no waiting for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def frozen_garbage():
    """`Trainer.train` collects garbage once; what is imported by now need not be walked each time."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def quiet(monkeypatch):
    """No warnings of TRL's experiments (`rollout_func` is one) or of transformers."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    transformers.logging.set_verbosity_error()


class _InterruptOnce(transformers.TrainerCallback):
    """Ctrl-C after a micro-batch that is not the last of its step."""

    calls = 0

    def on_substep_end(self, args, state, control, **kwargs):
        self.calls += 1
        if self.calls == 3:
            raise KeyboardInterrupt


@pytest.fixture
def interruption():
    """A callback: Ctrl-C in the third step, where a step has two micro-batches."""
    return _InterruptOnce()


def _free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture(scope="session")
def run_two_processes():
    """Runs a script with these arguments in two processes on the CPU, under DDP."""

    def run(script, *arguments):
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
        command += ["--master-port", str(_free_port()), str(script), *map(str, arguments)]
        own = {"OMP_NUM_THREADS": "1", "TRL_EXPERIMENTAL_SILENCE": "1", "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(command, env={**os.environ, **own}, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-4000:]

    return run
