"""Stored responses: `store`, `previous_response_id`, `retrieve`, `delete`, `input_items.list`, `cancel`."""

import openai
from harness import KEY, STORING, URL, raises, sent, has_metadata

client = openai.OpenAI(api_key=STORING, base_url=f"{URL}/v1", max_retries=0)
# Another key of the account, which stores nothing.
other = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
# Older versions do not know all members.
if int(openai.__version__.split(".")[0]) >= 3:
    client = openai.OpenAI(api_key=STORING, base_url=f"{URL}/v1", max_retries=0, _strict_response_validation=True)

PING = {"type": "function", "name": "ping", "description": "ping", "parameters": {"type": "object", "properties": {}}, "strict": False}


def streamed(**request):
    return list(client.responses.create(stream=True, **request))[-1].response


def test_a_stored_response_is_retrieved_and_deleted():
    for create in [client.responses.create, streamed]:
        response = create(model="small-chat", input="Hello", store=True, metadata={"a": "b"})
        again = client.responses.retrieve(response.id)
        assert again.to_dict() == response.to_dict() and has_metadata(again)
        raises(openai.NotFoundError, other.responses.retrieve, response.id)
        client.responses.delete(response.id)
        raises(openai.NotFoundError, client.responses.retrieve, response.id)
        raises(openai.NotFoundError, client.responses.delete, response.id)


def test_a_conversation_goes_on_by_its_id():
    first = client.responses.create(model="org/solo", input="My name is Ada.", store=True, instructions="Be brief.")
    second = streamed(model="org/solo", input="What is my name?", store=True, previous_response_id=first.id)
    assert second.previous_response_id == first.id
    texts = [message["content"] for message in sent()["messages"]]
    assert texts == ["My name is Ada.", first.output_text, "What is my name?"], texts
    third = client.responses.create(model="org/solo", input="Sure?", previous_response_id=second.id)
    assert len(sent()["messages"]) == 5
    raises(openai.NotFoundError, client.responses.retrieve, third.id)


def test_tool_outputs_alone_are_enough():
    first = client.responses.create(model="small-chat", input="Use the tools", store=True, tools=[PING], tool_choice="required")
    outputs = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "pong"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = client.responses.create(model="small-chat", input=outputs, tools=[PING], previous_response_id=first.id)
    assert "simulated" in second.output_text


def test_the_items_of_a_conversation_are_listed_in_pages():
    first = client.responses.create(model="small-chat", input=[{"role": "user", "content": "One"}], store=True)
    second = client.responses.create(model="small-chat", input="Two", store=True, previous_response_id=first.id)
    items = client.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.role for item in items.data] == ["user", "assistant"] and items.has_more
    assert items.data[0].content[0].text == "One"
    everything = [item.id for item in items]
    assert len(everything) == len(set(everything)) == 3, everything
    assert [item.id for item in client.responses.input_items.list(second.id)] == everything[::-1]
    assert [item.id for item in client.responses.input_items.list(second.id, after=everything[2])] == everything[1::-1]
    raises(openai.NotFoundError, client.responses.input_items.list, "resp_1")


def test_what_is_not_stored_is_said():
    response = client.responses.create(model="small-chat", input="Hello")
    assert response.store is False
    raises(openai.NotFoundError, client.responses.retrieve, response.id)
    fault = raises(
        openai.BadRequestError, client.responses.create, model="small-chat", input="Hi", previous_response_id=response.id
    )
    assert fault.param == "previous_response_id" and "no response of this id is stored" in fault.message
    assert other.responses.create(model="small-chat", input="Hello", store=True).store is False


def test_a_complete_response_cannot_be_cancelled():
    response = client.responses.create(model="small-chat", input="Hello", store=True)
    if hasattr(client.responses, "cancel"):
        raises(openai.BadRequestError, client.responses.cancel, response.id)
        raises(openai.NotFoundError, client.responses.cancel, "resp_1")
