"""Batches with the client as it is: upload, create, poll, download, list over pages, cancel, delete."""

import json
import time

import openai
from harness import KEY, READER, URL, raises, has_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1")
CHAT = "/v1/chat/completions"


class Response:
    """A synchronous answer as it stands in a line."""

    def __init__(self, body):
        self.__dict__.update(body)


def line(number, model="small-chat", **body):
    body = {"model": model, "messages": [{"role": "user", "content": f"Number {number}"}], "max_tokens": 8, **body}
    return json.dumps({"custom_id": f"n-{number}", "method": "POST", "url": CHAT, "body": body})


def upload(lines):
    return client.files.create(file=("in.jsonl", "\n".join(lines).encode()), purpose="batch")


def create(lines, **more):
    return client.batches.create(
        input_file_id=upload(lines).id, endpoint=CHAT, completion_window="24h", **more
    )


def ended(batch):
    deadline = time.time() + 120
    while batch.status in ("validating", "in_progress"):
        assert time.time() < deadline, batch
        time.sleep(0.05)
        batch = client.batches.retrieve(batch.id)
    return batch


def test_upload_create_poll_download():
    batch = create([line(number) for number in range(20)], metadata={"job": "nightly"})
    assert batch.object == "batch" and batch.status in ("validating", "in_progress"), batch
    assert batch.endpoint == CHAT and batch.completion_window == "24h"
    assert batch.created_at > 1_700_000_000 and batch.expires_at == batch.created_at + 86_400
    assert batch.metadata == {"job": "nightly"}
    batch = ended(batch)
    assert batch.status == "completed" and batch.errors is None, batch
    counts = batch.request_counts
    assert (counts.total, counts.completed, counts.failed) == (20, 20, 0)
    assert batch.completed_at >= batch.in_progress_at >= batch.created_at
    lines = [json.loads(text) for text in client.files.content(batch.output_file_id).text.splitlines()]
    assert sorted(one["custom_id"] for one in lines) == sorted(f"n-{number}" for number in range(20))
    for one in lines:
        assert one["status_code"] == 200 and one["error"] is None
        # The body itself, not an envelope around it.
        assert one["response"]["choices"][0]["message"]["role"] == "assistant"
        assert has_metadata(Response(one["response"]))
    output = client.files.retrieve(batch.output_file_id)
    assert (output.purpose, output.status) == ("batch_output", "processed")
    assert output.bytes == len(client.files.content(output.id).content)


def test_lines_that_fail_keep_their_place():
    batch = ended(create([line(1), line(2, model="nobody"), line(3, messages=[])]))
    assert batch.status == "completed", batch
    assert (batch.request_counts.completed, batch.request_counts.failed) == (1, 2)
    lines = [json.loads(text) for text in client.files.content(batch.output_file_id).text.splitlines()]
    found = {one["custom_id"]: one for one in lines}
    assert [found[f"n-{number}"]["status_code"] for number in (1, 2, 3)] == [200, 404, 400]
    assert found["n-2"]["response"]["error"]["code"] == "INFERENCE_3101"


def test_list_over_pages():
    file = upload([line(1)])
    made = {
        client.batches.create(input_file_id=file.id, endpoint=CHAT, completion_window="24h").id for _ in range(5)
    }
    first = client.batches.list(limit=2)
    assert len(first.data) == 2 and first.has_more
    seen = [batch.id for batch in client.batches.list(limit=2)]
    assert made <= set(seen) and len(seen) == len(set(seen))
    for batch in made:
        ended(client.batches.retrieve(batch))


def test_cancel_and_delete():
    batch = create([line(number, max_tokens=4000) for number in range(400)])
    cancelled = client.batches.cancel(batch.id)
    assert cancelled.status == "cancelled" and cancelled.cancelled_at, cancelled
    assert client.batches.cancel(batch.id).status == "cancelled"
    counts = cancelled.request_counts
    assert counts.total in (0, 400) and counts.completed + counts.failed <= 400
    deleted = client.files.delete(batch.input_file_id)
    assert deleted.deleted and deleted.id == batch.input_file_id
    raises(openai.NotFoundError, lambda: client.files.retrieve(batch.input_file_id))


def test_what_has_ended_stays_ended():
    batch = ended(create([line(1)]))
    error = raises(openai.ConflictError, lambda: client.batches.cancel(batch.id))
    assert error.code == "RESOURCE_5003"


def test_deleting_the_input_fails_a_running_batch():
    batch = create([line(number, max_tokens=4000) for number in range(400)])
    client.files.delete(batch.input_file_id)
    batch = client.batches.retrieve(batch.id)
    assert batch.status == "failed", batch
    assert batch.errors.data[0].code == "input_file_deleted"


def test_mistakes_name_their_field():
    file = upload([line(1)])
    good = {"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h"}
    for name, value in [("endpoint", "/v1/embeddings"), ("completion_window", "soon"), ("metadata", {"a": "x" * 600})]:
        error = raises(openai.BadRequestError, lambda: client.batches.create(**{**good, name: value}))
        assert error.param.startswith(name), error
    raises(openai.NotFoundError, lambda: client.batches.create(**{**good, "input_file_id": "file-nobody"}))
    raises(openai.NotFoundError, lambda: client.batches.retrieve("batch_nobody"))
    reader = openai.OpenAI(api_key=READER, base_url=f"{URL}/v1")
    raises(openai.PermissionDeniedError, lambda: reader.batches.list())
