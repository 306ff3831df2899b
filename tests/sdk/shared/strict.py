"""Validation of answers as they are on the wire against the types of the OpenAI package, which are generated from its
published description: required members, exact types, and no member that is neither there nor documented here."""

import json
import urllib.error
import urllib.request

from harness import KEY, URL
from pydantic import BaseModel, TypeAdapter

# Members that Penstock adds to an answer, or to the last event of a stream (docs/openapi.json).
OBJECTS = {"environment_impact", "billing_cost"}


def ask(path, body=None, key=KEY, method=None):
    """Status and text of an answer."""
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{URL}/v1{path}", data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def events(path, body, key=KEY):
    """Data of the events of a stream, without its end mark."""
    status, text = ask(path, {**body, "stream": True}, key)
    assert status == 200, text
    lines = [line[6:] for line in text.split(b"\n") if line.startswith(b"data: ")]
    return [line for line in lines if line != b"[DONE]"]


def unknown(value, path=""):
    """Paths of the members that the package does not know."""
    if isinstance(value, BaseModel):
        for name in value.model_extra or {}:
            yield f"{path}{name}"
        for name in type(value).model_fields:
            yield from unknown(getattr(value, name), f"{path}{name}.")
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from unknown(one, f"{path}{name}.")
    elif isinstance(value, list):
        for one in value:
            yield from unknown(one, f"{path}[].")


def valid(kind, text, added=OBJECTS):
    """The answer as the package reads it. `added` are the paths of further members that are documented."""
    found = TypeAdapter(kind).validate_json(text, strict=True)
    more = set(unknown(found)) - set(added)
    assert not more, f"{more} of {kind}: {text[:2000]}"
    return found


def invalid(kind, text):
    """True if the answer is not of this type."""
    try:
        valid(kind, text)
    except Exception:
        return True
    return False
