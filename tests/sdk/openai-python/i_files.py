"""Files: uploaded, listed over pages, retrieved, read, deleted."""

import io
import json

import openai
from harness import KEY, READER, URL, raises

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)


def asks(count):
    line = {"method": "POST", "url": "/v1/chat/completions", "body": {"model": "small-chat", "messages": []}}
    return b"".join(json.dumps({"custom_id": f"ask-{i}", **line}).encode() + b"\n" for i in range(count))


def upload(count=1, **more):
    return client.files.create(file=("asks.jsonl", asks(count)), purpose="batch", **more)


def clear():
    for file in client.files.list():
        client.files.delete(file.id)


def test_an_upload_is_processed_and_told_of():
    made = upload(3)
    assert (made.object, made.purpose, made.status, made.filename) == ("file", "batch", "processed", "asks.jsonl")
    assert made.bytes == len(asks(3)) and made.created_at > 1_700_000_000
    assert client.files.retrieve(made.id) == made
    assert client.files.wait_for_processing(made.id).id == made.id
    # From an open file, as most programs do it; with a time to go.
    stream = io.BytesIO(asks(2))
    stream.name = "/tmp/other.jsonl"
    timed = client.files.create(
        file=stream, purpose="batch", extra_body={"expires_after": {"anchor": "created_at", "seconds": 3600}}
    )
    assert timed.filename == "other.jsonl" and timed.expires_at == timed.created_at + 3600


def test_contents_come_back_byte_for_byte():
    made = upload(2_000)
    content = client.files.content(made.id)
    assert content.read() == asks(2_000) and content.text.startswith('{"custom_id"')
    with client.files.with_streaming_response.content(made.id) as streamed:
        assert b"".join(streamed.iter_bytes()) == asks(2_000)
    part = client.files.content(made.id, extra_headers={"range": "bytes=10-19"})
    assert part.read() == asks(1)[10:20]


def test_lists_go_over_pages_and_hold_through_deletions():
    clear()
    made = [upload().id for _ in range(7)]
    assert [file.id for file in client.files.list(limit=2)] == list(reversed(made))
    assert [file.id for file in client.files.list(limit=3, order="asc", purpose="batch")] == made
    page = client.files.list(limit=4)
    assert page.has_more and len(page.data) == 4
    for file in client.files.list(limit=2):
        assert client.files.delete(file.id).deleted
    assert client.files.list().data == []


def test_what_is_deleted_is_gone():
    made = upload()
    gone = client.files.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "file", True)
    for call in [client.files.retrieve, client.files.content, client.files.delete]:
        assert raises(openai.NotFoundError, call, made.id).code == "RESOURCE_5001"


def test_a_wrong_line_is_named():
    wrong = asks(20) + b'{"custom_id":"x"}\n'
    error = raises(openai.BadRequestError, client.files.create, file=("a.jsonl", wrong), purpose="batch")
    assert error.param == "file" and "line 21: method: expected" in str(error), error
    error = raises(openai.BadRequestError, client.files.create, file=("a.jsonl", asks(1)), purpose="fine-tune")
    assert error.param == "purpose"


def test_another_key_sees_nothing():
    reader = openai.OpenAI(api_key=READER, base_url=f"{URL}/v1", max_retries=0)
    raises(openai.PermissionDeniedError, reader.files.list)
