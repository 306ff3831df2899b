"""Images: both forms, whichever a provider gives."""

import base64
import struct
import urllib.request

import openai
from harness import KEY, READER, URL, Calls, raises, has_metadata

client = openai.OpenAI(api_key=KEY, base_url=f"{URL}/v1", max_retries=0)
# The first provider is the cheaper one and returns URLs; the second one is selected by its location.
FLAVORS = ["painter:price", "painter:eco", "dall-e-3"]


def size(image):
    assert image.startswith(b"\x89PNG\r\n\x1a\n"), image[:16]
    return struct.unpack(">II", image[16:24])


def test_an_address_is_there_for_anyone_who_knows_it():
    for model in FLAVORS:
        answer = client.images.generate(model=model, prompt="A cat", n=2, size="64x32")
        assert answer.created > 0 and len(answer.data) == 2 and has_metadata(answer), model
        for image in answer.data:
            assert image.b64_json is None and image.url.startswith(f"{URL}/v1/images/content/"), image
            with urllib.request.urlopen(image.url, timeout=10) as got:
                assert got.headers["content-type"] == "image/png"
                assert size(got.read()) == (64, 32)
        assert answer.data[0].url != answer.data[1].url


def test_an_image_may_be_in_the_answer():
    for model in FLAVORS:
        answer = client.images.generate(model=model, prompt="A cat", response_format="b64_json", size="256x256")
        (image,) = answer.data
        assert image.url is None and has_metadata(answer), model
        assert size(base64.b64decode(image.b64_json, validate=True)) == (256, 256)


def test_fields_of_other_services_are_taken():
    calls = Calls(client)
    answer = client.images.generate(
        model="painter:price", prompt="A cat", quality="hd", style="vivid", user="someone", size="auto",
        extra_body={"background": "auto"},
    )
    assert answer.data[0].url and calls.head["x-penstock-flavor"] == "price"


def test_the_price_is_by_image():
    costs = [
        client.images.generate(model="painter:price", prompt="A cat", n=n).billing_cost["credits"] for n in (1, 3)
    ]
    assert costs == [1, 3], costs


def test_what_is_wrong_is_named():
    for more, field in [({"n": 11}, "n"), ({"size": "640x480"}, "size"), ({"model": "small-chat"}, "model")]:
        error = raises(openai.BadRequestError, client.images.generate, **{"model": "painter", "prompt": "p", **more})
        assert error.param == field and field in str(error), error
    other = openai.OpenAI(api_key=READER, base_url=f"{URL}/v1", max_retries=0)
    error = raises(openai.PermissionDeniedError, other.images.generate, model="painter", prompt="p")
    assert error.code == "AUTH_1003"
