"""Top-level members of the request types of the newest client libraries, one a line: dialect and name.

    members.py PYTHON-OF-OPENAI PYTHON-OF-ANTHROPIC LIST            compares with the checked-in list
    members.py PYTHON-OF-OPENAI PYTHON-OF-ANTHROPIC LIST --write    writes it anew

Members of the vendor's responses endpoint count as members of chat too: clients send them there. What the gateway does with
each member stands in `plugins/request-validation/src/members.rs`, whose tests read the list: a new member has to be given a fate.
"""

import subprocess
import sys
from pathlib import Path

CHAT = """
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses
names = set(chat.CompletionCreateParamsStreaming.__annotations__)
for base in (chat.CompletionCreateParamsBase, responses.ResponseCreateParamsBase):
    names |= set(base.__annotations__)
print("\\n".join(f"chat {name}" for name in names))
own = set(responses.ResponseCreateParamsBase.__annotations__) | {"stream"}
print("\\n".join(f"responses {name}" for name in own))
"""
MESSAGES = """
from anthropic.types import message_create_params as stable
from anthropic.types.beta import message_create_params as beta
names = set(beta.MessageCreateParamsStreaming.__annotations__)
for base in (stable.MessageCreateParamsBase, beta.MessageCreateParamsBase):
    names |= set(base.__annotations__)
print("\\n".join(f"messages {name}" for name in names))
"""


def listed(python, script):
    listed = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    return listed.stdout.split("\n")


def main(openai, anthropic, path, *options):
    lines = sorted(filter(None, listed(openai, CHAT) + listed(anthropic, MESSAGES)))
    file = Path(path)
    if "--write" in options:
        file.write_text("\n".join(lines) + "\n")
        return 0
    known = file.read_text().split("\n")
    new = [line for line in lines if line not in known]
    gone = [line for line in known if line and line not in lines]
    for line in new:
        print(f"new in the client libraries, without a fate in plugins/request-validation/src/members.rs: {line}")
    for line in gone:
        print(f"no longer in the client libraries: {line}")
    failed = len(new) + len(gone)
    print(f"# pass {len(lines) - len(new)}")
    print(f"# fail {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
