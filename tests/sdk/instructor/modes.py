"""Instructor in all modes: those whose object is bound by the request get it from the simulator, and those that ask
for it in the prompt from the scripted provider."""

import anthropic
import instructor
import openai
from harness import KEY, URL
from instructor import Mode
from pydantic import BaseModel


class Event(BaseModel):
    """An event."""

    name: str
    seats: int


ASK = [{"role": "user", "content": "An event"}]
CHAT = [Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA]
MESSAGES = [Mode.ANTHROPIC_TOOLS]
# Modes that ask in the prompt, with the models that answer like that.
PROMPTED = [(Mode.JSON, "objects"), (Mode.MD_JSON, "fenced-objects")]


def chat(mode):
    return instructor.from_openai(openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1"), mode=mode)


def test_every_mode_of_chat_gives_the_object():
    for mode in CHAT:
        made = chat(mode).chat.completions.create(
            model="small-chat", response_model=Event, messages=ASK, max_retries=0
        )
        assert isinstance(made, Event), mode


def test_modes_that_ask_in_the_prompt_give_the_object():
    for mode, model in PROMPTED:
        made = chat(mode).chat.completions.create(
            model=model, response_model=Event, messages=ASK, max_retries=0
        )
        assert (made.name, made.seats) == ("Concert", 120), mode


def test_modes_that_ask_in_the_prompt_give_partial_objects():
    for mode, model in PROMPTED:
        made = chat(mode).chat.completions.create_partial(model=model, response_model=Event, messages=ASK)
        parts = [(part.name, part.seats) for part in made]
        assert parts[-1] == ("Concert", 120) and len(parts) > 1, (mode, parts)


def test_messages_that_ask_in_the_prompt_give_the_object():
    client = instructor.from_anthropic(anthropic.Anthropic(api_key=KEY, base_url=URL), mode=Mode.ANTHROPIC_JSON)
    made = client.messages.create(
        model="fenced-objects", response_model=Event, messages=ASK, max_tokens=500, max_retries=0
    )
    assert (made.name, made.seats) == ("Concert", 120)


def test_a_partial_object_grows_to_the_whole():
    parts = list(
        chat(Mode.TOOLS).chat.completions.create_partial(model="small-chat", response_model=Event, messages=ASK)
    )
    assert parts and parts[-1].seats is not None and parts[-1].name is not None


def test_messages_give_the_object():
    for mode in MESSAGES:
        client = instructor.from_anthropic(anthropic.Anthropic(api_key=KEY, base_url=URL), mode=mode)
        made = client.messages.create(
            model="small-chat", response_model=Event, messages=ASK, max_tokens=500, max_retries=0
        )
        assert isinstance(made, Event), mode


def test_the_mode_of_responses_gives_the_object():
    made = chat(Mode.RESPONSES_TOOLS).responses.create(
        model="small-chat", response_model=Event, input="An event", max_retries=0
    )
    assert isinstance(made, Event)
