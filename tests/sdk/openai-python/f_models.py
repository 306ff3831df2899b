"""The catalogue as this dialect's clients see it."""

import openai
from harness import KEY, READER, URL, raises

client = openai.OpenAI(api_key=READER, base_url=f"{URL}/v1")


def test_the_list_ends_and_holds_every_model():
    models = {model.id: model for model in client.models.list()}
    assert {"small-chat", "org/solo", "thinker", "native"} <= set(models)
    one = models["small-chat"]
    assert one.object == "model" and one.created == 1721692800 and one.owned_by
    assert one.context_length == 131072 and "tools" in one.supported_parameters
    assert 0 < one.pricing["input"] < one.pricing["output"] < 0.001


def test_a_model_is_found_by_id_alias_and_flavor():
    for name in ["small-chat", "org/solo", "org/solo:eco", "gpt-4o-mini"]:
        model = client.models.retrieve(name)
        assert model.object == "model" and model.context_length == 131072, name


def test_an_unknown_model_is_404():
    error = raises(openai.NotFoundError, client.models.retrieve, "nothing")
    assert error.code == "INFERENCE_3101"


def listed(**query):
    return [model["id"] for model in client.get("/models", cast_to=object, options={"params": query})["data"]]


def test_filters_sorts_and_pages():
    assert listed(supported_parameters="reasoning_effort") == ["thinker"]
    assert listed(output_modalities="image") == ["painter"]
    whole = listed(sort="newest")
    # Models without a date of their own count as new.
    assert whole.index("thinker") < whole.index("native") < whole.index("org/solo") < whole.index("small-chat")
    assert listed(sort="newest", offset=1, limit=2) == whole[1:3]
    prices = listed(sort="pricing-high-to-low")
    cheapest = listed(sort="pricing-low-to-high")
    assert prices[0] == "thinker" and cheapest.index("small-chat") < cheapest.index("thinker")
    for sort in ["context-high-to-low", "throughput-high-to-low", "latency-low-to-high", "most-popular"]:
        assert sorted(listed(sort=sort)) == sorted(whole), sort


def test_a_wrong_query_is_400():
    for query in [{"limit": 1001}, {"sort": "best"}, {"offset": -1}]:
        error = raises(openai.BadRequestError, listed, **query)
        assert error.code == "INFERENCE_3201" and error.param in query, error.body


def test_a_key_without_the_scope_of_chat_may_list():
    assert listed()


def test_a_key_is_needed():
    other = openai.OpenAI(api_key="nothing", base_url=f"{URL}/v1")
    assert raises(openai.AuthenticationError, other.models.list).code == "AUTH_1001"
    assert openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1").models.list().data
