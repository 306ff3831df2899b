// Where the gateway is, its keys, and the checks that every Node suite shares.

import assert from 'node:assert/strict';

const { env } = process;
export const URL = env.PENSTOCK_URL;
// May do everything; lists models only; has been revoked.
export const KEY = env.PENSTOCK_KEY;
export const READER = env.PENSTOCK_READER_KEY;
export const REVOKED = env.PENSTOCK_REVOKED_KEY;

// One red pixel.
export const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC';
export const HELLO = [{ role: 'user', content: 'Hello' }];

// Both objects of Penstock, complete and with numbers in them.
export function told(thing) {
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

// What the provider of `org/solo` was asked last.
export async function sent() {
  const answer = await fetch(`${env.PENSTOCK_LYON}/control`);
  return JSON.parse((await answer.json()).last[0].body);
}

// A `fetch` that counts, and keeps the last answer's head.
export function counting() {
  const calls = async (...request) => {
    calls.number += 1;
    const answer = await fetch(...request);
    calls.head = answer.headers;
    return answer;
  };
  calls.number = 0;
  return calls;
}

// All that an iterator gives.
export async function all(stream) {
  const got = [];
  for await (const one of stream) got.push(one);
  return got;
}

// The error of a promise that fails, of this class.
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
