// Qwen Code, a coding agent: one turn without a terminal.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { KEY, URL } from './harness.mjs';

test('one turn ends with the text of the model', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'qwen-'));
  const program = join(dirname(fileURLToPath(import.meta.url)), '..', 'node_modules', '@qwen-code', 'qwen-code', 'cli.js');
  const { stdout } = await promisify(execFile)(process.execPath, [program, '--prompt', 'Hello'], {
    cwd: folder,
    timeout: 120_000,
    env: {
      PATH: process.env.PATH, HOME: folder, OPENAI_API_KEY: KEY, OPENAI_BASE_URL: `${URL}/v1`, OPENAI_MODEL: 'small-chat',
      QWEN_TELEMETRY_ENABLED: 'false', NO_COLOR: '1',
    },
  });
  assert.match(stdout, /simulated/);
});
