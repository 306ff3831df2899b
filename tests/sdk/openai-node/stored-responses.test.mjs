// Stored responses: `store`, `previous_response_id`, retrieve, delete, input items.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { BadRequestError, NotFoundError } from 'openai';
import { STORING, URL, all, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: STORING, baseURL: `${URL}/v1`, maxRetries: 0 });
const model = 'small-chat';
const remove = (id) => (client.responses.delete ?? client.responses.del).call(client.responses, id);

test('a stored response is retrieved and deleted', async () => {
  const response = await client.responses.create({ model, input: 'Hello', store: true });
  const again = await client.responses.retrieve(response.id);
  // Older versions add the text to created responses alone.
  assert.deepEqual({ ...again, output_text: response.output_text }, { ...response });
  checkMetadata(again);
  await remove(response.id);
  await assert.rejects(client.responses.retrieve(response.id), NotFoundError);
});

test('a streamed conversation goes on by its id, and its items are listed', async () => {
  const events = await all(await client.responses.create({ model, input: 'One', store: true, stream: true }));
  const first = events.at(-1).response;
  const second = await client.responses.create({ model, input: 'Two', store: true, previous_response_id: first.id });
  assert.equal(second.previous_response_id, first.id);
  const items = await all(client.responses.inputItems.list(second.id, { order: 'asc', limit: 2 }));
  assert.deepEqual(items.map((item) => item.role), ['user', 'assistant', 'user']);
  assert.equal(items[1].content[0].text, first.output[0].content[0].text);
});

test('a response that is not stored cannot be continued', async () => {
  const { id, store } = await client.responses.create({ model, input: 'Hello' });
  assert.equal(store, false);
  await assert.rejects(client.responses.create({ model, input: 'More', previous_response_id: id }), BadRequestError);
});
