"""Streams, raw and through the helper."""

import asyncio
import time

import openai
from harness import KEY, PORTO, URL, control, has_metadata, lacks_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
helper = client.chat if hasattr(client.chat.completions, "stream") else client.beta.chat
HELLO = [{"role": "user", "content": "Hello"}]


def chunks(**more):
    return list(client.chat.completions.create(messages=HELLO, stream=True, **more))


def test_a_stream_begins_with_the_role_and_ends_with_the_reason_and_the_cost():
    got = chunks(model="small-chat")
    assert all(len(chunk.choices) == 1 for chunk in got)
    assert got[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in got}) == 1 and got[0].object == "chat.completion.chunk"
    assert [c.choices[0].finish_reason for c in got if c.choices[0].finish_reason] == ["stop"]
    assert got[-1].choices[0].finish_reason == "stop" and has_metadata(got[-1])
    assert all(lacks_metadata(chunk) for chunk in got[:-1])
    # Usage was not requested, but the last chunk has it.
    assert got[-1].usage.total_tokens > 0 and all(chunk.usage is None for chunk in got[:-1])
    assert "simulated" in "".join(chunk.choices[0].delta.content or "" for chunk in got)


def test_usage_comes_last_and_alone_when_asked_for():
    got = chunks(model="small-chat", stream_options={"include_usage": True})
    assert got[-1].choices == [] and got[-1].usage.total_tokens > 0 and has_metadata(got[-1])
    assert all(chunk.choices for chunk in got[:-1]) and all(lacks_metadata(chunk) for chunk in got[:-1])
    assert got[-2].choices[0].finish_reason == "stop"


def test_the_streamed_text_is_the_plain_text():
    plain = client.chat.completions.create(model="org/solo", messages=HELLO).choices[0].message.content
    got = chunks(model="org/solo")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in got) == plain


def test_the_helper_puts_the_stream_together():
    with helper.completions.stream(
        model="small-chat", messages=HELLO, stream_options={"include_usage": True}
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text and "simulated" in text
    assert final.choices[0].finish_reason == "stop" and final.usage.total_tokens > 0


def test_the_helper_takes_several_answers():
    with helper.completions.stream(model="small-chat", messages=HELLO, n=3) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert [choice.index for choice in final.choices] == [0, 1, 2]
    assert all(choice.message.content for choice in final.choices)


def test_reasoning_streams_before_the_text():
    got = chunks(model="thinker", reasoning_effort="high")
    kinds = []
    for chunk in got:
        delta = chunk.choices[0].delta
        kind = "r" if getattr(delta, "reasoning_content", None) else "t" if delta.content else None
        if kind and (not kinds or kinds[-1] != kind):
            kinds.append(kind)
    assert kinds == ["r", "t"], kinds


def test_a_provider_in_the_worst_shape_reads_like_any_other():
    got = chunks(model="messy", stream_options={"include_usage": True})
    assert got[0].choices[0].delta.role == "assistant"
    assert "simulated" in "".join(c.choices[0].delta.content or "" for c in got if c.choices)
    assert got[-1].usage.total_tokens > 0 and has_metadata(got[-1])


def test_who_leaves_a_stream_ends_the_providers_work():
    before = control(PORTO)
    stream = client.chat.completions.create(model="endless", messages=HELLO, stream=True)
    next(iter(stream))
    stream.close()
    deadline = time.monotonic() + 20
    while (now := control(PORTO))["cancelled"] == before["cancelled"] or now["open"]:
        assert time.monotonic() < deadline, (before, now)
    assert now["finished"] == before["finished"] and now["calls"] == before["calls"] + 1


def test_an_asynchronous_client_streams_the_same():
    async def whole():
        client = openai.AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1")
        stream = await client.chat.completions.create(model="small-chat", messages=HELLO, stream=True)
        return [chunk async for chunk in stream]

    got = asyncio.run(whole())
    assert has_metadata(got[-1]) and got[-1].choices[0].finish_reason == "stop"


def test_many_streams_at_once_do_not_mix():
    async def one(client, number):
        messages = [{"role": "user", "content": f"Hello, number {number}"}]
        plain = await client.chat.completions.create(model="org/solo", messages=messages)
        stream = await client.chat.completions.create(model="org/solo", messages=messages, stream=True)
        got = [chunk async for chunk in stream]
        return plain.choices[0].message.content, "".join(c.choices[0].delta.content or "" for c in got)

    async def every():
        async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{URL}/v1") as client:
            return await asyncio.gather(*(one(client, number) for number in range(48)))

    pairs = asyncio.run(every())
    assert all(plain == streamed for plain, streamed in pairs)
    assert len({plain for plain, _ in pairs}) > 24
