"""Runs the README's own snippets, word for word but for address and key:
`python readme.py README PENSTOCK-BINARY OPENAI-PYTHON ANTHROPIC-PYTHON`.

A fenced block is run when a comment `<!-- runs: NAME -->` stands in the line before it."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"<!-- runs: ([\w-]+) -->\n```\w*\n(.*?)```", re.S)
EXPECTED = {"curl": "environment_impact", "openai": "simulated", "anthropic": "simulated", "providers": "good"}


def run(name, text, binary, openai, anthropic):
    """What the snippet prints, and its exit code."""
    text = text.replace("127.0.0.1:8080", os.environ["DEMO_ADDRESS"]).replace("sk-svc-…", os.environ["DEMO_KEY"])
    if name == "curl":
        command = ["bash", "-euo", "pipefail", "-c", text]
    elif name == "providers":
        folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
        (folder / "penstock.toml").write_text(text)
        command = [binary, "check", "--config", str(folder / "penstock.toml")]
    else:
        command = [openai if name == "openai" else anthropic, "-c", text]
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, "SCW_KEY": "x"}
    )
    return ended.returncode, ended.stdout + ended.stderr


def main(readme, *tools):
    blocks = dict(BLOCK.findall(pathlib.Path(readme).read_text()))
    passed = failed = 0
    for name, expected in EXPECTED.items():
        code, said = run(name, blocks[name], *tools) if name in blocks else (1, "it is not in the README")
        good = code == 0 and (name == "providers" or expected in said)
        passed, failed = passed + good, failed + (not good)
        print(f"{'ok' if good else 'not ok'} {name}" + ("" if good else f": {code}\n{said}"))
    print(f"# pass {passed}\n# fail {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
