// Batches with the client as it is: upload, create, poll, download, list over pages, cancel, delete.

import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { KEY, URL, checkMetadata } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
const CHAT = '/v1/chat/completions';
// The older client calls it `del`.
const remove = (id) => (client.files.delete ?? client.files.del).call(client.files, id);

const line = (number, more) =>
  JSON.stringify({
    custom_id: `n-${number}`,
    method: 'POST',
    url: CHAT,
    body: { model: 'small-chat', max_tokens: 8, messages: [{ role: 'user', content: `Number ${number}` }], ...more },
  });
const lines = (count, more) => Array.from({ length: count }, (_, number) => line(number, more));

async function upload(text) {
  return client.files.create({ file: await toFile(Buffer.from(text), 'in.jsonl'), purpose: 'batch' });
}

async function create(all, more) {
  const file = await upload(all.join('\n'));
  return client.batches.create({ input_file_id: file.id, endpoint: CHAT, completion_window: '24h', ...more });
}

async function ended(batch) {
  const deadline = Date.now() + 120_000;
  while (['validating', 'in_progress'].includes(batch.status)) {
    assert.ok(Date.now() < deadline, JSON.stringify(batch));
    await new Promise((done) => setTimeout(done, 50));
    batch = await client.batches.retrieve(batch.id);
  }
  return batch;
}

test('upload, create, poll, download', async () => {
  const made = await create(lines(20), { metadata: { job: 'nightly' } });
  assert.equal(made.object, 'batch');
  assert.deepEqual(made.metadata, { job: 'nightly' });
  const batch = await ended(made);
  assert.equal(batch.status, 'completed', JSON.stringify(batch));
  const { total, completed, failed } = batch.request_counts;
  assert.deepEqual([total, completed, failed], [20, 20, 0]);
  const text = await (await client.files.content(batch.output_file_id)).text();
  const found = text.trim().split('\n').map((one) => JSON.parse(one));
  assert.equal(new Set(found.map((one) => one.custom_id)).size, 20);
  for (const one of found) {
    assert.equal(one.status_code, 200);
    assert.equal(one.error, null);
    checkMetadata(one.response);
  }
});

test('lists come in pages', async () => {
  const file = await upload(line(1));
  const made = [];
  for (let number = 0; number < 5; number += 1) {
    const asked = { input_file_id: file.id, endpoint: CHAT, completion_window: '24h' };
    made.push((await client.batches.create(asked)).id);
  }
  const seen = [];
  for await (const batch of client.batches.list({ limit: 2 })) seen.push(batch.id);
  assert.equal(new Set(seen).size, seen.length);
  assert.ok(made.every((id) => seen.includes(id)));
});

test('cancel, and delete the input', async () => {
  const batch = await create(lines(400, { max_tokens: 4000 }));
  const cancelled = await client.batches.cancel(batch.id);
  assert.equal(cancelled.status, 'cancelled');
  assert.equal((await client.batches.cancel(batch.id)).status, 'cancelled');
  const deleted = await remove(batch.input_file_id);
  assert.equal(deleted.deleted, true);
});

test('deleting the input fails a running batch', async () => {
  const batch = await create(lines(400, { max_tokens: 4000 }));
  await remove(batch.input_file_id);
  const failed = await client.batches.retrieve(batch.id);
  assert.equal(failed.status, 'failed');
  assert.equal(failed.errors.data[0].code, 'input_file_deleted');
});

test('what has ended cannot be cancelled, and is not tried again', async () => {
  const batch = await ended(await create(lines(1)));
  const stubborn = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 3 });
  await assert.rejects(stubborn.batches.cancel(batch.id), (error) => error.status === 409);
});
