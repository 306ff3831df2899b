"""Aider, a coding agent: one edit of one file, as the scripted provider dictates."""

import os
import pathlib
import subprocess
import sys
import tempfile

from harness import KEY, URL

BEFORE = 'def greet():\n    return "Hello!"\n'
AFTER = 'def greet(name):\n    return f"Hello, {name}!"\n'


def edited(*arguments):
    """The file after one run, and what the agent said."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "greeting.py")
        file.write_text(BEFORE)
        environment = {
            "HOME": folder,
            "PATH": os.environ["PATH"],
            "OPENAI_API_BASE": f"{URL}/v1",
            "OPENAI_API_KEY": KEY,
            "AIDER_ANALYTICS": "false",
            # The list of models and prices that it would fetch.
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }
        command = [sys.executable, "-m", "aider", "--model", "openai/editor", "--edit-format", "whole"]
        command += ["--yes-always", "--no-git", "--no-check-update", "--no-show-model-warnings", "--no-pretty"]
        command += ["--message", "Let greet take a name.", *arguments, "greeting.py"]
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
        )
        return file.read_text(), ran.stdout + ran.stderr


def test_one_edit_from_a_stream():
    text, said = edited()
    assert text == AFTER, (text, said)


def test_one_edit_from_a_plain_answer():
    text, said = edited("--no-stream")
    assert text == AFTER, (text, said)
