"""Structured output: JSON, schemas, `.parse`."""

import json

import openai
from harness import KEY, URL, has_metadata
from pydantic import BaseModel

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1")
helper = client.chat if hasattr(client.chat.completions, "parse") else client.beta.chat
HELLO = [{"role": "user", "content": "An event, please, as JSON"}]


class Event(BaseModel):
    name: str
    guests: list[str]
    seats: int


def test_json_object_is_json():
    answer = client.chat.completions.create(
        model="small-chat", messages=HELLO, response_format={"type": "json_object"}
    )
    assert isinstance(json.loads(answer.choices[0].message.content), dict)


def test_parse_gives_an_object_of_the_class():
    answer = helper.completions.parse(model="small-chat", messages=HELLO, response_format=Event)
    event = answer.choices[0].message.parsed
    assert isinstance(event, Event) and event.guests and has_metadata(answer)


def test_parse_streams():
    with helper.completions.stream(model="small-chat", messages=HELLO, response_format=Event) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert isinstance(final.choices[0].message.parsed, Event)


def test_parse_says_when_the_length_ended_it():
    try:
        helper.completions.parse(model="small-chat", messages=HELLO, response_format=Event, max_tokens=3)
    except openai.LengthFinishReasonError as error:
        assert error.completion.choices[0].finish_reason == "length"
    else:
        raise AssertionError("no error")


def test_parsed_tools_have_parsed_arguments():
    answer = helper.completions.parse(
        model="small-chat",
        messages=[{"role": "user", "content": "Use the tool Event"}],
        tools=[openai.pydantic_function_tool(Event)],
    )
    assert isinstance(answer.choices[0].message.tool_calls[0].function.parsed_arguments, Event)
