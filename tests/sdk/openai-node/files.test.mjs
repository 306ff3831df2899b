// Files: uploaded in one piece or as a stream, listed over pages, retrieved, read, deleted.

import assert from 'node:assert/strict';
import { createReadStream } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import test from 'node:test';
import OpenAI, { toFile } from 'openai';
import { KEY, URL, fails } from './harness.mjs';

const client = new OpenAI({ apiKey: KEY, baseURL: `${URL}/v1`, maxRetries: 0 });
// The older client calls it `del`.
const remove = (id) => (client.files.delete ?? client.files.del).call(client.files, id);

function asks(count) {
  const line = { method: 'POST', url: '/v1/embeddings', body: { model: 'vectors', input: 'A text' } };
  const lines = Array.from({ length: count }, (_, i) => JSON.stringify({ custom_id: `ask-${i}`, ...line }));
  return Buffer.from(lines.join('\n'));
}

async function upload(count = 1) {
  const file = await toFile(asks(count), 'asks.jsonl');
  // The file comes first here.
  return client.files.create({ file, purpose: 'batch' });
}

async function all(query) {
  const files = [];
  for await (const file of client.files.list(query)) files.push(file.id);
  return files;
}

test('an upload is processed and can be retrieved', async () => {
  const made = await upload(3);
  assert.equal(made.bytes, asks(3).length);
  assert.deepEqual([made.object, made.purpose, made.status, made.filename], ['file', 'batch', 'processed', 'asks.jsonl']);
  assert.deepEqual(await client.files.retrieve(made.id), made);
  assert.equal((await client.files.waitForProcessing(made.id)).id, made.id);
});

test('a stream from the disk arrives whole', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'files-'));
  try {
    const path = join(folder, 'many.jsonl');
    await writeFile(path, asks(20_000));
    const made = await client.files.create({ file: createReadStream(path), purpose: 'batch' });
    assert.equal(made.filename, 'many.jsonl');
    const got = await client.files.content(made.id);
    assert.deepEqual(Buffer.from(await got.arrayBuffer()), asks(20_000));
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('lists go over pages and hold through deletions', async () => {
  for (const id of await all({})) await remove(id);
  const made = [];
  for (let i = 0; i < 7; i += 1) made.push((await upload()).id);
  assert.deepEqual(await all({ limit: 2 }), made.toReversed());
  assert.deepEqual(await all({ limit: 3, order: 'asc', purpose: 'batch' }), made);
  for await (const file of client.files.list({ limit: 2 })) assert.equal((await remove(file.id)).deleted, true);
  assert.deepEqual(await all({}), []);
});

test('what is deleted is gone', async () => {
  const { id } = await upload();
  assert.deepEqual(await remove(id), { id, object: 'file', deleted: true });
  // One after the other: a promise that fails before anybody waits for it ends the test.
  for (const call of [() => client.files.retrieve(id), () => client.files.content(id), () => remove(id)]) {
    assert.equal((await fails(OpenAI.NotFoundError, call())).code, 'RESOURCE_5001');
  }
});

test('a wrong line is named', async () => {
  const wrong = Buffer.concat([asks(20), Buffer.from('\n{"custom_id":"x"}\n')]);
  const file = await toFile(wrong, 'asks.jsonl');
  const error = await fails(OpenAI.BadRequestError, client.files.create({ file, purpose: 'batch' }));
  assert.equal(error.param, 'file');
  assert.match(error.message, /line 21: method: expected/);
});
