"""Rerank with the Cohere client: version 1 of its API asks /v1/rerank, version 2 asks /v2/rerank."""

import cohere
from harness import KEY, READER, URL, raises, has_metadata

QUERY = "where does the river bend"
TEXTS = ["A gate of steel.", "The river does bend where the rock is hard.", "Where is the gate?", "Nothing of it"]
BEST = 1


def clients(**more):
    """Both versions, with the address written either way."""
    return [kind(**{"api_key": KEY, "base_url": URL, **more}) for kind in [cohere.Client, cohere.ClientV2]]


def checked(answer, count):
    scores = [result.relevance_score for result in answer.results]
    assert len(scores) == count and scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores) and scores[0] > 0.5 > scores[-1], scores
    assert answer.results[0].index == BEST
    return has_metadata(answer)


def test_texts_are_put_in_order():
    for client in clients():
        answer = client.rerank(model="order", query=QUERY, documents=TEXTS)
        assert checked(answer, 4), client
        assert sorted(result.index for result in answer.results) == [0, 1, 2, 3]


def test_top_n():
    for client in clients():
        answer = client.rerank(model="order", query=QUERY, documents=TEXTS, top_n=1)
        assert [result.index for result in answer.results] == [BEST]


def test_objects_and_documents():
    client = cohere.Client(api_key=KEY, base_url=URL)
    documents = [{"text": text, "title": "t"} for text in TEXTS]
    answer = client.rerank(model="order", query=QUERY, documents=documents, return_documents=True)
    assert [result.document.text for result in answer.results] == [TEXTS[result.index] for result in answer.results]
    answer = client.rerank(model="order", query=QUERY, documents=TEXTS)
    assert all(result.document is None for result in answer.results)


def test_every_shape_of_provider_gives_the_same():
    client = cohere.ClientV2(api_key=KEY, base_url=URL)
    seen = [
        [(result.index, result.relevance_score) for result in client.rerank(model=name, query=QUERY, documents=TEXTS).results]
        for name in ["order", "order-tei", "order-logits"]
    ]
    for other in seen[1:]:
        assert [index for index, _ in other] == [index for index, _ in seen[0]]
        assert all(abs(one - two) < 1e-6 for (_, one), (_, two) in zip(seen[0], other)), seen


def test_flavors_and_a_base_address_with_its_version():
    for client in clients(base_url=f"{URL}/v1"):
        assert checked(client.rerank(model="order:eco", query=QUERY, documents=TEXTS), 4)


def test_errors_are_the_clients_own():
    error_kind = cohere.errors.BadRequestError
    for client in clients():
        error = raises(error_kind, client.rerank, model="order", query=QUERY, documents=[])
        assert error.body["error"]["param"] == "documents", error.body
        error = raises(error_kind, client.rerank, model="order", query=QUERY, documents=["a"], top_n=0)
        assert error.body["error"]["param"] == "top_n", error.body
        raises(cohere.errors.NotFoundError, client.rerank, model="nothing", query=QUERY, documents=TEXTS)
    for client in clients(api_key=READER):
        raises(cohere.errors.ForbiddenError, client.rerank, model="order", query=QUERY, documents=TEXTS)
