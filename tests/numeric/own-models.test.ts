// Our own tiny models (tests/vectors/own-models.mjs) against the double-precision reference: shapes, RoPE
// scalings and vocabularies that the oracle's catalogue lacks. Each on one rank and on one further
// topology, in rotation, so that odd head counts meet odd cuts.
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { present } from '../../src/base/assert.ts';
import type { Transport } from '../../src/base/transport.ts';
import type { Topology } from '../../src/engine/engine.ts';
import { idOf, Session, withCluster } from './driver.ts';
import { clearGreedyCount, expectPrompt, type OracleVectors } from './oracle-case.ts';

const VECTORS = join(import.meta.dirname, '../vectors/own');
const GENERATED = join(import.meta.dirname, '../.generated');
const NAMES = readdirSync(VECTORS)
  .filter((file) => file.endsWith('.json'))
  .map((file) => file.slice(0, -'.json'.length))
  .sort();

/** Test files run side by side: each makes its own copy, the last rename wins, all are equal. */
function ownModel(name: string): string {
  const path = join(GENERATED, `${name}.gguf`);
  if (existsSync(path)) return path;
  const scratch = join(GENERATED, `making-${process.pid}-${name}`);
  mkdirSync(scratch, { recursive: true });
  const script = join(VECTORS, '../own-models.mjs');
  const made = spawnSync(process.execPath, [script, '--out', scratch, name]);
  if (made.status !== 0) throw new Error(made.stderr.toString());
  renameSync(join(scratch, `${name}.gguf`), path);
  rmSync(scratch, { recursive: true });
  return path;
}

function ownVectors(name: string): OracleVectors {
  const { sample_ids, references } = JSON.parse(
    readFileSync(join(VECTORS, `${name}.json`), 'utf8'),
  );
  return { sampleIds: sample_ids, cases: references.native.cases };
}

const TOPOLOGIES: readonly Partial<Topology>[] = [
  { split: [1, 1] },
  { split: [1, 2, 1] },
  { split: [1], pp: 2 },
  { split: [2, 1], pp: 2 },
  { split: [2, 1] },
];
const TRANSPORTS: readonly Transport[] = ['tcp', 'shm'];

const cases = NAMES.flatMap((name, index) => {
  const wanted = present(TOPOLOGIES[index % TOPOLOGIES.length], 'a topology');
  // A model of one layer has no second stage.
  const topology = name === 'own-one-layer' ? { split: [1, 1] } : wanted;
  const transport = present(TRANSPORTS[index % TRANSPORTS.length], 'a transport');
  return [
    { name, topology: {}, transport: 'auto' as Transport, label: 'one rank' },
    { name, topology, transport, label: `${JSON.stringify(topology)} over ${transport}` },
  ];
});

describe('the logits of the double-precision reference', () => {
  it('are recorded for every model of the catalogue', async () => {
    const script = new URL('../vectors/own-models.mjs', import.meta.url).href;
    const { OWN_NAMES } = (await import(script)) as { OWN_NAMES: readonly string[] };
    expect(NAMES).toHaveLength(OWN_NAMES.length);
    expect(NAMES).toEqual(expect.arrayContaining([...OWN_NAMES]));
  });

  it.each(cases)('$name on $label', async ({ name, topology, transport }) => {
    const vectors = ownVectors(name);
    await withCluster({ model: ownModel(name), topology, transport }, async (cluster) => {
      for (const [slot, reference] of vectors.cases.entries()) {
        const { prompt, greedy } = reference;
        const tokensMax = prompt.length + greedy.tokens.length;
        const session = await Session.create(cluster, { slot, tokensMax });
        expectPrompt(reference, vectors.sampleIds, await session.feed(prompt));
        await session.truncate(prompt.length - 1);
        const last = present(prompt.at(-1), 'a prompt has tokens');
        const generated = await session.generate(last, greedy.tokens.length);
        const clear = clearGreedyCount(reference);
        expect(generated.map(idOf).slice(0, clear)).toEqual(greedy.tokens.slice(0, clear));
      }
    });
  });
});
