"""The catalogue as this dialect's clients see it."""

import anthropic
from harness import READER, URL, raises

client = anthropic.Anthropic(api_key=READER, base_url=URL)
# Clients of 2024 have no list of models; they ask by path.
LISTS = hasattr(client, "models")


def test_the_list_ends_and_holds_every_model_and_alias():
    if not LISTS:
        page = client.get("/v1/models?limit=1000", cast_to=object)
        assert page["has_more"] is False and any(one["id"] == "small-chat" for one in page["data"])
        return
    models = {model.id: model for model in client.models.list(limit=1000)}
    assert {"small-chat", "org/solo", "thinker", "native", "claude-haiku-4-5"} <= set(models), set(models)
    one = models["small-chat"]
    assert one.type == "model" and one.display_name == "Small Chat" and one.created_at.year == 2024


def test_pages_follow_each_other_to_the_end():
    if not LISTS:
        return
    ids = [model.id for model in client.models.list(limit=2)]
    whole = [model.id for model in client.models.list(limit=1000)]
    assert ids == whole and len(set(ids)) == len(ids), ids


def test_a_model_is_found_by_id_and_alias():
    if not LISTS:
        return
    for name in ["small-chat", "org/solo", "claude-haiku-4-5"]:
        assert client.models.retrieve(name).display_name


def test_an_unknown_model_is_404_in_this_dialect():
    error = raises(anthropic.NotFoundError, client.get, "/v1/models/nothing", cast_to=object)
    assert error.body["type"] == "error" and error.body["error"]["type"] == "not_found_error"
