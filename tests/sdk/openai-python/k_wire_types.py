"""Every answer on the wire, plain and each event of a stream, strictly against the types of the newest OpenAI package."""

import json
import time
import urllib.request
from base64 import b64decode
from typing import Literal

import openai
from harness import EMPTY, STORING, URL
from pydantic import BaseModel

NEWEST = tuple(int(part) for part in openai.__version__.split(".")[:2]) >= (3, 57)
HELLO = [{"role": "user", "content": "Hello"}]
FUNCTION = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS = [
    {"type": "function", "strict": False, **FUNCTION},
    {"type": "custom", "name": "write", "description": "writes"},
]
MODELS = ["small-chat", "native", "messy", "thinker"]

if NEWEST:
    from openai.types import (
        Completion,
        CreateEmbeddingResponse,
        ImagesResponse,
        Model,
        ModerationCreateResponse,
    )
    from openai.types.chat import ChatCompletion, ChatCompletionChunk
    from openai.types.responses import Response, ResponseItemList, ResponseStreamEvent
    from openai.types.shared import ErrorObject
    from strict import OBJECTS, ask, events, invalid, unknown, valid

    class Error(BaseModel):
        """Envelope of an error, of which the package has only the inner object."""

        error: ErrorObject

    class SpeechUsage(BaseModel, extra="allow"):
        """Tokens of a speech, by the published description."""

        input_tokens: int
        output_tokens: int
        total_tokens: int

    class SpeechEvent(BaseModel, extra="allow"):
        """Event of a speech, for which the description has types and the package has none."""

        type: Literal["speech.audio.delta", "speech.audio.done"]
        audio: str | None = None
        usage: SpeechUsage | None = None

    class Models(BaseModel):
        """List of models, which the package reads page by page."""

        object: str
        data: list[Model]

    def plain(path, body, key=None):
        status, text = ask(path, body, *([key] if key else []))
        assert status == 200, text
        return text

    def documented(schema):
        """Members that the gateway's own document has for an object."""
        with urllib.request.urlopen(f"{URL}/openapi.json", timeout=10) as answer:
            return set(json.load(answer)["components"]["schemas"][schema]["properties"])

    # Reasoning of open models, under the name that its clients read.
    REASONING = {"choices.[].message.reasoning_content", "choices.[].delta.reasoning_content"}

    def test_the_check_finds_what_is_wrong():
        good = json.loads(plain("/chat/completions", {"model": "small-chat", "messages": HELLO}))
        assert not invalid(ChatCompletion, json.dumps(good))
        for change in [{"id": 5}, {"object": "chat"}, {"created": "now"}, {"extra": 1}, {"choices": [{"index": 0}]}]:
            assert invalid(ChatCompletion, json.dumps({**good, **change})), change
        del good["model"]
        assert invalid(ChatCompletion, json.dumps(good))
        event = {"type": "response.output_text.delta", "delta": "x", "item_id": "i", "output_index": 0}
        assert invalid(ResponseStreamEvent, json.dumps(event))

    def test_chat_completions():
        for model in MODELS:
            for more in [{}, {"tools": CHAT_TOOLS}, {"logprobs": True, "top_logprobs": 2}, {"n": 2}, {"max_tokens": 3}]:
                if model != "small-chat" and "logprobs" in more:
                    continue
                body = {"model": model, "messages": HELLO, **more}
                valid(ChatCompletion, plain("/chat/completions", body), OBJECTS | REASONING)
                for event in events("/chat/completions", {**body, "stream_options": {"include_usage": True}}):
                    valid(ChatCompletionChunk, event, OBJECTS | REASONING)

    def test_text_completions():
        body = {"model": "base", "prompt": ["One", "Two"], "max_tokens": 5, "logprobs": 2}
        valid(Completion, plain("/completions", body))
        # The description has no chunks of a stream: there the reason is null until the last one.
        *chunks, last = (json.loads(event) for event in events("/completions", {**body, "prompt": "One"}))
        for chunk in chunks:
            for choice in chunk["choices"]:
                assert choice["finish_reason"] is None
                choice["finish_reason"] = "stop"
        for chunk in [*chunks, last]:
            valid(Completion, json.dumps(chunk))

    # `store`, and the status of a custom tool's call, are in the answers of the vendor and not in the package.
    STORED = OBJECTS | {"store", "output.[].status"}
    # So is the name of the function at the end of its arguments.
    EVENT = {f"response.{name}" for name in STORED} | {"item.status", "name"}

    def test_responses_and_each_event():
        kinds = set()
        for model in MODELS:
            for more in [
                {},
                {"tools": TOOLS, "input": "Use the tools"},
                {"tools": TOOLS, "tool_choice": {"type": "custom", "name": "write"}},
                {"max_output_tokens": 3},
                {"reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"]},
                {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}}},
            ]:
                if "text" in more and model not in ("small-chat", "native"):
                    continue
                body = {"model": model, "input": "Hello", **more}
                valid(Response, plain("/responses", body), STORED)
                for event in events("/responses", body):
                    found = valid(ResponseStreamEvent, event, EVENT)
                    kinds.add(found.type)
        expected = {
            "response.created", "response.in_progress", "response.completed", "response.incomplete",
            "response.output_item.added", "response.output_item.done", "response.content_part.added",
            "response.content_part.done", "response.output_text.delta", "response.output_text.done",
            "response.function_call_arguments.delta", "response.function_call_arguments.done",
            "response.custom_tool_call_input.delta", "response.custom_tool_call_input.done",
            "response.reasoning_text.delta", "response.reasoning_summary_text.delta",
        }
        assert expected <= kinds, expected - kinds

    def test_a_failed_stream():
        *_, last = events("/responses", {"model": "cut", "input": "Hello"})
        found = valid(ResponseStreamEvent, last, {"response.store"})
        assert found.type == "response.failed" and found.response.error.message

    def test_background_and_stored_responses():
        text = plain("/responses", {"model": "small-chat", "input": "Hello", "background": True}, STORING)
        found, until = valid(Response, text, STORED), time.monotonic() + 60
        assert found.status == "queued" and found.background is True
        while found.status in ("queued", "in_progress"):
            assert time.monotonic() < until
            time.sleep(0.05)
            found = valid(Response, ask(f"/responses/{found.id}", key=STORING)[1], STORED)
        assert found.status == "completed"
        valid(ResponseItemList, ask(f"/responses/{found.id}/input_items", key=STORING)[1])
        cancelled = plain("/responses", {"model": "small-chat", "input": "Hello", "background": True}, STORING)
        cancelled = valid(Response, cancelled, STORED)
        valid(Response, ask(f"/responses/{cancelled.id}/cancel", key=STORING, method="POST")[1], STORED)

    def test_streams_of_background_responses():
        kinds = set()
        for model in MODELS:
            for more in [{}, {"tools": TOOLS, "input": "Use the tools"}, {"max_output_tokens": 3}]:
                body = {"model": model, "input": "Hello", "background": True, **more}
                lines = events("/responses", body, STORING)
                found = [valid(ResponseStreamEvent, line, EVENT) for line in lines]
                assert [event.sequence_number for event in found] == list(range(len(found)))
                assert [event.type for event in found[:3]] == [
                    "response.created", "response.queued", "response.in_progress",
                ]
                kinds |= {event.type for event in found}
                path = f"/responses/{found[0].response.id}?stream=true"
                status, text = ask(path, key=STORING)
                assert status == 200 and [line[6:] for line in text.split(b"\n") if line.startswith(b"data: ")] == lines
        expected = {"response.completed", "response.incomplete", "response.function_call_arguments.done"}
        assert expected <= kinds, expected - kinds
        response = json.loads(plain("/responses", {"model": "small-chat", "input": "Hello", "background": True}, STORING))
        cancelled = ask(f"/responses/{response['id']}/cancel", key=STORING, method="POST")[1]
        last = ask(f"/responses/{response['id']}?stream=true", key=STORING)[1].split(b"data: ")[-1]
        found = valid(ResponseStreamEvent, last, EVENT)
        assert found.response.status == json.loads(cancelled)["status"]
        assert (found.type == "response.failed") == (found.response.status == "cancelled")

    def test_moderation():
        text = plain("/moderations", {"model": "guard", "input": ["a pipe", "much harm"]})
        # Usage is documented here.
        found = valid(ModerationCreateResponse, text, OBJECTS | {"usage"})
        assert [result.flagged for result in found.results] == [False, True]
        assert found.results[1].categories.violence and not found.results[0].categories.violence
        assert {"environment_impact", "billing_cost", "usage"} <= documented("Moderation")
        one = json.loads(text)
        del one["results"][0]["category_scores"]["hate/threatening"]
        assert invalid(ModerationCreateResponse, json.dumps(one))

    def test_speech_in_events():
        body = {"model": "speaker", "voice": "alloy", "input": "A penstock is a pipe.", "response_format": "wav"}
        lines = events("/audio/speech", {**body, "stream_format": "sse"})
        *parts, end = [valid(SpeechEvent, line) for line in lines]
        assert b"".join(b64decode(part.audio, validate=True) for part in parts).startswith(b"RIFF")
        assert {part.type for part in parts} == {"speech.audio.delta"} and end.type == "speech.audio.done"
        assert end.audio is None and end.usage.total_tokens == end.usage.input_tokens + end.usage.output_tokens
        assert OBJECTS <= set(json.loads(lines[-1]))
        assert invalid(SpeechEvent, json.dumps({"type": "speech.audio.delta", "audio": 5}))

    def test_embeddings_and_images():
        valid(CreateEmbeddingResponse, plain("/embeddings", {"model": "vectors", "input": ["One", "Two"]}))
        valid(ImagesResponse, plain("/images/generations", {"model": "painter", "prompt": "A river", "n": 2}))

    def test_models():
        added = documented("Model")
        assert len(valid(Models, ask("/models")[1], {f"data.[].{name}" for name in added}).data) > 5
        valid(Model, ask("/models/small-chat")[1], added)

    def test_errors():
        for path, body, key, expected in [
            ("/chat/completions", {"model": "none", "messages": HELLO}, None, 404),
            ("/chat/completions", {"model": "small-chat", "messages": []}, None, 400),
            ("/chat/completions", {"model": "small-chat", "messages": HELLO}, "sk-svc-wrong", 401),
            ("/chat/completions", {"model": "small-chat", "messages": HELLO}, EMPTY, 402),
            ("/responses", {"model": "small-chat", "input": "Hello", "conversation": "c"}, None, 400),
            ("/responses", {"model": "down", "input": "Hello"}, None, 503),
            ("/embeddings", {"model": "small-chat", "input": "x"}, None, 400),
            ("/nowhere", {}, None, 404),
        ]:
            status, text = ask(path, body, *([key] if key else []))
            assert status == expected, (path, status, text)
            found = valid(Error, text, {"error.details", "error.request_id"})
            assert found.error.message and not set(unknown(found)) - {"error.details", "error.request_id"}
