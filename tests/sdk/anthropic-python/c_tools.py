"""Tools: single, parallel, streamed, and the way back of their results."""

import anthropic
from harness import KEY, PIXEL, URL, sent

client = anthropic.Anthropic(api_key=KEY, base_url=URL)
MODELS = ["small-chat", "native"]


def tool(name, **fields):
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"name": name, "description": name, "input_schema": schema}


TOOLS = [
    tool("get_weather", city={"type": "string"}, days={"type": "integer"}),
    tool("get_time", zone={"type": "string"}),
    tool("ping"),
]
ALL = [{"role": "user", "content": "Use the tools"}]
ONE = [{"role": "user", "content": "Use the tool get_weather"}]


def ask(model, messages=ALL, **more):
    return client.messages.create(model=model, messages=messages, max_tokens=2000, tools=TOOLS, **more)


def calls(answer):
    return [block for block in answer.content if block.type == "tool_use"]


def test_a_call_has_an_object_as_its_input():
    for model in MODELS:
        answer = ask(model, ONE)
        assert answer.stop_reason == "tool_use"
        (call,) = calls(answer)
        assert call.name == "get_weather" and set(call.input) == {"city", "days"} and call.id, model


def test_several_calls_come_in_one_answer():
    for model in MODELS:
        got = calls(ask(model))
        assert [call.name for call in got] == ["get_weather", "get_time", "ping"], model
        assert len({call.id for call in got}) == 3 and got[2].input == {}


def test_parallel_calls_can_be_turned_off():
    for model in MODELS:
        choice = {"type": "any", "disable_parallel_tool_use": True}
        assert len(calls(ask(model, tool_choice=choice))) == 1, model


def test_a_tool_can_be_named_demanded_and_forbidden():
    hello = [{"role": "user", "content": "Hello"}]
    for model in MODELS:
        assert calls(ask(model, hello, tool_choice={"type": "tool", "name": "get_time"}))[0].name == "get_time"
        assert calls(ask(model, hello, tool_choice={"type": "any"}))
        assert not calls(ask(model, extra_body={"tool_choice": {"type": "none"}}))


def test_streamed_calls_are_whole():
    for model in [*MODELS, "messy"]:
        with client.messages.stream(model=model, messages=ALL, max_tokens=2000, tools=TOOLS) as stream:
            got = list(stream)
            final = stream.get_final_message()
        made = calls(final)
        assert [call.name for call in made] == ["get_weather", "get_time", "ping"], model
        assert set(made[0].input) == {"city", "days"} and set(made[1].input) == {"zone"} and made[2].input == {}
        starts = [event for event in got if event.type == "content_block_start"]
        assert [event.index for event in starts] == list(range(len(starts)))
        assert final.stop_reason == "tool_use"


def test_results_go_back_in_order_before_the_words():
    first = ask("org/solo")
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees"} for call in calls(first)
    ]
    results[1] = {**results[1], "is_error": True, "content": [{"type": "text", "text": "broken clock"}]}
    del results[2]["content"]
    turns = [
        *ALL,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "And now?"}]},
    ]
    assert ask("org/solo", turns).content[0].text
    asked = sent()["messages"]
    assert [turn["role"] for turn in asked] == ["user", "assistant", "tool", "tool", "tool", "user"], asked
    assert [turn["tool_call_id"] for turn in asked[2:5]] == [call.id for call in calls(first)]
    assert "rror" in asked[3]["content"] and "broken clock" in asked[3]["content"] and asked[4]["content"] == ""


def test_results_go_back_to_a_provider_of_the_dialect():
    first = ask("native")
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "ok"} for call in calls(first)]
    turns = [*ALL, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    assert ask("native", turns).content[0].text


def test_a_picture_in_a_result_comes_after_all_results():
    first = ask("org/solo")
    source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "image", "source": source}]}
        for call in calls(first)
    ]
    turns = [*ALL, {"role": "assistant", "content": first.content}, {"role": "user", "content": results}]
    assert ask("org/solo", turns).content[0].text
    asked = sent()["messages"]
    assert [turn["role"] for turn in asked] == ["user", "assistant", "tool", "tool", "tool", "user"], asked
    assert str(asked[-1]).count("data:image/png;base64,") == 3


def test_structured_output_follows_its_schema():
    import json

    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "seats": {"type": "integer"}},
        "required": ["name", "seats"],
        "additionalProperties": False,
    }
    for model in MODELS:
        answer = client.messages.create(
            model=model,
            messages=ALL,
            max_tokens=500,
            extra_body={"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        )
        assert set(json.loads(answer.content[0].text)) == {"name", "seats"}, model
