// LangChain's embeddings as they come out of the box.

import assert from 'node:assert/strict';
import test from 'node:test';
import { OpenAIEmbeddings } from '@langchain/openai';
import { KEY, URL } from './harness.mjs';

const TEXTS = ['The river bends.', 'A gate of steel', 'Grüße 🌊'];
const embeddings = (more) =>
  new OpenAIEmbeddings({ model: 'vectors', apiKey: KEY, maxRetries: 0, configuration: { baseURL: `${URL}/v1` }, ...more });

async function floats(input) {
  const answer = await fetch(`${URL}/v1/embeddings`, {
    method: 'POST',
    headers: { authorization: `Bearer ${KEY}`, 'content-type': 'application/json' },
    body: JSON.stringify({ model: 'vectors', input, encoding_format: 'float' }),
  });
  return (await answer.json()).data.map((item) => item.embedding);
}

const near = (one, other) =>
  one.length === other.length && one.every((value, at) => Math.abs(value - other[at]) < 1e-6);

test('documents and queries', async () => {
  const expected = await floats(TEXTS);
  const documents = await embeddings().embedDocuments(TEXTS);
  assert.equal(documents.length, TEXTS.length);
  documents.forEach((vector, at) => assert.ok(near(vector, expected[at]), `document ${at}`));
  assert.ok(near(await embeddings().embedQuery(TEXTS[2]), expected[2]));
});

test('batches of the client keep their order', async () => {
  const many = Array.from({ length: 50 }, (_, number) => `text number ${number}`);
  const expected = await floats(many);
  const documents = await embeddings({ batchSize: 20 }).embedDocuments(many);
  documents.forEach((vector, at) => assert.ok(near(vector, expected[at]), `document ${at}`));
});

test('dimensions, numbers by name, an error', async () => {
  assert.equal((await embeddings({ dimensions: 64 }).embedQuery('x')).length, 64);
  const [expected] = await floats(['x']);
  assert.ok(near(await embeddings({ encodingFormat: 'float' }).embedQuery('x'), expected));
  await assert.rejects(embeddings({ model: 'nothing' }).embedQuery('x'), (error) => error.status === 404);
});
