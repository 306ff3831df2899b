"""Streams: the order of events, the helper, where the cost stands."""

import anthropic
from harness import KEY, URL, has_metadata

client = anthropic.Anthropic(api_key=KEY, base_url=URL, max_retries=0)
HELLO = [{"role": "user", "content": "Hello"}]
MODELS = ["small-chat", "native", "messy"]


def events(model, **more):
    return list(client.messages.create(model=model, messages=HELLO, max_tokens=300, stream=True, **more))


def test_events_come_in_the_order_of_the_grammar():
    for model in MODELS:
        kinds = [event.type for event in events(model) if event.type != "ping"]
        short = [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        assert short == ["message_start", *block, "message_delta", "message_stop"], (model, short)


def test_the_last_delta_tells_usage_and_cost():
    for model in MODELS:
        got = events(model)
        assert got[0].message.content == [] and got[0].message.model == model
        (delta,) = [event for event in got if event.type == "message_delta"]
        assert delta.delta.stop_reason == "end_turn" and delta.usage.output_tokens > 0
        assert has_metadata(delta), model


def test_the_helper_puts_the_stream_together():
    for model in MODELS:
        with client.messages.stream(model=model, messages=HELLO, max_tokens=300) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        assert final.content[0].text == text and "simulated" in text, model
        assert final.stop_reason == "end_turn" and final.usage.output_tokens > 0
        assert final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0) > 0


def test_the_helper_shows_the_cost_in_its_events():
    with client.messages.stream(model="small-chat", messages=HELLO, max_tokens=300) as stream:
        deltas = [event for event in stream if event.type == "message_delta"]
    assert has_metadata(deltas[0])


def test_thinking_streams_as_a_block_of_its_own_with_a_signature():
    got = events("thinker", extra_body={"thinking": {"type": "enabled", "budget_tokens": 1024}})
    starts = [event.content_block.type for event in got if event.type == "content_block_start"]
    assert starts == ["thinking", "text"], starts
    kinds = [event.delta.type for event in got if event.type == "content_block_delta"]
    assert kinds.index("signature_delta") < kinds.index("text_delta")
    assert [event.index for event in got if event.type == "content_block_start"] == [0, 1]


def test_reasoning_that_nobody_asked_for_is_not_shown():
    for model in ["thinker", "messy"]:
        starts = [event.content_block.type for event in events(model) if event.type == "content_block_start"]
        assert starts == ["text"], (model, starts)


def test_an_asynchronous_client_streams_the_same():
    import asyncio

    async def whole():
        client = anthropic.AsyncAnthropic(api_key=KEY, base_url=URL)
        async with client.messages.stream(model="small-chat", messages=HELLO, max_tokens=200) as stream:
            return await stream.get_final_message()

    assert asyncio.run(whole()).content[0].text
