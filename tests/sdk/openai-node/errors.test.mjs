// Errors, retries, models.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';
import {
  HELLO, KEY, LIMITED, EMPTY, POOR, READER, REVOKED, URL, all, counting, fails, refusedAndWaits, checkMetadata,
} from './harness.mjs';

const made = (apiKey = KEY, more = {}) => {
  const calls = counting();
  return { calls, client: new OpenAI({ apiKey, baseURL: `${URL}/v1`, fetch: calls, ...more }) };
};

async function refused(kind, more = {}, apiKey = KEY) {
  const { calls, client } = made(apiKey);
  const error = await fails(kind, client.chat.completions.create({ model: 'small-chat', messages: HELLO, ...more }));
  assert.equal(calls.number, 1);
  assert.equal(typeof error.code, 'string');
  assert.ok(error.requestID ?? error.request_id);
  return error;
}

test('no, wrong and revoked keys are 401 once', async () => {
  for (const key of ['nothing', KEY.slice(0, -1), REVOKED]) {
    const error = await refused(OpenAI.AuthenticationError, {}, key);
    assert.deepEqual([error.status, error.code, error.type], [401, 'AUTH_1001', 'invalid_api_key']);
  }
});

test('a missing scope is 403 and named', async () => {
  const error = await refused(OpenAI.PermissionDeniedError, {}, READER);
  assert.equal(error.type, 'insufficient_scope');
  assert.equal(error.error.details.required_scope, 'inference.chat');
});

test('a budget that is used up is 402 once', async () => {
  const error = await refused(OpenAI.APIError, {}, POOR);
  assert.deepEqual([error.status, error.code, error.type], [402, 'BILLING_4002', 'budget_exceeded']);
});

test('an account without credits is 402 once, with the missing amount', async () => {
  const error = await refused(OpenAI.APIError, {}, EMPTY);
  assert.deepEqual([error.status, error.code, error.type], [402, 'BILLING_4001', 'insufficient_credits']);
  assert.ok(error.error.details.required > error.error.details.available);
});

test('a rate limit is 429 and waited off', async () => {
  const { calls, client } = made(LIMITED);
  const { client: hasty } = made(LIMITED, { maxRetries: 0 });
  const ask = (client) => client.chat.completions.create({ model: 'small-chat', messages: HELLO, max_tokens: 5 });
  const { refusal, answer } = await refusedAndWaits(() => ask(hasty), () => ask(client), calls);
  assert.ok(refusal instanceof OpenAI.RateLimitError && answer.choices.length === 1);
  assert.deepEqual([refusal.code, refusal.type], ['RATE_2001', 'rate_limit_exceeded']);
  assert.equal(calls.head.get('x-ratelimit-limit-requests'), '20');
});

test('an unknown model is 404', async () => {
  assert.equal((await refused(OpenAI.NotFoundError, { model: 'nothing' })).code, 'INFERENCE_3101');
});

test('a wrong field is 400 and named', async () => {
  const error = await refused(OpenAI.BadRequestError, { temperature: 9 });
  assert.deepEqual([error.code, error.param], ['INFERENCE_3201', 'temperature']);
  assert.match(error.message, /temperature/);
});

test('more input than fits tells both numbers', async () => {
  const messages = [{ role: 'user', content: 'word '.repeat(20_000) }];
  const error = await refused(OpenAI.BadRequestError, { model: 'narrow', messages });
  assert.equal(error.code, 'INFERENCE_3207');
  assert.equal(error.error.details.context_length, 2048);
  assert.match(error.message, /context_length_exceeded/);
});

test('405 and 413 are errors of the envelope', async () => {
  const { client } = made();
  const method = await fails(OpenAI.APIError, client.get('/chat/completions'));
  assert.deepEqual([method.status, method.code], [405, 'RESOURCE_5002']);
  const messages = [{ role: 'user', content: 'x'.repeat(1_200_000) }];
  const size = await refused(OpenAI.APIError, { messages });
  assert.deepEqual([size.status, size.code], [413, 'RESOURCE_5004']);
});

test('when all providers fail the client tries three times', async () => {
  const { calls, client } = made();
  const error = await fails(
    OpenAI.InternalServerError,
    client.chat.completions.create({ model: 'down', messages: HELLO }),
  );
  assert.deepEqual([error.status, error.code, calls.number], [503, 'INFERENCE_3103', 3]);
  const after = Number(calls.head.get('retry-after'));
  assert.ok(after >= 1 && after <= 5, String(after));
});

for (const model of ['cut', 'endless', 'in-band']) {
  test(`a stream that cannot be carried on ends in an error: ${model}`, async () => {
    const { client } = made();
    const stream = await client.chat.completions.create({ model, messages: HELLO, stream: true });
    const error = await fails(OpenAI.APIError, all(stream));
    assert.equal(error.code, 'INFERENCE_3103');
  });
}

test('the catalogue is listed and looked up', async () => {
  const { client } = made(READER);
  const models = await all(client.models.list());
  const one = models.find((model) => model.id === 'small-chat');
  assert.equal(one.object, 'model');
  assert.ok(one.owned_by && one.created === 1721692800 && one.pricing.input > 0);
  for (const name of ['org/solo', 'org/solo:eco', 'gpt-4o-mini']) {
    assert.equal((await client.models.retrieve(name)).object, 'model');
  }
  const error = await fails(OpenAI.NotFoundError, client.models.retrieve('nothing'));
  assert.equal(error.code, 'INFERENCE_3101');
});

test('a stream that is left does no harm', async () => {
  const { client } = made();
  const stream = await client.chat.completions.create({ model: 'small-chat', messages: HELLO, stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk);
    break;
  }
  checkMetadata(await client.chat.completions.create({ model: 'small-chat', messages: HELLO }));
});
