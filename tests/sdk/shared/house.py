"""Where the gateway is, its keys, and the checks that every Python suite shares."""

import json
import os
import urllib.request

URL = os.environ["PENSTOCK_URL"]
# May do everything; lists models only; has been revoked.
KEY = os.environ["PENSTOCK_KEY"]
READER = os.environ["PENSTOCK_READER_KEY"]
REVOKED = os.environ["PENSTOCK_REVOKED_KEY"]
# The control endpoint of the one provider of `org/solo`.
LYON = os.environ["PENSTOCK_LYON"]
# The slow provider of the streams that break.
PORTO = os.environ["PENSTOCK_PORTO"]

# One red pixel.
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
)
IMPACT = ["energy_kwh", "carbon_g_co2", "water_liters", "renewable_percent", "pue"]


def told(thing):
    """Both objects of Penstock, complete and with numbers in them."""
    impact, cost = thing.environment_impact, thing.billing_cost
    for name in IMPACT:
        assert isinstance(impact[name], (int, float)) and impact[name] > 0, (name, impact)
    assert impact["provider_id"].startswith("sdk-"), impact
    assert ", " in impact["location"], impact
    for name in ["energy", "credits"]:
        assert isinstance(cost[name], (int, float)) and cost[name] >= 0, cost
    assert cost["credits"] > 0 and cost["paid_with"] == "credits", cost
    return True


def untold(thing):
    """Neither object is there."""
    return getattr(thing, "environment_impact", None) is None and getattr(thing, "billing_cost", None) is None


def control(provider):
    """What a simulated provider tells of itself: its counters, its last calls."""
    with urllib.request.urlopen(f"{provider}/control", timeout=10) as answer:
        return json.load(answer)


def sent():
    """What the provider of `org/solo` was asked last, as JSON."""
    return json.loads(control(LYON)["last"][0]["body"])


def nulls(value, path=""):
    """Paths of all nulls."""
    if value is None:
        return [path]
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    return [found for name, one in inner for found in nulls(one, f"{path}/{name}")]


class Calls:
    """Counts the HTTP requests that a client sends, and keeps the last answer's head."""

    def __init__(self, client):
        self.number = 0
        self.head = None
        client._client.event_hooks = {"request": [self._request], "response": [self._response]}

    def _request(self, _):
        self.number += 1

    def _response(self, response):
        self.head = response.headers


def raises(kind, call, *args, **kwargs):
    """The exception of this class that the call raises."""
    try:
        made = call(*args, **kwargs)
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised: {made!r}")
