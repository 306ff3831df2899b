"""Members of the request types of the newest client libraries, one a line: dialect and name. Members of the objects inside a
messages request follow their object and a dot.

    members.py PYTHON-OF-OPENAI PYTHON-OF-ANTHROPIC LIST            compares with the checked-in list
    members.py PYTHON-OF-OPENAI PYTHON-OF-ANTHROPIC LIST --write    writes it anew

Members of the vendor's responses endpoint count as members of chat too: clients send them there. What the gateway does with
each member stands in `plugins/request-validation/src/members.rs` and `members/nested.rs`, whose tests read the list: a new member
has to be given a fate.
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
# Types that the gateway reads, without `Beta` and `Param`, and the objects that stand for them in the table. Objects of other
# types are refused, or left out of the history, by their `type`.
NESTED = """
import typing
from anthropic.types import message_create_params as stable
from anthropic.types.beta import message_create_params as beta
OBJECTS = {
    "UserMessage": "messages[]", "AssistantMessage": "messages[]", "SystemMessage": "system message",
    "Message": "messages[]", "SystemMessageOutputConfig": "system message.output_config",
    "TextBlock": "text", "ImageBlock": "image", "DocumentBlock": "document", "RequestDocumentBlock": "document",
    "SearchResultBlock": "search_result", "ThinkingBlock": "thinking block", "RedactedThinkingBlock": "redacted_thinking",
    "ToolUseBlock": "tool_use", "ToolResultBlock": "tool_result", "ImageTransformations": "image.transformations",
    "Base64ImageSource": "source", "Base64PDFSource": "source", "PlainTextSource": "source", "ContentBlockSource": "source",
    "URLImageSource": "source", "URLPDFSource": "source", "FileImageSource": "source", "FileDocumentSource": "source",
    "CitationsConfig": "citations", "CacheControlEphemeral": "cache_control", "Metadata": "metadata",
    "Tool": "tools[]", "ToolChoiceAuto": "tool_choice", "ToolChoiceAny": "tool_choice", "ToolChoiceTool": "tool_choice",
    "ToolChoiceNone": "tool_choice", "ThinkingConfigEnabled": "thinking", "ThinkingConfigDisabled": "thinking",
    "ThinkingConfigAdaptive": "thinking", "ThinkingConfigBetweenTools": "thinking",
    "ThinkingBlockBinding": "thinking.block_binding", "OutputConfig": "output_config",
    "JSONOutputFormat": "output_config.format",
}
seen = set()
def visit(kind):
    if not hasattr(kind, "__required_keys__"):
        for part in typing.get_args(kind):
            visit(part)
    elif kind not in seen:
        seen.add(kind)
        hints = typing.get_type_hints(kind)
        name = kind.__name__.removeprefix("Beta")
        while name.endswith("Param"):
            name = name.removesuffix("Param")
        if name in OBJECTS:
            for member in hints:
                print(f"messages {OBJECTS[name]}.{member}")
        for hint in hints.values():
            visit(hint)
for base in (stable.MessageCreateParamsBase, beta.MessageCreateParamsBase):
    for hint in typing.get_type_hints(base).values():
        visit(hint)
"""


def listed(python, script):
    listed = subprocess.run([python, "-c", script], check=True, capture_output=True, text=True)
    return listed.stdout.split("\n")


def main(openai, anthropic, path, *options):
    lines = sorted(set(filter(None, listed(openai, CHAT) + listed(anthropic, MESSAGES) + listed(anthropic, NESTED))))
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
