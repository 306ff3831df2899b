"""A provider whose answers are written down: `python scripted.py PORT`. Each model has one answer, plain or streamed;
a request without what its model needs gets 400, so that a lost instruction or constraint fails the client's case.
The model `steps` runs a command in each of twenty steps, in both dialects, and needs the reasoning of all earlier ones."""

import http.server
import json
import sys

EDIT = '''The greeting takes a name now.

greeting.py
```
def greet(name):
    return f"Hello, {name}!"
```
'''
EVENT = '{"name": "Concert", "seats": 120}'


def asks_for_edit(request):
    return "def greet" in json.dumps(request["messages"])


def asks_for_object(request):
    return request.get("response_format", {}).get("type") == "json_object" and asks_for_schema(request)


def asks_for_schema(request):
    return "seats" in json.dumps(request["messages"])


STEPS = 20
COMMAND = "exec_command"


def step(number):
    """The reasoning, the arguments of the call and the text of a step."""
    arguments = json.dumps({"cmd": f"echo step {number} >> steps.txt"})
    return f"Now step {number}.", arguments if number < STEPS else None, f"All {STEPS} steps are done."


def chat_step(request):
    """The step that follows the outputs of a chat request; None if something of the earlier ones is missing."""
    outputs = sum(message["role"] == "tool" for message in request["messages"])
    answers = [message for message in request["messages"] if message["role"] == "assistant"]
    reasoning = [message.get("reasoning_content") for message in answers]
    declared = [tool["function"]["name"] for tool in request.get("tools", [])]
    complete = COMMAND in declared and reasoning == [step(number)[0] for number in range(outputs)]
    return outputs if complete else None


def messages_step(request):
    """The same of a messages request."""
    blocks = [
        block
        for message in request["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
    ]
    outputs = sum(block["type"] == "tool_result" for block in blocks)
    reasoning = [block["thinking"] for block in blocks if block["type"] == "thinking"]
    declared = [tool["name"] for tool in request.get("tools", [])]
    complete = COMMAND in declared and reasoning == [step(number)[0] for number in range(outputs)]
    return outputs if complete else None


def chat_events(number):
    reasoning, arguments, text = step(number)
    deltas = [{"role": "assistant"}, *({"reasoning_content": part} for part in pieces(reasoning))]
    if arguments is None:
        deltas += [{"content": part} for part in pieces(text)]
    else:
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": COMMAND, "arguments": ""}}
        deltas += [{"tool_calls": [call]}]
        deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": part}}]} for part in pieces(arguments)]
    finish = "stop" if arguments is None else "tool_calls"
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]
    usage = {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}
    return "".join(f"data: {json.dumps(one)}\n\n" for one in [*chunks, {"choices": [], "usage": usage}]) + "data: [DONE]\n\n"


def messages_events(number):
    reasoning, arguments, text = step(number)
    usage = {"input_tokens": 100, "output_tokens": 0}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "steps", "content": []}
    events = [{"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": usage}}]

    def block(index, start, deltas):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events.extend({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": index})

    thinking = [{"type": "thinking_delta", "thinking": part} for part in pieces(reasoning)]
    block(0, {"type": "thinking", "thinking": "", "signature": ""}, [*thinking, {"type": "signature_delta", "signature": "s"}])
    if arguments is None:
        block(1, {"type": "text", "text": ""}, [{"type": "text_delta", "text": part} for part in pieces(text)])
    else:
        start = {"type": "tool_use", "id": f"call_{number}", "name": COMMAND, "input": {}}
        block(1, start, [{"type": "input_json_delta", "partial_json": part} for part in pieces(arguments)])
    stop = {"stop_reason": "end_turn" if arguments is None else "tool_use", "stop_sequence": None}
    events.append({"type": "message_delta", "delta": stop, "usage": {"output_tokens": 40}})
    events.append({"type": "message_stop"})
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)


def pieces(text):
    return [text[at : at + 7] for at in range(0, len(text), 7)]


# Model, its answer, what the request needs to have.
SCRIPT = {
    "edit": (EDIT, asks_for_edit),
    "object": (EVENT, asks_for_object),
    "fenced": (f"Here it is:\n\n```json\n{EVENT}\n```\n", asks_for_schema),
}


class Scripted(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if request["model"] == "steps":
            return self.answer_step(request)
        text, needs = SCRIPT[request["model"]]
        if not needs(request):
            return self.answer(400, "application/json", json.dumps({"error": {"message": "it lacks what it needs"}}))
        head = {"id": "scripted", "created": 1, "model": request["model"]}
        usage = {"prompt_tokens": 100, "completion_tokens": 40, "total_tokens": 140}
        if not request.get("stream"):
            message = {"role": "assistant", "content": text}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            whole = {**head, "object": "chat.completion", "choices": choices, "usage": usage}
            return self.answer(200, "application/json", json.dumps(whole))
        events = [{"delta": {"role": "assistant"}}]
        events += [{"delta": {"content": part}} for part in pieces(text)]
        events += [{"delta": {}, "finish_reason": "stop"}]
        chunks = [{"choices": [{"index": 0, "finish_reason": None, **event}]} for event in events]
        chunks += [{"choices": [], "usage": usage}]
        data = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        self.answer(200, "text/event-stream", "".join(f"data: {one}\n\n" for one in [*data, "[DONE]"]))

    def answer_step(self, request):
        native = self.path.endswith("/messages")
        number = messages_step(request) if native else chat_step(request)
        if number is None or not request.get("stream"):
            return self.answer(400, "application/json", json.dumps({"error": {"message": "it lacks what it needs"}}))
        self.answer(200, "text/event-stream", messages_events(number) if native else chat_events(number))

    def answer(self, status, kind, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Scripted).serve_forever()
