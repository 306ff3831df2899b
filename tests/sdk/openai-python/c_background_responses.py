"""Background responses: `background=True`, the poll loop with `retrieve`, and `cancel`."""

import time

import openai
from harness import KEY, STORING, URL, raises, sent, has_metadata

client = openai.OpenAI(api_key=STORING, base_url=f"{URL}/v1", max_retries=0)
# Another key of the account, which stores nothing.
other = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
NEW = int(openai.__version__.split(".")[0]) >= 3
if NEW:
    client = openai.OpenAI(api_key=STORING, base_url=f"{URL}/v1", max_retries=0, _strict_response_validation=True)


def create(api=client, **request):
    # Older versions do not know the member.
    more = {"background": True} if NEW else {"extra_body": {"background": True}}
    return api.responses.create(**{"model": "small-chat", "input": "Hello", **more, **request})


def polled(response):
    until = time.monotonic() + 60
    while response.status in ("queued", "in_progress"):
        assert time.monotonic() < until, response
        time.sleep(0.05)
        response = client.responses.retrieve(response.id)
    return response


def test_a_response_is_polled_to_its_end():
    first = create(model="org/solo", metadata={"a": "b"})
    assert first.status in ("queued", "in_progress") and not first.output, first
    done = polled(first)
    assert done.status == "completed" and done.id == first.id and done.created_at == first.created_at
    assert "simulated" in done.output_text and done.usage.total_tokens > 0 and has_metadata(done)
    assert done.metadata == {"a": "b"} and done.to_dict()["background"] is True and done.store is True
    second = polled(create(model="org/solo", input="More", previous_response_id=done.id))
    assert second.previous_response_id == done.id and len(sent()["messages"]) == 3
    client.responses.delete(done.id)
    raises(openai.NotFoundError, client.responses.retrieve, done.id)


def test_a_response_is_cancelled():
    if not hasattr(client.responses, "cancel"):
        return
    response = create()
    end = client.responses.cancel(response.id)
    # The response may have ended before the cancellation.
    assert end.status in ("cancelled", "completed"), end
    assert client.responses.cancel(response.id).to_dict() == end.to_dict()
    assert client.responses.retrieve(response.id).to_dict() == end.to_dict()


def test_a_stream_is_continued_after_any_event():
    if not NEW:
        return
    first, last = [], None
    with create(stream=True) as stream:
        for event in stream:
            first.append(event)
            if event.type == "response.in_progress":
                break
    assert [event.type for event in first] == ["response.created", "response.queued", "response.in_progress"]
    id, seen = first[0].response.id, first[-1].sequence_number
    rest = list(client.responses.retrieve(id, stream=True, starting_after=seen))
    assert [event.sequence_number for event in rest] == list(range(seen + 1, seen + 1 + len(rest)))
    last = rest[-1]
    assert last.type == "response.completed" and has_metadata(last.response)
    text = "".join(event.delta for event in rest if event.type == "response.output_text.delta")
    assert text == last.response.output_text and "simulated" in text
    # The helper of the client for streams, from the beginning.
    with client.responses.stream(response_id=id) as stream:
        assert stream.get_final_response().output_text == text


def test_a_short_answer_is_incomplete_and_an_unknown_model_is_refused_at_once():
    short = polled(create(max_output_tokens=5))
    assert short.status == "incomplete" and short.incomplete_details.reason == "max_output_tokens", short
    raises(openai.NotFoundError, create, model="none")


def test_what_cannot_run_in_the_background_is_named():
    fault = raises(openai.BadRequestError, create, api=other)
    assert fault.param == "background" and "--store-responses" in fault.message, fault
    assert raises(openai.BadRequestError, create, store=False).param == "store"
