// `cox coordinator` and `cox rank --join` on two hosts are the same thing as `cox up` on one.
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { CoxProcess, testModel, until } from './cox.ts';
import { canMakeHosts, makeTwoHosts, type TestHosts } from './hosts.ts';

const required = process.env['COX_REQUIRE_ALL'] === '1';
const possible = required || canMakeHosts();
const TOKEN = 'a-token-of-two-hosts-that-is-long-enough';
const PROMPT = 'The coordinator keeps every session';

let hosts: TestHosts;
let directory: string;
beforeAll(() => {
  if (!possible) return;
  hosts = makeTwoHosts();
  directory = mkdtempSync(join(tmpdir(), 'cox-hosts-'));
});
afterAll(() => {
  if (!possible) return;
  hosts.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Greedy text of a fixed prompt, asked for on the host where the coordinator listens. */
function ask(wrap: readonly string[], url: string): string {
  const body = JSON.stringify({ prompt: PROMPT, max_tokens: 24, temperature: 0 });
  const script = `fetch(${JSON.stringify(`${url}/v1/completions`)}, { method: 'POST', headers: { 'content-type': 'application/json' }, body: ${JSON.stringify(body)} })
    .then((r) => r.json()).then((j) => console.log(JSON.stringify(j.choices[0].text)))`;
  const [program, ...args] = [...wrap, process.execPath, '-e', script];
  const done = spawnSync(program ?? '', args, { timeout: 60_000 });
  expect(done.stderr.toString('utf8')).toBe('');
  return JSON.parse(done.stdout.toString('utf8')) as string;
}

it.skipIf(!possible)(
  'two hosts joined by a network answer like one host',
  { timeout: 180_000 },
  async () => {
    const [left, right] = hosts.hosts;
    if (left === undefined || right === undefined) throw new Error('two hosts were made');
    const model = testModel('llama');
    const elsewhere = join(directory, 'other-name.gguf');
    copyFileSync(model, elsewhere);

    const alone = new CoxProcess(
      ['up', model, '--port', '0', '--json', '--exact', '--kv-type', 'f32', '--threads', '1'],
      { wrap: left.wrap },
    );
    const expected = ask(left.wrap, (await alone.event('ready')).url);
    expect(await alone.stop()).toBe(0);

    const env = { COX_CLUSTER_TOKEN: TOKEN };
    const coordinator = new CoxProcess(
      [
        'coordinator',
        model,
        '--listen',
        `${left.address}:7070`,
        '--port',
        '0',
        '--ranks',
        '2',
        '--tp',
        '2',
        '--json',
        '--exact',
        '--kv-type',
        'f32',
        '--threads',
        '1',
      ],
      { wrap: left.wrap, env },
    );
    const join0 = ['rank', '--join', `${left.address}:7070`, '--json'];
    const ranks = [
      new CoxProcess([...join0, '--model', model, '--data-host', left.address], {
        wrap: left.wrap,
        env,
      }),
      new CoxProcess([...join0, '--model', elsewhere, '--data-host', right.address], {
        wrap: right.wrap,
        env,
      }),
    ];
    try {
      await Promise.all(ranks.map((rank) => rank.event('joined')));
      const { url } = await coordinator.event('ready');
      expect(ask(left.wrap, url)).toBe(expected);
    } finally {
      expect(await coordinator.stop()).toBe(0);
      for (const rank of ranks) expect(await rank.stop()).toBe(0);
    }
  },
);

it.skipIf(!possible)(
  'a rank with another token is refused and the cluster goes on waiting',
  { timeout: 90_000 },
  async () => {
    const [left, right] = hosts.hosts;
    if (left === undefined || right === undefined) throw new Error('two hosts were made');
    const model = testModel('llama');
    const coordinator = new CoxProcess(
      [
        'coordinator',
        model,
        '--listen',
        `${left.address}:7071`,
        '--port',
        '0',
        '--ranks',
        '1',
        '--json',
      ],
      { wrap: left.wrap, env: { COX_CLUSTER_TOKEN: TOKEN } },
    );
    const stranger = new CoxProcess(
      [
        'rank',
        '--join',
        `${left.address}:7071`,
        '--model',
        model,
        '--data-host',
        right.address,
        '--json',
      ],
      {
        wrap: right.wrap,
        env: { COX_CLUSTER_TOKEN: 'another-token-that-is-long-enough-too' },
      },
    );
    expect(await until(() => stranger.log.includes('AUTH_FAILED'), 60_000)).toBe(true);
    // It cannot know whether that was its coordinator, and goes on until its join timeout.
    expect(stranger.running).toBe(true);
    expect(coordinator.running).toBe(true);
    expect(await stranger.stop()).toBe(0);
    expect(await coordinator.stop()).toBe(0);
  },
);
