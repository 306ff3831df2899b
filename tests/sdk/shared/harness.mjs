// Address and keys of the gateway, and the checks that all Node suites share.

import assert from 'node:assert/strict';

const { env } = process;
export const URL = env.PENSTOCK_URL;
// May do everything; lists models only; has been revoked.
export const KEY = env.PENSTOCK_KEY;
// May store responses.
export const STORING = env.PENSTOCK_STORING_KEY;
export const READER = env.PENSTOCK_READER_KEY;
export const REVOKED = env.PENSTOCK_REVOKED_KEY;
// May ask 20 times a minute; has a budget that no request fits in.
export const LIMITED = env.PENSTOCK_LIMITED_KEY;
export const POOR = env.PENSTOCK_POOR_KEY;
export const EMPTY = env.PENSTOCK_EMPTY_KEY;

// One red pixel.
export const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';
export const HELLO = [{ role: 'user', content: 'Hello' }];

// Checks that both objects of Penstock are there, complete and with numbers.
export function checkMetadata(thing) {
  const { environment_impact: impact, billing_cost: cost } = thing;
  for (const name of ['energy_kwh', 'carbon_g_co2', 'water_liters', 'renewable_percent', 'pue']) {
    assert.equal(typeof impact[name], 'number', name);
    assert.ok(impact[name] > 0, name);
  }
  assert.match(impact.provider_id, /^sdk-/);
  assert.match(impact.location, /, /);
  assert.equal(typeof cost.energy, 'number');
  assert.ok(cost.credits > 0);
  assert.equal(cost.paid_with, 'credits');
}

// Returns the last request with a body to the provider of `org/solo`; health checks have none.
export async function sent() {
  const answer = await fetch(`${env.PENSTOCK_LYON}/control`);
  return JSON.parse((await answer.json()).last.find(({ body }) => body).body);
}

// Checks that after a 429 the client waits for the time of `Retry-After`, tries again, and is answered. `once` asks with
// a client that does not retry, until it is refused; `patient` with one that does, through `calls`. If the limit admits
// a request between the two, `patient` is not refused, and the case is repeated.
export async function refusedAndWaits(once, patient, calls) {
  for (let round = 0; ; round += 1) {
    let refusal;
    for (let asked = 0; asked < 40 && !refusal; asked += 1) {
      await once().catch((error) => (refusal = error));
    }
    assert.equal(refusal?.status ?? refusal?.statusCode, 429, String(refusal));
    const [began, before] = [performance.now(), calls.number];
    const answer = await patient();
    const waited = performance.now() - began;
    if (calls.number - before === 1 && round < 4) continue;
    assert.equal(calls.number - before, 2);
    const after = Number(calls.refused.get('retry-after'));
    assert.ok(after >= 1 && after <= 3 && waited >= after * 950, `${waited} ms, ${after} s`);
    return { refusal, answer };
  }
}

// A `fetch` that counts, and keeps the last answer's head, and that of the last 429.
export function counting() {
  const calls = async (...request) => {
    calls.number += 1;
    const answer = await fetch(...request);
    calls.head = answer.headers;
    if (answer.status === 429) calls.refused = answer.headers;
    return answer;
  };
  calls.number = 0;
  return calls;
}

// Collects the items of an iterator.
export async function all(stream) {
  const got = [];
  for await (const one of stream) got.push(one);
  return got;
}

// Returns the error of a promise that fails, of this class.
export async function fails(kind, promise) {
  let made;
  try {
    made = await promise;
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.stack ?? error}`);
    return error;
  }
  assert.fail(`no error but ${JSON.stringify(made)}`);
}
