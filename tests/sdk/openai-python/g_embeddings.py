"""Embeddings: the client asks for base64 unless asked for another format, and decodes it."""

import json
import urllib.request

import openai
from harness import KEY, URL, Calls, raises, has_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1")
TEXTS = ["The river bends.", "A gate of steel", "Grüße 🌊"]


def floats(**body):
    """The same request without any client, in plain numbers."""
    body = json.dumps({"model": "vectors", "encoding_format": "float", **body}).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{URL}/v1/embeddings", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return [item["embedding"] for item in json.load(answer)["data"]]


def near(some, others):
    assert len(some) == len(others)
    for one, other in zip(some, others):
        assert len(one) == len(other) and max(abs(a - b) for a, b in zip(one, other)) < 1e-6
    return True


def vectors(answer):
    return [item.embedding for item in answer.data]


def test_the_default_form_gives_the_same_numbers():
    answer = client.embeddings.create(model="vectors", input=TEXTS)
    assert answer.object == "list" and answer.model == "vectors"
    assert [item.index for item in answer.data] == [0, 1, 2]
    assert len(answer.data[0].embedding) == 1024
    assert near(vectors(answer), floats(input=TEXTS))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    assert has_metadata(answer)


def test_either_form_from_any_provider():
    # `packed` is asked for base64 where the client wants it, `vectors` never.
    for model in ["vectors", "packed"]:
        for form in ["float", "base64"]:
            answer = client.embeddings.create(model=model, input=TEXTS, encoding_format=form)
            if form == "float":
                assert near(vectors(answer), floats(input=TEXTS)), model
            else:
                assert all(isinstance(vector, str) for vector in vectors(answer)), model


def test_one_text_and_many():
    one = client.embeddings.create(model="vectors", input=TEXTS[1])
    assert near(vectors(one), floats(input=[TEXTS[1]]))
    # Seven at a time is what its provider takes.
    many = [f"text number {number}" for number in range(40)]
    answer = client.embeddings.create(model="vectors:price", input=many)
    assert [item.index for item in answer.data] == list(range(40))
    assert near(vectors(answer), floats(input=many)) and has_metadata(answer)


def test_token_ids_are_the_text_they_stand_for():
    # "Hello world" and "tiktoken is great!" in cl100k_base.
    ids = [[9906, 1917], [83, 1609, 5963, 374, 2294, 0]]
    answer = client.embeddings.create(model="vectors", input=ids)
    assert near(vectors(answer), floats(input=["Hello world", "tiktoken is great!"]))
    answer = client.embeddings.create(model="vectors", input=ids[0])
    assert near(vectors(answer), floats(input=["Hello world"]))


def test_dimensions():
    answer = client.embeddings.create(model="vectors", input="x", dimensions=64)
    assert len(answer.data[0].embedding) == 64


def test_flavors_and_aliases():
    calls = Calls(client)
    assert client.embeddings.create(model="text-embedding-3-small", input="x").model == "text-embedding-3-small"
    assert calls.head["x-penstock-flavor"] == "price"
    client.embeddings.create(model="vectors:eco", input="x")
    assert calls.head["x-penstock-flavor"] == "eco"


def test_wrong_input_names_its_field():
    for body, param in [
        ({"input": []}, "input"),
        ({"input": ""}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [[1], [200000]]}, "input[1][0]"),
        ({"input": "x", "encoding_format": "hex"}, "encoding_format"),
    ]:
        error = raises(openai.BadRequestError, client.embeddings.create, model="vectors", **body)
        assert (error.code, error.param) == ("INFERENCE_3201", param), error.body
    error = raises(openai.BadRequestError, client.embeddings.create, model="small-chat", input="x")
    assert error.param == "model"
    error = raises(openai.NotFoundError, client.embeddings.create, model="nothing", input="x")
    assert error.code == "INFERENCE_3101"
