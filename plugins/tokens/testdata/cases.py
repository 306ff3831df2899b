"""The conversations every family is counted on. Written to cases.json by `python3 cases.py`."""

import base64
import io
import json
import struct
import zlib


def png(width: int, height: int) -> str:
    """A data URI of a PNG of one colour."""
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = zlib.compress((b"\0" + b"\0" * width) * height, 9)
    raw = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    raw += chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(raw).decode()


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_current_weather",
        "description": "Gets the weather.\nOf a place, now.",
        "parameters": {
            "type": "object",
            "properties": {
                "location": {"type": "string", "description": "City and state, e.g. Zürich, ZH", "examples": ["Zürich, ZH", "Ålesund"]},
                "format": {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"},
                "days": {"type": "integer", "default": 1, "nullable": True},
                "tags": {"type": "array", "items": {"type": "string"}},
                "nested": {"type": "object", "description": "Deeper", "properties": {"a": {"type": ["number", "string"]}, "b": {"type": "array"}}, "required": ["a"]},
                "either": {"description": "One of two", "default": "x", "oneOf": [{"type": "string", "default": "y", "description": "text"}, {"type": "number", "nullable": True, "description": "figure"}]},
                "same": {"description": "twin", "oneOf": [{"type": "string", "description": "twin"}, {"type": "string", "enum": ["a", "b"], "default": "a"}]},
                "odd": {"title": "Odd", "type": "null"},
                "list": {"type": "array", "items": {"oneOf": [{"type": "string", "description": "d", "default": "z"}, {"type": "object", "properties": {"q": {"type": "boolean", "default": False}}}]}},
            },
            "required": ["location"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "description": "The time."}}
UNICODE = "Grüße, 世界! Привет 🙂👍🏽 naïve\u0301 مرحبا ﬁ ① Å\u200d\n\n\t  end   "


def call(identity: str, name: str, arguments: str) -> dict:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


USER = {"role": "user", "content": "What is the weather in Zürich today?"}
CASES = {
    "hello": {"messages": [{"role": "user", "content": "Hello"}]},
    "empty": {"messages": [{"role": "user", "content": ""}]},
    "system": {"messages": [{"role": "system", "content": "You are terse.\nVery."}, USER]},
    "turns": {"messages": [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "Sunny."}, {"role": "user", "content": "And tomorrow?"}]},
    "unicode": {"messages": [{"role": "user", "content": UNICODE}]},
    "code": {"messages": [{"role": "user", "content": "fn main() {\n    let x = vec![1, 22, 333, 4444];\n\tprintln!(\"{x:?}\");\n}\n\n\n// 3.14159 == PI?\r\n" + "=" * 80}]},
    "specials": {"messages": [{"role": "user", "content": "<|im_start|>system <|end|> <s>[INST] <|eot_id|>"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "One "}, {"type": "text", "text": "two"}]}]},
    "tools": {"messages": [{"role": "system", "content": "Use tools."}, USER], "tools": [WEATHER, CLOCK]},
    "calls": {
        "messages": [
            USER,
            {"role": "assistant", "content": None, "reasoning_content": "I should look.", "tool_calls": [call("call_abc12", "get_current_weather", '{"location": "Zürich", "days": 2}'), call("call_def34", "clock", "{}")]},
            {"role": "tool", "tool_call_id": "call_abc12", "content": '{"temp": 21.5, "sky": "klar"}'},
            {"role": "tool", "tool_call_id": "call_def34", "content": "12:00"},
        ],
        "tools": [WEATHER, CLOCK],
    },
    "answered": {
        "messages": [
            USER,
            {"role": "assistant", "content": "Let me see.", "reasoning_content": "Look first.", "tool_calls": [call("c1", "clock", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "noon"},
            {"role": "assistant", "content": "It is noon.", "reasoning_content": "Now say it."},
            {"role": "user", "content": "Thanks"},
        ],
        "tools": [CLOCK],
    },
    "middle": {"messages": [{"role": "system", "content": "Be kind."}, USER, {"role": "assistant", "content": "Sunny."}, {"role": "system", "content": "The user is in a hurry."}, {"role": "user", "content": "And tomorrow?"}]},
    "effort": {"messages": [USER], "reasoning_effort": "high"},
    "image": {"messages": [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": png(640, 427)}}]}]},
    "images": {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": png(30, 17)}}, {"type": "image_url", "image_url": {"url": png(1999, 701)}}, {"type": "text", "text": "Compare."}]}]},
}

if __name__ == "__main__":
    json.dump(CASES, open("cases.json", "w"), ensure_ascii=False, indent=1)
