// Background responses: the poll loop, and cancel.

import assert from 'node:assert/strict';
import test from 'node:test';
import { setTimeout } from 'node:timers/promises';
import OpenAI, { BadRequestError } from 'openai';
import { STORING, URL, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: STORING, baseURL: `${URL}/v1`, maxRetries: 0 });
const model = 'small-chat';

test('a response is polled to its end', { timeout: 60_000 }, async () => {
  let response = await client.responses.create({ model, input: 'Hello', background: true });
  const { id } = response;
  assert.ok(['queued', 'in_progress'].includes(response.status));
  while (['queued', 'in_progress'].includes(response.status)) {
    await setTimeout(50);
    response = await client.responses.retrieve(id);
  }
  assert.equal(response.status, 'completed');
  assert.match(response.output[0].content[0].text, /simulated/);
  checkMetadata(response);
});

test('a response is cancelled, and one in the foreground is not', async () => {
  if (!client.responses.cancel) return;
  const { id } = await client.responses.create({ model, input: 'Hello', background: true });
  const end = await client.responses.cancel(id);
  assert.ok(['cancelled', 'completed'].includes(end.status));
  const stored = await client.responses.create({ model, input: 'Hello', store: true });
  await assert.rejects(client.responses.cancel(stored.id), BadRequestError);
});

test('a stream is continued after any event', { timeout: 60_000 }, async () => {
  const seen = [];
  for await (const event of await client.responses.create({ model, input: 'Hello', background: true, stream: true })) {
    seen.push(event);
    if (event.type === 'response.in_progress') break;
  }
  assert.deepEqual(seen.map((event) => event.type), ['response.created', 'response.queued', 'response.in_progress']);
  const { id } = seen[0].response;
  const rest = [];
  const query = { stream: true, starting_after: 2 };
  for await (const event of await client.get(`/responses/${id}`, { query, stream: true })) rest.push(event);
  assert.equal(rest[0].sequence_number, 3);
  assert.equal(rest.at(-1).type, 'response.completed');
  checkMetadata(rest.at(-1).response);
});
