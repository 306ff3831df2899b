"""Counts of gpt-oss by openai-harmony. Usage: TIKTOKEN_ENCODINGS_BASE=<dir> python3 harmony.py

<dir> holds o200k_base.tiktoken (the crate tiktoken-rs ships it in assets/)."""

import json

from openai_harmony import (
    Author, Conversation, DeveloperContent, HarmonyEncodingName, Message, ReasoningEffort, Role,
    SystemContent, TextContent, ToolDescription, load_harmony_encoding,
)

DATE = "2026-11-22"
EFFORT = {"low": ReasoningEffort.LOW, "medium": ReasoningEffort.MEDIUM, "high": ReasoningEffort.HIGH}


def texts(content) -> list:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text"]


def conversation(body: dict) -> Conversation:
    effort = EFFORT[body.get("reasoning_effort", "medium")]
    system = SystemContent.new().with_reasoning_effort(effort).with_conversation_start_date(DATE)
    out = [Message.from_role_and_content(Role.SYSTEM, system)]
    rest = list(body["messages"])
    instructions = []
    while rest and rest[0]["role"] in ("system", "developer"):
        instructions += texts(rest.pop(0)["content"])
    developer = DeveloperContent.new()
    if instructions:
        developer = developer.with_instructions("\n\n".join(instructions))
    if body.get("tools"):
        functions = [tool["function"] for tool in body["tools"]]
        developer = developer.with_function_tools([ToolDescription.new(f["name"], f.get("description", ""), f.get("parameters")) for f in functions])
    if instructions or body.get("tools"):
        out.append(Message.from_role_and_content(Role.DEVELOPER, developer))
    names = {c["id"]: c["function"]["name"] for m in rest for c in m.get("tool_calls") or []}
    for m in rest:
        said = texts(m.get("content"))
        if m["role"] == "user":
            out.append(Message.from_role_and_contents(Role.USER, [TextContent(text=t) for t in said]))
        elif m["role"] == "system":
            out.append(Message.from_role_and_contents(Role.DEVELOPER, [TextContent(text=t) for t in said]))
        elif m["role"] == "tool":
            author = Author.new(Role.TOOL, "functions." + names[m["tool_call_id"]])
            out.append(Message.from_author_and_content(author, "".join(said)).with_channel("commentary").with_recipient("assistant"))
        else:
            if m.get("reasoning_content"):
                out.append(Message.from_role_and_content(Role.ASSISTANT, m["reasoning_content"]).with_channel("analysis"))
            if "".join(said):
                channel = "commentary" if m.get("tool_calls") else "final"
                out.append(Message.from_role_and_content(Role.ASSISTANT, "".join(said)).with_channel(channel))
            for c in m.get("tool_calls") or []:
                message = Message.from_role_and_content(Role.ASSISTANT, c["function"]["arguments"]).with_channel("commentary")
                out.append(message.with_recipient("functions." + c["function"]["name"]).with_content_type("json"))
    return Conversation.from_messages(out)


if __name__ == "__main__":
    encoding = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    expected = {}
    for name, body in json.load(open("cases.json")).items():
        if name.startswith("image"):
            continue  # the model takes none
        tokens = encoding.render_conversation_for_completion(conversation(body), Role.ASSISTANT)
        expected[name] = {"tokens": len(tokens), "prompt": encoding.decode(tokens)}
    json.dump(expected, open("harmony.json", "w"), ensure_ascii=False, indent=1)
