"""Counting tokens."""

import anthropic
from harness import KEY, READER, URL, raises

client = anthropic.Anthropic(api_key=KEY, base_url=URL)
# Clients of 2024 count in their beta namespace.
count = getattr(client.messages, "count_tokens", None) or client.beta.messages.count_tokens
HELLO = [{"role": "user", "content": "Hello"}]


def test_a_count_needs_no_max_tokens_and_grows_with_what_is_said():
    for model in ["small-chat", "native", "claude-haiku-4-5"]:
        few = count(model=model, messages=HELLO).input_tokens
        more = count(model=model, messages=HELLO, system="Be brief. " * 20).input_tokens
        tools = [{"name": "f", "description": "does it", "input_schema": {"type": "object"}}]
        with_tools = count(model=model, messages=HELLO, tools=tools).input_tokens
        assert 0 < few < more and few < with_tools, (few, more, with_tools)


def test_a_count_is_refused_like_a_message():
    assert raises(anthropic.NotFoundError, count, model="nothing", messages=HELLO)
    other = anthropic.Anthropic(api_key=READER, base_url=URL)
    call = getattr(other.messages, "count_tokens", None) or other.beta.messages.count_tokens
    assert raises(anthropic.PermissionDeniedError, call, model="small-chat", messages=HELLO)
