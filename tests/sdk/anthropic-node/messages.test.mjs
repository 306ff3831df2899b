// The messages dialect through its TypeScript client.

import Anthropic from '@anthropic-ai/sdk';
import assert from 'node:assert/strict';
import test from 'node:test';
import {
  HELLO, KEY, LIMITED, PIXEL, EMPTY, POOR, READER, REVOKED, URL, all, counting, fails, refusedAndWaits, sent, checkMetadata,
} from './harness.mjs';

const made = (apiKey = KEY, more = {}) => {
  const calls = counting();
  return { calls, client: new Anthropic({ apiKey, baseURL: URL, fetch: calls, ...more }) };
};
const { client } = made();
const ask = (more) => client.messages.create({ model: 'small-chat', messages: HELLO, max_tokens: 2000, ...more });
const TOOLS = [
  ['get_weather', { city: { type: 'string' }, days: { type: 'integer' } }],
  ['get_time', { zone: { type: 'string' } }],
  ['ping', {}],
].map(([name, properties]) => ({
  name,
  input_schema: { type: 'object', properties, required: Object.keys(properties) },
}));
const USE = [{ role: 'user', content: 'Use the tools' }];
const MODELS = ['small-chat', 'native'];
const GOOD = [...MODELS, 'messy'];

test('an answer tells its text, its usage and what it cost', async () => {
  for (const model of [...MODELS, 'claude-haiku-4-5']) {
    const answer = await ask({ model });
    assert.equal(answer.model, model);
    assert.equal(answer.stop_reason, 'end_turn');
    assert.match(answer.content[0].text, /simulated/);
    assert.ok(answer._request_id);
    checkMetadata(answer);
  }
});

test('both headers carry the key, any beta is taken', async () => {
  const other = new Anthropic({ apiKey: null, authToken: KEY, baseURL: URL });
  checkMetadata(await other.messages.create({ model: 'small-chat', messages: HELLO, max_tokens: 50 }));
  const beta = await client.beta.messages.create({
    model: 'small-chat', messages: HELLO, max_tokens: 50, betas: ['whatever-2025-01-01'],
  });
  assert.ok(beta.content[0].text);
});

for (const model of GOOD) {
  test(`a raw stream has the order of the grammar and tells what it cost: ${model}`, async () => {
    const got = (await all(await ask({ model, stream: true }))).filter((event) => event.type !== 'ping');
    const kinds = got.map((event) => event.type).filter((kind, at, whole) => kind !== whole[at - 1]);
    assert.deepEqual(kinds, [
      'message_start', 'content_block_start', 'content_block_delta', 'content_block_stop', 'message_delta', 'message_stop',
    ]);
    checkMetadata(got.find((event) => event.type === 'message_delta'));
  });

  test(`the helper puts a stream together: ${model}`, async () => {
    const stream = client.messages.stream({ model, messages: HELLO, max_tokens: 300 });
    let text = '';
    stream.on('text', (delta) => (text += delta));
    const final = await stream.finalMessage();
    assert.equal(final.content[0].text, text);
    assert.match(text, /simulated/);
    assert.ok(final.usage.output_tokens > 0);
  });

  test(`the helper puts several calls together: ${model}`, async () => {
    const final = await client.messages.stream({ model, messages: USE, max_tokens: 2000, tools: TOOLS }).finalMessage();
    const calls = final.content.filter((block) => block.type === 'tool_use');
    assert.deepEqual(calls.map((call) => call.name), ['get_weather', 'get_time', 'ping']);
    assert.deepEqual(calls.map((call) => Object.keys(call.input)), [['city', 'days'], ['zone'], []]);
    assert.equal(final.stop_reason, 'tool_use');
  });
}

test('results go back, and come before the words', async () => {
  const first = await ask({ model: 'org/solo', messages: USE, tools: TOOLS });
  const results = first.content
    .filter((block) => block.type === 'tool_use')
    .map((call) => ({ type: 'tool_result', tool_use_id: call.id, content: 'ok' }));
  const messages = [
    ...USE,
    { role: 'assistant', content: first.content },
    { role: 'user', content: [...results, { type: 'text', text: 'And now?' }] },
  ];
  assert.ok((await ask({ model: 'org/solo', messages, tools: TOOLS })).content[0].text);
  const asked = (await sent()).messages.map((turn) => turn.role);
  assert.deepEqual(asked, ['user', 'assistant', 'tool', 'tool', 'tool', 'user']);
});

test('thinking is a block with a signature, streamed too', async () => {
  const thinking = { type: 'enabled', budget_tokens: 1024 };
  const plain = await ask({ model: 'thinker', thinking });
  assert.deepEqual(plain.content.map((block) => block.type), ['thinking', 'text']);
  assert.ok(plain.content[0].signature);
  const stream = client.messages.stream({ model: 'thinker', messages: HELLO, max_tokens: 2000, thinking });
  const final = await stream.finalMessage();
  assert.deepEqual(final.content.map((block) => block.type), ['thinking', 'text']);
  assert.ok(final.content[0].signature && final.content[0].thinking);
});

test('a picture reaches the provider', async () => {
  const source = { type: 'base64', media_type: 'image/png', data: PIXEL };
  await ask({ model: 'org/solo', messages: [{ role: 'user', content: [{ type: 'image', source }, { type: 'text', text: '?' }] }] });
  assert.match(JSON.stringify((await sent()).messages), /data:image\/png;base64,/);
});

test('tokens are counted', async () => {
  const { input_tokens: few } = await client.messages.countTokens({ model: 'small-chat', messages: HELLO });
  const { input_tokens: more } = await client.messages.countTokens({ model: 'small-chat', messages: HELLO, tools: TOOLS });
  assert.ok(few > 0 && more > few);
});

test('a rate limit is 429 and waited off', async () => {
  const { calls, client: patient } = made(LIMITED);
  const { client: hasty } = made(LIMITED, { maxRetries: 0 });
  const ask = (client) => client.messages.create({ model: 'small-chat', messages: HELLO, max_tokens: 5 });
  const { refusal, answer } = await refusedAndWaits(() => ask(hasty), () => ask(patient), calls);
  assert.ok(refusal instanceof Anthropic.RateLimitError && answer.content.length === 1);
  assert.equal(refusal.error.error.code, 'RATE_2001');
  assert.equal(calls.head.get('anthropic-ratelimit-requests-limit'), '20');
});

test('errors have their class, type and code, and are not tried again', async () => {
  const cases = [
    [Anthropic.AuthenticationError, {}, REVOKED, 401, 'authentication_error', 'AUTH_1001'],
    [Anthropic.APIError, {}, POOR, 402, 'billing_error', 'BILLING_4002'],
    [Anthropic.APIError, {}, EMPTY, 402, 'billing_error', 'BILLING_4001'],
    [Anthropic.PermissionDeniedError, {}, READER, 403, 'permission_error', 'AUTH_1003'],
    [Anthropic.NotFoundError, { model: 'nothing' }, KEY, 404, 'not_found_error', 'INFERENCE_3101'],
    [Anthropic.BadRequestError, { max_tokens: -1 }, KEY, 400, 'invalid_request_error', 'INFERENCE_3201'],
    [
      Anthropic.BadRequestError, { model: 'narrow', messages: [{ role: 'user', content: 'word '.repeat(20_000) }] },
      KEY, 400, 'invalid_request_error', 'INFERENCE_3207',
    ],
    [
      Anthropic.APIError, { messages: [{ role: 'user', content: 'x'.repeat(1_200_000) }] },
      KEY, 413, 'request_too_large', 'RESOURCE_5004',
    ],
  ];
  for (const [kind, more, key, status, type, code] of cases) {
    const { calls, client } = made(key);
    const error = await fails(kind, client.messages.create({ model: 'small-chat', messages: HELLO, max_tokens: 50, ...more }));
    const inner = error.error.error;
    assert.deepEqual([error.status, inner.type, inner.code, inner.details.error_code], [status, type, code, code]);
    assert.equal(calls.number, 1);
    assert.ok(error.requestID);
  }
});

test('when all providers fail the client tries three times', async () => {
  const { calls, client } = made();
  const error = await fails(
    Anthropic.InternalServerError,
    client.messages.create({ model: 'down', messages: HELLO, max_tokens: 50 }),
  );
  assert.deepEqual([error.status, calls.number, error.error.error.type], [503, 3, 'overloaded_error']);
});

for (const model of ['cut', 'endless', 'in-band']) {
  test(`a stream that cannot be carried on ends in an error: ${model}`, async () => {
    const error = await fails(Anthropic.APIError, all(await ask({ model, stream: true })));
    assert.match(error.message, /INFERENCE_3103/);
    await fails(Anthropic.APIError, client.messages.stream({ model, messages: HELLO, max_tokens: 300 }).finalMessage());
  });
}

test('a failing provider is replaced unseen, a broken stream is carried on', async () => {
  for (const model of ['second-wins:price', 'rescued:price']) {
    const { calls, client } = made();
    const final = await client.messages.stream({ model, messages: HELLO, max_tokens: 300 }).finalMessage();
    assert.equal(final.content[0].text.split('This is a').length, 2);
    assert.equal(calls.number, 1);
  }
});

test('the catalogue is listed to its end, page by page', async () => {
  const { client } = made(READER);
  const ids = (await all(client.models.list({ limit: 3 }))).map((model) => model.id);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of ['small-chat', 'org/solo', 'claude-haiku-4-5']) assert.ok(ids.includes(id), id);
  assert.equal((await client.models.retrieve('org/solo')).type, 'model');
});
