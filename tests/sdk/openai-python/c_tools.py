"""Tools: single, parallel, streamed, and the way back of their results."""

import json

import openai
from harness import KEY, URL, nulls, sent

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1")
helper = client.chat if hasattr(client.chat.completions, "stream") else client.beta.chat


def tool(name, **fields):
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


WEATHER = tool("get_weather", city={"type": "string"}, days={"type": "integer"})
TOOLS = [WEATHER, tool("get_time", zone={"type": "string"}), tool("ping")]


def ask(words):
    return [{"role": "user", "content": words}]


def test_a_call_has_string_arguments_and_no_text():
    answer = client.chat.completions.create(
        model="small-chat", messages=ask("Use the tool get_weather"), tools=TOOLS
    )
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    (call,) = choice.message.tool_calls
    assert call.type == "function" and call.id and call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city", "days"}


def test_several_calls_come_in_one_answer():
    answer = client.chat.completions.create(model="small-chat", messages=ask("Use the tools"), tools=TOOLS)
    calls = answer.choices[0].message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_time", "ping"]
    assert len({call.id for call in calls}) == 3 and json.loads(calls[2].function.arguments) == {}


def test_parallel_calls_can_be_turned_off():
    answer = client.chat.completions.create(
        model="small-chat", messages=ask("Use the tools"), tools=TOOLS, tool_choice="required", parallel_tool_calls=False
    )
    assert len(answer.choices[0].message.tool_calls) == 1


def test_a_tool_can_be_named_and_forbidden():
    named = client.chat.completions.create(
        model="small-chat",
        messages=ask("Hello"),
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "get_time"}},
    )
    assert named.choices[0].message.tool_calls[0].function.name == "get_time"
    none = client.chat.completions.create(
        model="small-chat", messages=ask("Use the tools"), tools=TOOLS, tool_choice="none"
    )
    assert none.choices[0].message.tool_calls is None and none.choices[0].message.content


def streamed(model):
    with helper.completions.stream(model=model, messages=ask("Use the tools"), tools=TOOLS) as stream:
        for _ in stream:
            pass
        return stream.get_final_completion().choices[0]


def check(choice):
    assert choice.finish_reason == "tool_calls"
    calls = choice.message.tool_calls
    assert [call.function.name for call in calls] == ["get_weather", "get_time", "ping"]
    assert len({call.id for call in calls}) == 3, calls
    assert set(json.loads(calls[0].function.arguments)) == {"city", "days"}
    assert set(json.loads(calls[1].function.arguments)) == {"zone"}


def test_the_helper_puts_several_streamed_calls_together():
    check(streamed("small-chat"))


def test_fields_that_a_provider_repeats_are_not_doubled():
    check(streamed("messy"))


def test_later_pieces_of_a_call_carry_arguments_only():
    stream = client.chat.completions.create(
        model="messy", messages=ask("Use the tools"), tools=TOOLS, stream=True
    )
    seen = set()
    for chunk in stream:
        for piece in chunk.choices[0].delta.tool_calls or []:
            fields = set(piece.model_fields_set) | set(piece.function.model_fields_set)
            if piece.index in seen:
                assert fields == {"index", "function", "arguments"}, fields
            else:
                assert {"index", "id", "type", "function", "name"} <= fields, fields
            seen.add(piece.index)
    assert seen == {0, 1, 2}


def test_results_go_back_without_nulls():
    first = client.chat.completions.create(model="org/solo", messages=ask("Use the tools"), tools=TOOLS)
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "21 degrees"} for call in message.tool_calls
    ]
    second = client.chat.completions.create(
        model="org/solo", messages=[*ask("Use the tools"), message, *results], tools=TOOLS
    )
    assert second.choices[0].finish_reason == "stop" and second.choices[0].message.content
    asked = sent()
    assert [turn["role"] for turn in asked["messages"]] == ["user", "assistant", "tool", "tool", "tool"]
    assert nulls(asked["messages"]) in ([], ["/1/content"]), asked["messages"]
    ids = [call["id"] for call in asked["messages"][1]["tool_calls"]]
    assert ids == [turn["tool_call_id"] for turn in asked["messages"][2:]]
