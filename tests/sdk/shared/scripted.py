"""A provider whose answers are written down: `python scripted.py PORT`. Each model has one answer, plain or streamed;
a request without what its model needs gets 400, so that a lost instruction or constraint fails the client's case."""

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
        events += [{"delta": {"content": text[at : at + 7]}} for at in range(0, len(text), 7)]
        events += [{"delta": {}, "finish_reason": "stop"}]
        chunks = [{"choices": [{"index": 0, "finish_reason": None, **event}]} for event in events]
        chunks += [{"choices": [], "usage": usage}]
        data = [json.dumps({**head, "object": "chat.completion.chunk", **chunk}) for chunk in chunks]
        self.answer(200, "text/event-stream", "".join(f"data: {one}\n\n" for one in [*data, "[DONE]"]))

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
