"""The responses dialect: plain, streamed, tools, structured output, reasoning that comes back, errors."""

import json

import openai
from harness import KEY, PIXEL, URL, raises, sent, has_metadata
from pydantic import BaseModel

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
MODELS = ["small-chat", "native", "messy"]


def tool(name, **fields):
    schema = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
    return {"type": "function", "name": name, "description": name, "parameters": schema, "strict": False}


TOOLS = [tool("get_weather", city={"type": "string"}, days={"type": "integer"}), tool("ping")]


class Event(BaseModel):
    """An event."""

    name: str
    seats: int


def test_a_response_has_text_usage_and_cost():
    for model in MODELS:
        response = client.responses.create(model=model, input="Hello", instructions="Be brief.")
        assert "simulated" in response.output_text, model
        assert response.status == "completed" and response.id.startswith("resp_")
        assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens > 0
        assert response.instructions == "Be brief." and response.tools == []
        assert has_metadata(response)


def test_a_cut_response_is_incomplete():
    response = client.responses.create(model="small-chat", input="Hello", max_output_tokens=16)
    assert response.status == "incomplete", response
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"


def test_a_stream_has_numbered_events_and_the_text_of_its_response():
    for model in MODELS:
        events = list(client.responses.create(model=model, input="Hello", stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events))), model
        assert [event.type for event in events[:2]] == ["response.created", "response.in_progress"]
        text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        last = events[-1]
        assert last.type == "response.completed" and last.response.output_text == text
        assert "simulated" in text and has_metadata(last.response)


def test_the_helper_puts_a_stream_together():
    if not hasattr(client.responses, "stream"):
        return
    for model in MODELS:
        with client.responses.stream(model=model, input="Use the tools", tools=TOOLS) as stream:
            for _ in stream:
                pass
            final = stream.get_final_response()
        calls = [item for item in final.output if item.type == "function_call"]
        assert [call.name for call in calls] == ["get_weather", "ping"], model
        assert set(json.loads(calls[0].arguments)) == {"city", "days"} and json.loads(calls[1].arguments) == {}


def test_outputs_of_tools_go_back_with_the_whole_history():
    for model in MODELS:
        history = [{"role": "user", "content": "Use the tools"}]
        first = client.responses.create(model=model, input=history, tools=TOOLS, store=False)
        calls = [item for item in first.output if item.type == "function_call"]
        assert len(calls) == 2, model
        history += first.output
        history += [
            {"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"} for call in calls
        ]
        second = client.responses.create(model=model, input=history, tools=TOOLS)
        assert "simulated" in second.output_text, model


def test_a_tool_can_be_chosen_and_calls_can_be_one_at_a_time():
    def names(**more):
        response = client.responses.create(model="small-chat", input="Use the tools", tools=TOOLS, **more)
        return [item.name for item in response.output if item.type == "function_call"]

    assert names(tool_choice={"type": "function", "name": "ping"}) == ["ping"]
    assert names(tool_choice="none") == []
    assert len(names(tool_choice="required", parallel_tool_calls=False)) == 1
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "ping"}]}
    assert names(tool_choice=allowed) == ["ping"]


def test_parse_gives_an_object():
    if not hasattr(client.responses, "parse"):
        return
    response = client.responses.parse(model="small-chat", input="An event", text_format=Event)
    assert isinstance(response.output_parsed, Event)


def test_an_image_reaches_the_provider():
    url = f"data:image/png;base64,{PIXEL}"
    content = [{"type": "input_text", "text": "What is it?"}, {"type": "input_image", "image_url": url, "detail": "auto"}]
    client.responses.create(model="org/solo", input=[{"role": "user", "content": content}])
    assert sent()["messages"][0]["content"][1]["image_url"]["url"] == url


def test_reasoning_is_an_item_and_comes_back():
    response = client.responses.create(
        model="thinker",
        input="Hello",
        reasoning={"effort": "low"},
        include=["reasoning.encrypted_content"],
    )
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].encrypted_content
    again = client.responses.create(
        model="thinker",
        input=[{"role": "user", "content": "Hello"}, *response.output, {"role": "user", "content": "More"}],
    )
    assert again.output_text


def test_every_answer_is_valid_by_the_types_of_the_client():
    # Older versions do not know all members.
    if int(openai.__version__.split(".")[0]) < 3:
        return
    strict = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", _strict_response_validation=True)
    custom = {"type": "custom", "name": "note", "description": "Takes a note", "format": {"type": "text"}}
    for more in [
        {},
        {"tools": [*TOOLS, custom], "tool_choice": "required"},
        {"tools": [custom], "tool_choice": {"type": "custom", "name": "note"}},
        {"text": {"format": {"type": "json_schema", "name": "event", "schema": Event.model_json_schema()}}},
        {"max_output_tokens": 16, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}, "user": "u"},
    ]:
        response = strict.responses.create(model="small-chat", input="Use the tools", **more)
        events = list(strict.responses.create(model="small-chat", input="Use the tools", stream=True, **more))
        kinds = [item.type for item in response.output]
        assert kinds == [item.type for item in events[-1].response.output], (more, kinds)
    assert strict.responses.create(model="thinker", input="Hello", reasoning={"effort": "low"}).output[0].content


def test_what_needs_a_stored_response_is_refused_by_name():
    fault = raises(
        openai.BadRequestError, client.responses.create, model="small-chat", input="Hi", previous_response_id="resp_1"
    )
    assert fault.param == "previous_response_id" and "whole history" in fault.message
    fault = raises(openai.BadRequestError, client.responses.create, model="small-chat", input="Hi", tools=[{"type": "web_search_preview"}])
    assert fault.param == "tools[0].type"
    raises(openai.NotFoundError, client.responses.retrieve, "resp_1")
    raises(openai.NotFoundError, client.responses.create, model="unknown", input="Hi")


def test_input_tokens_are_counted():
    if not hasattr(client.responses, "input_tokens"):
        return
    count = client.responses.input_tokens.count(model="small-chat", input="Hello")
    assert count.input_tokens > 0 and count.object == "response.input_tokens"
