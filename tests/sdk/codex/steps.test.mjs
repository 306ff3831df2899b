// Codex, a coding agent that supports only the responses dialect: a task of twenty steps, a command each, over
// providers of both dialects.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import test from 'node:test';
import { fileURLToPath } from 'node:url';
import { KEY, URL } from './harness.mjs';

const program = join(dirname(fileURLToPath(import.meta.url)), '..', 'node_modules', '@openai', 'codex', 'bin', 'codex.js');
const config = (model) => `
model = "${model}"
model_provider = "penstock"
model_reasoning_summary = "auto"
model_reasoning_effort = "low"
web_search = "disabled"

[model_providers.penstock]
name = "Penstock"
base_url = "${URL}/v1"
env_key = "PENSTOCK_API_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
`;

function codex(model, prompt) {
  const folder = mkdtempSync(join(tmpdir(), 'codex-'));
  const [home, work] = [join(folder, 'home'), join(folder, 'work')];
  [home, work].forEach((path) => mkdirSync(path));
  writeFileSync(join(home, 'config.toml'), config(model));
  const child = spawn(
    process.execPath,
    [program, 'exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', '-C', work, prompt],
    { env: { PATH: process.env.PATH, HOME: home, CODEX_HOME: home, PENSTOCK_API_KEY: KEY }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let output = '';
  child.stdout.on('data', (data) => (output += data));
  child.stderr.on('data', (data) => (output += data));
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => child.kill(), 300_000);
    child.on('error', reject);
    child.on('exit', (code) => {
      clearTimeout(timer);
      const read = (name) => { try { return readFileSync(join(work, name), 'utf8'); } catch { return ''; } };
      const steps = read('steps.txt');
      rmSync(folder, { recursive: true, force: true });
      const events = output.split('\n').flatMap((line) => { try { return [JSON.parse(line)]; } catch { return []; } });
      resolve({ code, events, steps, output });
    });
  });
}

for (const model of ['stepper', 'native-stepper']) {
  test(`twenty steps end without an error: ${model}`, async () => {
    const { code, events, steps, output } = await codex(model, 'Do the twenty steps.');
    assert.equal(code, 0, output);
    const expected = Array.from({ length: 20 }, (_, number) => `step ${number}\n`).join('');
    assert.equal(steps, expected, output);
    assert.deepEqual(events.filter((event) => /error|failed/.test(event.type)), [], output);
    assert.match(output, /All 20 steps are done/);
  });
}
